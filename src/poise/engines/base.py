"""What an engine is: it tokenises, scores label token sequences after a prompt, and writes text. Nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from poise.config.engines import EngineConfig
from poise.config.models import Model
from poise.prompts.text import Generation

TokenIds = tuple[int, ...]


@dataclass(frozen=True)
class Query:
    """A tokenised prompt and the label token sequences to score after it.

    Attributes
    ----------
    prompt_ids
        Token ids of the prompt.
    label_ids
        Token sequences to score.
    text, labels
        Prompt and label texts, for engines that send texts and know no tokens.
    """

    prompt_ids: TokenIds
    label_ids: tuple[TokenIds, ...]
    text: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelScores:
    """Answer to a query.

    Attributes
    ----------
    logprobs
        Natural log-probability of each label sequence given the prompt, over the full vocabulary: shape (n_labels,).
        All NaN where a server did not tell all of them: then ``greedy`` is the whole answer.
    greedy
        Label that greedy decoding would write, or -1 if it would write something else.
    n_prompt_tokens, n_tokens
        Tokens that a server counted, read and written; 0 where no server was asked.
    """

    logprobs: np.ndarray
    greedy: int
    n_prompt_tokens: int = 0
    n_tokens: int = 0


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
    text
        The prompt's text, for engines that send texts and know no tokens.
    """

    prompt_ids: TokenIds
    generation: Generation
    seed: int
    labels: tuple[str, ...] = ()
    text: str = ""


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
    n_prompt_tokens
        Prompt tokens that a server counted; 0 where no server was asked.
    ids
        The new tokens themselves, hidden ones too; empty where a server tells texts only.
    """

    text: str
    n_tokens: int
    n_hidden_tokens: int = 0
    n_prompt_tokens: int = 0
    ids: TokenIds = field(default=(), compare=False)


@dataclass(frozen=True)
class MicroBatch:
    """Queries that run together, after a prefix of ``n_prefix`` tokens that all of them share."""

    members: tuple[int, ...]
    n_prefix: int = 0


class Engine(Protocol):
    """The interface of all engines. ``synthetic`` engines measure nothing."""

    synthetic: bool

    @property
    def n_computed_tokens(self) -> int:
        """Prompt tokens computed so far: what prompts share counts once."""
        ...

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


def open_engine(config: EngineConfig, model: Model, model_dir: Path, threads: int | None = None) -> Engine:
    """Load the engine that a study names. Heavy libraries are imported here and not before.

    Parameters
    ----------
    config
        The engine.
    model
        The model and its conventions.
    model_dir
        Folder of its weights; not read for models behind an API.
    threads
        CPU threads; all cores if not given.
    """
    if config.kind == "dummy":
        from poise.engines.dummy import DummyEngine

        return DummyEngine(config)
    if config.kind == "vllm":
        from poise.engines.vllm import VLLMEngine

        return VLLMEngine(config, model, model_dir, threads)
    if config.kind == "openai":
        from poise.engines.openai import OpenAIEngine

        return OpenAIEngine(config, model)
    from poise.engines.transformers import TransformersEngine

    return TransformersEngine(model_dir, config.dtype, config.pack_tokens, threads, model.chat_options)
