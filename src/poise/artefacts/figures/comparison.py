"""Figures that compare methods: ablated objectives, COBias_single, and peers of DNIP."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from poise.artefacts.context import Context, mean_sd
from poise.artefacts.figures.common import (
    Scope,
    fold,
    footer,
    grid,
    missing_note,
    not_measured,
    scope,
    seeds_note,
    title,
)
from poise.artefacts.figures.style import BLUE, GREEN, GREY, ORANGE, VERMILION
from poise.config.methods import DNIPMethod

ABLATIONS = {
    "icl": "ICL",
    "dnip_error": "z₁",
    "dnip_bias": "z₂",
    "dnip_pmi": "z₃",
    "dnip_error_bias": "z₁ + βz₂",
    "dnip_error_pmi": "z₁ − τz₃",
    "dnip_bias_pmi": "βz₂ − τz₃",
    "dnip": "z₁ + βz₂ − τz₃",
}
PEERS = {
    "icl": "ICL",
    "batch_calibration": "Batch calibration",
    "contextual_calibration": "Contextual calibration, 1 input",
    "contextual_calibration_3": "Contextual calibration, 3 inputs",
    "prior_matching": "Prior matching",
    "linear_adapter": "Linear adapter",
    "dnip": "DNIP",
}
SINGLE = {"icl": "ICL", "dnip_cobias_single": "DNIP, COBias_single objective", "dnip": "DNIP"}
_SINGLE_LOOK = {"icl": (ORANGE, "o"), "dnip_cobias_single": (GREEN, "^"), "dnip": (BLUE, "s")}
_SCORES = (("accuracy", "accuracy", BLUE, "o", -0.17), ("cobias", "COBias", VERMILION, "D", 0.17))
_MEAN = "all"


def ablations(context: Context) -> Figure:
    """Accuracy and COBias of DNIP with each combination of its objective's terms (DNIP paper, Figure 3)."""
    shown = scope(context, ABLATIONS, ("accuracy", "cobias", "cobias_floor"))
    if not set(shown.methods) - {"icl", "dnip"}:
        return not_measured("dnip_figure3", "no ablation is in this study: add methods such as dnip_error, dnip_bias")
    figure, panel, columns = _methods_by_dataset(context, shown, [name for name in shown.methods if name != "icl"])
    title(figure, context, shown, "DNIP with each combination of the objective's terms: test accuracy and COBias")
    config = context.study.methods.get("dnip")
    terms = ["z₁ error rate, z₂ COBias, z₃ PMI"]
    if isinstance(config, DNIPMethod):
        terms.append(f"β {config.beta}, τ {config.tau}, K {config.n_levels}, μ {config.mu}")
    footer(figure, "; ".join(terms), *_explanations(context, shown), panels=[panel], columns=columns)
    return figure


def peers(context: Context) -> Figure:
    """Accuracy and COBias of DNIP and of other corrections of the same probabilities (DNIP paper, Figure 5)."""
    shown = scope(context, PEERS, ("accuracy", "cobias", "cobias_floor"))
    if shown.empty:
        return not_measured("dnip_figure5", "none of its methods was measured in this study")
    figure, panel, columns = _methods_by_dataset(context, shown, shown.methods)
    title(figure, context, shown, "Corrections of the same class probabilities: test accuracy and COBias")
    footer(figure, *_explanations(context, shown), panels=[panel], columns=columns)
    return figure


def cobias_single(context: Context) -> Figure:
    """Three scores with COBias_single in place of COBias in the objective (DNIP paper, Figure 4)."""
    shown = scope(context, SINGLE, ("accuracy", "cobias", "cobias_single", "cobias_floor"))
    if "dnip_cobias_single" not in shown.methods:
        return not_measured("dnip_figure4", "method dnip_cobias_single is not in this study")
    summary = _summary(shown)
    datasets = _panels(shown)
    figure, axes = plt.subplots(
        1, 3, sharey=True, sharex=True, figsize=(8.6, 0.42 * len(datasets) + 1.5), squeeze=False
    )
    step = 0.5 / max(len(shown.methods) - 1, 1)
    panels = (("accuracy", "accuracy (%)"), ("cobias", "COBias (%)"), ("cobias_single", "COBias_single (%)"))
    for panel, (metric, label) in zip(axes[0], panels, strict=True):
        for k, method in enumerate(shown.methods):
            colour, marker = _SINGLE_LOOK[method]
            found = _series(summary, metric, method=method).reindex(datasets)
            places = np.arange(len(datasets)) + (k - (len(shown.methods) - 1) / 2) * step
            _points(panel, found, places, colour, marker, SINGLE[method])
            if metric == "cobias":
                floors = _series(summary, "cobias_floor", method=method).reindex(datasets)
                panel.plot(100 * floors["mean"], places, "|", color=GREY, markersize=6, label=_FLOOR)
        panel.set(xlabel=label, yticks=range(len(datasets)), yticklabels=_names(context, datasets, 26))
        panel.set_ylim(len(datasets) - 0.5, -0.5)
        panel.grid(axis="x", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
        for place in range(1, len(datasets)):
            panel.axhline(place - 0.5, color="#dddddd", linewidth=0.6)
    _limits(axes[0, 0], axes.flat)
    title(figure, context, shown, "DNIP with COBias_single as the bias term of its objective: test scores")
    footer(figure, *_explanations(context, shown, icl_line=False), panels=[axes[0, 1]], columns=4)
    return figure


_FLOOR = "COBias sampling floor"


def _methods_by_dataset(context: Context, shown: Scope, methods: list[str]) -> tuple[Figure, Axes, int]:
    """Draw a panel for each data set and their mean; methods down, percent across; ICL as lines.

    With it come a panel for the legend and the legend's columns.
    """
    summary = _summary(shown)
    panels = _panels(shown)
    n_rows, n_columns = grid(len(panels), 4)
    figure, axes = plt.subplots(
        n_rows, n_columns, sharex=True, sharey=True, squeeze=False,
        figsize=(max(5.6, 1.75 * n_columns + 1.6), n_rows * (0.34 * len(methods) + 0.6) + 0.9),
    )  # fmt: skip
    for panel, dataset, name in zip(axes.flat, panels, _names(context, panels, 24), strict=False):
        for metric, label, colour, marker, offset in _SCORES:
            found = _series(summary, metric, dataset=dataset)
            if "icl" in found.index:
                line = 100 * found.loc["icl", "mean"]
                panel.axvline(line, color=colour, linestyle=":", linewidth=1, label=f"ICL, {label}")
            places = np.arange(len(methods)) + offset
            _points(panel, found.reindex(methods), places, colour, marker, label)
            if metric == "cobias":
                floors = _series(summary, "cobias_floor", dataset=dataset).reindex(methods)
                panel.plot(100 * floors["mean"], places, "|", color=GREY, markersize=7, label=_FLOOR)
        panel.set_title(name, fontsize=9, fontweight="bold" if dataset == _MEAN else "normal")
        panel.set(yticks=range(len(methods)), yticklabels=[fold(shown.labels[method], 24) for method in methods])
        panel.set_ylim(len(methods) - 0.5, -0.5)
        panel.grid(axis="x", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
        for place in range(1, len(methods)):
            panel.axhline(place - 0.5, color="#eeeeee", linewidth=0.6)
    for unused in axes.flat[len(panels) :]:
        unused.set_axis_off()
    for column in range(n_columns):
        lowest = max(row for row in range(n_rows) if row * n_columns + column < len(panels))
        axes[lowest, column].tick_params(labelbottom=True)
        if lowest == n_rows - 1:
            axes[lowest, column].set_xlabel("percent")
    _limits(axes[0, 0], axes.flat[: len(panels)])
    return figure, axes[0, 0], 3 if n_columns < 3 else 5


def _summary(shown: Scope) -> pd.DataFrame:
    rows = pd.concat([shown.rows, _mean_rows(shown)], ignore_index=True)
    return mean_sd(rows, ["metric", "method", "dataset"])


def _mean_rows(shown: Scope) -> pd.DataFrame:
    """Mean over data sets run by run, of the methods and seeds that have every data set."""
    keys = ["metric", "method", "seed"]
    grouped = shown.rows.groupby(keys, sort=False)
    found = grouped.agg(value=("value", "mean"), n=("value", "count"), provenance=("provenance", "first")).reset_index()
    return found[found["n"] == len(shown.datasets)].assign(dataset=_MEAN)


def _panels(shown: Scope) -> list[str]:
    return [*shown.datasets, _MEAN] if len(shown.datasets) > 1 else shown.datasets


def _names(context: Context, datasets: list[str], width: int) -> list[str]:
    n = len(datasets) - 1
    titles = [f"mean of {n} data sets" if name == _MEAN else context.dataset_title(name) for name in datasets]
    return [fold(text, width) for text in titles]


def _series(summary: pd.DataFrame, metric: str, **equal: str) -> pd.DataFrame:
    """Mean and SD by data set (given a method), or by method (given a data set)."""
    ((column, value),) = equal.items()
    other = "dataset" if column == "method" else "method"
    return summary[(summary["metric"] == metric) & (summary[column] == value)].set_index(other)


def _points(axes: Axes, found: pd.DataFrame, places: np.ndarray, colour: str, marker: str, label: str) -> None:
    means, spread = 100 * found["mean"].to_numpy(dtype=float), 100 * found["sd"].to_numpy(dtype=float)
    axes.errorbar(
        means, places, xerr=None if np.isnan(spread).all() else np.nan_to_num(spread), fmt=marker, color=colour,
        markersize=4.5, capsize=2, linewidth=1, label=label,
    )  # fmt: skip


def _limits(shared: Axes, panels: np.ndarray) -> None:
    """Show 0 to 100 percent, and more where a whisker reaches further."""
    bounds = [panel.dataLim for panel in panels]
    low, high = min(box.x0 for box in bounds), max(box.x1 for box in bounds)
    shared.set_xlim(min(-3.0, low - 2), max(103.0, high + 2))
    shared.set_xticks([0, 25, 50, 75, 100])


def _explanations(context: Context, shown: Scope, *, icl_line: bool = True) -> list[str]:
    lines = "; dotted lines: ICL" if icl_line and "icl" in shown.methods else ""
    texts = [f"{seeds_note(shown.rows)}{lines}; {_FLOOR}: mean COBias if all classes were equally accurate"]
    partial = _incomplete(context, shown, shown.labels)
    return [*texts, missing_note(shown), partial]


def _incomplete(context: Context, shown: Scope, labels: Mapping[str, str]) -> str:
    """Name what some data sets lack; such a method has no mean."""
    parts = []
    for method in shown.methods:
        has = set(shown.of(method=method)["dataset"])
        lacks = [context.dataset_title(name) for name in shown.datasets if name not in has]
        if lacks:
            parts.append(f"{labels[method]} on {', '.join(lacks)}")
    return f"not measured, so without a mean: {'; '.join(parts)}" if parts else ""
