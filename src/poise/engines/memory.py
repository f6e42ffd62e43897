"""Running out of memory: which errors say so, and which setting then helps. Light: no engine is imported here."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Literal

from poise.config.engines import EngineConfig

Doing = Literal["loading", "asking"]

# What libraries write in lower case, and how sure it is that memory was the cause.
_SURE = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "cublas_status_alloc_failed",
    "less than desired gpu memory utilization",
    "less than requested memory for kv",
)
_CACHE = ("no available memory for the cache blocks", "larger than the available kv cache memory")
_UNSURE = ("enginecore encountered an issue", "engine core initialization failed")

_NEW = "that makes it another batch"
_ADVICE = {
    ("transformers", "loading"): f"take a device with more memory, or engine.dtype=bfloat16 ({_NEW})",
    ("transformers", "asking"): (
        "lower engine.pack_tokens (now {pack_tokens}; under another value the batch starts anew)"
    ),
    ("vllm", "loading"): (
        "on a GPU raise engine.tensor_parallel (now {tensor_parallel}) or, if others use it too, lower "
        "engine.memory_share (now {memory_share}); on a CPU lower engine.cpu_cache_gib (now {cpu_cache_gib})"
    ),
    ("vllm", "cache"): (
        "on a GPU raise engine.memory_share (now {memory_share}) or engine.tensor_parallel (now {tensor_parallel}), on "
        "a CPU engine.cpu_cache_gib (now {cpu_cache_gib}); or lower engine.max_length (now {max_length}; "
        f"{_NEW})"
    ),
    ("vllm", "asking"): (
        "lower engine.max_sequences (now {max_sequences}), on a GPU engine.memory_share (now {memory_share}), on a CPU "
        "engine.cpu_cache_gib (now {cpu_cache_gib})"
    ),
    ("openai", "asking"): "lower engine.concurrency (now {concurrency})",
}


def memory_error(error: BaseException) -> str | None:
    """What went wrong, in words, if an error or one of its causes is about memory; otherwise None."""
    for cause in _causes(error):
        text = str(cause).lower()
        if isinstance(cause, MemoryError) or type(cause).__name__ == "OutOfMemoryError":
            return "out of memory"
        if isinstance(cause, OSError) and cause.errno == errno.ENOMEM:
            return "out of memory"
        if any(sign in text for sign in _CACHE):
            return "no memory is left for keys and values"
        if any(sign in text for sign in _SURE):
            return "out of memory"
        if any(sign in text for sign in _UNSURE):
            return "vLLM's engine died, often because it is out of memory (the log has its reason),"
    return None


def memory_advice(config: EngineConfig, doing: Doing, error: BaseException | None = None) -> str:
    """Setting to change when memory ran out: where the engine was, and what it raised if it could."""
    cache = any(sign in str(cause).lower() for cause in _causes(error) for sign in _CACHE)
    advice = _ADVICE.get((config.kind, "cache" if cache else doing), "free some memory of this machine")
    return advice.format(**config.model_dump())


def grouping(config: EngineConfig) -> dict[str, int]:
    """Settings that cut requests into micro-batches: answers flushed under others are asked anew."""
    names = {"transformers": ("pack_tokens",), "vllm": ("call_requests",)}.get(config.kind, ())
    return {name: getattr(config, name) for name in names}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
