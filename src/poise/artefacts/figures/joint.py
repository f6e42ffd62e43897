"""Fronts of corrections: accuracy, balance between classes and steadiness, pair by pair."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from numpy.typing import NDArray

from poise.artefacts.context import Context
from poise.artefacts.figures.common import fold, footer, not_measured, provenance
from poise.artefacts.figures.labels import Labels, along, place_labels
from poise.artefacts.figures.style import BLUE, GREEN, GREY, ORANGE, SKY, VERMILION
from poise.artefacts.tables.joint import ALL, ICL, NATURAL, NO_CORRECTION, in_order, joint_rows, summarise
from poise.artefacts.tables.position_common import SERIES
from poise.config.methods import DNIPMethod

_PANELS = {"cobias": "COBias (%)", "p1": "P1 flip rate (%)"}
# Family of a method: colour and mark.
_LOOKS = {
    "ICL": (VERMILION, "*"),
    "DNIP, class weights": (BLUE, "o"),
    "DNIP, label-token weights": (SKY, "o"),
    "averaging": (GREEN, "D"),
    "other correction": (ORANGE, "s"),
}
_FRONT = "#444444"
_AVERAGING = ("label_averaging", "demonstration_averaging")


def fronts(context: Context) -> Figure:
    """Draw every correction by accuracy and COBias, and by accuracy and label-order flips, with the Pareto fronts."""
    rows = joint_rows(context)
    if rows.empty:
        return not_measured("joint_figure1", NO_CORRECTION)
    rows, left_out = _one_series(rows)
    measures = ["accuracy", "cobias_floor", *_PANELS]
    rows = rows[rows["measure"].isin(measures) & ((rows["condition"] == NATURAL) | (rows["measure"] == "p1"))]
    tidy = summarise(rows, [*SERIES, "dataset", "method"])
    datasets = list(dict.fromkeys(tidy["dataset"]))
    figure, axes = plt.subplots(
        len(datasets), 2, squeeze=False, figsize=(9, 3.5 * len(datasets) + 0.9)
    )  # fmt: skip
    labels: list[Labels] = []
    for (left, right), dataset in zip(axes, datasets, strict=True):
        wide = _wide(context, tidy[tidy["dataset"] == dataset])
        n = len(datasets) - 1
        name = f"mean of {n} data sets" if dataset == ALL else context.dataset_title(dataset)
        left.set_title(name, loc="left", fontsize=9.5, fontweight="bold")
        for panel, measure in ((left, "cobias"), (right, "p1")):
            labels.append(_panel(panel, context, wide, measure))
        for panel in (left, right):
            panel.set_xlabel("accuracy (%)")
    first = rows.iloc[0]
    setting = f"{context.model_title(first['model'])}, {first['shots'].replace('_', '-')}"
    figure.suptitle(
        "Corrections between accuracy, class balance and steadiness: right and low is better\n"
        + " · ".join([setting, *left_out, provenance(tidy)]),
        fontsize=10,
    )
    footer(figure, *_explanations(context, tidy), panels=list(axes.flat), columns=4)
    place_labels(list(axes.flat), labels, size=6.5)
    return figure


def pareto_front(accuracy: NDArray[np.float64], harm: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mask of the points that no other point beats: at least as good in both values and better in one.

    Parameters
    ----------
    accuracy, harm
        One value a point, shape (n,): the first is better high, the second low.
    """
    no_worse = (accuracy[None] >= accuracy[:, None]) & (harm[None] <= harm[:, None])
    better = (accuracy[None] > accuracy[:, None]) | (harm[None] < harm[:, None])
    return np.asarray(~(no_worse & better).any(axis=1))


def _one_series(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Rows of the experiment, model and shots with most methods and data sets, the study's first of equals."""
    counts = rows.drop_duplicates([*SERIES, "dataset", "method"]).groupby(SERIES, sort=False).size()
    parts = dict(list(rows.groupby(SERIES, sort=False)))
    return parts[counts.idxmax()], [f"one of {len(counts)} settings"] if len(counts) > 1 else []


def _wide(context: Context, tidy: pd.DataFrame) -> pd.DataFrame:
    """A row for each method in the study's order, columns ``(mean | sd, measure)`` in percent."""
    columns = pd.MultiIndex.from_product([["mean", "sd"], ["accuracy", "cobias_floor", *_PANELS]])
    wide = tidy.pivot_table(index="method", columns="measure", values=["mean", "sd"])
    return 100 * wide.reindex(index=in_order(context, tidy["method"]), columns=columns)


def _panel(axes: Axes, context: Context, wide: pd.DataFrame, measure: str) -> Labels:
    """Draw the methods and their front in one pair of measures; the labels to place come back."""
    shown = wide[wide["mean", "accuracy"].notna() & wide["mean", measure].notna()]
    x, y = (shown["mean", column].to_numpy(dtype=float) for column in ("accuracy", measure))
    sd_x, sd_y = (shown["sd", column].to_numpy(dtype=float) for column in ("accuracy", measure))
    families = [_family(context, name) for name in shown.index]
    for family in dict.fromkeys(families):
        colour, marker = _LOOKS[family]
        of = [found == family for found in families]
        across, up = (None if np.isnan(sd[of]).all() else np.nan_to_num(sd[of]) for sd in (sd_x, sd_y))
        axes.errorbar(
            x[of], y[of], xerr=across, yerr=up, fmt=marker, color=colour, markersize=10 if marker == "*" else 5,
            ecolor=to_rgba(colour, 0.5), elinewidth=0.7, zorder=3, label=family,
        )  # fmt: skip
    front = np.flatnonzero(pareto_front(x, y))
    front = front[np.lexsort((y[front], x[front]))]
    # To the left of each point of the front, and above it, everything is beaten by that point.
    axes.plot(x[front], y[front], drawstyle="steps-pre", color=_FRONT, linewidth=1.2, zorder=2, label="Pareto front")
    spread_x, spread_y = np.nan_to_num(sd_x), np.nan_to_num(sd_y)
    if len(shown):
        axes.set_xlim(*_with_room(x - spread_x, x + spread_x))
        axes.set_ylim(*_with_room(y - spread_y, y + spread_y))
    if measure == "cobias":
        _floor(axes, float(wide["mean", "cobias_floor"].mean()))
    axes.set_ylabel(_PANELS[measure])
    axes.grid(color="#eeeeee", linewidth=0.6)
    axes.set_axisbelow(True)
    if shown.empty:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=GREY)
    names = [fold(context.method_title(name), 24) for name in shown.index]
    left, right, before, after = x[front][:-1], x[front][1:], y[front][:-1], y[front][1:]
    lines = [
        *along(x - spread_x, y, x + spread_x, y),
        *along(x, y - spread_y, x, y + spread_y),
        *along(left, before, left, after),
        *along(left, after, right, after),
    ]
    return np.array([*zip(x, y, strict=True), *lines]).reshape(-1, 2), names


def _with_room(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[float, float]:
    """Limits with room for labels around points; a margin even around a single one."""
    room = 0.16 * (high.max() - low.min()) or 1.0
    return low.min() - room, high.max() + room


def _floor(axes: Axes, floor: float) -> None:
    """Draw the sampling floor where the panel reaches down to it, and always name it."""
    if np.isnan(floor):
        return
    below = floor < axes.get_ylim()[0]
    if not below:
        axes.axhline(floor, color=GREY, linestyle="--", linewidth=0.8)
    text = f"sampling floor {floor:.1f} %{' (below)' if below else ' (dashed)'}"
    axes.text(0.01, 0.01, text, transform=axes.transAxes, color=GREY, fontsize=7, va="bottom")


def _family(context: Context, name: str) -> str:
    method = context.study.methods.get(name)
    if name == ICL:
        return "ICL"
    if isinstance(method, DNIPMethod):
        return "DNIP, class weights" if method.axis == "class" else "DNIP, label-token weights"
    return "averaging" if method is not None and method.kind in _AVERAGING else "other correction"


def _explanations(context: Context, tidy: pd.DataFrame) -> list[str]:
    most = max(len(seeds.split("|")) for seeds in tidy["seeds"])
    spread = f"whiskers: ± 1 sample SD over {most} seeds" if most > 1 else "one demonstration seed, so no SD"
    merged = [name for name in in_order(context, tidy["method"])
              if name not in set(tidy.loc[tidy["measure"] == "p1", "method"])]  # fmt: skip
    titles = ", ".join(context.method_title(name) for name in merged)
    return [
        f"points: mean over demonstration seeds, of all data sets the mean over them seed by seed; {spread}; "
        "Pareto front: no other method is at least as good in both and better in one; axes differ between panels",
        "sampling floor: mean COBias if all classes were equally accurate",
        f"no flip rate is left where a method merges both label orders or prompts: {titles}" if merged else "",
    ]
