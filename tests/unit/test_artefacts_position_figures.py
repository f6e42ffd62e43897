"""Figures of the position instrument: means, baselines and intervals by hand, from small frames."""

from __future__ import annotations

import io
import warnings
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from poise import paths
from poise.artefacts.context import Context
from poise.artefacts.figures import factors, forest, position
from poise.artefacts.figures.labels import place_labels
from poise.artefacts.tables.position_common import settings
from poise.config.schema import Study
from poise.planfile import make_plan
from poise.stages.tidy import tidy_frame

pytestmark = pytest.mark.usefixtures("figure_style")

MODEL = "smollm2-135m-instruct"
CONTRASTS = ("p1", "p2", "p2a", "p2b", "p3", "p3a", "p3b")


@pytest.fixture(scope="module")
def study() -> Study:
    return make_plan(["study=demo"]).study


def _row(metric: str, value: float, **columns: Any) -> dict[str, Any]:
    shared = {
        "experiment": "position", "model": MODEL, "dataset": "tweets3", "shots": "5_per_class", "seed": 0,
        "method": "icl", "condition": "base", "n": 200, "provenance": "measured",
    }  # fmt: skip
    return {**shared, "metric": metric, "value": value, **columns}


def _setting(accuracy: float, p1: float, others: float | None = 0.2, **where: Any) -> list[dict[str, Any]]:
    """One setting of one run; without ``others`` only the label order is probed, as with no demonstrations."""
    rows = [_row("accuracy", accuracy, **where), _row("accuracy", 0.01, condition="label_order=reversed", **where)]
    for contrast in CONTRASTS if others is not None else ("p1",):
        rate = p1 if contrast == "p1" else float(others or 0)
        shared = {**where, "condition": contrast}
        rows.append(_row(f"pfr_{contrast}", rate, low=max(rate - 0.05, 0), high=min(rate + 0.05, 1), **shared))
        rows.append(_row(f"pfr_{contrast}_worst", 0.9, **shared))
    return rows


def _points(study: Study, rows: list[dict[str, Any]]) -> pd.DataFrame:
    found = factors.level_points(settings(Context(study, tidy_frame(rows))))
    return found.set_index(["factor", "level", "measure"])


def _texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


def _bars(axes: Axes, label: str) -> list[ErrorbarContainer]:
    return [c for c in axes.containers if isinstance(c, ErrorbarContainer) and c.get_label() == label]


def test_levels_stand_beside_the_baseline_on_the_same_data_sets(study: Study) -> None:
    rows = []
    for dataset, shift in (("tweets3", 0.2), ("movies5", 0.0)):
        for seed in (0, 1):
            where = {"dataset": dataset, "seed": seed}
            rows += _setting(0.5 + shift, 0.10 + shift, **where)
            letter = {**where, "factor": "label_format", "level": "letter"}
            rows += _setting(0.6 + shift + seed / 10, 0.30 + shift, 0.25, **letter)
            if dataset == "movies5":
                rows += _setting(0.8, 0.05, **where, factor="scale_cardinality", level="3_way")
    points = _points(study, rows)
    accuracy = points.loc[("label_format", "letter", "accuracy")]
    np.testing.assert_allclose(accuracy[["mean", "sd", "base"]].astype(float), [0.75, np.sqrt(0.005), 0.6])
    np.testing.assert_allclose(points.loc[("label_format", "letter", "p1"), ["mean", "base"]].astype(float), [0.4, 0.2])
    pairs = points.loc[("label_format", "letter", "pairs")]
    np.testing.assert_allclose(pairs[["mean", "base"]].astype(float), [0.25, 0.2])
    # Three-way applies to one data set alone, so its baseline is of that data set alone.
    np.testing.assert_allclose(points.loc[("scale_cardinality", "3_way", "accuracy"), "base"], 0.5)


def test_pairwise_counts_by_its_weighted_sum_and_corrections_are_no_levels(study: Study) -> None:
    where = {"factor": "inference_paradigm", "level": "pairwise"}
    rows = _setting(0.5, 0.1)
    rows += _setting(0.4, 0.3, None, **where, method="weighted_sum")
    rows += _setting(0.9, 0.9, None, **where, method="copeland")
    rows += _setting(0.9, 0.9, method="dnip")
    points = _points(study, rows)
    assert set(points.index.get_level_values("level")) == {"pairwise"}
    np.testing.assert_allclose(
        points.loc[("inference_paradigm", "pairwise", "p1"), ["mean", "base"]].astype(float), [0.3, 0.1]
    )
    assert ("inference_paradigm", "pairwise", "pairs") not in points.index


def test_the_mean_of_pairs_needs_all_four(study: Study) -> None:
    letter = _setting(0.6, 0.3, factor="label_format", level="letter")
    rows = _setting(0.5, 0.1) + [row for row in letter if row["metric"] != "pfr_p3b"]
    points = _points(study, rows)
    assert set(points.index.get_level_values("measure")) == {"accuracy", "p1"}


def test_configurations_chosen_on_half_of_the_rows_have_that_halfs_baseline(study: Study) -> None:
    rows = _setting(0.5, 0.1)
    rows += _setting(0.54, 0.12, factor="configuration", level="baseline")
    rows += _setting(0.6, 0.05, factor="configuration", level="p1_optimal")
    rows += _setting(0.6, 0.05, factor="separator", level="tab")
    points = _points(study, rows)
    assert ("configuration", "baseline", "p1") not in points.index
    np.testing.assert_allclose(
        points["base"].xs("accuracy", level="measure").to_dict()[("configuration", "p1_optimal")], 0.54
    )
    np.testing.assert_allclose(points.loc[("separator", "tab", "accuracy"), "base"], 0.5)


def test_figure2_has_two_panels_a_factor_with_levels_and_baselines_named(study: Study) -> None:
    rows = _setting(0.5, 0.1)
    rows += _setting(0.6, 0.3, factor="label_format", level="letter")
    rows += _setting(0.4, 0.2, None, factor="demo_count", level="0_shot", shots="0_per_class")
    figure = factors.flips_against_accuracy(Context(study, tidy_frame(rows)))
    upper, lower, count, _ = figure.axes
    titles = {name: level.title for name, level in study.factors["label_format"].levels.items() if level}
    assert upper.get_title() == study.factors["label_format"].title
    assert [text.get_text() for text in upper.texts] == [titles["numeric"], titles["letter"]]
    (levels,) = _bars(upper, "P1: label order")
    np.testing.assert_allclose(np.ravel(levels.lines[0].get_xydata()), [60, 30])
    (star,) = (line for line in upper.lines if line.get_label() == "baseline")
    np.testing.assert_allclose(np.ravel(star.get_xydata()), [50, 10])
    (pairs,) = _bars(lower, "P2, P3: mean of P2a, P2b, P3a, P3b")
    np.testing.assert_allclose(np.ravel(pairs.lines[0].get_xydata()), [60, 20])
    assert count.get_title() == study.factors["demo_count"].title
    text = _texts(figure).replace("\n", " ")
    assert "not defined" in text
    assert "one demonstration seed" in text
    assert "not in this study: Scale cardinality, Prompt clarity" in text
    assert "measured" in text


def test_figure2_without_factors_says_so(study: Study) -> None:
    assert "not measured" in _texts(factors.flips_against_accuracy(Context(study, tidy_frame(_setting(0.5, 0.1)))))


def test_figure2_shows_the_model_with_most_levels(study: Study) -> None:
    rows = _setting(0.5, 0.1, model="first") + _setting(0.5, 0.1)
    rows += _setting(0.6, 0.3, factor="separator", level="tab", model="first")
    for level in ("tab", "space"):
        rows += _setting(0.6, 0.3, factor="separator", level=level)
    text = _texts(factors.flips_against_accuracy(Context(study, tidy_frame(rows))))
    assert f"{study.models[MODEL].title} · one of 2 models" in text


def _forest_rows(seeds: int = 2) -> list[dict[str, Any]]:
    rows = []
    for seed in range(seeds):
        rows += _setting(0.5, 0.30 + seed / 10, 0.4, seed=seed)
        rows.append(_row("flip_floor", 0.01, low=0.0, high=0.06, n=40, seed=seed))
    return rows


def test_figure3_has_runs_floors_and_the_papers_ten_models(study: Study) -> None:
    rows = _forest_rows() + _setting(0.9, 0.99, method="dnip") + _setting(0.9, 0.99, factor="separator", level="tab")
    figure = forest.flip_rate_forest(Context(study, tidy_frame(rows)))
    assert [panel.get_title().split("\n")[0] for panel in figure.axes] == ["P1", "P2", "P3"]
    first = figure.axes[0]
    (runs,) = _bars(first, "this study")
    np.testing.assert_allclose(runs.lines[0].get_xdata(), [30, 40])
    low, high = runs.lines[2][0].get_segments()[0][:, 0]
    np.testing.assert_allclose([low, high], [25, 35])
    (floors,) = _bars(first, "numerical floor, to the end of its interval")
    np.testing.assert_allclose(floors.lines[2][0].get_segments()[0][:, 0], [1, 6])
    (paper,) = _bars(first, "paper")
    printed = pd.read_csv(paths.reference_dir() / "position/table2.csv")
    printed = printed[printed["measure"] == "p1"]
    np.testing.assert_allclose(paper.lines[0].get_xdata(), 100 * printed["pfr"])
    assert len(printed) == 10
    names = [label.get_text() for label in first.get_yticklabels()]
    assert names[0] == study.models[MODEL].title
    assert names[1].endswith("(n 200)\nseeds 0, 1")
    assert names[2] == "paper, SST-5"
    assert names[3:] == list(printed["model"])
    # Every mark of the paper stands at its own model's name.
    np.testing.assert_allclose(paper.lines[0].get_xydata()[:, 1], first.get_yticks()[3:])
    assert "data/reference/position/table2.csv" in _texts(figure)


def test_figure3_adds_noise_and_total_where_they_were_measured(study: Study) -> None:
    rows = _forest_rows(1)
    for name, value in (("noise", 0.05), ("total", 0.25)):
        rows.append(_row(f"pfr_{name}", value, low=value - 0.03, high=value + 0.03, condition=name))
    figure = forest.flip_rate_forest(Context(study, tidy_frame(rows)))
    assert [panel.get_title().split("\n")[0] for panel in figure.axes] == ["P1", "P2", "P3", "Noise", "Total"]
    noise = figure.axes[3]
    (runs,) = _bars(noise, "this study")
    np.testing.assert_allclose(runs.lines[0].get_xdata(), [5])
    assert not _bars(noise, "numerical floor, to the end of its interval")
    assert len(_bars(noise, "paper")[0].lines[0].get_xdata()) == 10


def test_figure3_shows_a_run_of_two_experiments_once(study: Study) -> None:
    rows = _forest_rows() + [{**row, "experiment": "again"} for row in _forest_rows()]
    (runs,) = _bars(forest.flip_rate_forest(Context(study, tidy_frame(rows))).axes[0], "this study")
    np.testing.assert_allclose(runs.lines[0].get_xdata(), [30, 40])


def test_figure1_shows_the_baseline_only(study: Study) -> None:
    rows = _forest_rows(1) + _setting(0.9, 0.99, method="dnip") + _setting(0.9, 0.99, factor="separator", level="tab")
    rows += _setting(0.9, 0.99, experiment="other", shots="1_per_class")
    figure = position.label_order(Context(study, tidy_frame(rows)))
    points = [c for axes in figure.axes for c in axes.containers if isinstance(c, ErrorbarContainer)]
    assert [float(c.lines[0].get_xdata()[0]) for c in points] == [30]
    assert "first of 2 settings" in _texts(figure)
    assert "answer 3  →  negative" in _texts(figure)


def _large(seeds: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for model in ("a", "b"):
        for dataset in ("tweets3", "movies5"):
            for seed in range(seeds):
                where = {"model": model, "dataset": dataset, "seed": seed}
                rows += _setting(0.5, 0.3, **where)
                for factor in factors.PANELS:
                    for k in range(4):
                        values = 0.5 + rng.random(3) / 10
                        level = {"factor": factor, "level": f"a_level_named_{k}"}
                        rows += _setting(values[0], values[1], values[2] if k else None, **where, **level)
    return rows


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("draw", [factors.flips_against_accuracy, forest.flip_rate_forest], ids=lambda f: f.__name__)
def test_large_studies_draw_without_warnings(study: Study, draw: Any, seeds: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw(Context(study, tidy_frame(_large(seeds))))
        figure.savefig(io.BytesIO(), dpi=50)
    assert figure.get_size_inches()[0] <= 10


def test_labels_hide_neither_each_other_nor_marks_nor_leave_the_panel() -> None:
    points = np.array([[0.5, 0.5], [0.5, 0.5], [0.52, 0.5], [1, 1], [0, 0], [0, 1], [0.5, 0.55]])
    names = [f"a longer label {k}" for k in range(6)]
    places = []
    for _ in range(2):
        figure, axes = plt.subplots(figsize=(4, 3))
        axes.plot(*points.T, "o", markersize=5)
        place_labels([axes], [(points, names)])
        figure.draw_without_rendering()
        assert [text.get_text() for text in axes.texts] == names
        boxes = [mpl.text.Text.get_window_extent(text) for text in axes.texts]  # without the line to the point
        frame = axes.get_window_extent()
        marks = axes.transData.transform(points)
        for k, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:k])
            assert not any(box.contains(*mark) for mark in marks)
            assert frame.x0 <= box.x0
            assert box.x1 <= frame.x1
        places.append([box.bounds for box in boxes])
    assert places[0] == places[1]
