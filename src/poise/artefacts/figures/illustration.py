"""Figures that illustrate the issue and the correction on one data set."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from poise.artefacts.context import Context
from poise.artefacts.figures.common import (
    Scope,
    by_class,
    fold,
    footer,
    missing_note,
    not_measured,
    scope,
    shorten,
    title,
    value_of,
)
from poise.artefacts.figures.style import BLUE, GREEN, GREY, ORANGE

_METHODS = {"icl": "ICL", "dnip": "DNIP"}
_STAGES = {"icl": "before: ICL", "dnip": "after: DNIP"}
_COLOURS = {"icl": ORANGE, "dnip": BLUE}
_METRICS = ("accuracy", "cobias", "cobias_floor", "class_accuracy", "count", "weight")


def imbalance_and_correction(context: Context) -> Figure:
    """Class accuracies before and after, and where DNIP acts (DNIP paper, Figure 1)."""
    shown = scope(context, _METHODS, _METRICS)
    if shown.of(metric="class_accuracy").empty:
        return not_measured("dnip_figure1", "no class accuracies were measured in this study")
    dataset = shown.datasets[0]
    seed = shown.first_seed(dataset)
    run = shown.of(dataset=dataset, seed=seed)
    classes = _classes(run)
    n_lines = -(-len(classes) // _columns(len(classes)))
    strip_height, bars_height = 0.16 * max(n_lines, 4) + 0.45, 0.25 * len(classes) + 0.75
    figure = plt.figure(figsize=(8.6, strip_height + bars_height + 0.6))
    places = figure.add_gridspec(2, len(shown.methods), height_ratios=[strip_height, bars_height])
    _strip(figure.add_subplot(places[0, :]), context, shown, run, classes)
    first = None
    for column, method in enumerate(shown.methods):
        axes = figure.add_subplot(places[1, column], sharey=first)
        rows = run[run["method"] == method]
        _accuracy_bars(axes, rows, classes, np.arange(len(classes)), 0.7, _COLOURS[method], size=8)
        axes.set_title(f"{_STAGES[method]}\n{_scores(rows)}", fontsize=9)
        axes.set(xlim=(0, 112), xticks=range(0, 101, 25), xlabel="class accuracy (%)")
        axes.set(yticks=range(len(classes)), yticklabels=[fold(name, 22) for name in classes])
        axes.tick_params(axis="y", labelleft=column == 0)
        if first is None:
            axes.set_ylim(len(classes) - 0.4, -0.6)
            first = axes
    headline = f"Class-accuracy imbalance and where its correction acts: {context.dataset_title(dataset)}, seed {seed}"
    title(figure, context, shown, headline)
    interval = (
        "COBias with its 95 % bootstrap interval over test rows in brackets; floor: its mean under equal accuracies"
    )
    footer(figure, interval, missing_note(shown))
    return figure


def process(context: Context) -> Figure:
    """Odd classes, class accuracies and weights of one data set, TREC if there (DNIP paper, Figure 6)."""
    shown = scope(context, _METHODS, _METRICS)
    if shown.of(metric="count").empty:
        return not_measured("dnip_figure6", "no confusion counts were measured in this study")
    dataset = "trec" if "trec" in shown.datasets else shown.datasets[0]
    seed = shown.first_seed(dataset)
    run = shown.of(dataset=dataset, seed=seed)
    classes = _classes(run)
    figure, (odd, accuracy, weight) = plt.subplots(
        1, 3, sharey=True, width_ratios=[1.25, 1, 0.75], figsize=(8.6, 0.42 * len(classes) + 1.5)
    )
    height = 0.8 / len(shown.methods)
    for k, method in enumerate(shown.methods):
        rows = run[run["method"] == method]
        places = np.arange(len(classes)) + (k - (len(shown.methods) - 1) / 2) * height
        _odd_bars(odd, rows, classes, places, height, method)
        label = f"{_STAGES[method]}, {_scores(rows)}"
        _accuracy_bars(accuracy, rows, classes, places, height, _COLOURS[method], size=7, label=label)
    weights = by_class(run[run["method"] == "dnip"], "weight", classes)
    if np.isnan(weights).all():
        weight.text(0.5, 0.5, "not measured", ha="center", transform=weight.transAxes, color=GREY)
    weight.barh(range(len(classes)), weights, 0.5, color=GREEN)
    for place, value in enumerate(weights):
        if not np.isnan(value):
            weight.text(value + 0.02, place, f"{value:.2f}", va="center", fontsize=7)
    odd.set(xlim=(0, 100), xlabel="rows predicted as the class's odd class\n(% of the true class)", ylabel="true class")
    accuracy.set(xlim=(0, 116), xticks=range(0, 101, 25), xlabel="class accuracy (%)")
    weight.set(xlim=(0, 1.25), xticks=[0, 0.5, 1], xlabel="weight learned by DNIP")
    for axes, heading in ((odd, "odd classes"), (accuracy, "class accuracies"), (weight, "weights")):
        axes.set_title(heading, fontsize=9)
        axes.tick_params(axis="y", length=0)
    odd.set(yticks=range(len(classes)), yticklabels=[fold(name, 20) for name in classes])
    odd.set_ylim(len(classes) - 0.45, -0.55)
    headline = f"How DNIP rebalances the classes of {context.dataset_title(dataset)}, seed {seed}"
    title(figure, context, shown, headline)
    meaning = "odd class: the one that holds most of a class's wrong predictions (named at its bar)"
    interval = "COBias with its 95 % bootstrap interval over test rows; floor: its mean under equal accuracies"
    footer(figure, f"{meaning}; {interval}", missing_note(shown), panels=[accuracy])
    return figure


def _classes(run: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(run.loc[run["metric"] == "class_accuracy", "class"])) or list(
        dict.fromkeys(run.loc[run["metric"] == "count", "class"])
    )


def _scores(rows: pd.DataFrame) -> str:
    """Accuracy and COBias of one run in words, with interval and floor where there are any."""
    text = f"accuracy {100 * value_of(rows, 'accuracy'):.1f} %, COBias {100 * value_of(rows, 'cobias'):.1f} %"
    found = rows[rows["metric"] == "cobias"]
    if len(found) and not np.isnan(found["low"].iloc[0]):
        text += f" [{100 * found['low'].iloc[0]:.1f}, {100 * found['high'].iloc[0]:.1f}]"
    floor = value_of(rows, "cobias_floor")
    return text if np.isnan(floor) else f"{text}, floor {100 * floor:.1f} %"


def _accuracy_bars(
    axes: Axes,
    rows: pd.DataFrame,
    classes: Sequence[str],
    places: np.ndarray,
    height: float,
    colour: str,
    size: float,
    label: str | None = None,
) -> None:
    values = 100 * np.array(by_class(rows, "class_accuracy", classes))
    axes.barh(places, values, height, color=colour, label=label)
    for place, value in zip(places, values, strict=True):
        text = "no test rows" if np.isnan(value) else f"{value:.1f}"
        axes.text(0 if np.isnan(value) else value, place, f" {text}", va="center", fontsize=size)


def _odd_bars(
    axes: Axes, rows: pd.DataFrame, classes: Sequence[str], places: np.ndarray, height: float, method: str
) -> None:
    """Draw the share of each true class that went to its odd class (Eq. 2 and 11), with the odd class's name."""
    counts = rows[rows["metric"] == "count"]
    matrix = counts.pivot_table(index="class", columns="pred_class", values="value").reindex(classes, columns=classes)
    wrong = matrix.to_numpy(copy=True)
    totals = counts.drop_duplicates("class").set_index("class")["n"].reindex(classes).to_numpy(dtype=float)
    np.fill_diagonal(wrong, 0)
    most = wrong.max(axis=1)
    shares = np.divide(100 * most, totals, out=np.full(len(classes), np.nan), where=totals > 0)
    axes.barh(places, shares, height, color=_COLOURS[method])
    for k, (place, share) in enumerate(zip(places, shares, strict=True)):
        if np.isnan(share):
            name = "no test rows"
        elif share == 0:
            name = "none wrong"
        else:
            name = shorten(classes[int(wrong[k].argmax())], 24)
        inside = share > 50
        ink = "white" if inside and method == "dnip" else "black"
        where, side = (share, "right") if inside else (np.nan_to_num(share), "left")
        axes.text(where, place, f" {name} ", ha=side, va="center", fontsize=7, color=ink)


def _columns(n_classes: int) -> int:
    return 1 if n_classes <= 5 else 2


def _strip(axes: Axes, context: Context, shown: Scope, run: pd.DataFrame, classes: Sequence[str]) -> None:
    """Draw the flow from prompt to prediction, with the measured weights."""
    fitted = run[(run["method"] == "dnip") & (run["metric"] == "weight")]
    weights = by_class(fitted, "weight", classes)
    rows = f" ({int(fitted['n'].iloc[0]):,} rows)" if len(fitted) and not pd.isna(fitted["n"].iloc[0]) else ""
    axes.set(xlim=(0, 100), ylim=(0, 1))
    axes.set_axis_off()
    boxes = (
        (0, 13, "prompt", f"instruction,\n{shown.shots},\ntest text"),
        (16.5, 15, "LLM", fold(shorten(context.model_title(shown.model), 48), 17)),
        (35, 14.5, "class\nprobabilities", "of the label\nwords"),
        (53, 31.5, f"× DNIP weights{rows}", None if len(fitted) else "not measured"),
        (88, 12, "prediction", "highest\nweighted\nprobability"),
    )
    for k, (left, width, heading, text) in enumerate(boxes):
        ours = heading.startswith("×")
        axes.add_patch(
            FancyBboxPatch(
                (left + 0.4, 0.03), width - 0.8, 0.94, boxstyle="round,pad=0,rounding_size=0.6", mutation_aspect=0.05,
                facecolor="#E3F1FA" if ours else "#F5F5F5", edgecolor=BLUE if ours else GREY,
                linewidth=1.6 if ours else 0.8,
            )
        )  # fmt: skip
        axes.text(left + width / 2, 0.9, heading, ha="center", va="top", fontsize=8, fontweight="bold",
                  color=BLUE if ours else "black")  # fmt: skip
        if text is not None:
            axes.text(left + width / 2, 0.36, text, ha="center", va="center", fontsize=7.5)
        if k:
            previous = boxes[k - 1][0] + boxes[k - 1][1]
            axes.annotate("", (left + 0.4, 0.5), (previous - 0.4, 0.5), arrowprops={"arrowstyle": "-|>", "color": GREY})
    if len(fitted):
        columns = _columns(len(classes))
        height = -(-len(classes) // columns)
        for k, (name, value) in enumerate(zip(classes, weights, strict=True)):
            column, line = divmod(k, height)
            middle, level = 53 + 31.5 * (column + 0.62) / columns, 0.62 - line * 0.6 / max(height, 4)
            axes.text(middle, level, shorten(name, 17), ha="right", va="baseline", fontsize=7)
            text = "–" if np.isnan(value) else f"{value:.2f}"
            axes.text(middle + 1, level, text, ha="left", va="baseline", fontsize=7)
