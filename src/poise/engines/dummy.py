"""A deterministic stand-in for tests, with planted biases. Its numbers are ``synthetic`` and measure nothing.

It reads a prompt as text. The score of label k is the sum of

- ``signal``, if the label is the right answer for a reader of words: its name (from the header's ``1: name``, or the
  label itself) is in the query; its passage names the class further in the direction asked; its place in a list holds
  the sentence that shares most words with the query;
- ``class_bias[k]``, a preference for the k-th label, whatever it means;
- ``position_bias``, if k labels the demonstration nearest the end of the prompt;
- ``noise`` times a Gaussian draw seeded by the prompt and the label.

The text that it writes is a label, whole: the one with the best score, or one drawn by the scores.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import log_softmax

from poise.config.engines import DummyConfig
from poise.engines.base import Generated, GenerationQuery, LabelScores, MicroBatch, Query
from poise.engines.generation import choose_token

LABEL_MASS = 0.9
MICRO_BATCH = 64


class DummyEngine:
    """Scores labels by planted rules; a token is a byte of UTF-8."""

    synthetic = True

    def __init__(self, config: DummyConfig) -> None:
        self.config = config
        self.n_computed_tokens = 0

    def encode(self, text: str, special_tokens: bool = True) -> list[int]:  # noqa: ARG002
        """Bytes of a text."""
        return list(text.encode())

    def chat_text(self, text: str) -> str:
        """Wrap one user turn."""
        return f"<user>{text}</user>\n"

    def micro_batches(self, queries: Sequence[Query], regroup: bool = False) -> list[MicroBatch]:
        """Fixed runs of queries, in the order given."""
        return _runs(len(queries), regroup)

    def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:
        """Score the members of one micro-batch."""
        self.n_computed_tokens += sum(len(queries[k].prompt_ids) for k in batch.members)
        return [self._score(queries[k]) for k in batch.members]

    def generation_batches(self, queries: Sequence[GenerationQuery], regroup: bool = False) -> list[MicroBatch]:
        """Fixed runs of queries, in the order given."""
        return _runs(len(queries), regroup)

    def generate(self, queries: Sequence[GenerationQuery], batch: MicroBatch) -> list[Generated]:
        """Write a label of each member of one micro-batch."""
        self.n_computed_tokens += sum(len(queries[k].prompt_ids) for k in batch.members)
        return [self._write(queries[k]) for k in batch.members]

    def description(self) -> dict[str, Any]:
        """Settings."""
        return {"engine": "dummy", "device": "none", "synthetic": True}

    def _score(self, query: Query) -> LabelScores:
        prompt = bytes(query.prompt_ids).decode(errors="replace")
        labels = [bytes(ids).decode(errors="replace") for ids in query.label_ids]
        biases = [*self.config.class_bias, *[0.0] * len(labels)][: len(labels)]
        logits = np.array(biases)
        logits += self.config.signal * np.array(_right(prompt, labels))
        last = [prompt.rfind(label + "\n") for label in labels]
        if max(last) >= 0:
            logits[int(np.argmax(last))] += self.config.position_bias
        logits += [self.config.noise * _gaussian(prompt, label) for label in labels]
        logprobs = log_softmax(logits) + np.log(LABEL_MASS)
        return LabelScores(logprobs, int(np.argmax(logprobs)))

    def _write(self, query: GenerationQuery) -> Generated:
        if not query.labels:
            return Generated("", 0)
        labels = tuple(tuple(self.encode(label)) for label in query.labels)
        scores = self._score(Query(query.prompt_ids, labels))
        k = choose_token(scores.logprobs, query.generation, np.random.default_rng(query.seed))
        return Generated(query.labels[k], len(labels[k]), ids=labels[k])


def _runs(n_queries: int, regroup: bool) -> list[MicroBatch]:
    size = MICRO_BATCH // 2 if regroup else MICRO_BATCH
    members = range(n_queries)
    return [MicroBatch(tuple(members[k : k + size])) for k in range(0, n_queries, size)]


def _right(prompt: str, labels: Sequence[str]) -> list[bool]:
    """Whether each label is what the query's words call for."""
    passages = re.findall(r"^Passage [AB]: (.*)$", prompt, re.MULTILINE)
    if len(passages) == 2:
        return _further(prompt, passages)
    if prompt.endswith("\nPosition:"):
        *listed, query = re.findall(r"^Sentence: (.*)$", prompt, re.MULTILINE)
        shared = [len(_words(item) & _words(query)) for item in listed]
        return [n == max(shared) for n in shared]
    passage = re.search(r"^New passage: (.*)$", prompt, re.MULTILINE)
    content = passage[1] if passage else _open_block(prompt)
    return [_mentions(content, _meaning(prompt, label)) for label in labels]


def _further(prompt: str, passages: Sequence[str]) -> list[bool]:
    """Whether each passage names a class further in the direction asked than the other's."""
    classes = re.findall("'(.*?)'", prompt.split("\nPassage")[0])  # the instruction lists them, lowest first
    asked = re.search(r"^Which Passage is more (.+?) in terms of", prompt, re.MULTILINE)
    named = [[name for name in classes if _mentions(passage, name)] for passage in passages]
    if asked is None or not all(named):
        return [False, False]
    places = [classes.index(max(found, key=len)) for found in named]
    end = min(places) if not _mentions(classes[0], asked[1]) else max(places)
    return [place != end for place in places]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _open_block(prompt: str) -> str:
    """The line of the text whose label is still missing: above the line of its cue, or with the cue at its end."""
    lines = [line.strip() for line in prompt.split("\n")]
    cue = lines[-1]
    above = lines[max(lines.index(cue) - 1, 0)]
    return above or next(line for line in lines if line.endswith(cue))


def _meaning(prompt: str, label: str) -> str:
    name = re.search(rf"[\[ ]{re.escape(label.strip())}: ([^,\]\n]+)", prompt)
    return name[1] if name else label.strip()


def _mentions(content: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", content) is not None


def _gaussian(prompt: str, label: str) -> float:
    seed = int.from_bytes(hashlib.sha256(f"{label}\0{prompt}".encode()).digest()[:8], "big")
    return float(np.random.default_rng(seed).standard_normal())
