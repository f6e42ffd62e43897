"""What an engine is: it tokenises, scores label token sequences after a prompt, and writes text. Nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from poise.config.schema import Engine as EngineConfig
from poise.errors import PoiseError
from poise.prompts.text import Generation

TokenIds = tuple[int, ...]


@dataclass(frozen=True)
class Query:
    """A tokenised prompt and the label token sequences to score after it."""

    prompt_ids: TokenIds
    label_ids: tuple[TokenIds, ...]


@dataclass(frozen=True)
class LabelScores:
    """Answer to a query.

    Attributes
    ----------
    logprobs
        Natural log-probability of each label sequence given the prompt, over the full vocabulary: shape (n_labels,).
    greedy
        Label that greedy decoding would write, or -1 if it would write something else.
    """

    logprobs: np.ndarray
    greedy: int


@dataclass(frozen=True)
class GenerationQuery:
    """A tokenised prompt and how to go on from it.

    Attributes
    ----------
    prompt_ids
        Token ids of the prompt.
    generation
        Decoding.
    seed
        Seed of the random stream that this query alone samples from: 63 bits, made of the request's id.
    labels
        Label texts. Only the dummy engine knows them: a model writes what it likes.
    """

    prompt_ids: TokenIds
    generation: Generation
    seed: int
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Generated:
    """Text that a model wrote.

    Attributes
    ----------
    text
        The visible answer, without special tokens: what follows the thinking block, "" if that never ends.
    n_tokens
        New tokens, without the one that ends the text.
    n_hidden_tokens
        Those of them in the thinking block, its marks included; 0 for models that do not think.
    """

    text: str
    n_tokens: int
    n_hidden_tokens: int = 0


@dataclass(frozen=True)
class MicroBatch:
    """Queries that run together, after a prefix of ``n_prefix`` tokens that all of them share."""

    members: tuple[int, ...]
    n_prefix: int = 0


class Engine(Protocol):
    """The interface of all engines. ``synthetic`` engines measure nothing."""

    synthetic: bool

    def encode(self, text: str, special_tokens: bool = True) -> list[int]:
        """Token ids of a text; ``special_tokens`` adds what the model expects at the start of a prompt."""
        ...

    def chat_text(self, text: str) -> str:
        """Wrap one user turn in the model's chat template, up to where its answer starts."""
        ...

    def micro_batches(self, queries: Sequence[Query], regroup: bool = False) -> list[MicroBatch]:
        """Cut queries into the groups that run together: fixed by the list alone, never by time or by restarts.

        ``regroup`` cuts them otherwise, to measure how far numbers depend on the grouping (the numerical floor).
        """
        ...

    def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:
        """Score the members of one micro-batch. The numbers depend on them only, not on what was asked before."""
        ...

    def generation_batches(self, queries: Sequence[GenerationQuery], regroup: bool = False) -> list[MicroBatch]:
        """Cut queries into the groups that are written together, as ``micro_batches`` does."""
        ...

    def generate(self, queries: Sequence[GenerationQuery], batch: MicroBatch) -> list[Generated]:
        """Write the texts of one micro-batch. Each query samples from the stream of its own seed."""
        ...

    def description(self) -> dict[str, Any]:
        """Versions, device and settings, for the batch's metadata."""
        ...


def open_engine(
    config: EngineConfig,
    model_dir: Path,
    threads: int | None = None,
    chat_options: Mapping[str, bool | int | str] | None = None,
) -> Engine:
    """Load the engine that a study names. Heavy libraries are imported here and not before.

    ``chat_options`` are arguments of the model's chat template.
    """
    if config.kind == "dummy":
        from poise.engines.dummy import DummyEngine

        return DummyEngine(config)
    if config.kind == "transformers":
        from poise.engines.transformers import TransformersEngine

        return TransformersEngine(model_dir, config.dtype, config.pack_tokens, threads, chat_options)
    raise PoiseError(f"engine.kind: unknown engine {config.kind!r}")
