"""Labels located in what a model wrote, and scored there: where the last one starts, and one token too late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax

from poise.config.engines import DummyConfig, TransformersConfig
from poise.config.models import Model
from poise.engines.ask import ask, tokenise
from poise.engines.base import Generated, GenerationQuery, LabelScores, MicroBatch, Query, open_engine
from poise.engines.dummy import DummyEngine
from poise.engines.labels import LabelSpace
from poise.engines.located import LabelForm, label_forms, locate
from poise.errors import PoiseError
from poise.files import write_parquet
from poise.prompts.text import Generation, PromptText, Request

CONFIG = DummyConfig(noise=1.0, signal=1.0)
LABELS = ("bad", "good")
PROMPT = "Review: text\nSentiment:"
HOW = Generation(31, 1.0)


# --- where the last label stands ---


def _form(*tokens: tuple[int, ...]) -> LabelForm:
    return LabelForm(tokens, LabelSpace(tokens, tuple((k,) for k in range(len(tokens))), len(tokens)))


@pytest.mark.parametrize(
    ("ids", "start", "end", "matched"),
    [
        ([1, 9, 2, 3, 9], 2, 4, True),  # label (2, 3) after label (1,)
        ([2, 3, 9, 1], 3, 4, True),
        ([2, 3, 2], 0, 2, True),  # a label that is cut off does not count
        ([1, 1, 1], 2, 3, True),
        ([8, 9], 1, 2, False),  # the last token is the place
        ([], 0, 0, False),
    ],
)
def test_the_label_that_ends_last_is_found(ids: list[int], start: int, end: int, matched: bool) -> None:
    place = locate(ids, [_form((1,), (2, 3))])
    assert (place.start, place.end, place.matched) == (start, end, matched)


def test_a_label_is_not_read_as_the_end_of_a_longer_one() -> None:
    place = locate([9, 5, 3, 9], [_form((3,), (5, 3))])  # negative, very negative
    assert (place.start, place.end) == (1, 3)


def test_both_forms_are_looked_for_and_the_one_found_is_scored() -> None:
    line, spaced = _form((1,), (2,)), _form((11,), (12,))
    assert locate([1, 12, 9], [line, spaced]).form is spaced
    assert locate([12, 1], [line, spaced]).form is line
    assert locate([9], [spaced, line]).form is spaced  # without a label, the form of the prompt's own


def test_forms_are_tokens_on_a_line_of_their_own_and_after_a_space() -> None:
    encode = DummyEngine(CONFIG).encode
    line, spaced = label_forms(encode, LABELS, "sequence", "m")
    assert line.tokens == (tuple(b"bad"), tuple(b"good"))
    assert spaced.tokens == (tuple(b" bad"), tuple(b" good"))
    assert label_forms(encode, (" bad", " good"), "sequence", "m") == (spaced, line)
    assert label_forms(encode, LABELS, "first", "m")[0].space.sequences == ((ord("b"),), (ord("g"),))
    with pytest.raises(PoiseError, match="share their first token"):
        label_forms(encode, ("bad", "good", "great"), "first", "model m")


# --- asking ---


class Killed(BaseException):
    """Stands for SIGKILL."""


class Writer(DummyEngine):
    """Writes given texts in turn by their prompts' last words; remembers what is scored; may die."""

    def __init__(self, texts: Sequence[str], dies_after: int | None = None, with_ids: bool = True) -> None:
        super().__init__(CONFIG)
        self.texts, self.dies_after, self.with_ids = texts, dies_after, with_ids
        self.n_written = self.n_scored = 0
        self.scored: list[str] = []

    def micro_batches(self, queries: Sequence[Query], regroup: bool = False) -> list[MicroBatch]:  # noqa: ARG002
        return [MicroBatch((k,)) for k in range(len(queries))]

    def generation_batches(self, queries: Sequence[GenerationQuery], regroup: bool = False) -> list[MicroBatch]:  # noqa: ARG002
        return [MicroBatch((k,)) for k in range(len(queries))]

    def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:
        self._live()
        self.n_scored += 1
        self.scored += [bytes(queries[k].prompt_ids).decode() for k in batch.members]
        return super().score(queries, batch)

    def generate(self, queries: Sequence[GenerationQuery], batch: MicroBatch) -> list[Generated]:  # noqa: ARG002
        self._live()
        self.n_written += 1
        (k,) = batch.members
        ids = tuple(self.texts[k].encode()) if self.with_ids else ()
        return [Generated(self.texts[k], len(self.texts[k]), ids=ids)]

    def _live(self) -> None:
        if self.n_written + self.n_scored == self.dies_after:
            raise Killed


TEXTS = ["it is good, no, bad!", "nothing here", "", "x\ngood"]


def _requests(n: int = len(TEXTS)) -> list[Request]:
    prompts = [PromptText("", (), f"Review: {k}\nSentiment:") for k in range(n)]
    return [Request(prompt, LABELS, generation=HOW, located=True) for prompt in prompts]


def _run(engine: DummyEngine, folder: Path, requests: Sequence[Request] | None = None) -> pd.DataFrame:
    requests = _requests() if requests is None else requests
    tokenised = tokenise(engine, requests, "sequence", 10_000, "model m")
    return ask(engine, requests, tokenised, folder / "parts", 0.0, "test").responses


def _direct(text: str, labels: Sequence[str]) -> np.ndarray:
    query = Query(tuple(text.encode()), tuple(tuple(label.encode()) for label in labels))
    return DummyEngine(CONFIG).score([query], MicroBatch((0,)))[0].logprobs


def test_labels_are_scored_where_the_last_one_starts_and_after_it(tmp_path: Path) -> None:
    engine = Writer(TEXTS)
    rows = _run(engine, tmp_path)
    prompts = [f"Review: {k}\nSentiment:" for k in range(4)]
    spaced = [" bad", " good"]
    expected = [
        (prompts[0] + "it is good, no,", prompts[0] + "it is good, no, bad", spaced),
        (prompts[1] + "nothing her", prompts[1] + "nothing here", LABELS),
        (prompts[2], prompts[2], LABELS),
        (prompts[3] + "x\n", prompts[3] + "x\ngood", LABELS),
    ]
    assert engine.scored == [text for at, after, _ in expected for text in (at, after)]
    for row, (at, after, labels) in zip(rows.itertuples(), expected, strict=True):
        np.testing.assert_allclose(row.logprobs, _direct(at, labels), rtol=1e-6)
        np.testing.assert_allclose(row.logprobs_after, _direct(after, labels), rtol=1e-6)
        assert row.greedy == np.argmax(_direct(at, labels))
        assert row.label_mass == pytest.approx(0.9)
    assert rows["matched"].tolist() == [True, False, False, True]
    assert rows["text"].tolist() == TEXTS
    assert engine.n_written == 4  # one text for both readings


def test_other_requests_have_neither_reading(tmp_path: Path) -> None:
    plain = PromptText("", (), PROMPT)
    requests = [Request(plain, (" bad", " good")), Request(plain, LABELS, generation=HOW), *_requests(1)]
    rows = _run(Writer(["good", "bad"]), tmp_path, requests)
    assert rows["matched"].isna().tolist() == [True, True, False]
    assert rows["logprobs_after"].isna().tolist() == [True, True, False]
    assert rows["logprobs"].isna().tolist() == [False, True, False]


def test_an_engine_that_tells_texts_only_has_no_scores(tmp_path: Path) -> None:
    engine = Writer(["it is good", ""], with_ids=False)
    rows = _run(engine, tmp_path, _requests(2))
    assert rows["text"].tolist() == ["it is good", ""]
    assert rows["logprobs"].isna().tolist() == [True, False]  # nothing written: the prompt's end is known
    assert rows["matched"].isna().tolist() == [True, False]


@pytest.mark.parametrize("dies_after", [0, 3, 4, 5, 11])
def test_a_killed_run_resumes_and_gives_the_same_bytes(tmp_path: Path, dies_after: int) -> None:
    whole = _run(Writer(TEXTS), tmp_path / "whole")
    with pytest.raises(Killed):
        _run(Writer(TEXTS, dies_after), tmp_path / "killed")
    second = Writer(TEXTS)
    resumed = _run(second, tmp_path / "killed")
    assert second.n_written + second.n_scored == 12 - dies_after
    write_parquet(tmp_path / "a.parquet", whole)
    write_parquet(tmp_path / "b.parquet", resumed)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_scores_of_another_text_are_not_taken_up(tmp_path: Path) -> None:
    _run(Writer(TEXTS), tmp_path)
    for path in (tmp_path / "parts-text").rglob("*.parquet"):
        path.unlink()
    others = ["so bad", *TEXTS[1:]]
    rows = _run(Writer(others), tmp_path)
    np.testing.assert_allclose(
        rows["logprobs"].iloc[0], _direct("Review: 0\nSentiment:so", [" bad", " good"]), rtol=1e-6
    )


def test_room_is_kept_for_the_text_and_a_label_after_it() -> None:
    request = replace(_requests(1)[0], prompt=PromptText("", ("Review: shown\nSentiment: bad\n\n",), PROMPT))
    whole = len(request.prompt.text) + HOW.max_new_tokens + len(" good")
    engine = DummyEngine(CONFIG)
    assert tokenise(engine, [request], "sequence", whole, "m")[0].n_dropped == 0
    assert tokenise(engine, [request], "sequence", whole - 1, "m")[0].n_dropped == 1


@pytest.mark.slow
def test_readings_of_the_real_model_equal_a_full_softmax(model_dir: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"kind": "files", "folder": "."}
    model = Model.model_validate({"name": "m", "title": "M", "source": source, "context_length": 2048})
    engine = open_engine(TransformersConfig(), model, model_dir)
    shown = "Review: Dull.\nSentiment: It bores. Final answer:\nbad\n\n"
    requests = [
        Request(PromptText("", (shown,), f"Review: {text}\nSentiment:"), LABELS, generation=HOW, located=True)
        for text in ("A joy.", "It drags.", "Neither here nor there.", "Great fun.", "I slept.")
    ]
    tokenised = tokenise(engine, requests, "sequence", 2048, "m")
    rows = ask(engine, requests, tokenised, tmp_path, 60.0, "test").responses
    tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
    plain = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    written = {}
    for batch in engine.generation_batches([item.query for item in tokenised]):  # type: ignore[misc]
        texts = engine.generate([item.query for item in tokenised], batch)  # type: ignore[misc]
        written.update(zip(batch.members, texts, strict=True))
    words = {tokenizer.encode(lead + label)[0]: (lead, k) for k, label in enumerate(LABELS) for lead in ("", " ")}
    assert rows["matched"].any()
    for k, row in enumerate(rows.itertuples()):
        new = list(written[k].ids)
        assert tokenizer.decode(new) == row.text
        places = [place for place, token in enumerate(new) if token in words]
        assert row.matched == bool(places)
        place = places[-1] if places else len(new) - 1
        lead = words[new[place]][0] if places else ""
        prompt = tokenizer.encode(requests[k].prompt.text)
        with torch.inference_mode():
            logits = plain(torch.tensor([prompt + new])).logits[0].double().numpy()
        chosen = [tokenizer.encode(lead + label)[0] for label in LABELS]
        at_label = log_softmax(logits[len(prompt) + place - 1])[chosen]
        after = log_softmax(logits[len(prompt) + place])[chosen]
        np.testing.assert_allclose(row.logprobs, at_label, atol=2e-4)
        np.testing.assert_allclose(row.logprobs_after, after, atol=2e-4)
