"""Asking for texts beside scores: one frame, flush, resume, room for the answer; what the dummy writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from scipy.stats import chisquare

from poise.config.engines import DummyConfig
from poise.engines.ask import ask, tokenise
from poise.engines.base import Generated, GenerationQuery, LabelScores, MicroBatch, Query
from poise.engines.dummy import DummyEngine
from poise.errors import PoiseError
from poise.files import read_parquet, write_parquet
from poise.prompts.text import Generation, PromptText, Request

CONFIG = DummyConfig(noise=1.0, signal=1.0)
BLOCK = "Sentence: filler\nLabel: 1\n\n"
LABELS = (" 1", " 2", " 3")


class Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


class Fragile(DummyEngine):
    """Dies after some micro-batches, of either kind; counts what it was asked."""

    def __init__(self, dies_after: int | None = None) -> None:
        super().__init__(CONFIG)
        self.dies_after = dies_after
        self.n_scored = self.n_written = 0

    def micro_batches(self, queries: Sequence[Query], regroup: bool = False) -> list[MicroBatch]:  # noqa: ARG002
        return [MicroBatch((k, k + 1)) for k in range(0, len(queries), 2)]

    def generation_batches(self, queries: Sequence[GenerationQuery], regroup: bool = False) -> list[MicroBatch]:  # noqa: ARG002
        return [MicroBatch((k + 1, k)) for k in range(0, len(queries), 2)]

    def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:
        self._live()
        self.n_scored += 1
        return super().score(queries, batch)

    def generate(self, queries: Sequence[GenerationQuery], batch: MicroBatch) -> list[Generated]:
        self._live()
        self.n_written += 1
        found = super().generate(queries, batch)
        return [replace(answer, text=f"é{answer.text}\n", n_hidden_tokens=1) for answer in found]

    def _live(self) -> None:
        if self.n_scored + self.n_written == self.dies_after:
            raise Killed


def _request(k: int, how: Generation | None = None, replicate: int = 0) -> Request:
    return Request(PromptText("", (BLOCK,), f"Sentence: text {k}\nLabel:"), LABELS, False, replicate, how)


def _mixed() -> list[Request]:
    """Scores and texts in turn: 12 of each."""
    return [
        request
        for k in range(6)
        for request in (
            _request(k),
            _request(k, Generation(4)),
            _request(k + 100),
            _request(k, Generation(4, 1.0), replicate=1),
        )
    ]


def _run(engine: DummyEngine, folder: Path, requests: Sequence[Request] | None = None) -> pd.DataFrame:
    requests = _mixed() if requests is None else requests
    tokenised = tokenise(engine, requests, "sequence", 10_000, "model m")
    return ask(engine, requests, tokenised, folder / "parts", flush_seconds=0.0, label="test").responses


def _bytes(frame: pd.DataFrame, path: Path) -> bytes:
    write_parquet(path, frame)
    return path.read_bytes()


@pytest.mark.parametrize("dies_after", [0, 1, 5, 6, 7, 11])
def test_a_killed_run_resumes_and_gives_the_same_bytes(tmp_path: Path, dies_after: int) -> None:
    whole = _run(Fragile(), tmp_path / "whole")
    with pytest.raises(Killed):
        _run(Fragile(dies_after), tmp_path / "killed")
    second = Fragile()
    resumed = _run(second, tmp_path / "killed")
    assert second.n_scored + second.n_written == 12 - dies_after
    assert _bytes(resumed, tmp_path / "a.parquet") == _bytes(whole, tmp_path / "b.parquet")


def test_rows_keep_the_order_of_the_requests_and_their_kind(tmp_path: Path) -> None:
    requests = _mixed()
    _bytes(_run(Fragile(), tmp_path), tmp_path / "responses.parquet")
    found = read_parquet(tmp_path / "responses.parquet")
    assert found["request"].tolist() == [request.id for request in requests]
    wants_text = np.array([request.generation is not None for request in requests])
    for column in ("text", "n_tokens", "n_hidden_tokens"):
        assert (found[column].notna() == wants_text).all()
    for column in ("logprobs", "label_mass"):
        assert (found[column].notna() == ~wants_text).all()
    assert (found["greedy"][wants_text] == -1).all()
    assert (found["greedy"][~wants_text] >= 0).all()
    assert set(found["text"].dropna()) <= {f"é{label}\n" for label in LABELS}
    assert (found["n_tokens"].dtype, found["n_hidden_tokens"].dtype) == ("Int32", "Int32")


def test_scores_do_not_change_beside_texts(tmp_path: Path) -> None:
    mixed = _run(DummyEngine(CONFIG), tmp_path / "mixed")
    scored = [request for request in _mixed() if request.generation is None]
    alone = _run(DummyEngine(CONFIG), tmp_path / "alone", scored)
    both = mixed[mixed["text"].isna()].reset_index(drop=True)
    pd.testing.assert_frame_equal(both, alone)


def test_texts_alone_and_nothing_at_all(tmp_path: Path) -> None:
    written = [request for request in _mixed() if request.generation is not None]
    assert _run(DummyEngine(CONFIG), tmp_path / "a", written)["text"].notna().all()
    assert _run(DummyEngine(CONFIG), tmp_path / "b", []).empty


def test_a_damaged_part_of_texts_is_written_again(tmp_path: Path) -> None:
    whole = _run(Fragile(), tmp_path)
    parts = sorted((tmp_path / "parts-text").rglob("*.parquet"))
    parts[2].write_bytes(parts[2].read_bytes()[:40])
    again = Fragile()
    pd.testing.assert_frame_equal(_run(again, tmp_path), whole)
    assert (again.n_scored, again.n_written) == (0, 1)


def test_demonstrations_leave_room_for_the_answer() -> None:
    prompt = PromptText("Head\n", tuple(f"Sentence: demo {k}\nLabel: 1\n\n" for k in range(5)), "Sentence: x\nLabel:")
    length = len(prompt.text) + 20
    dropped = [
        tokenise(DummyEngine(CONFIG), [Request(prompt, LABELS, generation=how)], "sequence", length, "m")[0].n_dropped
        for how in (Generation(20), Generation(21), Generation(20 + 2 * len(prompt.before[0])))
    ]
    assert dropped == [0, 1, 2]
    with pytest.raises(
        PoiseError, match=r"^m: .* 23 tokens, more than fit before 300 of answer into the context of 50;"
    ):
        tokenise(DummyEngine(CONFIG), [_request(1, Generation(300))], "sequence", 50, "m")


def test_labels_of_texts_need_not_be_told_apart() -> None:
    request = Request(PromptText("", (), "x"), ("a", "ab", "ab"), generation=Generation(3))
    (item,) = tokenise(DummyEngine(CONFIG), [request], "first", 100, "m")
    assert isinstance(item.query, GenerationQuery)
    assert item.query.labels == ("a", "ab", "ab")


def test_each_request_has_a_stream_of_its_own() -> None:
    requests = [_request(k, Generation(4, 0.7), replicate) for k in range(10) for replicate in range(2)]
    seeds = [item.query.seed for item in tokenise(DummyEngine(CONFIG), requests, "first", 100, "m")]  # type: ignore[union-attr]
    assert len(set(seeds)) == 20
    assert all(0 <= seed < 2**63 for seed in seeds)


# The dummy


def test_greedy_dummy_writes_the_label_that_scores_best(tmp_path: Path) -> None:
    found = _run(
        DummyEngine(CONFIG), tmp_path, [r for k in range(20) for r in (_request(k), _request(k, Generation(4)))]
    )
    scored, written = found[found["text"].isna()], found[found["text"].notna()]
    assert written["text"].tolist() == [LABELS[k] for k in scored["greedy"]]
    assert written["n_tokens"].tolist() == [2] * 20
    assert scored["greedy"].nunique() == 3


def test_sampled_dummy_draws_by_its_scores(tmp_path: Path) -> None:
    n = 1000
    requests = [_request(1), *(_request(1, Generation(4, 0.7), replicate) for replicate in range(n))]
    found = _run(DummyEngine(DummyConfig(class_bias=[0.5, 0.0, -0.5])), tmp_path, requests)
    counts = found["text"].value_counts()
    # The demonstration's label gains nothing: position_bias is 0. So the scores are the biases.
    expected = n * softmax(np.array([0.5, 0.0, -0.5]) / 0.7)
    assert chisquare([counts[label] for label in LABELS], expected).pvalue > 0.001
