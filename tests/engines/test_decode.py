"""The decode loop on small random models of other kinds: windows of attention, absolute positions, recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from poise.engines.base import GenerationQuery
from poise.engines.decode import Writer
from poise.engines.generation import group_queries
from poise.prompts.text import Generation

pytestmark = pytest.mark.slow
VOCABULARY = 50
STOP = 7


def _model(kind: str) -> Any:
    import transformers as hf

    small = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    text = small | {"num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.4, "tie_word_embeddings": False}
    configs = {
        "llama": lambda: hf.LlamaConfig(**text, num_hidden_layers=2),
        "mistral": lambda: hf.MistralConfig(**text, num_hidden_layers=2, sliding_window=6),
        "gemma3": lambda: hf.Gemma3TextConfig(
            **text,
            num_hidden_layers=2,
            sliding_window=6,
            layer_types=["sliding_attention", "full_attention"],
            query_pre_attn_scalar=1,  # attention that matters, though the weights are random
        ),
        "gemma2": lambda: hf.Gemma2Config(**text, num_hidden_layers=2, sliding_window=6),
        "gpt2": lambda: hf.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, initializer_range=0.4),
        "qwen3_next": lambda: hf.Qwen3NextConfig(
            **text,
            num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"],
            linear_num_key_heads=2,
            linear_num_value_heads=2,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            num_experts=0,
            mlp_only_layers=[0, 1],
        ),
    }
    torch.manual_seed(0)
    config = configs[kind]()
    config.eos_token_id, config.pad_token_id, config.bos_token_id = STOP, 0, 1
    return hf.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager" if kind == "gemma2" else "sdpa"
    ).eval()


def _queries() -> list[GenerationQuery]:
    """Prompts with long, short and no prefix in common, some twice; texts of several lengths."""
    draw = np.random.default_rng(0)
    head = draw.integers(8, VOCABULARY, 60).tolist()
    prompts = [(*head, *draw.integers(8, VOCABULARY, n).tolist()) for n in (1, 9, 4, 6, 2, 3, 8, 5)]
    prompts += [tuple(draw.integers(8, VOCABULARY, n).tolist()) for n in (1, 3, 20, 11)]
    lengths = [12, 1, 5, 12]
    return [GenerationQuery(prompt, Generation(lengths[k % 4]), k) for k, prompt in enumerate([*prompts, *prompts[:3]])]


@torch.inference_mode()
def _theirs(model: Any, query: GenerationQuery) -> list[int]:
    ids = torch.tensor([query.prompt_ids])
    n = query.generation.max_new_tokens
    new = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, do_sample=False)
    found = new[0, ids.shape[1] :].tolist()
    return found[: found.index(STOP)] if STOP in found else found


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2", "gemma3", "gpt2", "qwen3_next"])
def test_every_kind_of_layer_writes_what_transformers_writes(kind: str) -> None:
    model = _model(kind)
    writer = Writer(model, [STOP])
    assert writer.shares_prefixes == (kind in ("llama", "gpt2"))
    queries = _queries()
    batches = group_queries(queries, 8, writer.shares_prefixes)
    assert any(batch.n_prefix > 0 for batch in batches) == writer.shares_prefixes
    found: dict[int, list[int]] = {}
    for batch in batches:
        found.update(zip(batch.members, writer.write([queries[k] for k in batch.members], batch.n_prefix), strict=True))
    expected = [_theirs(model, query) for query in queries]
    assert [found[k] for k in range(len(queries))] == expected
    assert len({len(ids) for ids in expected}) > 2


def test_a_stop_token_as_the_first_token_gives_no_text() -> None:
    model = _model("llama")
    query = _queries()[0]
    first = _theirs(model, query)[0]
    assert Writer(model, [first]).write([query], 0) == [[]]
