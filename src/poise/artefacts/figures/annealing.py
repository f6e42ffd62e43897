"""Figure of the paper's simulated annealing: objective and temperature by evaluation."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from poise.artefacts.context import Context
from poise.artefacts.figures.common import fold, footer, grid, not_measured, scope, title
from poise.artefacts.figures.style import BLUE, ORANGE, SKY

_CURVES = ("curve_objective", "curve_best", "curve_temperature")


def annealing_curves(context: Context) -> Figure:
    """Objective and temperature of the paper's annealing, first seed of each data set (DNIP paper, Figure 2)."""
    shown = scope(context, {"dnip_metropolis": "DNIP, paper's annealing"}, _CURVES)
    if shown.empty:
        reason = "method dnip_metropolis, the paper's annealing, is not in this study"
        return not_measured("dnip_figure2", reason)
    n_rows, n_columns = grid(len(shown.datasets), 4)
    figure, axes = plt.subplots(
        2 * n_rows, n_columns, squeeze=False, height_ratios=[2, 1] * n_rows,
        figsize=(max(5.6, 2.1 * n_columns + 0.5), 3.0 * n_rows + 0.8),
    )  # fmt: skip
    seeds = set()
    for place in range(n_rows * n_columns):
        row, column = divmod(place, n_columns)
        upper, lower = axes[2 * row, column], axes[2 * row + 1, column]
        if place >= len(shown.datasets):
            upper.set_axis_off()
            lower.set_axis_off()
            continue
        dataset = shown.datasets[place]
        seed = shown.first_seed(dataset)
        seeds.add(str(seed))
        curves = shown.of(dataset=dataset, seed=seed)
        lower.sharex(upper)
        _draw(upper, lower, curves)
        best = curves[curves["metric"] == "curve_best"].sort_values("n").iloc[-1]
        name = fold(context.dataset_title(dataset), 26)
        upper.set_title(f"{name}\nbest Z {best['value']:.4f}", fontsize=9)
        lower.set_xlabel(f"evaluations ({int(best['n']):,} in all)", fontsize=8)
        if column == 0:
            upper.set_ylabel("objective Z")
            lower.set_ylabel("temperature")
    title(figure, context, shown, f"Simulated annealing as in the paper's Algorithm 1, seed {', '.join(sorted(seeds))}")
    points = shown.rows.groupby(["dataset", "seed", "metric"]).size().max()
    footer(
        figure,
        "Z: Eq. 5 on the optimisation rows, without unit; temperature: in units of rows × Z, logarithmic; "
        f"at most {points} evenly spaced evaluations are drawn",
        panels=axes[:2, 0],
        columns=3,
    )
    return figure


def _draw(upper: Axes, lower: Axes, curves: pd.DataFrame) -> None:
    for metric, axes, colour, width, label in (
        ("curve_objective", upper, SKY, 0.8, "current objective"),
        ("curve_best", upper, BLUE, 1.8, "best so far"),
        ("curve_temperature", lower, ORANGE, 1.8, "temperature"),
    ):
        curve = curves[curves["metric"] == metric].sort_values("n")
        axes.plot(
            curve["n"].to_numpy(dtype=float), curve["value"], color=colour, linewidth=width, label=label,
            marker="o" if len(curve) == 1 else None, drawstyle="steps-post",
        )  # fmt: skip
    upper.tick_params(labelbottom=False)
    upper.grid(color="#dddddd", linewidth=0.6)
    lower.grid(color="#dddddd", linewidth=0.6)
    lower.set_yscale("log")
    lower.yaxis.set_major_locator(LogLocator(numticks=5))
    lower.yaxis.set_minor_locator(NullLocator())
    lower.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    lower.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
