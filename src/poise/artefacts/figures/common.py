"""What the figures of the class-accuracy instrument share: which runs they show, their title, notes and empty page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure

from poise.artefacts.context import Context
from poise.artefacts.figures.style import GREY
from poise.artefacts.registry import ARTEFACTS


@dataclass(frozen=True)
class Scope:
    """The runs that a figure shows: of one model, one number of demonstrations and, for each data set, one experiment.

    Attributes
    ----------
    rows
        Tidy metrics of these runs.
    labels
        Methods that the figure can show, with their names on it, in its order.
    left_out
        What the study has of models and of shot settings beside those shown, in words.
    """

    rows: pd.DataFrame
    labels: Mapping[str, str]
    left_out: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return self.rows.empty

    @property
    def model(self) -> str:
        """The model shown."""
        return str(self.rows["model"].iloc[0])

    @property
    def shots(self) -> str:
        """Number of demonstrations, as figures print it."""
        return str(self.rows["shots"].iloc[0]).replace("_", "-")

    @property
    def datasets(self) -> list[str]:
        """Data sets in the study's order."""
        return list(dict.fromkeys(self.rows["dataset"]))

    @property
    def methods(self) -> list[str]:
        """Methods that were measured, in the figure's order."""
        found = set(self.rows["method"])
        return [name for name in self.labels if name in found]

    @property
    def missing(self) -> list[str]:
        """Names of the methods that were not measured."""
        return [label for name, label in self.labels.items() if name not in set(self.methods)]

    def of(self, **equal: str | int) -> pd.DataFrame:
        """Rows whose columns have these values."""
        rows = self.rows
        for column, value in equal.items():
            rows = rows[rows[column] == value]
        return rows

    def first_seed(self, dataset: str) -> int:
        """First seed of a data set that every method shown there has, or its first."""
        rows = self.of(dataset=dataset)
        seeds = list(dict.fromkeys(int(seed) for seed in rows["seed"]))
        by_method = [{int(seed) for seed in part["seed"]} for _, part in rows.groupby("method")]
        return next((seed for seed in seeds if all(seed in found for found in by_method)), seeds[0])


def scope(context: Context, labels: Mapping[str, str], metrics: Sequence[str]) -> Scope:
    """Choose the runs to show: where most of the methods were measured; the study's order decides between equals."""
    rows = context.metrics
    rows = rows[rows["metric"].isin(metrics) & rows["method"].isin(labels) & (rows["condition"] == "base")]
    left_out = []
    for column, noun in (("model", "models"), ("shots", "shot settings")):
        n = rows[column].nunique()
        if n > 1:
            chosen = _fullest(rows, column)
            place = list(dict.fromkeys(rows[column])).index(chosen)
            left_out.append(f"{'first' if place == 0 else 'one'} of {n} {noun}")
            rows = rows[rows[column] == chosen]
    kept = [part[part["experiment"] == _fullest(part, "experiment")] for _, part in rows.groupby("dataset", sort=False)]
    return Scope(pd.concat(kept) if kept else rows, labels, tuple(left_out))


def _fullest(rows: pd.DataFrame, column: str) -> str:
    counts = rows.groupby(column, sort=False)["method"].nunique()
    return str(counts.index[counts.to_numpy().argmax()])


def title(figure: Figure, context: Context, shown: Scope, *headline: str) -> None:
    """Head a figure: what it shows, then model, demonstrations, what else the study has, and provenance."""
    parts = [f"{context.model_title(shown.model)}, {shown.shots}", *shown.left_out, provenance(shown.rows)]
    lines = [*headline, " · ".join(parts)]
    figure.suptitle("\n".join(_wrapped(line, figure, 10) for line in lines), fontsize=10)


def footer(figure: Figure, *texts: str, panels: Sequence[Axes] = (), columns: int = 1) -> None:
    """Write below a figure: one legend for its panels, each label once, then notes; empty ones are left out.

    Both lie outside the figure's box; saving with a tight bounding box keeps them.
    """
    found: dict[str, Any] = {}
    for panel in panels:
        found.update(dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True)))
    labels = sorted(found, key=lambda label: not isinstance(found[label], Container))
    inch = 1 / figure.get_size_inches()[1]
    top = -0.03 * inch
    if found:
        figure.legend(
            [found[label] for label in labels], labels, loc="upper center", bbox_to_anchor=(0.5, top), ncol=columns,
            bbox_transform=figure.transFigure, frameon=False, fontsize=8, handletextpad=0.4, columnspacing=1.2,
            borderaxespad=0,
        )  # fmt: skip
        top -= (0.12 + 0.17 * -(-len(found) // columns)) * inch
    kept = [_wrapped(text, figure, 7.5) for text in texts if text]
    figure.text(0.5, top, "\n".join(kept), ha="center", va="top", fontsize=7.5, color="#444444")


def missing_note(shown: Scope) -> str:
    """Name the methods that the study does not have."""
    return f"not in this study: {', '.join(shown.missing)}" if shown.missing else ""


def seeds_note(rows: pd.DataFrame, what: str = "points") -> str:
    """Explain means and whiskers."""
    n = rows["seed"].nunique()
    if n == 1:
        return f"{what}: one demonstration seed ({rows['seed'].iloc[0]}), so no SD"
    return f"{what}: mean over {n} demonstration seeds; whiskers: ± 1 sample SD over them"


def not_measured(artefact: str, reason: str) -> Figure:
    """Page of a figure that has nothing to show, with the reason."""
    figure = plt.figure(figsize=(6.5, 2.2))
    figure.suptitle(_wrapped(ARTEFACTS[artefact].title, figure, 10), fontsize=10)
    figure.text(0.5, 0.55, "not measured", ha="center", va="center", fontsize=16, color=GREY)
    figure.text(0.5, 0.36, _wrapped(reason, figure, 9), ha="center", va="top", fontsize=9)
    return figure


def provenance(rows: pd.DataFrame) -> str:
    """Where the numbers are from."""
    return ", ".join(sorted(set(rows["provenance"])))


def fold(text: str, width: int) -> str:
    """Break a label over lines."""
    return "\n".join(textwrap.wrap(text, width)) or text


def shorten(text: str, width: int) -> str:
    """Cut a label that has no room."""
    return text if len(text) <= width else text[: width - 1] + "…"


def grid(n: int, widest: int) -> tuple[int, int]:
    """Rows and columns of a grid of ``n`` panels, evenly filled."""
    n_rows = -(-n // widest)
    return n_rows, -(-n // n_rows)


def value_of(rows: pd.DataFrame, metric: str) -> float:
    """The one number of a metric; NaN if it was not measured."""
    found = rows.loc[rows["metric"] == metric, "value"]
    return float(found.iloc[0]) if len(found) else float("nan")


def by_class(rows: pd.DataFrame, metric: str, classes: Iterable[str]) -> list[float]:
    """Values of a metric in class order; NaN where there is none."""
    found = rows[rows["metric"] == metric].drop_duplicates("class").set_index("class")["value"]
    return [float(value) for value in found.reindex(list(classes))]


def _wrapped(text: str, figure: Figure, size: float) -> str:
    characters = int(figure.get_size_inches()[0] * 72 / (0.56 * size))
    return fold(text, characters)
