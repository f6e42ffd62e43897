"""Measuring a matrix before and after correction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from poise import metrics as m
from poise.artefacts.tables.table import Table
from poise.files import write_text
from poise.matrix.files import (
    CONFIDENCE,
    N_RESAMPLES,
    Labels,
    Probabilities,
    check_table_name,
    suffix_of,
    write_table,
    writing,
)
from poise.matrix.weights import Weights, aligned
from poise.methods.dnip.objective import weighted_argmax


@dataclass(frozen=True)
class Audit:
    """Measures of a matrix's predictions, before and (with weights) after correction.

    Attributes
    ----------
    source, weights_source
        The files.
    classes, class_rows, weights
        In one order; ``weights`` is None without correction.
    labels_read
        How the labels were read.
    tidy
        One number a row, as fractions: ``metric``, ``class``, ``state`` (``before``, ``after``, ``change``),
        ``value``, ``low`` and ``high`` (95 % bootstrap interval, where there is one), ``n``, ``provenance``.
    """

    source: str
    weights_source: str | None
    classes: tuple[str, ...]
    class_rows: tuple[int, ...]
    weights: tuple[float, ...] | None
    labels_read: str
    tidy: pd.DataFrame

    def value(self, metric: str, state: str = "before", class_name: str = "") -> float:
        """One of the numbers."""
        chosen = self.tidy[["metric", "class", "state"]].eq([metric, class_name, state]).all(axis=1)
        return float(self.tidy.loc[chosen, "value"].item())

    def table(self) -> Table:
        """Render for reading, in percent."""
        return _audit_table(self)

    def markdown(self) -> str:
        """Render as Markdown, in percent."""
        return self.table().markdown()


def audit(probabilities: Probabilities, labels: Labels, weights: Weights | None = None) -> Audit:
    """Measure the predictions of the labelled rows, before and, with weights, after correction.

    Raises
    ------
    PoiseError
        If the classes of the weights are not those of the matrix.
    """
    chosen = labels.labelled
    true, n = labels.indices[chosen], len(probabilities.classes)
    columns = np.ascontiguousarray(probabilities.columns[:, chosen])
    predictions = {"before": weighted_argmax(columns, np.ones(n, dtype=np.int64))}
    if weights is not None:
        order = [probabilities.classes.index(name) for name in aligned(probabilities, weights).classes]
        in_order = weighted_argmax(np.ascontiguousarray(columns[order]), weights.multipliers)
        predictions["after"] = np.array(order)[in_order]
    counts = np.bincount(true, minlength=n)
    rows = [
        *_measured(true, predictions, n),
        *_class_measures(true, predictions, probabilities.classes),
    ]
    tidy = pd.DataFrame(rows, columns=["metric", "class", "state", "value", "low", "high", "n"])
    by_class = None if weights is None else dict(zip(weights.classes, weights.weights, strict=True))
    return Audit(
        source=probabilities.source,
        weights_source=None if weights is None else weights.source,
        classes=probabilities.classes,
        class_rows=tuple(counts.tolist()),
        weights=None if by_class is None else tuple(by_class[name] for name in probabilities.classes),
        labels_read=labels.described(probabilities),
        tidy=tidy.assign(provenance="measured"),
    )


_Row = tuple[str, str, str, float, float, float, int]


def _measured(true: NDArray[np.int64], predictions: dict[str, NDArray[np.int64]], n: int) -> Iterator[_Row]:
    bootstrap = m.cobias_bootstrap(
        true, *predictions.values(), n_classes=n, n_resamples=N_RESAMPLES, confidence=CONFIDENCE
    )
    accuracy, accuracy_change = _accuracy_bootstrap(true, *predictions.values())
    none = (math.nan, math.nan)
    last: dict[str, float] = {}
    for k, (state, predicted) in enumerate(predictions.items()):
        values = {
            "accuracy": (m.accuracy(true, predicted), accuracy[k]),
            "macro_f1": (m.macro_f1(true, predicted, n), none),
            "cobias": (m.cobias(true, predicted, n), (bootstrap.intervals[k].low, bootstrap.intervals[k].high)),
            "cobias_floor": (_floor(true, predicted, n), none),
            "cobias_single": (m.cobias_single(true, predicted, n), none),
            "odd_rate": (m.odd_rate(true, predicted, n), none),
        }
        for metric, (value, (low, high)) in values.items():
            yield metric, "", state, value, low, high, len(true)
        if state == "after":
            change = bootstrap.differences[0]
            ends = {"accuracy": accuracy_change, "cobias": (change.low, change.high)}
            for metric, (value, _) in values.items():
                if metric == "cobias_floor":
                    continue
                yield metric, "", "change", value - last[metric], *ends.get(metric, none), len(true)
        last = {metric: value for metric, (value, _) in values.items()}


def _class_measures(
    true: NDArray[np.int64], predictions: dict[str, NDArray[np.int64]], classes: Sequence[str]
) -> Iterator[_Row]:
    n = len(classes)
    counts = np.bincount(true, minlength=n).tolist()
    for metric in ("class_accuracy", "predicted"):
        last: list[float] = []
        for state, predicted in predictions.items():
            measured = m.class_accuracies(true, predicted, n) if metric == "class_accuracy" else None
            values = (np.bincount(predicted, minlength=n) if measured is None else measured).tolist()
            states = {state: values}
            if last:
                states["change"] = [after - before for before, after in zip(last, values, strict=True)]
            for name_of_state, numbers in states.items():
                for name, value, count in zip(classes, numbers, counts, strict=True):
                    yield metric, name, name_of_state, value, math.nan, math.nan, count
            last = values


def _floor(true: NDArray[np.int64], predicted: NDArray[np.int64], n: int) -> float:
    """Sampling floor of COBias: every class as accurate as the classes are on average."""
    accuracies, counts = m.class_accuracies(true, predicted, n), np.bincount(true, minlength=n)
    return m.cobias_sampling_floor(counts[counts > 0], float(accuracies[counts > 0].mean()))


_Ends = tuple[float, float]


def _accuracy_bootstrap(true: NDArray[np.int64], *predictions: NDArray[np.int64]) -> tuple[list[_Ends], _Ends]:
    """Paired percentile intervals of the accuracies, and of the last minus the first."""
    right = np.column_stack([predicted == true for predicted in predictions])
    kinds, counts = np.unique(right, axis=0, return_counts=True)
    draws = np.random.default_rng(0).multinomial(len(true), counts / len(true), size=N_RESAMPLES)
    samples = draws @ kinds.astype(np.float64) / len(true)
    return [_ends(sample) for sample in samples.T], _ends(samples[:, -1] - samples[:, 0])


def _ends(sample: NDArray[np.float64]) -> _Ends:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(sample, [tail, 1 - tail])
    return float(low), float(high)


_TITLES = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "cobias": "COBias",
    "cobias_floor": "COBias, sampling floor",
    "cobias_single": "COBias_single",
    "odd_rate": "odd rate H",
}


def _audit_table(audit: Audit) -> Table:
    states = [state for state in ("before", "after", "change") if (audit.tidy["state"] == state).any()]
    found = {(row["metric"], row["class"], row["state"]): row for row in audit.tidy.to_dict("records")}

    def cells(metric: str, name: str, wanted: Sequence[str]) -> list[str]:
        return [_percent(found.get((metric, name, state))) for state in wanted]

    overall = pd.DataFrame(
        [[title, *cells(metric, "", states)] for metric, title in _TITLES.items()], columns=["percent", *states]
    )
    compared = [state for state in states if state != "change"]
    lines = []
    for k, name in enumerate(audit.classes):
        predicted = [f"{found['predicted', name, state]['value']:.0f}" for state in compared]
        weight = [] if audit.weights is None else [f"{audit.weights[k]:.4g}"]
        shown = name.replace("|", "\\|")
        lines.append([shown, f"{audit.class_rows[k]}", *predicted, *cells("class_accuracy", name, states), *weight])
    columns = ["class", "rows"]
    columns += [f"predicted, {state}" for state in compared]
    columns += [f"accuracy %, {state}" for state in states]
    columns += [] if audit.weights is None else ["weight"]
    corrected = "" if audit.weights_source is None else f", before and after {audit.weights_source}"
    return Table(
        caption=f"Audit of {audit.source}: {sum(audit.class_rows)} labelled rows{corrected}",
        tidy=audit.tidy,
        sections=(("", overall), ("Classes", pd.DataFrame(lines, columns=columns))),
        notes=(
            f"[low, high]: {CONFIDENCE * 100:.0f} % bootstrap interval, {N_RESAMPLES} resamples of the rows"
            + ("." if audit.weights is None else ", the same ones before and after."),
            "Sampling floor: the COBias that classes of equal accuracy would show by chance, at these numbers of rows."
            " Near it, resampling adds to COBias, and the interval may lie above the value.",
            f"Labels: {audit.labels_read}.",
        ),
    )


def _percent(row: dict[Any, Any] | None) -> str:
    if row is None or math.isnan(row["value"]):
        return "–"
    sign = "+" if row["state"] == "change" else ""
    low, high = (f"{100 * row[end]:{sign}.2f}" for end in ("low", "high"))
    return f"{100 * row['value']:{sign}.2f}" + ("" if math.isnan(row["low"]) else f" [{low}, {high}]")


def write_audit(path: Path, audit: Audit) -> None:
    """Write an audit atomically: as Markdown (``.md``), or its tidy numbers as a table."""
    check_table_name(path, ".md")
    if suffix_of(path) != ".md":
        return write_table(path, audit.tidy)
    with writing(path):
        write_text(path, audit.markdown())
    return None
