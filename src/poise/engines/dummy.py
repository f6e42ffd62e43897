"""A deterministic stand-in for tests, with planted biases. Its numbers are ``synthetic`` and measure nothing.

It reads a prompt as text. The score of label k is the sum of

- ``signal``, if the open query block contains the label's name (from the header's ``1: name``, or the label itself);
- ``class_bias[k]``, a preference for the k-th label, whatever it means;
- ``position_bias``, if k labels the demonstration nearest the end of the prompt;
- ``noise`` times a Gaussian draw seeded by the prompt and the label.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import log_softmax

from poise.config.schema import Engine as EngineConfig
from poise.engines.base import LabelScores, MicroBatch, Query

LABEL_MASS = 0.9
MICRO_BATCH = 64


class DummyEngine:
    """Scores labels by planted rules; a token is a byte of UTF-8."""

    synthetic = True

    def __init__(self, config: EngineConfig) -> None:
        self.config = config

    def encode(self, text: str, special_tokens: bool = True) -> list[int]:  # noqa: ARG002
        """Bytes of a text."""
        return list(text.encode())

    def chat_text(self, text: str) -> str:
        """Wrap one user turn."""
        return f"<user>{text}</user>\n"

    def micro_batches(self, queries: Sequence[Query], regroup: bool = False) -> list[MicroBatch]:
        """Fixed runs of queries, in the order given."""
        size = MICRO_BATCH // 2 if regroup else MICRO_BATCH
        members = range(len(queries))
        return [MicroBatch(tuple(members[k : k + size])) for k in range(0, len(queries), size)]

    def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:
        """Score the members of one micro-batch."""
        return [self._score(queries[k]) for k in batch.members]

    def description(self) -> dict[str, Any]:
        """Settings."""
        return {"engine": "dummy", "device": "none", "synthetic": True}

    def _score(self, query: Query) -> LabelScores:
        prompt = bytes(query.prompt_ids).decode(errors="replace")
        labels = [bytes(ids).decode(errors="replace") for ids in query.label_ids]
        biases = [*self.config.class_bias, *[0.0] * len(labels)][: len(labels)]
        logits = np.array(biases)
        content = _open_block(prompt)
        logits += [self.config.signal * _mentions(content, _meaning(prompt, label)) for label in labels]
        last = [prompt.rfind(label + "\n") for label in labels]
        if max(last) >= 0:
            logits[int(np.argmax(last))] += self.config.position_bias
        logits += [self.config.noise * _gaussian(prompt, label) for label in labels]
        logprobs = log_softmax(logits) + np.log(LABEL_MASS)
        return LabelScores(logprobs, int(np.argmax(logprobs)))


def _open_block(prompt: str) -> str:
    """The text line of the block whose label is still missing."""
    cue = prompt.rsplit("\n", 1)[-1]
    head = re.split(rf"\n{re.escape(cue)}(?:\n|$)", prompt, maxsplit=1)[0]
    return head.rsplit("\n", 1)[-1]


def _meaning(prompt: str, label: str) -> str:
    name = re.search(rf"[\[ ]{re.escape(label.strip())}: ([^,\]\n]+)", prompt)
    return name[1] if name else label.strip()


def _mentions(content: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", content) is not None


def _gaussian(prompt: str, label: str) -> float:
    seed = int.from_bytes(hashlib.sha256(f"{label}\0{prompt}".encode()).digest()[:8], "big")
    return float(np.random.default_rng(seed).standard_normal())
