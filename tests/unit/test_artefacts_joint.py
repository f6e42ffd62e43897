"""Both instruments on one grid: what corrections cost and gain, by hand-computed frames."""

from __future__ import annotations

import io
import warnings
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from poise.artefacts.context import Context
from poise.artefacts.figures import joint as figures
from poise.artefacts.tables import joint
from poise.config.methods import (
    BatchCalibrationMethod,
    DNIPMethod,
    ICLMethod,
    LabelAveragingMethod,
    PriDeMethod,
    PriorMatchingMethod,
)
from poise.config.schema import Study
from poise.planfile import make_plan
from poise.stages.tidy import tidy_frame

pytestmark = pytest.mark.usefixtures("figure_style")

REVERSED = "label_order=reversed"
METHODS = [
    ICLMethod(kind="icl", name="icl", title="ICL"),
    DNIPMethod(kind="dnip", name="dnip", title="DNIP"),
    DNIPMethod(kind="dnip", name="dnip_tokens", title="DNIP tokens", axis="label_token", fit_on="pooled"),
    LabelAveragingMethod(kind="label_averaging", name="label_averaging", title="Label averaging"),
    BatchCalibrationMethod(kind="batch_calibration", name="batch_calibration", title="Batch calibration"),
]


@pytest.fixture(scope="module")
def study() -> Study:
    return make_plan(["study=demo"]).study.model_copy(update={"method": {m.name: m for m in METHODS}})


def _row(metric: str, value: float, **columns: Any) -> dict[str, Any]:
    shared = {
        "experiment": "both", "model": "m", "dataset": "d", "shots": "5_per_class", "seed": 0, "method": "icl",
        "condition": "base", "n": 200, "provenance": "measured",
    }  # fmt: skip
    return {**shared, "metric": metric, "value": value, **columns}


def _scores(method: str, accuracy: float, cobias: float, p1: float | None = None, **where: Any) -> list[dict[str, Any]]:
    where = {"method": method, **where}
    rows = [
        _row("accuracy", accuracy, **where),
        _row("macro_f1", accuracy - 0.1, **where),
        _row("spearman_rho", accuracy / 2, **where),
        _row("mae", 1 - accuracy, **where),
        _row("cobias", cobias, low=cobias - 0.05, high=cobias + 0.05, **where),
        _row("cobias_floor", 0.04, **where),
    ]
    if p1 is not None:
        rows.append(_row("pfr_p1", p1, low=p1 - 0.04, high=p1 + 0.04, **{**where, "condition": "p1"}))
        rows.append(_row("pfr_p1_worst", p1 + 0.01, **{**where, "condition": "p1"}))
    return rows


def _grid() -> list[dict[str, Any]]:
    """Two data sets, two seeds. Seed means of ICL's accuracy over the data sets: 0.5 and 0.6; of DNIP's: 0.7, 0.7."""
    rows = []
    for dataset, shift in (("d", 0.0), ("e", 0.2)):
        for seed, icl, dnip in ((0, 0.4, 0.6), (1, 0.5, 0.6)):
            where = {"dataset": dataset, "seed": seed}
            rows += _scores("icl", icl + shift, 0.30, 0.25, **where)
            rows += _scores("dnip", dnip + shift, 0.10 + seed / 10, 0.35, **where)
            rows += _scores("label_averaging", icl + shift, 0.28, **where)
            rows += _scores("icl", icl + shift - 0.1, 0.40, **where, condition=REVERSED)
            rows += _scores("dnip", dnip + shift - 0.3, 0.50 + seed / 10, **where, condition=REVERSED)
    return rows


def _section(table: Any, *words: str) -> pd.DataFrame:
    (found,) = (frame for heading, frame in table.sections if all(word in heading for word in words))
    return found.set_index("Correction")


def test_all_data_sets_average_each_seed_first(study: Study) -> None:
    table = joint.all_methods(Context(study, tidy_frame(_grid())))
    assert [heading.rpartition(": ")[2] for heading, _ in table.sections[1:]] == ["all data sets", "d", "e"]
    everything = _section(table, "all data sets")
    assert everything.index.tolist() == ["ICL", "DNIP", "Label averaging"]
    assert everything["Accuracy (%)"].tolist() == ["55.0 ± 7.1", "70.0 ± 0.0", "55.0 ± 7.1"]
    assert everything["Macro-F1 (%)"].tolist() == ["45.0 ± 7.1", "60.0 ± 0.0", "45.0 ± 7.1"]
    assert everything["ρ"].tolist()[0] == "0.275 ± 0.035"
    assert everything["MAE"].tolist()[0] == "0.450 ± 0.071"
    assert everything.loc["DNIP", "COBias (%)"] == "15.0 ± 7.1 (floor 4.0)"
    assert everything["P1 (%)"].tolist() == ["25.0 ± 0.0", "35.0 ± 0.0", "–"]
    assert everything["P3b (%)"].tolist() == ["–"] * 3
    assert _section(table, ": d").loc["DNIP", "COBias (%)"] == "15.0 ± 7.1 (floor 4.0)"
    tidy = table.tidy[(table.tidy["dataset"] == "all") & (table.tidy["measure"] == "accuracy")].set_index("method")
    np.testing.assert_allclose(tidy["mean"], [0.55, 0.70, 0.55])
    np.testing.assert_allclose(tidy["sd"], [np.sqrt(0.005), 0, np.sqrt(0.005)], atol=1e-12)
    assert set(table.tidy["provenance"]) == {"measured"}


def test_a_method_without_every_data_set_has_no_mean_over_them(study: Study) -> None:
    rows = [row for row in _grid() if (row["method"], row["dataset"]) != ("dnip", "e")]
    table = joint.all_methods(Context(study, tidy_frame(rows)))
    assert _section(table, "all data sets").index.tolist() == ["ICL", "Label averaging"]
    assert "DNIP" in _section(table, ": d").index


def test_one_run_shows_its_intervals(study: Study) -> None:
    rows = [row for row in _grid() if row["seed"] == 0 and row["dataset"] == "d"]
    wide = _section(joint.all_methods(Context(study, tidy_frame(rows))), ": d")
    assert wide.loc["DNIP", "COBias (%)"] == "10.0 [5.0, 15.0] (floor 4.0)"
    assert wide.loc["ICL", "P1 (%)"] == "25.0 [21.0, 29.0]"
    assert wide.loc["ICL", "Accuracy (%)"] == "40.0"


def test_methods_say_what_they_look_at(study: Study) -> None:
    methods = [*METHODS, PriDeMethod(kind="pride", name="pride", title="PriDe"),
               PriorMatchingMethod(kind="prior_matching", name="prior", title="Prior")]  # fmt: skip
    context = Context(study.model_copy(update={"method": {m.name: m for m in methods}}), tidy_frame([]))
    assert joint.describe(context, "dnip") == ("class", "labelled rows, natural label order", "no")
    assert joint.describe(context, "dnip_tokens") == ("label token", "labelled rows, both label orders", "no")
    assert joint.describe(context, "prior") == ("class", "unlabelled rows, natural label order", "no")
    assert [joint.describe(context, name)[2] for name in ("pride", "batch_calibration", "icl")] == ["yes", "yes", "no"]
    table = joint.all_methods(Context(study, tidy_frame(_grid())))
    assert table.sections[0][1]["Axis"].tolist() == ["–", "class", "–"]


def test_factor_levels_and_experiments_without_corrections_are_left_out(study: Study) -> None:
    rows = _grid() + _scores("icl", 0.99, 0.9, 0.9, experiment="other")
    rows += _scores("icl", 0.99, 0.9, 0.9, factor="label_format", level="letter")
    rows += _scores("weighted_sum", 0.99, 0.9, factor="inference_paradigm", level="pairwise", experiment="other")
    found = joint.joint_rows(Context(study, tidy_frame(rows)))
    assert set(found["experiment"]) == {"both"}
    assert found["value"].max() < 0.99


def test_carry_over_is_the_change_from_icl_under_the_same_order(study: Study) -> None:
    table = joint.carry_over(Context(study, tidy_frame(_grid())))
    wide = _section(table, "Label orders", "all data sets")
    assert wide.index.tolist() == ["ICL", "DNIP"]
    icl, dnip = wide.loc["ICL"], wide.loc["DNIP"]
    assert dnip["Accuracy change, natural"] == "+15.0 ± 7.1"
    assert dnip["Accuracy change, reversed"] == "-5.0 ± 7.1"
    assert dnip["COBias change, natural"] == "-15.0 ± 7.1"
    assert dnip["COBias change, reversed"] == "+15.0 ± 7.1"
    assert dnip["COBias, reversed"] == "55.0 ± 7.1 (floor 4.0)"
    assert (icl["Accuracy, reversed"], icl["Accuracy change, reversed"], icl["P1"]) == ("45.0 ± 7.1", "–", "25.0 ± 0.0")
    changes = table.tidy[table.tidy["quantity"] == "change from icl"]
    assert set(changes["method"]) == {"dnip"}
    assert set(changes["measure"]) == {"accuracy", "cobias"}


def test_class_accuracies_stand_by_condition(study: Study) -> None:
    rows = _grid()
    for method, step in (("icl", 0.0), ("dnip", 0.1), ("label_averaging", 0.5)):
        for seed in (0, 1):
            for condition, value in (("base", 0.2), (REVERSED, 0.4), ("placement=after", 0.6)):
                where = {"method": method, "seed": seed, "condition": condition, "class": "good", "n": 40}
                rows.append(_row("class_accuracy", value + step + seed / 10, **where))
    table = joint.carry_over(Context(study, tidy_frame(rows)))
    wide = _section(table, "Class accuracies", ": d")
    assert wide.index.tolist() == ["ICL", "DNIP"]
    assert wide["Class"].tolist() == ["good (n 40)"] * 2
    assert list(wide.columns[1:]) == ["Base", "Labels reversed", "After"]
    assert wide.loc["DNIP"].tolist()[1:] == ["35.0 ± 7.1", "55.0 ± 7.1", "75.0 ± 7.1"]


@pytest.mark.parametrize("make", [joint.all_methods, joint.carry_over])
def test_a_study_without_corrections_has_tables_that_say_so(study: Study, make: Any) -> None:
    table = make(Context(study, tidy_frame(_scores("icl", 0.5, 0.3, 0.2))))
    assert set(table.tidy["provenance"]) == {"not measured"}
    assert "not measured" in table.markdown()


def test_pareto_front_is_what_no_point_beats() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        # Few distinct values, so that ties and equal points occur.
        good, bad = rng.integers(0, 6, (2, 12)) / 10
        front = figures.pareto_front(good, bad)
        for i in range(12):
            beaten = any(
                good[j] >= good[i] and bad[j] <= bad[i] and (good[j] > good[i] or bad[j] < bad[i]) for j in range(12)
            )
            assert front[i] == (not beaten)
        assert front.any()


def test_fronts_show_each_data_set_and_all(study: Study) -> None:
    figure = figures.fronts(Context(study, tidy_frame(_grid())))
    left = figure.axes[0::2]
    assert [panel.get_title(loc="left") for panel in left] == ["mean of 2 data sets", "d", "e"]
    (front,) = (line for line in left[0].lines if line.get_label() == "Pareto front")
    np.testing.assert_allclose(front.get_xdata(), [70])
    np.testing.assert_allclose(front.get_ydata(), [15])
    steady = figure.axes[1]
    (front,) = (line for line in steady.lines if line.get_label() == "Pareto front")
    np.testing.assert_allclose(np.column_stack([front.get_xdata(), front.get_ydata()]), [[55, 25], [70, 35]])
    assert {text.get_text() for text in steady.texts} == {"ICL", "DNIP"}
    text = _texts(figure)
    assert "Label averaging" in text
    assert "sampling floor 4.0 %" in text
    assert "measured" in text


def test_figure_without_corrections_says_so(study: Study) -> None:
    figure = figures.fronts(Context(study, tidy_frame(_scores("icl", 0.5, 0.3, 0.2))))
    assert "not measured" in _texts(figure)


@pytest.mark.parametrize("seeds", [1, 2])
def test_large_and_small_fronts_draw_without_warnings(study: Study, seeds: int) -> None:
    rng = np.random.default_rng(0)
    names = [*(m.name for m in METHODS), *(f"a method with a long name {k}" for k in range(8))]
    rows = []
    for dataset in "ab"[:seeds]:
        for seed in range(seeds):
            for name in names:
                rows += _scores(name, 0.5 + rng.random() / 20, 0.2 + rng.random() / 20, 0.3, dataset=dataset, seed=seed)
    titles = {*(m.title for m in METHODS), *names}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figures.fronts(Context(study, tidy_frame(rows)))
        figure.savefig(io.BytesIO(), dpi=50)
        figure.draw_without_rendering()
    for panel in figure.axes:
        labels = [text for text in panel.texts if text.get_text().replace("\n", " ") in titles]
        assert len(labels) == len(names)
        boxes = [mpl.text.Text.get_window_extent(text) for text in labels]  # without the line to the point
        for k, box in enumerate(boxes):
            assert not any(box.shrunk(0.95, 0.95).overlaps(other) for other in boxes[:k])


def _texts(figure: Any) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))
