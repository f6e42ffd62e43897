"""Engines: what answers requests. One model for each kind; only what affects answers enters digests.

Grouping, memory and speed stay out of digests: how far they move numbers is the numerical floor, which every study
measures.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from poise.config.base import Strict

Dtype = Literal["float32", "bfloat16", "float16"]


class _Engine(Strict):
    flush_seconds: float = Field(default=5.0, gt=0)
    batch_requests: int = Field(default=20000, gt=0)
    batch_minutes: int = Field(default=120, gt=0)

    def context_length(self, of_model: int) -> int:
        """Tokens that a prompt and its answer may have, given what the model can take."""
        return of_model


class TransformersConfig(_Engine):
    """A local model through transformers."""

    kind: Literal["transformers"] = "transformers"
    dtype: Dtype = "float32"
    pack_tokens: int = Field(default=512, gt=0)


class VLLMConfig(_Engine):
    """A local model through vLLM, on GPUs or, with the CPU wheel, on a CPU."""

    kind: Literal["vllm"] = "vllm"
    dtype: Dtype = "bfloat16"
    quantization: str | None = None
    batch_invariant: bool = False
    eager: bool = False
    max_length: int | None = Field(default=None, gt=0)
    tensor_parallel: int = Field(default=1, gt=0)
    memory_share: float = Field(default=0.9, gt=0, le=1)
    cpu_cache_gib: int = Field(default=2, gt=0)
    max_sequences: int = Field(default=256, gt=0)
    max_batched_tokens: int | None = Field(default=None, gt=0)
    call_requests: int = Field(default=2048, gt=0)

    def context_length(self, of_model: int) -> int:
        """Tokens that a prompt and its answer may have: memory may be reserved for fewer than the model can take."""
        return min(of_model, self.max_length or of_model)


class OpenAIConfig(_Engine):
    """Any server that speaks OpenAI's protocol: of a provider, or one's own."""

    kind: Literal["openai"] = "openai"
    base_url: str
    key_variable: str | None = None
    top_logprobs: int = Field(default=20, ge=0)
    concurrency: int = Field(default=8, gt=0)
    requests_per_minute: int | None = Field(default=None, gt=0)
    max_retries: int = Field(default=20, ge=0)
    timeout_seconds: float = Field(default=120.0, gt=0)


class DummyConfig(_Engine):
    """A stand-in for tests, with planted answers."""

    kind: Literal["dummy"] = "dummy"
    signal: float = 0.0
    class_bias: list[float] = []
    position_bias: float = 0.0
    noise: float = 0.0


EngineConfig = Annotated[TransformersConfig | VLLMConfig | OpenAIConfig | DummyConfig, Field(discriminator="kind")]
