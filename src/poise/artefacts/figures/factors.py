"""Prompt and task factors: how each level moves accuracy and flip rates away from the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from poise.artefacts.context import Context
from poise.artefacts.figures.common import fold, footer, grid, not_measured, provenance
from poise.artefacts.figures.labels import Labels, along, place_labels
from poise.artefacts.figures.style import BLUE, GREY, ORANGE, VERMILION
from poise.artefacts.tables.position_common import (
    CONFIGURATION,
    PARADIGM,
    SETTING,
    at_baseline,
    over_seeds,
    residuals,
    settings,
)

PANELS = {
    "label_format": "Label format",
    "scale_cardinality": "Scale cardinality",
    "demo_count": "Demonstrations",
    "prompt_clarity": "Prompt clarity",
    "separator": "Separator",
    "connector": "Connector",
    "instruction_mood": "Instruction mood",
    PARADIGM: "Inference paradigm",
    CONFIGURATION: "Joint configurations",
}
_PAIRS = ("p2a", "p2b", "p3a", "p3b")
_RATES = (
    ("p1", "P1 (%)", "P1: label order", BLUE, "o"),
    ("pairs", "P2, P3 (%)", "P2, P3: mean of P2a, P2b, P3a, P3b", ORANGE, "D"),
)
_BASELINE = "baseline"
_LEAST_SPAN = 6.0  # percentage points that an axis covers at least, so that noise does not fill a panel


def flips_against_accuracy(context: Context) -> Figure:
    """Draw flip rates against accuracy, a panel for each factor, the baseline as a star (position paper, Section 5)."""
    values, left_out = _one_model(settings(context))
    points = level_points(values)
    factors = [name for name in PANELS if name in set(points["factor"])]
    if not factors:
        return not_measured("position_figure2", "no experiment of this study varies a factor")
    n_rows, n_columns = grid(len(factors), 3)
    figure = plt.figure(figsize=(max(6.0, 3.0 * n_columns), 3.5 * n_rows + 0.7))
    outer = figure.add_gridspec(n_rows, n_columns)
    panels: list[Axes] = []
    labels: list[Labels] = []
    for k, factor in enumerate(factors):
        inner = outer[k // n_columns, k % n_columns].subgridspec(2, 1, hspace=0.04)
        upper = figure.add_subplot(inner[0])
        lower = figure.add_subplot(inner[1], sharex=upper)
        upper.tick_params(labelbottom=False)
        upper.set_title(_factor_title(context, factor), fontsize=9.5, fontweight="bold")
        lower.set_xlabel("accuracy (%)" if k + n_columns >= len(factors) else "")
        wide = _wide(points[points["factor"] == factor])
        for panel, rate in zip((upper, lower), _RATES, strict=True):
            panel.set_ylabel(rate[1] if k % n_columns == 0 else "")
            labels.append(_panel(panel, context, factor, wide, rate))
            panels.append(panel)
        _limits(upper.set_xlim, wide, "accuracy")
    headline = "Flip rates against accuracy where one choice is changed at a time"
    model = context.model_title(str(values["model"].iloc[0]))
    figure.suptitle(f"{headline}\n{' · '.join([model, *left_out, provenance(points)])}", fontsize=10)
    footer(figure, *_explanations(context, points, factors), panels=panels[:2], columns=3)
    place_labels(panels, labels)
    return figure


def level_points(values: pd.DataFrame) -> pd.DataFrame:
    """Where each level of each factor stands, and the baseline on the same data sets and seeds.

    Parameters
    ----------
    values
        Settings of one model, as :func:`poise.artefacts.tables.position_common.settings` returns them. Where several
        experiments vary a factor, the one with most levels counts.

    Returns
    -------
    frame
        A row for each ``factor``, ``level`` and ``measure`` (``accuracy``, ``p1``, and ``pairs``: the mean of P2a, P2b,
        P3a and P3b where all are defined), as fractions: ``mean`` and ``sd`` over seeds of the mean over data sets,
        ``seeds`` and ``datasets`` (names with ``|``), and ``base``, the baseline's mean on the same runs.
    """
    values = pd.concat([values[values["measure"].isin(["accuracy", "p1"])], _pairs(values)], ignore_index=True)
    pairwise = (values["factor"] == PARADIGM) & (values["method"] == "weighted_sum")
    values = values[(values["method"] == "icl") | pairwise]
    # Configurations that were chosen on half of the rows stand beside the baseline on the other half.
    is_half = (values["factor"] == CONFIGURATION) & (values["level"] == _BASELINE)
    levels = _fullest_experiments(values[(values["factor"] != "") & ~is_half])
    by = ["factor", "level"]
    found = over_seeds(levels, by)
    if found.empty:
        return found.assign(base=np.nan)
    halved = (levels["factor"] == CONFIGURATION) & levels["experiment"].isin(values.loc[is_half, "experiment"])
    parts = [residuals(levels[~halved], at_baseline(values)), residuals(levels[halved], values[is_half])]
    base = over_seeds(pd.concat(parts, ignore_index=True), by)
    base = base[[*by, "measure", "baseline"]].rename(columns={"baseline": "base"})
    return found.merge(base, on=[*by, "measure"], how="left")


def _one_model(values: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Rows of the model with most levels, the study's first of equals, and what is left out."""
    levels = values[values["factor"] != ""].drop_duplicates(["model", "factor", "level"])
    if levels.empty:
        return levels, []
    counts = levels.groupby("model", sort=False).size()
    n = levels["model"].nunique()
    return values[values["model"] == counts.idxmax()], [f"one of {n} models"] if n > 1 else []


def _pairs(values: pd.DataFrame) -> pd.DataFrame:
    """Mean of the four pairwise contrasts of each run that has all of them."""
    pairs = values[values["measure"].isin(_PAIRS)]
    means = pairs.groupby([*SETTING, "dataset", "seed"], sort=False).agg(
        value=("value", "mean"), contrasts=("value", "size"), n=("n", "min"), provenance=("provenance", "first")
    )
    return means[means["contrasts"] == len(_PAIRS)].reset_index().assign(measure="pairs")


def _fullest_experiments(levels: pd.DataFrame) -> pd.DataFrame:
    """Rows of each factor in the experiment that has most of its levels, the study's first of equals."""
    parts = []
    for _, part in levels.groupby("factor", sort=False):
        counts = part.groupby("experiment", sort=False)["level"].nunique()
        parts.append(part[part["experiment"] == counts.idxmax()])
    return pd.concat(parts, ignore_index=True) if parts else levels


def _wide(points: pd.DataFrame) -> pd.DataFrame:
    """A row for each level in the study's order, columns ``(mean | sd | base, measure)`` in percent."""
    columns = pd.MultiIndex.from_product([["mean", "sd", "base"], ["accuracy", *(rate[0] for rate in _RATES)]])
    wide = points.pivot_table(index="level", columns="measure", values=["mean", "sd", "base"])
    return 100 * wide.reindex(index=list(dict.fromkeys(points["level"])), columns=columns)


def _panel(
    axes: Axes, context: Context, factor: str, wide: pd.DataFrame, rate: tuple[str, str, str, str, str]
) -> Labels:
    """Draw one factor's levels in one flip rate; the labels to place come back."""
    metric, _, name, colour, marker = rate
    shown = wide[wide["mean", metric].notna()]
    x, y = (shown["mean", column].to_numpy(dtype=float) for column in ("accuracy", metric))
    star_x, star_y = (shown["base", column].to_numpy(dtype=float) for column in ("accuracy", metric))
    axes.plot([star_x, x], [star_y, y], color="#cccccc", linewidth=0.8, zorder=1)
    spread = [shown["sd", column].to_numpy(dtype=float) for column in ("accuracy", metric)]
    across, up = (None if np.isnan(sd).all() else np.nan_to_num(sd) for sd in spread)
    axes.errorbar(x, y, xerr=across, yerr=up, fmt=marker, color=colour, markersize=5, elinewidth=0.7, label=name)
    stars = list(dict.fromkeys(zip(star_x.round(6), star_y.round(6), strict=True)))
    stars = [star for star in stars if not np.isnan(star).any()]
    axes.plot([s[0] for s in stars], [s[1] for s in stars], "*", color=VERMILION, markersize=11, zorder=4,
              markeredgecolor="white", markeredgewidth=0.6, label="baseline")  # fmt: skip
    absent = [_level_title(context, factor, level) for level in wide.index if level not in shown.index]
    if absent:
        text = "not defined" if shown.empty else f"not defined: {', '.join(absent)}"
        axes.set_title(text, loc="right", color=GREY, fontsize=7, pad=2)
    axes.tick_params(labelleft=len(shown) > 0)
    _limits(axes.set_ylim, wide, metric)
    axes.grid(color="#eeeeee", linewidth=0.6)
    axes.set_axisbelow(True)
    sd_x, sd_y = (np.nan_to_num(sd) for sd in spread)
    bars = [along(x - sd_x, y, x + sd_x, y), along(x, y - sd_y, x, y + sd_y), along(star_x, star_y, x, y)]
    places = [*stars[:1], *zip(x, y, strict=True), *stars[1:], *(place for bar in bars for place in bar)]
    levels = [_level_title(context, factor, level) for level in shown.index]
    base = (
        _level_title(context, factor, config.baseline) if (config := context.study.factors.get(factor)) else "baseline"
    )
    return np.array(places).reshape(-1, 2), [*([base] if stars else []), *levels]


def _limits(set_limits: Callable[[float, float], object], wide: pd.DataFrame, measure: str) -> None:
    """Show all points, whiskers and baselines of a measure, with room for labels; a margin even for a single point."""
    mean, sd, base = (wide[part, measure].to_numpy(dtype=float) for part in ("mean", "sd", "base"))
    if np.isnan(mean).all():
        return
    sd = np.nan_to_num(sd)
    low, high = np.nanmin([mean - sd, base]), np.nanmax([mean + sd, base])
    centre, half = (low + high) / 2, max(high - low, _LEAST_SPAN) / 2
    set_limits(max(centre - 1.35 * half, -5.0), min(centre + 1.35 * half, 105.0))  # per cent


def _factor_title(context: Context, factor: str) -> str:
    config = context.study.factors.get(factor)
    return config.title if config else PANELS[factor]


def _level_title(context: Context, factor: str, level: str) -> str:
    config = context.study.factors.get(factor)
    found = config.levels.get(level) if config else None
    return fold(found.title if found else level.replace("_", " "), 20)


def _explanations(context: Context, points: pd.DataFrame, factors: Sequence[str]) -> list[str]:
    datasets = {tuple(names.split("|")) for names in points["datasets"]}
    seeds = {tuple(names.split("|")) for names in points["seeds"]}
    most = max(len(found) for found in seeds)
    spread = f"whiskers: ± 1 sample SD over {most} seeds" if most > 1 else "one demonstration seed, so no SD"
    missing = [title for name, title in PANELS.items() if name not in factors]
    every = list(dict.fromkeys("|".join(points["datasets"]).split("|")))
    return [
        f"points: mean over data sets, then over seeds; {spread}; a line joins each level to the baseline on the same "
        f"data sets and seeds; axes differ between panels",
        f"data sets: {' · '.join(context.dataset_title(name) for name in every)}"
        + ("; some levels apply to a part of them, so a factor may have several stars" if len(datasets) > 1 else ""),
        f"not in this study: {', '.join(missing)}" if missing else "",
    ]
