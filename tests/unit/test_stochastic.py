"""Phase 0b: noise of repeated texts against flips by the label order, agreement of texts with scores, tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from poise.answers import CellChoices, read_choices
from poise.cells import Cell
from poise.config.compose import compose_study
from poise.plan import expand
from poise.stages.stochastic import add_stochastic
from poise.stages.tidy import Tidy
from tests.conftest import ROOT
from tests.unit.planted_answers import plant

# Label positions written in each text; -1 where there is none. Three classes; reversed positions are 2 - class.
GREEDY = [0, 1, 2, 0, 1, 2, -1, 0]
FIRST = [0, 1, 2, 0, 1, 2, 0, 1]
AGAIN = [0, 1, 2, 1, 1, 0, -1, 1]  # rows 3 and 5 differ
TURNED = [2, 0, 1, 0, 1, 0, 2, -1]  # classes 0 2 1 2 1 2 0 none: rows 1, 2, 3 differ
SCORED = [0, 1, 2, 0, 2, 1, 0, 0]
STARTS = [0, 1, -1, 0, 1, 2, 0, -1]  # label that the first greedy tokens spell, or none: rows 2 and 7


def _cell(decoding: str, order: str = "natural", replicate: int = 0, **columns: str) -> Cell:
    name = f"{decoding}-{order}-{replicate}-{columns}"
    return Cell(
        name, "position", "model", "data", "test", "1_per_class", 0, "prompt", label_order=order, decoding=decoding,
        replicate=replicate, **columns,
    )  # fmt: skip


def _choices(
    chosen: list[int], greedy: list[int] | None = None, hidden: float = np.nan, visible: float = np.nan
) -> CellChoices:
    n = len(chosen)
    columns = [np.array(values)[:, None] for values in (chosen, greedy or chosen)]
    return CellChoices(np.arange(n), np.zeros(n, dtype=int), *columns, np.full(n, hidden), np.full(n, visible))


ANSWERS = {
    _cell("scores"): _choices(SCORED, STARTS),
    _cell("scores", "reversed"): _choices([0] * 8),
    _cell("greedy"): _choices(GREEDY, hidden=5.0, visible=2.0),
    _cell("sampled"): _choices(FIRST, hidden=7.0, visible=1.5),
    _cell("sampled", replicate=1): _choices(AGAIN, hidden=100.0, visible=100.0),
    _cell("sampled", "reversed"): _choices(TURNED, hidden=100.0, visible=100.0),
}


def _rows(answers: dict[Cell, CellChoices]) -> pd.DataFrame:
    tidy = Tidy(method="icl")
    choices = {cell.id: found for cell, found in answers.items()}
    add_stochastic(tidy, list(answers), choices, np.array(SCORED), 3)
    return pd.DataFrame(tidy.rows)


def _row(rows: pd.DataFrame, metric: str, **columns: str) -> pd.Series:
    found = rows[rows["metric"] == metric]
    for name, value in columns.items():
        found = found[found[name] == value]
    assert len(found) == 1
    return found.iloc[0]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return _rows(ANSWERS)


def test_noise_is_between_replicates_and_total_between_label_orders(rows: pd.DataFrame) -> None:
    noise, total = _row(rows, "pfr_noise"), _row(rows, "pfr_total")
    assert (noise["value"], noise["n"], noise["condition"]) == (pytest.approx(2 / 7), 7, "noise")  # row 6 unparsed
    assert (total["value"], total["n"], total["condition"]) == (pytest.approx(3 / 7), 7, "total")  # row 7 unparsed
    assert _row(rows, "pfr_noise_worst")["value"] == pytest.approx(3 / 8)
    assert _row(rows, "pfr_total_worst")["value"] == pytest.approx(4 / 8)
    assert noise["low"] < noise["value"] < noise["high"]


def test_mcnemar_pairs_the_flips_on_rows_that_all_runs_could_parse(rows: pd.DataFrame) -> None:
    # Rows 0 to 5: flipped by the order only 1 and 2, by sampling only 5, by both 3.
    test = _row(rows, "mcnemar_p", condition="noise_total")
    assert test["note"] == "flipped by the label order only: 2; by sampling only: 1"
    assert (test["value"], test["n"]) == (pytest.approx(0.5), 6)  # z = (2 - 1 - 1) / sqrt(3)


def test_texts_agree_with_the_most_probable_label_where_they_start_with_one(rows: pd.DataFrame) -> None:
    # Of rows 0, 1, 3, 4, 5, 6: rows 4 and 5 name another label, row 6 none.
    agreement = _row(rows, "text_agreement")
    assert (agreement["value"], agreement["n"], agreement["condition"]) == (pytest.approx(3 / 6), 6, "base")


def test_tokens_and_failures_are_of_the_first_text_in_the_natural_order(rows: pd.DataFrame) -> None:
    for condition, hidden, visible, failures in (("greedy", 5, 2, 1 / 8), ("sampled", 7, 1.5, 0)):
        assert _row(rows, "hidden_tokens", condition=condition)["value"] == hidden
        assert _row(rows, "visible_tokens", condition=condition)["value"] == visible
        assert _row(rows, "text_parse_failure_rate", condition=condition)["value"] == pytest.approx(failures)
    assert set(rows[rows["metric"] == "hidden_tokens"]["n"]) == {8}


def test_without_samples_there_is_no_noise(rows: pd.DataFrame) -> None:
    found = _rows({cell: answer for cell, answer in ANSWERS.items() if cell.decoding != "sampled"})
    assert set(found["metric"]) == {"hidden_tokens", "visible_tokens", "text_parse_failure_rate", "text_agreement"}
    assert set(found["metric"]) < set(rows["metric"])


def test_texts_of_other_conditions_play_no_part(rows: pd.DataFrame) -> None:
    other = {
        _cell("greedy", placement="after"): _choices([2] * 8, hidden=50.0, visible=50.0),
        _cell("greedy", demonstration_order="ascending"): _choices([2] * 8, hidden=50.0, visible=50.0),
        _cell("greedy", "reversed"): _choices([2] * 8, hidden=50.0, visible=50.0),
    }
    pd.testing.assert_frame_equal(_rows({**ANSWERS, **other}), rows)


def test_scores_alone_add_nothing() -> None:
    assert _rows({cell: answer for cell, answer in ANSWERS.items() if cell.decoding == "scores"}).empty


def test_no_text_that_starts_with_a_label_is_no_agreement() -> None:
    answers = {**ANSWERS, _cell("scores"): _choices(SCORED, [-1] * 8)}
    agreement = _row(_rows(answers), "text_agreement")
    assert np.isnan(agreement["value"])
    assert agreement["n"] == 0


def test_a_studys_texts_are_told_apart_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells, batch and reader fit together: each kind of text comes back as what was written in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    overrides = [
        "study=demo", "name=texts", "dataset=[tweets3]", "seeds=[0]", "method=[icl]", "experiment=[position]",
        "experiment.position.methods=[]", "experiment.position.content_free=[]", "experiment.position.rows.test=8",
        "experiment.position.stochastic={temperature:0.7,top_p:1.0}",
    ]  # fmt: skip
    plan = expand(compose_study(overrides))
    written = {
        ("greedy", "natural", 0): GREEDY,
        ("sampled", "natural", 0): FIRST,
        ("sampled", "natural", 1): AGAIN,
        ("sampled", "reversed", 0): TURNED,
    }

    def chosen(cell: Cell) -> list[int]:
        return written.get((cell.decoding, cell.label_order, cell.replicate), SCORED)

    plant(
        plan, [0] * 8, lambda cell: [[k] for k in chosen(cell)], greedy=dict(enumerate(STARTS)),
        tokens={"greedy": (7, 5), "sampled": (9, 7)},
    )  # fmt: skip
    tidy = Tidy(method="icl")
    add_stochastic(tidy, plan.cells, read_choices(plan, plan.cells), np.array(SCORED), 3)
    found = pd.DataFrame(tidy.rows)
    values = {(row["metric"], row["condition"]): (row["value"], row["n"]) for _, row in found.iterrows()}
    assert values["pfr_noise", "noise"] == (pytest.approx(2 / 7), 7)
    assert values["pfr_total", "total"] == (pytest.approx(3 / 7), 7)
    assert values["text_agreement", "base"] == (pytest.approx(3 / 6), 6)
    assert values["hidden_tokens", "greedy"] == (5, 8)
    assert values["visible_tokens", "sampled"] == (2, 8)
