"""Asking: flush, resume, damaged parts, prompts that are too long."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from poise.config.engines import DummyConfig
from poise.engines.ask import Tokenised, ask, tokenise
from poise.engines.base import LabelScores, MicroBatch, Query
from poise.engines.dummy import DummyEngine
from poise.errors import PoiseError
from poise.files import write_parquet
from poise.prompts.text import PromptText, Request

CONFIG = DummyConfig(noise=1.0, signal=1.0)
BLOCK = "Sentence: filler\nLabel: 1\n\n"


class Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


class Fragile(DummyEngine):
    """Dies after some micro-batches; counts what it was asked."""

    def __init__(self, dies_after: int | None = None) -> None:
        super().__init__(CONFIG)
        self.dies_after = dies_after
        self.n_scored = 0

    def micro_batches(self, queries: Sequence[Query], regroup: bool = False) -> list[MicroBatch]:  # noqa: ARG002
        return [MicroBatch((k, k + 1)) for k in range(0, len(queries), 2)]

    def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:
        if self.dies_after is not None and self.n_scored >= self.dies_after:
            raise Killed
        self.n_scored += 1
        return super().score(queries, batch)


def _requests(n: int = 20) -> list[Request]:
    return [Request(PromptText("", (BLOCK,), f"Sentence: text {k}\nLabel:"), (" 1", " 2", " 3")) for k in range(n)]


def _tokenised(requests: list[Request], context_length: int = 10_000) -> list[Tokenised]:
    return tokenise(DummyEngine(CONFIG), requests, "sequence", context_length, "model m")


def _run(engine: DummyEngine, folder: Path, requests: list[Request] | None = None) -> pd.DataFrame:
    requests = _requests() if requests is None else requests
    return ask(engine, requests, _tokenised(requests), folder, flush_seconds=0.0, label="test").responses


def _bytes(frame: pd.DataFrame, path: Path) -> bytes:
    write_parquet(path, frame)
    return path.read_bytes()


def test_a_killed_run_resumes_where_it_flushed_and_gives_the_same_bytes(tmp_path: Path) -> None:
    whole = _run(Fragile(), tmp_path / "whole")
    with pytest.raises(Killed):
        _run(Fragile(dies_after=4), tmp_path / "killed")
    second = Fragile()
    resumed = _run(second, tmp_path / "killed")
    assert second.n_scored == 10 - 4
    assert _bytes(resumed, tmp_path / "a.parquet") == _bytes(whole, tmp_path / "b.parquet")


def test_a_damaged_part_is_asked_again(tmp_path: Path) -> None:
    whole = _run(Fragile(), tmp_path)
    parts = sorted(tmp_path.rglob("*.parquet"))
    assert len(parts) == 10
    parts[3].write_bytes(parts[3].read_bytes()[:40])
    again = Fragile()
    requests = _requests()
    asked = ask(again, requests, _tokenised(requests), tmp_path, 0.0, "test")
    assert (again.n_scored, asked.n_damaged_parts, asked.n_resumed) == (1, 1, 18)
    pd.testing.assert_frame_equal(asked.responses, whole)


def test_parts_of_other_requests_are_not_taken(tmp_path: Path) -> None:
    _run(Fragile(), tmp_path)
    engine = Fragile()
    _run(engine, tmp_path, _requests(8))
    assert engine.n_scored == 4


def test_whole_demonstrations_are_dropped_until_the_prompt_fits() -> None:
    prompt = PromptText("Head\n", tuple(f"Sentence: demo {k}\nLabel: 1\n\n" for k in range(5)), "Sentence: x\nLabel:")
    request = Request(prompt, (" 1", " 2"))
    length = len(prompt.text) - 2 * len(prompt.before[0]) + 2
    (found,) = tokenise(DummyEngine(CONFIG), [request], "sequence", length, "model m")
    assert found.n_dropped == 2
    sent = bytes(found.query.prompt_ids).decode()
    assert sent == "".join(("Head\n", *prompt.before[2:], prompt.query))


def test_a_query_that_cannot_fit_is_an_error() -> None:
    with pytest.raises(
        PoiseError, match=r"model m: a prompt without any demonstration has 23 tokens, more than .* of 9"
    ):
        _tokenised(_requests(1), context_length=9)


def test_dropped_demonstrations_are_counted(tmp_path: Path) -> None:
    requests = _requests(2)
    tokenised = _tokenised(requests, context_length=30)
    asked = ask(DummyEngine(CONFIG), requests, tokenised, tmp_path, 1.0, "test")
    assert asked.responses["dropped_demonstrations"].tolist() == [1, 1]


def test_a_label_without_a_finite_score_is_an_error(tmp_path: Path) -> None:
    class Silent(DummyEngine):
        def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:  # noqa: ARG002
            return [LabelScores(np.array([-1.0, -np.inf, np.nan]), -1) for _ in batch.members]

    with pytest.raises(PoiseError, match="no finite log-probability"):
        _run(Silent(CONFIG), tmp_path)


def test_responses_have_their_documented_columns(tmp_path: Path) -> None:
    responses = _run(DummyEngine(CONFIG), tmp_path)
    assert list(responses.columns) == [
        "request", "logprobs", "label_mass", "greedy", "text", "n_tokens", "n_hidden_tokens", "prompt_tokens",
        "dropped_demonstrations", "logprobs_after", "matched",
    ]  # fmt: skip
    assert responses["logprobs"].iloc[0].dtype == np.float32
    np.testing.assert_allclose(responses["label_mass"], 0.9, rtol=1e-6)


def test_dummy_plants_what_it_says() -> None:
    prompt = "[1: negative, 2: positive]\n\nSentence: so positive\nLabel:"
    query = Query(tuple(prompt.encode()), (b" 1", b" 2"))  # type: ignore[arg-type]
    answer = DummyEngine(DummyConfig(signal=2.0)).score([query], MicroBatch((0,)))[0]
    assert answer.logprobs[1] - answer.logprobs[0] == pytest.approx(2.0)
    answer = DummyEngine(DummyConfig(class_bias=[3.0])).score([query], MicroBatch((0,)))[0]
    assert answer.logprobs[0] - answer.logprobs[1] == pytest.approx(3.0)
    shown = Query(tuple(f"Sentence: a\nLabel: 2\n\n{prompt}".encode()), (b" 1", b" 2"))  # type: ignore[arg-type]
    answer = DummyEngine(DummyConfig(position_bias=1.5)).score([shown], MicroBatch((0,)))[0]
    assert answer.logprobs[1] - answer.logprobs[0] == pytest.approx(1.5)
