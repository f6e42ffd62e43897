"""GGUF files become plain safetensors folders, once, through transformers' own reader."""

from __future__ import annotations

import struct
from pathlib import Path

from poise.errors import PoiseError


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Dequantise a GGUF model to float32 and save it with its tokenizer in ``folder``.

    The weights keep the precision that quantisation left them; only their format changes.
    """
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        add_bos = GGUFReader(gguf).get_field("tokenizer.ggml.add_bos_token")
    except (OSError, ValueError, KeyError, IndexError, struct.error) as error:
        raise PoiseError(f"{gguf.name}: not a readable GGUF model: {' '.join(str(error).split())[:200]}") from error
    # transformers' reader ignores whether texts start with the BOS token. Without it Gemma does not work.
    starts = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    if add_bos is not None and bool(add_bos.contents()) != starts:
        tokenizer.add_bos_token = not starts
    # transformers refuses to save what it still takes for a quantised model.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model, "quantization_method"):
        del model.quantization_method
    model.config._name_or_path = ""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
