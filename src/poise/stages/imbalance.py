"""COBias with its floor and its interval, and class accuracies: the rows that both instruments write alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from poise import metrics as m
from poise.stages.tidy import Tidy


def add_imbalance(
    tidies: Mapping[str, Tidy],
    labels: np.ndarray,
    predictions: Mapping[str, np.ndarray],
    classes: Sequence[str],
    **columns: Any,
) -> None:
    """Add the imbalance of each method's predictions on the same rows.

    Intervals are of the paired bootstrap: changes are against ``icl`` on the same resampled rows.
    """
    n = len(classes)
    names = sorted(predictions, key=lambda name: name != "icl")
    bootstrap = m.cobias_bootstrap(labels, *(predictions[name] for name in names), n_classes=n)
    values = [m.cobias(labels, predictions[name], n) for name in names]
    counts = np.bincount(labels, minlength=n)
    present = counts > 0
    for k, name in enumerate(names):
        tidy = tidies[name]
        interval = bootstrap.intervals[k]
        tidy.add("cobias", values[k], low=interval.low, high=interval.high, n=len(labels), **columns)
        if k and names[0] == "icl":
            change = bootstrap.differences[k - 1]
            tidy.add(
                "cobias_difference", values[k] - values[0], low=change.low, high=change.high, n=len(labels),
                note="minus icl", **columns,
            )  # fmt: skip
        accuracies = m.class_accuracies(labels, predictions[name], n)
        floor = m.cobias_sampling_floor(counts[present], float(accuracies[present].mean()))
        note = "mean COBias under equal class accuracies at these class counts"
        tidy.add("cobias_floor", floor, n=len(labels), note=note, **columns)
        for label, class_name in enumerate(classes):
            note = "" if present[label] else "no test row of this class"
            shown = {**columns, "class": class_name, "n": int(counts[label]), "note": note}
            tidy.add("class_accuracy", accuracies[label], **shown)
