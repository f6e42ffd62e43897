"""Figures of the position instrument."""

from __future__ import annotations

import textwrap

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from poise.artefacts.context import Context, among, keys_of
from poise.artefacts.figures.common import not_measured
from poise.artefacts.figures.style import BLUE, GREY, ORANGE
from poise.artefacts.tables.position_common import SERIES, at_baseline
from poise.config.prompts import OrdinalPrompt
from poise.prompts.render import Renderer, header
from poise.prompts.scale import label_surfaces

# Invented for this drawing; no data set's text.
_SENTENCE = "A warm film that knows exactly when to stop."


def label_order(context: Context) -> Figure:
    """Draw one prompt under both label mappings, and the flip rates measured (position paper, Figure 1)."""
    rates = at_baseline(context.metric("pfr_p1"))
    if rates.empty:
        return not_measured("position_figure1", "no experiment of this study reverses the label order")
    first = rates.iloc[0]
    dataset = context.study.datasets[first["dataset"]]
    prompt = context.study.experiment[first["experiment"]].prompt
    assert isinstance(prompt, OrdinalPrompt)
    figure = plt.figure(figsize=(10.5, 4.4))
    panels = figure.subplot_mosaic([["natural", "rates"], ["reversed", "rates"]], width_ratios=[1.75, 1])
    last = label_surfaces(prompt.label_format, dataset.classes)[-1]
    for order, colour, meaning in (
        ("natural", BLUE, dataset.classes[-1]),
        ("reversed", ORANGE, dataset.classes[0]),
    ):
        renderer = Renderer(prompt, dataset, (), context.study.models[first["model"]].label_tokens, order)
        text = header(prompt, dataset, order) + "\n\n" + renderer.requests(_SENTENCE)[0].prompt.query
        _box(panels[order], f"{order} label order", text, f"answer {last}  →  {meaning}", colour)
    _rates(panels["rates"], context, rates)
    figure.suptitle(
        "The same answer means the opposite class once the label mapping is reversed "
        "(illustration; demonstrations omitted)"
    )
    return figure


def _box(axes: Axes, title: str, text: str, answer: str, colour: str) -> None:
    axes.set_axis_off()
    axes.set_title(title, loc="left", color=colour, fontweight="bold")
    wrapped = "\n".join("\n".join(textwrap.wrap(line, 78)) for line in text.split("\n"))
    axes.text(0.01, 0.96, wrapped, va="top", family="monospace", fontsize=7.5, transform=axes.transAxes)
    axes.text(
        0.01,
        0.02,
        answer,
        va="bottom",
        fontsize=10,
        fontweight="bold",
        color=colour,
        transform=axes.transAxes,
    )
    axes.patch.set_visible(True)


def _rates(axes: Axes, context: Context, rates: pd.DataFrame) -> None:
    """Draw the flip rates of the first model, experiment and number of demonstrations, run by run."""
    series = keys_of(rates, SERIES)
    floors = at_baseline(context.metric("flip_floor"))
    floors = floors[among(floors, SERIES, {series[0]})]
    rates = rates[among(rates, SERIES, {series[0]})]
    between = "\n" if len(rates) <= 8 else " "
    names = []
    for place, (_, run) in enumerate(rates.iterrows()):
        value = 100 * run["value"]
        axes.errorbar(
            value,
            place,
            xerr=[[value - 100 * run["low"]], [100 * run["high"] - value]],
            fmt="o",
            color=BLUE,
            capsize=3,
            label="P1 with Wilson 95 % interval" if place == 0 else None,
        )
        names.append(f"{run['dataset']}, seed {run['seed']}{between}(n = {run['n']})")
    if len(floors):
        axes.axvline(100 * floors["value"].mean(), color=GREY, linestyle="--", label="numerical floor")
    axes.set(yticks=range(len(names)), yticklabels=names, xlim=(-3, 103), xlabel="prediction flip rate P1 (%)")
    axes.set_ylim(len(names) - 0.4, -0.6)
    n = len(set(series))
    kinds = [", ".join(sorted(set(rates["provenance"]))), *([f"first of {n} settings"] if n > 1 else [])]
    axes.set_title(f"{context.model_title(series[0][1])}\n({', '.join(kinds)})")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False, fontsize=8)
