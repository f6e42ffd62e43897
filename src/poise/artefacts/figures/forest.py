"""Forest plot of Phase 0: flip rates of every run with their intervals, the paper's models below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from poise import paths
from poise.artefacts.context import Context, among
from poise.artefacts.figures.common import footer, not_measured, provenance
from poise.artefacts.figures.style import BLUE, GREY, VERMILION
from poise.artefacts.tables.position import baseline_runs
from poise.artefacts.tables.position_common import settings

PRINTED = "position/table2.csv"
_GREEDY = {"p1": "P1\nlabel order", "p2": "P2\ndemonstration order", "p3": "P3\nplacement"}
_SAMPLED = {"noise": "Noise\nsame prompt", "total": "Total\nlabels reversed"}
_LINE = ["model", "experiment", "shots", "dataset"]
_MUTED = GREY
_SEED = 0.8  # height of a run among other seeds, in lines of text


@dataclass(frozen=True)
class _Line:
    """One labelled line of the plot: the runs of a model on a data set, a printed model, or a heading."""

    label: str
    y: float
    height: float = 1.0
    key: tuple[str, ...] = ()
    heading: bool = False


def flip_rate_forest(context: Context) -> Figure:
    """Draw the flip rates of every run with Wilson intervals and numerical floor (position paper, Table 2)."""
    context = baseline_runs(context)
    values = settings(context)
    values = values[values["measure"].isin([*_GREEDY, *_SAMPLED])]
    if values.empty:
        return not_measured("position_figure3", "no experiment of this study uses the probes of its label order")
    sampled = {measure: title for measure, title in _SAMPLED.items() if measure in set(values["measure"])}
    floors = context.metric("flip_floor")
    paper = pd.read_csv(paths.reference_dir() / PRINTED)
    paper = paper.rename(columns={"pfr": "value", "wilson_low": "low", "wilson_high": "high"})
    lines = _measured_lines(context, values)
    end = lines[-1].y + lines[-1].height
    lines += _printed_lines(context, paper, end + 0.5)
    height = lines[-1].y + 1
    titles = {**_GREEDY, **sampled}
    figure, axes = plt.subplots(
        1, len(titles), sharex=True, sharey=True, squeeze=False,
        figsize=(max(6.5, 2.3 + 1.45 * len(titles)), 0.2 * height + 1.3),
    )  # fmt: skip
    for panel, (measure, title) in zip(axes[0], titles.items(), strict=True):
        _panel(panel, lines, values[values["measure"] == measure], floors if measure in _GREEDY else floors.iloc[:0],
               paper[paper["measure"] == measure])  # fmt: skip
        panel.set_title(title, fontsize=9)
        panel.axhline(end + 0.25, color=GREY, linewidth=0.6, linestyle=":")
        panel.set(xlabel="flip rate (%)", yticks=[line.y + line.height / 2 for line in lines])
        panel.set_yticklabels([line.label for line in lines], fontsize=8)
        panel.set_ylim(height + 0.2, -0.3)
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x", color="#eeeeee", linewidth=0.6)
        panel.set_axisbelow(True)
    for text, line in zip(axes[0, 0].get_yticklabels(), lines, strict=True):
        text.set_fontweight("bold" if line.heading else "normal")
        text.set_color(_MUTED if line.key[:1] == ("paper",) else "black")
    axes[0, 0].set_xlim(-2, 100 * max(values["high"].max(), paper["high"].max()) + 3)
    figure.suptitle(
        f"Position sensitivity before any correction: flip rates with Wilson 95 % intervals\n"
        f"points: {provenance(values)}; hollow points: paper",
        fontsize=10,
    )
    footer(figure, *_explanations(len(floors) > 0, bool(sampled)), panels=list(axes[0]), columns=3)
    return figure


def _measured_lines(context: Context, values: pd.DataFrame) -> list[_Line]:
    lines: list[_Line] = []
    y = 0.0
    for model in dict.fromkeys(values["model"]):
        lines.append(_Line(context.model_title(model), y, heading=True))
        y += 1
        of_model = values[values["model"] == model]
        for key, runs in of_model.groupby(_LINE, sort=False):
            seeds = sorted(set(runs["seed"]))
            n = sorted(set(runs["n"]))
            label = context.dataset_title(key[3])
            if len(set(zip(of_model["experiment"], of_model["shots"], strict=True))) > 1:
                label += f", {context.shots_title(key[1], model, key[2]).replace('-', ' ')}"
            label += f" (n {n[0]})" if len(n) == 1 else f" (n {n[0]}–{n[-1]})"
            label += f"\nseed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
            height = max(2.1, _SEED * len(seeds) + 0.5)
            lines.append(_Line(label, y, height, key))
            y += height
    return lines


def _printed_lines(context: Context, paper: pd.DataFrame, y: float) -> list[_Line]:
    lines = [_Line("paper, SST-5", y, key=("paper",), heading=True)]
    for k, model in enumerate(dict.fromkeys(paper["model"]), start=1):
        lines.append(_Line(context.model_title(model), y + k, key=("paper", model)))
    return lines


def _panel(axes: Axes, lines: list[_Line], values: pd.DataFrame, floors: pd.DataFrame, paper: pd.DataFrame) -> None:
    """Draw one measure: every run, its floor, and the paper's models."""
    places = {line.key: line for line in lines if len(line.key) > 1}
    for key, line in places.items():
        if key[0] == "paper":
            continue
        runs = values[among(values, _LINE, {key})]
        seeds = sorted(set(runs["seed"]))
        y_of = {seed: line.y + line.height / 2 + _SEED * (k - (len(seeds) - 1) / 2) for k, seed in enumerate(seeds)}
        _intervals(axes, runs, [y_of[seed] for seed in runs["seed"]], BLUE, label="this study")
        below = floors[among(floors, _LINE, {key})]
        below = below[below["seed"].isin(seeds)]
        _intervals(axes, below.assign(low=below["value"]), [y_of[seed] + 0.28 for seed in below["seed"]], VERMILION,
                   fmt="|", markersize=5, label="numerical floor, to the end of its interval")  # fmt: skip
    _intervals(axes, paper, [places["paper", model].y + 0.5 for model in paper["model"]], _MUTED, mfc="white",
               label="paper")  # fmt: skip


def _intervals(axes: Axes, rows: pd.DataFrame, y: list[float], colour: str, **look: Any) -> None:
    """Points with their intervals, in percent."""
    if rows.empty:
        return
    value, low, high = (100 * rows[column].to_numpy(dtype=float) for column in ("value", "low", "high"))
    bounds = np.clip(np.nan_to_num([value - low, high - value]), 0, None)
    look = {"fmt": "o", "markersize": 3.5, **look}
    axes.errorbar(value, y, xerr=bounds, color=colour, ecolor=colour, elinewidth=0.9, capsize=1.5, **look)


def _explanations(measured_floor: bool, sampled: bool) -> list[str]:
    floor = "flips between the same requests asked in two groupings" if measured_floor else "not measured"
    return [
        "a point: one run; seeds from top to bottom; n: rows with an answer under every condition compared; P2 and P3 "
        "count a row that flips under any order or placement",
        f"numerical floor: {floor}",
        "P1, P2, P3: deterministic answers; Noise, Total: sampled text" if sampled else "",
        f"paper: printed values for SST-5 (data/reference/{PRINTED}), other models and prompts: a backdrop only",
    ]
