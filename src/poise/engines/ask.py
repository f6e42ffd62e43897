"""Asking an engine a list of requests: tokenise, drop demonstrations that do not fit, answer, flush, resume."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import numpy as np
import pandas as pd
from tqdm import tqdm

from poise.engines.base import Engine, Generated, GenerationQuery, LabelScores, MicroBatch, Query
from poise.engines.labels import LabelSpace, label_space, label_token_ids
from poise.engines.located import LabelForm, Place, label_forms, locate
from poise.engines.store import Answer, PartStore
from poise.errors import PoiseError
from poise.hashing import digest
from poise.prompts.text import PromptText, Request

_SCORES = ("logprobs", "label_mass", "greedy")


@dataclass(frozen=True)
class Tokenised:
    """A request as an engine takes it.

    Attributes
    ----------
    query
        Token ids, and what is wanted: scores or a text.
    space
        How the label sequences pool into labels; None if a text is wanted.
    n_dropped
        Demonstrations left out because the prompt was longer than the context.
    joint
        Whether every label was tokenised together with the prompt's end.
    forms
        Labels to look for in the text, and to score there; none if the text is the answer.
    """

    query: Query | GenerationQuery
    space: LabelSpace | None
    n_dropped: int
    joint: bool
    forms: tuple[LabelForm, ...] = ()


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
        If the query alone does not fit, or labels to score cannot be told apart.
    """
    spaces: dict[tuple[str, tuple[str, ...]], tuple[LabelSpace, bool]] = {}
    forms: dict[tuple[str, ...], tuple[LabelForm, ...]] = {}
    found = []
    for request in requests:
        prompt, how = request.prompt, request.generation
        n_dropped = 0
        if request.located and request.labels not in forms:
            forms[request.labels] = label_forms(engine.encode, request.labels, scoring, where)
        looked_for = forms[request.labels] if request.located else ()
        while True:
            text = engine.chat_text(prompt.text) if request.chat else prompt.text
            ids = tuple(engine.encode(text, not request.chat))
            if how is not None:
                seed = int(request.id, 16) >> 1  # 63 bits: servers take a signed 64-bit seed
                writing = GenerationQuery(ids, how, seed, request.labels, text)
                item = Tokenised(writing, None, n_dropped, True, looked_for)
                n_more = how.max_new_tokens + max((len(s) for f in looked_for for s in f.space.sequences), default=0)
            else:
                key = (last_line(text), request.labels)
                if key not in spaces:
                    spaces[key] = tokenised_labels(engine.encode, *key, scoring, where)
                space, joint = spaces[key]
                item = Tokenised(Query(ids, space.sequences, text, request.labels), space, n_dropped, joint)
                n_more = max(map(len, space.sequences))
            if len(ids) + n_more <= context_length:
                break
            prompt, n_dropped = _shorter(prompt, len(ids), n_more, context_length, where), n_dropped + 1
        found.append(item)
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
    """Answer all requests in their fixed micro-batches; resume from what an earlier run flushed.

    Labels that are to be located are scored after all texts are written: where the last label of the text starts, and
    after it. What is flushed goes into ``parts`` (scores) and, beside it, ``{parts}-text`` and ``{parts}-located``.

    Returns
    -------
    Asked
        ``responses`` has one row a request, in the order given: ``request`` (id); of scores ``logprobs`` (float32 list,
        nats, one a label; null where a server did not tell all), ``label_mass`` (probability that any label follows),
        ``greedy`` (label that greedy decoding writes, or -1), which are null, NaN and -1 for texts; of texts ``text``
        (the visible answer, unparsed), ``n_tokens`` (new tokens; of scores only a server's), ``n_hidden_tokens`` (those
        in the thinking block), which are null for scores; ``prompt_tokens`` (a server's count where it tells one),
        ``dropped_demonstrations``; of texts with located labels also ``logprobs``, ``label_mass`` and ``greedy`` where
        the label starts, ``logprobs_after`` (those after it), ``matched`` (whether the text holds a label), which are
        null for all else, and where a server tells texts only.
    """
    scored = {
        k: (item.query, item.space)
        for k, item in enumerate(tokenised)
        if isinstance(item.query, Query) and item.space is not None
    }
    written = {k: item.query for k, item in enumerate(tokenised) if isinstance(item.query, GenerationQuery)}
    queries, prompts = [query for query, _ in scored.values()], list(written.values())
    score_batches = engine.micro_batches(queries, regroup) if queries else []
    text_batches = engine.generation_batches(prompts, regroup) if prompts else []
    to_score = _Work([requests[k].id for k in scored], score_batches, parts, LabelScores)
    to_write = _Work([requests[k].id for k in written], text_batches, parts.with_name(f"{parts.name}-text"), Generated)
    n_resumed = to_score.n_resumed + to_write.n_resumed
    n_computed_tokens = engine.n_computed_tokens
    started = clock()
    seconds_between = 0.5 if sys.stderr.isatty() else 10.0  # log files need fewer updates
    with tqdm(
        total=len(requests),
        initial=n_resumed,
        desc=label,
        unit="prompt",
        smoothing=0.05,
        mininterval=seconds_between,
    ) as bar:
        scores = to_score.run(lambda batch: engine.score(queries, batch), bar, flush_seconds, clock)
        texts = to_write.run(lambda batch: engine.generate(prompts, batch), bar, flush_seconds, clock)
        located = _located(tokenised, dict(zip(written, texts, strict=True)))
        places = [query for pair in located.values() for query in pair.queries]
        place_batches = engine.micro_batches(places, regroup) if places else []
        where_to = [digest([requests[k].id, query.prompt_ids]) for k, pair in located.items() for query in pair.queries]
        to_locate = _Work(where_to, place_batches, parts.with_name(f"{parts.name}-located"), LabelScores)
        bar.total += len(places)
        bar.update(to_locate.n_resumed)
        after = to_locate.run(lambda batch: engine.score(places, batch), bar, flush_seconds, clock)
    rows: list[dict[str, Any]] = [{}] * len(requests)
    for (k, (_, space)), answer in zip(scored.items(), scores, strict=True):
        rows[k] = _scored_row(requests[k].id, space, answer)
    for k, text in zip(written, texts, strict=True):
        rows[k] = _written_row(text)
    for (k, pair), at_label, behind in zip(located.items(), after[::2], after[1::2], strict=True):
        space = pair.place.form.space
        scores_there = {key: _scored_row(requests[k].id, space, at_label)[key] for key in _SCORES}
        logprobs_after = _scored_row(requests[k].id, space, behind)["logprobs"]
        rows[k] |= {**scores_there, "logprobs_after": logprobs_after, "matched": pair.place.matched}
    counted = [row["prompt_tokens"] or len(item.query.prompt_ids) for row, item in zip(rows, tokenised, strict=True)]
    responses = pd.DataFrame(
        {
            "request": [request.id for request in requests],
            "logprobs": pd.Series([row["logprobs"] for row in rows], dtype=object),
            "label_mass": np.array([row["label_mass"] for row in rows], dtype=np.float32),
            "greedy": np.array([row["greedy"] for row in rows], dtype=np.int16),
            "text": pd.array([row["text"] for row in rows], dtype="string"),
            "n_tokens": pd.array([row["n_tokens"] for row in rows], dtype="Int32"),
            "n_hidden_tokens": pd.array([row["n_hidden_tokens"] for row in rows], dtype="Int32"),
            "prompt_tokens": np.array(counted, dtype=np.int32),
            "dropped_demonstrations": np.array([item.n_dropped for item in tokenised], dtype=np.int16),
            "logprobs_after": pd.Series([row.get("logprobs_after") for row in rows], dtype=object),
            "matched": pd.array([row.get("matched") for row in rows], dtype="boolean"),
        }
    )
    return Asked(
        responses=responses,
        n_resumed=n_resumed,
        n_damaged_parts=sum(work.store.n_damaged for work in (to_score, to_write, to_locate)),
        n_micro_batches=len(score_batches) + len(text_batches) + len(place_batches),
        n_computed_tokens=engine.n_computed_tokens - n_computed_tokens,
        seconds=clock() - started,
    )


@dataclass(frozen=True)
class _Located:
    """Where the labels of one text are scored: at the place of the last one, and after it."""

    place: Place
    queries: tuple[Query, Query]


def _located(tokenised: Sequence[Tokenised], texts: Mapping[int, Generated]) -> dict[int, _Located]:
    """Find the labels in the texts that want it; engines that tell texts only have no tokens to look in."""
    found = {}
    for k, text in texts.items():
        item, ids = tokenised[k], tuple(int(token) for token in text.ids)  # parts on disk hold arrays
        if not item.forms or (text.text and not ids):
            continue
        place = locate(ids, item.forms)
        prompt, labels = item.query.prompt_ids, item.query.labels
        at_label, behind = (
            Query((*prompt, *ids[:end]), place.form.space.sequences, labels=labels) for end in (place.start, place.end)
        )
        found[k] = _Located(place, (at_label, behind))
    return found


class _Work(Generic[Answer]):
    """Requests that want the same kind of answer, in their micro-batches, with the parts that hold what is done."""

    def __init__(self, ids: Sequence[str], batches: Sequence[MicroBatch], parts: Path, kind: type[Answer]) -> None:
        self.batches = batches
        self.store: PartStore[Answer] = PartStore(
            parts, digest([ids, [[b.members, b.n_prefix] for b in batches]]), kind
        )
        self.n_resumed = sum(len(batches[k].members) for k in self.store.answers)

    def run(
        self,
        answer: Callable[[MicroBatch], list[Answer]],
        bar: Any,
        flush_seconds: float,
        clock: Callable[[], float],
    ) -> list[Answer]:
        """Do what is left; return all answers in the order of the requests."""
        flushed = clock()
        pending: dict[int, list[Answer]] = {}
        try:
            for k in [k for k in range(len(self.batches)) if k not in self.store.answers]:
                pending[k] = answer(self.batches[k])
                bar.update(len(self.batches[k].members))
                if clock() - flushed >= flush_seconds:
                    self.store.write(pending)
                    pending, flushed = {}, clock()
        finally:  # whatever ended it: an error, a signal
            if pending:
                self.store.write(pending)
        found: dict[int, Answer] = {}
        for k, batch in enumerate(self.batches):
            found.update(zip(batch.members, self.store.answers[k], strict=True))
        return [found[k] for k in range(len(found))]


def _scored_row(request: str, space: LabelSpace, scores: LabelScores) -> dict[str, Any]:
    pooled = space.pool(scores)
    told = not np.isnan(scores.logprobs).all()
    if told and not np.isfinite(pooled.logprobs).all():
        raise PoiseError(
            f"request {request}: the engine gave no finite log-probability for a label: {pooled.logprobs.tolist()}"
        )
    return {
        "logprobs": pooled.logprobs.astype(np.float32) if told else None,
        "label_mass": np.exp(scores.logprobs).sum(),
        "greedy": pooled.greedy,
        "text": None,
        "n_tokens": scores.n_tokens or None,
        "n_hidden_tokens": None,
        "prompt_tokens": scores.n_prompt_tokens,
    }


def _written_row(answer: Generated) -> dict[str, Any]:
    return {
        "logprobs": None,
        "label_mass": np.nan,
        "greedy": -1,
        "text": answer.text,
        "n_tokens": answer.n_tokens,
        "n_hidden_tokens": answer.n_hidden_tokens,
        "prompt_tokens": answer.n_prompt_tokens,
    }


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


def _shorter(prompt: PromptText, n_tokens: int, n_more: int, context_length: int, where: str) -> PromptText:
    if prompt.n_demonstrations == 0:
        raise PoiseError(
            f"{where}: a prompt without any demonstration has {n_tokens} tokens, more than fit before {n_more} of "
            f"answer into the context of {context_length}; shorten the texts (max_words of the data set) or take a "
            f"model with a longer context"
        )
    return prompt.drop_demonstration()
