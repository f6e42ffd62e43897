"""Figures of the class-accuracy paper: what is drawn is what was measured, and what was not is named."""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from poise.artefacts.context import Context
from poise.artefacts.figures import annealing, comparison, illustration
from poise.artefacts.figures.common import grid
from poise.artefacts.registry import ARTEFACTS
from poise.plan import Plan
from poise.planfile import make_plan
from poise.stages.measure import tidy_frame

pytestmark = pytest.mark.usefixtures("figure_style")

FIGURES = [name for name in ARTEFACTS if name.startswith("dnip_figure")]
METHODS = list(dict.fromkeys([*comparison.PEERS, *comparison.ABLATIONS, *comparison.SINGLE, "dnip_metropolis"]))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(["study=demo"])


def _row(metric: str, value: float, **columns: Any) -> dict[str, Any]:
    shared = {
        "experiment": "class_accuracy", "model": "m", "dataset": "d", "shots": "1_shot", "seed": 0, "method": "icl",
        "condition": "base", "n": 200, "provenance": "measured",
    }  # fmt: skip
    return {**shared, "metric": metric, "value": value, **columns}


def _run(counts: Sequence[Sequence[int]], weights: Sequence[float] = (), **columns: Any) -> list[dict[str, Any]]:
    """Rows of one run from its confusion counts; classes are named c0, c1 …"""
    matrix = np.array(counts)
    names = [f"c{k}" for k in range(len(matrix))]
    rows = [_row(metric, value, low=value - 0.05, high=value + 0.05, **columns)
            for metric, value in (("accuracy", np.trace(matrix) / matrix.sum()), ("cobias", 0.4),
                                  ("cobias_single", 0.5), ("cobias_floor", 0.06))]  # fmt: skip
    for i, name in enumerate(names):
        total = int(matrix[i].sum())
        shared = {**columns, "class": name, "n": total}
        rows.append(_row("class_accuracy", matrix[i, i] / total if total else float("nan"), **shared))
        rows += [_row("count", matrix[i, j], **shared, pred_class=other) for j, other in enumerate(names)]
    rows += [_row("weight", weight, **{"class": name}, **columns) for name, weight in zip(names, weights, strict=False)]
    return rows


def _scores(method: str, seed: int, accuracy: float, cobias: float, **columns: Any) -> list[dict[str, Any]]:
    shared = {"method": method, "seed": seed, **columns}
    scores = {"accuracy": accuracy, "cobias": cobias, "cobias_single": cobias / 2, "cobias_floor": 0.05}
    return [_row(metric, value, **shared) for metric, value in scores.items()]


def _full(datasets: int, classes: int, models: int = 1, seeds: int = 3, length: int = 0) -> list[dict[str, Any]]:
    """All that a large study measures; class 0 has no test rows."""
    rng = np.random.default_rng(0)
    rows = []
    for model in range(models):
        for dataset in range(datasets):
            for seed in range(seeds):
                for method in METHODS:
                    counts = rng.integers(0, 1500, (classes, classes)) * (rng.random((classes, classes)) < 0.3)
                    counts[0] = 0
                    counts[1, 1] += 1
                    where = {"model": f"model {model}", "dataset": f"data set {dataset}", "seed": seed}
                    run = _run(counts, rng.random(classes), method=method, **where)
                    for row in run:
                        for column in ("class", "pred_class"):
                            row[column] = f"{row.get(column, '')}{'x' * length}" if row.get(column) else ""
                    rows += run
                curve = {"method": "dnip_metropolis", **where}
                for k in range(1, 200):
                    rows.append(_row("curve_objective", -k + rng.random(), **{**curve, "n": 10 * k}))
                    rows.append(_row("curve_best", -k, **{**curve, "n": 10 * k}))
                    rows.append(_row("curve_temperature", 2e5 * 0.97**k, **{**curve, "n": 10 * k}))
    return rows


def _draw(plan: Plan, name: str, rows: list[dict[str, Any]]) -> Figure:
    module, function = ARTEFACTS[name].maker.split(":")
    draw = getattr(importlib.import_module(f"poise.artefacts.{module}"), function)
    return draw(Context(plan.study, tidy_frame(rows)))


def _texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


def _widths(axes: Axes, container: int) -> list[float]:
    return [round(float(bar.get_width()), 6) for bar in axes.containers[container]]


def _points(axes: Axes, label: str) -> list[float]:
    (found,) = (c for c in axes.containers if isinstance(c, ErrorbarContainer) and c.get_label() == label)
    return [round(float(x), 6) for x in found.lines[0].get_xdata()]


def _whiskers(axes: Axes, label: str) -> list[float]:
    (found,) = (c for c in axes.containers if isinstance(c, ErrorbarContainer) and c.get_label() == label)
    if not found.has_xerr:
        return []
    return [round(float(segment[1][0] - segment[0][0]) / 2, 6) for segment in found.lines[2][0].get_segments()]


def _panel(figure: Figure, name: str) -> Axes:
    (axes,) = (axes for axes in figure.axes if axes.get_title().startswith(name) or axes.get_xlabel().startswith(name))
    return axes


@pytest.fixture
def two_runs() -> list[dict[str, Any]]:
    before = _run([[8, 2, 0], [9, 1, 0], [0, 0, 0]])
    return before + _run([[6, 4, 0], [3, 7, 0], [0, 0, 0]], (0.5, 1.0, 0.0), method="dnip")


def test_figure1_bars_are_class_accuracies_and_the_flow_carries_the_weights(plan: Plan, two_runs: Any) -> None:
    figure = illustration.imbalance_and_correction(Context(plan.study, tidy_frame(two_runs)))
    before, after = _panel(figure, "before: ICL"), _panel(figure, "after: DNIP")
    np.testing.assert_allclose(_widths(before, 0), [80, 10, np.nan])
    np.testing.assert_allclose(_widths(after, 0), [60, 70, np.nan])
    assert [text.get_text().strip() for text in before.texts] == ["80.0", "10.0", "no test rows"]
    assert "accuracy 45.0 %, COBias 40.0 % [35.0, 45.0], floor 6.0 %" in before.get_title()
    strip = [text.get_text() for text in figure.axes[0].texts]
    assert strip[strip.index("c0") : strip.index("c0") + 6] == ["c0", "0.50", "c1", "1.00", "c2", "0.00"]
    assert "× DNIP weights (200 rows)" in strip


def test_figure1_without_dnip_draws_icl_and_says_what_is_missing(plan: Plan) -> None:
    figure = _draw(plan, "dnip_figure1", _run([[8, 2], [9, 1]]))
    assert "not in this study: DNIP" in _texts(figure)
    assert "not measured" in _texts(figure)


def test_figure6_shows_odd_class_shares_accuracies_and_weights(plan: Plan, two_runs: Any) -> None:
    figure = illustration.process(Context(plan.study, tidy_frame(two_runs)))
    odd, accuracy, weight = figure.axes
    np.testing.assert_allclose(_widths(odd, 0), [20, 90, np.nan])
    np.testing.assert_allclose(_widths(odd, 1), [40, 30, np.nan])
    names = [text.get_text().strip() for text in odd.texts]
    assert names == ["c1", "c0", "no test rows"] * 2
    np.testing.assert_allclose(_widths(accuracy, 1), [60, 70, np.nan])
    assert _widths(weight, 0) == [0.5, 1.0, 0.0]


def test_figure6_prefers_trec_and_a_class_without_errors_has_no_odd_class(plan: Plan) -> None:
    rows = _run([[1, 1], [1, 1]]) + _run([[5, 0], [1, 4]], dataset="trec")
    figure = _draw(plan, "dnip_figure6", rows)
    assert "classes of trec" in _texts(figure)
    assert [text.get_text().strip() for text in figure.axes[0].texts] == ["none wrong", "c0"]


def test_figure2_draws_the_first_seed_of_each_data_set(plan: Plan) -> None:
    rows = []
    for seed, shift in ((1, 0.0), (2, 100.0)):
        for n, current, best, temperature in ((1, 3.0, 3.0, 2e5), (50, 2.0, 1.5, 2e3), (99, 1.25, 1.25, 200.0)):
            shared = {"method": "dnip_metropolis", "seed": seed, "n": n}
            rows.append(_row("curve_objective", current + shift, **shared))
            rows.append(_row("curve_best", best + shift, **shared))
            rows.append(_row("curve_temperature", temperature, **shared))
    figure = annealing.annealing_curves(Context(plan.study, tidy_frame(rows)))
    upper, lower = figure.axes
    assert [list(line.get_ydata()) for line in upper.lines] == [[3.0, 2.0, 1.25], [3.0, 1.5, 1.25]]
    assert list(lower.lines[0].get_ydata()) == [2e5, 2e3, 200.0]
    assert list(lower.lines[0].get_xdata()) == [1, 50, 99]
    assert (lower.get_yscale(), lower.get_xlabel()) == ("log", "evaluations (99 in all)")
    assert "best Z 1.2500" in upper.get_title()
    assert "seed 1\n" in _texts(figure)


def _study_of_two() -> list[dict[str, Any]]:
    rows = []
    for dataset, shift in (("d", 0.0), ("e", 0.2)):
        for seed, step in ((0, 0.0), (1, 0.1)):
            where = {"dataset": dataset}
            rows += _scores("icl", seed, 0.30 + shift + step, 0.5, **where)
            rows += _scores("dnip", seed, 0.60 + shift + step, 0.2, **where)
            rows += _scores("dnip_error", seed, 0.65 + shift, 0.3, **where)
            rows += _scores("dnip_cobias_single", seed, 0.55 + shift, 0.25, **where)
    return rows


def test_figure3_has_means_and_sample_sd_of_each_ablation_and_icl_as_a_line(plan: Plan) -> None:
    figure = comparison.ablations(Context(plan.study, tidy_frame(_study_of_two())))
    first, mean = _panel(figure, "d"), _panel(figure, "mean of 2 data sets")
    assert [label.get_text() for label in first.get_yticklabels()] == ["z₁", "z₁ + βz₂ − τz₃"]
    assert _points(first, "accuracy") == [65, 65]
    assert _whiskers(first, "accuracy") == [0, pytest.approx(100 * 0.1 / np.sqrt(2), abs=1e-5)]
    assert _points(mean, "accuracy") == [75, 75]
    assert _points(mean, "COBias") == [30, 20]
    (line,) = (line for line in first.lines if line.get_label() == "ICL, accuracy")
    assert list(line.get_xdata()) == pytest.approx([35, 35])
    assert "not in this study: z₂, z₃, z₁ + βz₂, z₁ − τz₃, βz₂ − τz₃" in _texts(figure).replace("\n", " ")


def test_figure4_has_three_scores_of_each_objective(plan: Plan) -> None:
    figure = comparison.cobias_single(Context(plan.study, tidy_frame(_study_of_two())))
    for label, values in (("accuracy (%)", [55, 75, 65]), ("COBias (%)", [25] * 3), ("COBias_single (%)", [12.5] * 3)):
        assert _points(_panel(figure, label), "DNIP, COBias_single objective") == values
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["d", "e", "mean of 2 data sets"]


def test_figure5_keeps_the_order_of_methods_and_names_the_missing(plan: Plan) -> None:
    rows = [{**row, "method": {"dnip_error": "batch_calibration"}.get(row["method"], row["method"])}
            for row in _study_of_two()]  # fmt: skip
    figure = comparison.peers(Context(plan.study, tidy_frame(rows)))
    panel = _panel(figure, "e")
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["ICL", "Batch calibration", "DNIP"]
    assert _points(panel, "accuracy") == [55, 85, 85]
    text = _texts(figure).replace("\n", " ")
    assert "not in this study: Contextual calibration, 1 input, Contextual calibration, 3 inputs, Prior" in text
    assert "whiskers: ± 1 sample SD" in text


def test_a_method_without_every_data_set_has_no_mean(plan: Plan) -> None:
    rows = [row for row in _study_of_two() if (row["method"], row["dataset"]) != ("dnip", "e")]
    figure = comparison.peers(Context(plan.study, tidy_frame(rows)))
    np.testing.assert_allclose(_points(_panel(figure, "mean"), "accuracy"), [45, np.nan])
    assert "not measured, so without a mean: DNIP on e" in _texts(figure).replace("\n", " ")


def test_one_seed_has_no_whiskers_and_says_so(plan: Plan) -> None:
    rows = [row for row in _study_of_two() if row["seed"] == 1]
    figure = comparison.peers(Context(plan.study, tidy_frame(rows)))
    assert _whiskers(figure.axes[0], "accuracy") == []
    assert "one demonstration seed (1), so no SD" in _texts(figure)


def test_one_model_one_shots_and_one_experiment_are_shown_where_most_was_measured(plan: Plan) -> None:
    rows = [row for row in _study_of_two() if row["method"] == "icl"]
    rows = [{**row, "value": 0.99, "model": "small", "shots": "5_shot"} for row in rows]
    rows += [{**row, "value": 0.99, "experiment": "other"} for row in _study_of_two() if row["method"] == "icl"]
    rows += _study_of_two()
    figure = comparison.peers(Context(plan.study, tidy_frame(rows)))
    assert _points(_panel(figure, "d"), "accuracy") == [35, 65]
    assert "m, 1-shot · one of 2 models · measured" in _texts(figure)


def test_heatmaps_show_counts_shares_and_differences(plan: Plan, two_runs: Any) -> None:
    before, after, _ = _draw(plan, "dnip_figure7", two_runs).axes
    assert [text.get_text() for text in before.texts] == ["8", "2", "0", "9", "1", "0", "0", "0", "0"]
    shares = after.collections[0].get_array().filled(np.nan).ravel()
    np.testing.assert_allclose(shares, [60, 40, 0, 30, 70, 0, 0, 0, 0])
    assert after.get_title() == "d\nafter DNIP\nseed 0, accuracy 65.0 %"
    differences = _draw(plan, "dnip_figure8", two_runs)
    values = differences.axes[0].collections[0].get_array().filled(np.nan)
    np.testing.assert_allclose(values, [[0, 70, np.nan], [70, 0, np.nan], [np.nan] * 3])
    assert "mean of pairs 10.0" in differences.axes[1].get_title()
    assert "a class without test rows" in _texts(differences)


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_to_show_is_a_page_that_says_why(plan: Plan, name: str) -> None:
    for rows in ([], [_row("macro_f1", 0.5)]):
        text = _texts(_draw(plan, name, rows))
        assert ARTEFACTS[name].title in text.replace("\n", " ")
        assert "not measured" in text


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize(
    ("datasets", "classes", "models", "seeds"), [(7, 14, 1, 2), (1, 2, 3, 1), (2, 8, 1, 3)], ids=str
)
def test_small_and_large_studies_draw_without_warnings(
    plan: Plan, name: str, datasets: int, classes: int, models: int, seeds: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = _draw(plan, name, _full(datasets, classes, models, seeds))
        figure.savefig(io.BytesIO(), dpi=50)
    assert "not in this study" not in _texts(figure)
    assert "model 0, 1-shot" in _texts(figure)
    assert ("first of 3 models" in _texts(figure)) == (models == 3)
    assert figure.get_size_inches()[0] <= 9


def test_same_numbers_same_bytes(plan: Plan) -> None:
    pages = []
    for _ in range(2):
        buffer = io.BytesIO()
        _draw(plan, "dnip_figure5", _study_of_two()).savefig(buffer, format="pdf", metadata={"CreationDate": None})
        pages.append(buffer.getvalue())
    assert pages[0] == pages[1]


def test_grids_are_even() -> None:
    assert [grid(n, 4) for n in (1, 4, 5, 7, 8)] == [(1, 1), (1, 4), (2, 3), (2, 4), (2, 4)]
