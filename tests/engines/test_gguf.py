"""Conversion of a GGUF file: a tiny Gemma 3, written here, with weights and a tokenizer that are known."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers

from poise.engines.gguf import convert_gguf

N_LAYERS, HIDDEN, HEAD, INNER = 6, 32, 8, 48
WORDS = ["a", "b", "ab", "▁", "▁a", "▁ab"]
TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{k:02X}>" for k in range(256)), *WORDS]
TYPES = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.UNKNOWN]
TYPES += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * len(WORDS)


def _tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    found = {"token_embd.weight": draw(len(TOKENS), HIDDEN), "output_norm.weight": draw(HIDDEN)}
    for k in range(N_LAYERS):
        shapes = {
            "attn_q": (2 * HEAD, HIDDEN), "attn_k": (HEAD, HIDDEN), "attn_v": (HEAD, HIDDEN),
            "attn_output": (HIDDEN, 2 * HEAD), "attn_q_norm": (HEAD,), "attn_k_norm": (HEAD,), "attn_norm": (HIDDEN,),
            "post_attention_norm": (HIDDEN,), "ffn_norm": (HIDDEN,), "post_ffw_norm": (HIDDEN,),
            "ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN), "ffn_down": (HIDDEN, INNER),
        }  # fmt: skip
        found |= {f"blk.{k}.{name}.weight": draw(*shape) for name, shape in shapes.items()}
    return found


def _write(path: Path, add_bos: bool | None) -> None:
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_context_length(64)
    writer.add_block_count(N_LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(500000.0)
    writer.add_sliding_window(16)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.0] * 260 + [-float(k) for k in range(len(WORDS))])
    writer.add_token_types(TYPES)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_space_prefix(False)
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)
    for name, values in _tensors().items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(("add_bos", "expected"), [(True, [2, 262]), (False, [262]), (None, [262])])
def test_the_bos_token_is_added_once_if_the_file_says_so(tmp_path: Path, add_bos: bool | None, expected) -> None:
    _write(tmp_path / "toy.gguf", add_bos)
    convert_gguf(tmp_path / "toy.gguf", tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer("ab")["input_ids"] == expected
    assert tokenizer("ab", add_special_tokens=False)["input_ids"] == [262]
    assert tokenizer(" ab", add_special_tokens=False)["input_ids"] == [265]


def test_gemma_weights_arrive_where_they_belong(tmp_path: Path) -> None:
    _write(tmp_path / "toy.gguf", True)
    convert_gguf(tmp_path / "toy.gguf", tmp_path / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    names = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
        "attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
        "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    found = model.state_dict()
    for name, values in _tensors().items():
        first, *rest = name.split(".")
        target = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}.get(first)
        target = target or f"model.layers.{rest[0]}.{names[rest[1]]}"
        # GGUF keeps the factor that a norm multiplies by, Gemma the same less one.
        expected = values - 1 if "norm" in name else values
        np.testing.assert_allclose(found[f"{target}.weight"].numpy(), expected, atol=1e-6, err_msg=name)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    config = model.config
    assert config.layer_types == ["sliding_attention"] * 5 + ["full_attention"]
    assert config.sliding_window == 16
    assert config.rope_parameters["full_attention"]["rope_theta"] == 500000.0
    assert config.rope_parameters["sliding_attention"]["rope_theta"] == 10000.0  # the file does not say; Gemma 3's own
