"""Metrics of the position instrument from answers planted in a batch: every number is worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

from poise import paths
from poise.cells import Cell
from poise.config.compose import compose_study
from poise.config.factors import Level
from poise.config.schema import Study, with_selection
from poise.files import write_parquet
from poise.plan import Plan, expand
from poise.stages.correct import correct
from poise.stages.measure_position import position, selection_half
from poise.stages.tidy import METRIC_COLUMNS, tidy_frame
from tests.conftest import ROOT
from tests.unit.planted_answers import plant

SCORED, TEXT = "smollm2-135m-instruct", "qwen3-8b-thinking"
LABELS = [0, 1, 2, 0, 1, 2]
REVERSED = "label_order=reversed"
# Classes predicted under each condition; -1 is unparsed.
PREDICTED = {
    "base": [0, 1, 2, 0, 1, -1],
    REVERSED: [0, 1, 0, 0, -1, 2],
    "demonstration_order=ascending": [0, 1, 2, 0, 1, 1],
    "demonstration_order=descending": [0, 2, 2, 0, 1, 1],
    "demonstration_order=random": [0, 1, 2, 1, 1, 1],
    "placement=after": [0, 1, 2, 0, 1, 2],
    "placement=split": [-1, 1, 2, 0, 0, 2],
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))


def _study(model: str, *overrides: str) -> Study:
    fixed = [
        "study=demo", "name=planted", f"model=[{model}]", "dataset=[tweets3]", "seeds=[0]", "method=[icl]",
        "experiment=[position]", "experiment.position.methods=null", "experiment.position.rows.test=6",
        "experiment.position.stochastic=null", "experiment.position.content_free=[]",
    ]  # fmt: skip
    return compose_study([*fixed, *overrides])


def _positions(classes: list[int], order: str) -> list[list[int]]:
    """Label positions that stand for classes, one part a row."""
    return [[2 - c if order == "reversed" and c >= 0 else c] for c in classes]


def _planted(cell: Cell) -> list[list[int]]:
    return _positions(PREDICTED[cell.condition], cell.label_order)


def _metrics(plan: Plan) -> pd.DataFrame:
    (model,) = plan.study.models
    return tidy_frame(position(plan, "position", model, "tweets3"))


def _one(rows: pd.DataFrame, metric: str, **columns: str) -> pd.Series:
    found = rows[rows["metric"] == metric]
    for name, value in columns.items():
        found = found[found[name] == value]
    assert len(found) == 1, f"{len(found)} rows of {metric} with {columns}"
    return found.iloc[0]


# --- flips, accuracies and tests of one setting ---


@pytest.fixture
def texts() -> pd.DataFrame:
    """Metrics of a model that answers in text."""
    plan = expand(_study(TEXT, "method=[icl,label_averaging,demonstration_averaging]"))
    plant(plan, LABELS, _planted, tokens={"greedy": (9, 7)})
    for correction in plan.corrections:
        correct(plan, *correction)
    return _metrics(plan)


@pytest.mark.parametrize(
    ("contrast", "flips", "n"),
    [
        ("p1", 1, 4),  # row 2; rows 4 and 5 unparsed under one
        ("p2", 2, 5),  # rows 1 and 3; row 5 unparsed in the base
        ("p2a", 1, 6),  # row 3
        ("p2b", 2, 6),  # rows 1 and 3
        ("p3", 1, 4),  # row 4; rows 0 and 5 unparsed
        ("p3a", 0, 5),
        ("p3b", 1, 4),
    ],
)
def test_flip_rates_leave_unparsed_rows_out_and_worst_cases_count_them(
    texts: pd.DataFrame, contrast: str, flips: int, n: int
) -> None:
    rate = _one(texts, f"pfr_{contrast}", method="icl")
    assert (rate["value"], rate["n"], rate["condition"]) == (pytest.approx(flips / n), n, contrast)
    assert 0 <= rate["low"] <= rate["value"] <= rate["high"] <= 1
    worst = _one(texts, f"pfr_{contrast}_worst", method="icl")
    assert (worst["value"], worst["n"]) == (pytest.approx((flips + 6 - n) / 6), 6)


def test_wilson_interval_of_one_flip_in_four(texts: pd.DataFrame) -> None:
    z2 = 1.959963984540054**2
    centre, half = (1 / 4 + z2 / 8) / (1 + z2 / 4), np.sqrt(z2 * (3 / 16) / 4 + z2**2 / 64) / (1 + z2 / 4)
    rate = _one(texts, "pfr_p1", method="icl")
    assert (rate["low"], rate["high"]) == (pytest.approx(centre - half), pytest.approx(centre + half))


def test_performance_under_each_condition(texts: pd.DataFrame) -> None:
    right = {"base": 5, REVERSED: 4, "demonstration_order=descending": 4, "placement=after": 6, "placement=split": 4}
    for condition, n in right.items():
        accuracy = _one(texts, "accuracy", method="icl", condition=condition)
        assert (accuracy["value"], accuracy["n"]) == (pytest.approx(n / 6), 6)
    assert _one(texts, "mae", method="icl", condition="placement=after")["value"] == 0
    assert _one(texts, "mae", method="icl", condition="demonstration_order=random")["value"] == pytest.approx(2 / 6)
    assert _one(texts, "spearman_rho", method="icl", condition="placement=after")["value"] == pytest.approx(1)
    # Classes 0 and 1 have F1 = 1, class 2 has precision 1 and recall 1/2.
    assert _one(texts, "macro_f1", method="icl", condition="base")["value"] == pytest.approx((1 + 1 + 2 / 3) / 3)


def test_mcnemar_counts_the_rows_that_only_one_order_gets_right(texts: pd.DataFrame) -> None:
    test = _one(texts, "mcnemar_p", method="icl", condition="label_order")
    assert test["note"] == "right under natural only: 2; under reversed only: 1"  # rows 2 and 4; row 5
    assert (test["value"], test["n"]) == (pytest.approx(0.5), 6)  # z = (2 - 1 - 1) / sqrt(3)


def test_cochrans_q_of_four_orders(texts: pd.DataFrame) -> None:
    # Right in the columns 5, 5, 4, 4; in the rows 4, 3, 4, 3, 4, 0: Q = 3 (4 * 82 - 18^2) / (4 * 18 - 66) = 2
    assert _one(texts, "cochran_q", method="icl", condition="demonstration_order")["value"] == pytest.approx(2)
    p = _one(texts, "cochran_p", method="icl", condition="demonstration_order")["value"]
    assert p == pytest.approx(chi2.sf(2, 3))


def test_averages_of_texts_are_measured_beside_them(texts: pd.DataFrame) -> None:
    # Labels 1..3: (1,1) (2,2) (3,1) (1,1) unparsed unparsed; right: rows 0, 1, 3.
    assert _one(texts, "accuracy", method="label_averaging")["value"] == pytest.approx(3 / 6)
    # Ascending and descending: (1,1) (2,3) to the even 2, (3,3) (1,1) (2,2) (2,2): all but row 5.
    assert _one(texts, "accuracy", method="demonstration_averaging")["value"] == pytest.approx(5 / 6)
    averaged = texts[texts["method"] != "icl"]
    assert set(averaged["condition"]) == {"base"}
    assert not averaged["metric"].str.startswith("pfr_").any()


def test_texts_have_tokens_and_failures_and_no_scores(texts: pd.DataFrame) -> None:
    assert _one(texts, "hidden_tokens", condition="greedy")["value"] == 7
    assert _one(texts, "visible_tokens", condition="greedy")["value"] == 2
    assert _one(texts, "text_parse_failure_rate", condition="greedy")["value"] == pytest.approx(1 / 6)
    assert not {"label_mass", "parse_failure_rate", "flip_floor", "text_agreement"} & set(texts["metric"])


def test_rows_are_tidy(texts: pd.DataFrame) -> None:
    assert list(texts.columns) == METRIC_COLUMNS
    assert set(texts["factor"]) == set(texts["level"]) == {""}
    assert set(texts["provenance"]) == {"measured"}
    key = [name for name in METRIC_COLUMNS if name not in ("value", "low", "high", "n", "note", "provenance")]
    assert not texts.duplicated(key).any()


# --- what scores show ---


def test_scores_show_label_mass_greedy_answers_and_the_numerical_floor() -> None:
    plan = expand(_study(SCORED, "experiment.position.floor_rows=4"))
    predicted = {condition: [max(k, 0) for k in found] for condition, found in PREDICTED.items()}
    plant(
        plan, LABELS, lambda cell: _positions(predicted[cell.condition], cell.label_order),
        greedy={0: -1, 1: 2, 3: -1}, label_mass=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], regrouped={0: 0, 1: 1, 2: 1, 3: 0},
    )  # fmt: skip
    rows = _metrics(plan)
    for condition in predicted:
        assert _one(rows, "parse_failure_rate", condition=condition)["value"] == pytest.approx(2 / 6)
        assert _one(rows, "label_mass", condition=condition)["value"] == pytest.approx(0.35)
    agreement = _one(rows, "greedy_agreement", condition="base")  # of rows 1, 2, 4, 5 all but row 1
    assert (agreement["value"], agreement["n"]) == (pytest.approx(3 / 4), 4)
    floor = _one(rows, "flip_floor")  # row 2
    assert (floor["value"], floor["n"], floor["condition"]) == (pytest.approx(1 / 4), 4, "base")
    assert _one(rows, "regrouping_gap")["value"] == pytest.approx(0.8 - 0.1)
    assert "hidden_tokens" not in set(rows["metric"])


def test_imbalance_is_measured_under_each_condition_against_icl() -> None:
    plan = expand(_study(SCORED, "method=[icl,pride]", "experiment.position.probes=[label_order]"))
    labels = [0, 0, 1, 1, 2, 2]
    icl = {"base": [0, 0, 1, 0, 0, 1], REVERSED: [2, 1, 1, 1, 2, 2]}
    plant(plan, labels, lambda cell: _positions(icl[cell.condition], cell.label_order))
    pride = {"base": [0, 0, 1, 1, 2, 2], REVERSED: [1, 2, 0, 2, 2, 2]}
    frames = [
        pd.DataFrame({"row": range(6), "label": labels, "prediction": found, "condition": condition}).assign(
            shots="1_per_class", seed=0
        )
        for condition, found in pride.items()
    ]
    write_parquet(paths.predictions("planted", "position", SCORED, "tweets3", "pride"), pd.concat(frames))
    rows = _metrics(plan)
    # Class accuracies 1, 1/2, 0 and 0, 1, 1: mean absolute difference of the three pairs.
    for condition in ("base", REVERSED):
        cobias = _one(rows, "cobias", method="icl", condition=condition)
        assert (cobias["value"], cobias["n"]) == (pytest.approx(2 / 3), 6)
        assert cobias["low"] <= cobias["value"] <= cobias["high"]
    assert _one(rows, "cobias", method="pride", condition="base")["value"] == 0
    difference = _one(rows, "cobias_difference", method="pride", condition="base")
    assert (difference["value"], difference["note"]) == (pytest.approx(-2 / 3), "minus icl")
    assert difference["low"] <= difference["value"] <= difference["high"]
    assert _one(rows, "cobias", method="pride", condition=REVERSED)["value"] == pytest.approx(2 / 3)  # 0, 0, 1
    assert _one(rows, "cobias_difference", method="pride", condition=REVERSED)["value"] == pytest.approx(0)
    found = rows[(rows["metric"] == "class_accuracy") & (rows["condition"] == "base") & (rows["method"] == "icl")]
    assert dict(zip(found["class"], found["value"], strict=True)) == {"negative": 1, "neutral": 0.5, "positive": 0}
    assert _one(rows, "pfr_p1", method="pride")["value"] == pytest.approx(4 / 6)
    assert _one(rows, "pfr_p1", method="icl")["value"] == pytest.approx(5 / 6)
    assert not (rows[rows["metric"] == "cobias_difference"]["method"] == "icl").any()


# --- factors ---


def _factors(*names: str) -> list[str]:
    changes = [f"factor=[demo_count,{','.join(names)}]", f"experiment.position.factors=[{','.join(names)}]"]
    return [*changes, "experiment.position.probes=[label_order]"]


def test_words_are_measured_under_both_mappings() -> None:
    plan = expand(_study(SCORED, *_factors("label_format"), "experiment.position.rows.test=4"))
    words = {"base": [0, 1, 2, 0], REVERSED: [0, 1, 0, 0]}  # places in the list of words
    plant(plan, [0, 1, 2, 0], lambda cell: [[k] for k in words[cell.condition]])
    rows = _metrics(plan)
    assert {"letter", "neutral_id", "natural_language", ""} == set(rows["level"])
    semantic = _one(rows, "pfr_p1_semantic", level="natural_language")  # row 2 changes its word
    assert (semantic["value"], semantic["n"], semantic["condition"]) == (pytest.approx(1 / 4), 4, "p1_semantic")
    assert _one(rows, "pfr_p1_semantic_worst", level="natural_language")["value"] == pytest.approx(1 / 4)
    # Mapped by place the classes are 2, 1, 2, 2 instead of 0, 1, 2, 0.
    assert _one(rows, "pfr_p1", level="natural_language")["value"] == pytest.approx(2 / 4)
    others = rows[rows["level"] != "natural_language"]
    assert not others["metric"].str.contains("semantic").any()
    assert not {"cobias", "class_accuracy", "flip_floor"} & set(rows[rows["factor"] != ""]["metric"])


@pytest.fixture
def pairs() -> Callable[[list[list[int]], list[int]], pd.DataFrame]:
    """Metrics where each pair of a row is decided as given: 1, 0 or -1, whatever the question."""

    def measured(decisions: list[list[int]], demonstrations: list[int]) -> pd.DataFrame:
        plan = expand(
            _study(SCORED, *_factors("inference_paradigm"), f"experiment.position.rows.test={len(decisions)}")
        )

        def choose(cell: Cell) -> list[list[int]]:
            if cell.level != "pairwise":
                return [[0] * cell.parts for _ in decisions]
            sign = -1 if cell.label_order == "reversed" else 1
            calls = {1: [0, 1], 0: [0, 0], -1: [1, 0]}
            return [[call for decision in row for call in calls[sign * decision]] for row in decisions]

        plant(plan, [2, 1][: len(decisions)], choose, demonstrations=demonstrations)
        return _metrics(plan)

    return measured


def test_pairs_are_measured_by_rule_with_the_demonstrations_that_were_shown(
    pairs: Callable[[list[list[int]], list[int]], pd.DataFrame],
) -> None:
    # Shown in the order of classes 2, 0, 1: row 0 is undecided, above, above; row 1 is below, above, undecided.
    rows = pairs([[0, 1, 1], [-1, 1, 0]], [2, 0, 1])
    pairwise = rows[rows["level"] == "pairwise"]
    assert set(pairwise["method"]) == {"majority_vote", "mean_score", "weighted_sum", "copeland", "bradley_terry"}
    for rule in set(pairwise["method"]):
        for condition in ("base", REVERSED):
            assert _one(pairwise, "accuracy", method=rule, condition=condition)["value"] == 1, rule
        assert _one(pairwise, "pfr_p1", method=rule)["value"] == 0
    assert not {"label_mass", "parse_failure_rate", "flip_floor"} & set(pairwise["metric"])
    # The first position is another class when the list is turned round.
    for level in ("listwise", "listwise_compare"):
        listed = rows[rows["level"] == level]
        assert set(listed["method"]) == {"icl"}
        assert _one(listed, "pfr_p1")["value"] == 1


# --- configurations chosen on half of the rows ---


def test_every_other_row_of_each_class_is_for_choosing() -> None:
    labels = np.array([1, 0, 0, 2, 1, 0, 1, 0])
    chosen = selection_half(labels)
    assert chosen.tolist() == [True, True, False, True, False, True, True, False]


def test_configurations_and_their_baseline_are_reported_on_the_other_half() -> None:
    study = _study(
        SCORED, *_factors("label_format", "configuration"), "experiment.position.selection=measured",
        "experiment.position.floor_rows=0",
    )  # fmt: skip
    chosen = {"p1_optimal": Level(title="P1", prompt={"label_format": "natural_language", "mood": "indicative"})}
    plan = expand(with_selection(study, chosen))
    labels = [0, 0, 1, 1, 2, 2]
    half = [True, False] * 3
    assert selection_half(np.array(labels)).tolist() == half
    # By (factor, condition): right on the choosing half only, and on the other half in part.
    baseline = {"base": [0, 1, 1, 1, 2, 0], REVERSED: [0, 1, 1, 1, 2, 1]}
    configured = {"base": [1, 0, 0, 1, 0, 2], REVERSED: [1, 2, 0, 1, 0, 0]}

    def choose(cell: Cell) -> list[list[int]]:
        found = configured if cell.factor == "configuration" else baseline
        return _positions(found[cell.condition], cell.label_order)

    plant(plan, labels, choose)
    rows = _metrics(plan)

    def values(metric: str, **columns: str) -> tuple[float, int]:
        row = _one(rows, metric, method="icl", **columns)
        return round(float(row["value"]), 6), int(row["n"])

    third, two_thirds = round(1 / 3, 6), round(2 / 3, 6)
    assert values("accuracy", factor="", condition="base") == (two_thirds, 6)
    assert values("accuracy", level="letter", condition="base") == (two_thirds, 6)
    assert values("accuracy", factor="configuration", level="baseline", condition="base") == (third, 3)
    assert values("accuracy", level="p1_optimal", condition="base") == (1.0, 3)
    assert values("pfr_p1", factor="") == (round(1 / 6, 6), 6)
    assert values("pfr_p1", factor="configuration", level="baseline") == (third, 3)
    assert values("pfr_p1", level="p1_optimal") == (two_thirds, 3)
    note = _one(rows, "mcnemar_p", level="p1_optimal")["note"]
    assert note == "right under natural only: 2; under reversed only: 0"
    # The words of the other half are 0, 1, 2 under both orders; on the choosing half two change.
    assert values("pfr_p1_semantic", level="p1_optimal") == (0.0, 3)
