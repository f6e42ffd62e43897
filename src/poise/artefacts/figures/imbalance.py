"""Heatmaps of the class-accuracy instrument: confusion matrices and pairwise differences, before and after DNIP."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from poise.artefacts.context import Context
from poise.artefacts.figures.common import Scope, fold, footer, missing_note, not_measured, scope, title
from poise.artefacts.figures.style import SEQUENTIAL

_METHODS = {"icl": "ICL", "dnip": "DNIP"}
_STAGES = {"icl": "before (ICL)", "dnip": "after DNIP"}
_WIDTH = 8.6  # of a page, in inches


def confusion_matrices(context: Context) -> Figure:
    """Test confusion matrices before and after DNIP, first seed (DNIP paper, Figure 7)."""
    shown = scope(context, _METHODS, ["count"])
    if shown.empty:
        return not_measured("dnip_figure7", "no confusion counts were measured in this study")
    figure, panels = _pairs(shown, widest=6)
    for dataset, pair in zip(shown.datasets, panels, strict=True):
        seed = shown.first_seed(dataset)
        digits = len(f"{shown.of(dataset=dataset, seed=seed)['value'].max():.0f}")
        for place, (method, axes) in enumerate(zip(shown.methods, pair, strict=False)):
            matrix = _matrix(shown.of(dataset=dataset, seed=seed, method=method))
            counted = matrix.to_numpy()
            if not counted.size:
                _blank(axes)
                continue
            shares = counted / np.maximum(counted.sum(axis=1, keepdims=True), 1)
            _heat(
                axes,
                pd.DataFrame(100 * shares, matrix.index, matrix.columns),
                annotation=matrix.astype(int),
                digits=digits,
            )
            axes.set(xlabel="predicted class", ylabel="" if place else "true class")
            axes.tick_params(axis="y", labelleft=not place)
            accuracy = 100 * np.trace(counted) / max(counted.sum(), 1)
            name = fold(context.dataset_title(dataset), 26)
            axes.set_title(f"{name}\n{_STAGES[method]}\nseed {seed}, accuracy {accuracy:.1f} %", fontsize=8)
    _colour_bar(figure, panels, "share of the true class (%)")
    title(figure, context, shown, "Test confusion matrices: counts, coloured by share of the true class")
    footer(figure, missing_note(shown))
    return figure


def pairwise_differences(context: Context) -> Figure:
    """Absolute class-accuracy differences for every pair, mean over seeds (DNIP paper, Figure 8)."""
    shown = scope(context, _METHODS, ["class_accuracy"])
    if shown.empty:
        return not_measured("dnip_figure8", "no class accuracies were measured in this study")
    figure, panels = _pairs(shown, widest=8)
    for dataset, pair in zip(shown.datasets, panels, strict=True):
        for method, axes in zip(shown.methods, pair, strict=False):
            matrix = 100 * _differences(shown.of(dataset=dataset, method=method))
            if matrix.empty:
                _blank(axes)
                continue
            of_pairs = matrix.to_numpy()[~np.eye(len(matrix), dtype=bool)]
            mean = f"{np.nanmean(of_pairs):.1f}" if np.isfinite(of_pairs).any() else "–"
            _heat(axes, matrix, annotation=matrix if len(matrix) <= 8 else None, digits=3)
            axes.set(xlabel="", ylabel="")
            axes.tick_params(axis="y", labelleft=method == shown.methods[0])
            name = fold(context.dataset_title(dataset), 26)
            axes.set_title(f"{name}\n{_STAGES[method]}\nmean of pairs {mean}", fontsize=8)
    _colour_bar(figure, panels, "|difference| (percentage points)")
    n_seeds = shown.rows["seed"].nunique()
    over = f"mean over {n_seeds} seeds" if n_seeds > 1 else f"seed {shown.rows['seed'].iloc[0]}"
    title(figure, context, shown, f"Pairwise class-accuracy differences, {over}")
    footer(figure, "blank: a class without test rows has no accuracy" if _has_blank(shown) else "", missing_note(shown))
    return figure


def _pairs(shown: Scope, widest: int) -> tuple[Figure, list[list[Axes]]]:
    """Make two panels for each data set.

    Those of up to ``widest`` classes come first, two data sets a line; the others, and one left over, fill a line.
    """
    sizes = [shown.of(dataset=dataset)["class"].nunique() for dataset in shown.datasets]
    small = [k for k, size in enumerate(sizes) if size <= widest]
    lines = [small[k : k + 2] for k in range(0, len(small), 2)]
    lines += [[k] for k, size in enumerate(sizes) if size > widest]
    heights = [1.4 if len(line) == 2 else float(np.clip(0.4 * sizes[line[0]], 1.4, 3.2)) for line in lines]
    heights = [height + 1.25 for height in heights]  # titles and labels
    # Seaborn draws the whole figure once a heatmap: panels are shown and laid out after the last one (_colour_bar).
    figure = plt.figure(figsize=(_WIDTH, sum(heights) + 0.5), layout="none")
    places = figure.add_gridspec(len(lines), 4, height_ratios=heights)
    panels: list[list[Axes]] = [[] for _ in sizes]
    for row, line in enumerate(lines):
        span = 2 // len(line)
        for slot, k in enumerate(line):
            starts = [2 * slot + span * stage for stage in range(len(shown.methods))]
            spans = [places[row, start : start + span] for start in starts]
            panels[k] = [figure.add_subplot(place, visible=False) for place in spans]
    return figure, panels


def _heat(axes: Axes, percents: pd.DataFrame, annotation: pd.DataFrame | None, digits: int) -> None:
    size = len(percents)
    place = axes.get_subplotspec()
    assert place is not None
    cell = (1.2 if len(place.colspan) == 1 else 2.8) / size  # about so many inches
    sns.heatmap(
        percents, annot=False if annotation is None else annotation, fmt=".0f", vmin=0, vmax=100, cmap=SEQUENTIAL,
        square=True, linewidths=0.3, ax=axes, annot_kws={"fontsize": min(7, 72 * cell / (0.62 * digits))}, cbar=False,
        xticklabels=True, yticklabels=True,
    )  # fmt: skip
    for text in axes.texts:
        text.set_in_layout(False)  # inside its cell anyway; measuring hundreds of texts takes seconds
    axes.tick_params(axis="both", labelsize=7 if size <= 8 else 6, length=2)
    axes.tick_params(axis="x", rotation=45)
    axes.tick_params(axis="y", rotation=0)
    plt.setp(axes.get_xticklabels(), ha="right", rotation_mode="anchor")


def _colour_bar(figure: Figure, panels: Sequence[Sequence[Axes]], label: str) -> None:
    figure.set_layout_engine("constrained")
    scale = ScalarMappable(Normalize(0, 100), SEQUENTIAL)
    height = figure.get_size_inches()[1]
    axes = [panel for pair in panels for panel in pair]
    for panel in axes:
        panel.set_visible(True)
    figure.colorbar(scale, ax=axes, label=label, fraction=0.025, aspect=20, shrink=min(1.0, 3 / height))


def _blank(axes: Axes) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)


def _matrix(rows: pd.DataFrame) -> pd.DataFrame:
    """Square matrix of counts: true classes down, predicted classes across, both in class order."""
    classes = list(dict.fromkeys(rows["class"]))
    return rows.pivot_table(index="class", columns="pred_class", values="value").reindex(classes, columns=classes)


def _differences(rows: pd.DataFrame) -> pd.DataFrame:
    classes = list(dict.fromkeys(rows["class"]))
    wide = rows.pivot_table(index="seed", columns="class", values="value", dropna=False).reindex(columns=classes)
    by_seed = wide.to_numpy()
    gaps = np.abs(by_seed[:, :, None] - by_seed[:, None, :]).mean(axis=0)
    return pd.DataFrame(gaps, classes, classes)


def _has_blank(shown: Scope) -> bool:
    return bool(shown.rows["value"].isna().any())
