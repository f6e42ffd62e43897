"""Asking an engine a list of requests: tokenise, drop demonstrations that do not fit, score, flush, resume."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from poise.engines.base import Engine, LabelScores, Query
from poise.engines.labels import LabelSpace, label_space, label_token_ids
from poise.engines.packing import computed_tokens
from poise.engines.store import PartStore
from poise.errors import PoiseError
from poise.hashing import digest
from poise.prompts.text import PromptText, Request


@dataclass(frozen=True)
class Tokenised:
    """A request as an engine takes it.

    Attributes
    ----------
    query
        Token ids.
    space
        How the label sequences pool into labels.
    n_dropped
        Demonstrations left out because the prompt was longer than the context.
    joint
        Whether every label was tokenised together with the prompt's end.
    """

    query: Query
    space: LabelSpace
    n_dropped: int
    joint: bool


@dataclass(frozen=True)
class Asked:
    """Answers with the counts that go into the batch's metadata."""

    responses: pd.DataFrame
    n_resumed: int
    n_damaged_parts: int
    n_micro_batches: int
    n_computed_tokens: int
    seconds: float


def tokenise(
    engine: Engine, requests: Sequence[Request], scoring: str, context_length: int, where: str
) -> list[Tokenised]:
    """Tokenise requests, dropping whole demonstrations from those that are too long.

    Raises
    ------
    PoiseError
        If the query alone does not fit, or the labels cannot be told apart.
    """
    spaces: dict[tuple[str, tuple[str, ...]], tuple[LabelSpace, bool]] = {}
    found = []
    for request in requests:
        prompt = request.prompt
        n_dropped = 0
        while True:
            text = engine.chat_text(prompt.text) if request.chat else prompt.text
            key = (last_line(text), request.labels)
            if key not in spaces:
                spaces[key] = tokenised_labels(engine.encode, *key, scoring, where)
            space, joint = spaces[key]
            ids = engine.encode(text, not request.chat)
            if len(ids) + max(map(len, space.sequences)) <= context_length:
                break
            prompt, n_dropped = _shorter(prompt, len(ids), context_length, where), n_dropped + 1
        found.append(Tokenised(Query(tuple(ids), space.sequences), space, n_dropped, joint))
    return found


def ask(
    engine: Engine,
    requests: Sequence[Request],
    tokenised: Sequence[Tokenised],
    parts: Path,
    flush_seconds: float,
    label: str,
    regroup: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Asked:
    """Score all requests in their fixed micro-batches; resume from what an earlier run flushed into ``parts``.

    Returns
    -------
    Asked
        ``responses`` has one row a request, in the order given: ``request`` (id), ``logprobs`` (float32 list, nats, one
        a label), ``label_mass`` (probability that any label follows), ``greedy`` (label that greedy decoding writes, or
        -1), ``prompt_tokens``, ``dropped_demonstrations``.
    """
    queries = [item.query for item in tokenised]
    batches = engine.micro_batches(queries, regroup)
    store = PartStore(parts, digest([[request.id for request in requests], [[b.members, b.n_prefix] for b in batches]]))
    todo = [k for k in range(len(batches)) if k not in store.scores]
    n_resumed = sum(len(batches[k].members) for k in store.scores)
    started = flushed = clock()
    pending: dict[int, list[LabelScores]] = {}
    seconds_between = 0.5 if sys.stderr.isatty() else 10.0  # log files need fewer updates
    with tqdm(
        total=len(requests),
        initial=n_resumed,
        desc=label,
        unit="prompt",
        smoothing=0.05,
        mininterval=seconds_between,
    ) as bar:
        for k in todo:
            pending[k] = engine.score(queries, batches[k])
            bar.update(len(batches[k].members))
            if clock() - flushed >= flush_seconds:
                store.write(pending)
                pending, flushed = {}, clock()
        if pending:
            store.write(pending)
    scores: dict[int, LabelScores] = {}
    for k, batch in enumerate(batches):
        scores.update(zip(batch.members, store.scores[k], strict=True))
    pooled = [item.space.pool(scores[k]) for k, item in enumerate(tokenised)]
    mass = [np.exp(scores[k].logprobs).sum() for k in range(len(requests))]
    for request, answer in zip(requests, pooled, strict=True):
        _require_finite(answer.logprobs, request.id)
    responses = pd.DataFrame(
        {
            "request": [request.id for request in requests],
            "logprobs": [answer.logprobs.astype(np.float32) for answer in pooled],
            "label_mass": np.array(mass, dtype=np.float32),
            "greedy": np.array([answer.greedy for answer in pooled], dtype=np.int16),
            "prompt_tokens": np.array([len(query.prompt_ids) for query in queries], dtype=np.int32),
            "dropped_demonstrations": np.array([item.n_dropped for item in tokenised], dtype=np.int16),
        }
    )
    return Asked(
        responses=responses,
        n_resumed=n_resumed,
        n_damaged_parts=store.n_damaged,
        n_micro_batches=len(batches),
        n_computed_tokens=computed_tokens(queries, batches),
        seconds=clock() - started,
    )


def tokenised_labels(
    encode: Callable[[str, bool], list[int]], tail: str, labels: Sequence[str], scoring: str, where: str
) -> tuple[LabelSpace, bool]:
    """Token sequences of labels after a prompt that ends in ``tail``, and whether all were encoded jointly with it."""
    encoded = [label_token_ids(encode, tail, label) for label in labels]
    space = label_space(labels, [ids for ids, _ in encoded], scoring, where)
    return space, all(joint for _, joint in encoded)


def last_line(text: str) -> str:
    """Return the end of a prompt that its label is tokenised with."""
    return text[text.rfind("\n") + 1 :] or text


def _shorter(prompt: PromptText, n_tokens: int, context_length: int, where: str) -> PromptText:
    if prompt.n_demonstrations == 0:
        raise PoiseError(
            f"{where}: a prompt without any demonstration has {n_tokens} tokens, more than the context of "
            f"{context_length}; shorten the texts (max_words of the data set) or take a model with a longer context"
        )
    return prompt.drop_demonstration()


def _require_finite(logprobs: np.ndarray, request: str) -> None:
    if not np.isfinite(logprobs).all():
        raise PoiseError(
            f"request {request}: the engine gave no finite log-probability for a label: {logprobs.tolist()}"
        )
