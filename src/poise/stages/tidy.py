"""Tidy metrics: one row a number, the same columns for all instruments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from poise import metrics as m
from poise.plan import Plan

METRIC_COLUMNS = [
    "experiment", "model", "dataset", "shots", "seed", "factor", "level", "method", "condition", "metric", "class",
    "pred_class", "value", "low", "high", "n", "note", "provenance",
]  # fmt: skip
HARD = "hard predictions only: the server does not tell all labels' probabilities, so reweighting changes nothing"
_NUMBERS = {"value": float, "low": float, "high": float, "n": "Int64", "seed": "Int64"}


class Tidy:
    """Collects rows that share some columns."""

    def __init__(self, **shared: Any) -> None:
        self.shared = shared
        self.rows: list[dict[str, Any]] = []

    def add(self, metric: str, value: float, **columns: Any) -> None:
        """Add one number."""
        self.rows.append({**self.shared, "metric": metric, "value": float(value), **columns})


def add_flips(tidy: Tidy, contrast: str, predictions: Sequence[np.ndarray], note: str = "") -> None:
    """Add a flip rate with its interval and its worst case."""
    flips = m.flip_rate(*predictions)
    tidy.add(f"pfr_{contrast}", flips.rate, condition=contrast, low=flips.low, high=flips.high, n=flips.n, note=note)
    tidy.add(f"pfr_{contrast}_worst", flips.worst_case, condition=contrast, n=len(predictions[0]), note=note)


def tidy_frame(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a frame with all metric columns and fixed types; what a row lacks is an empty text or NaN."""
    frame = pd.DataFrame(list(rows), columns=METRIC_COLUMNS)
    for column in METRIC_COLUMNS:
        if column in _NUMBERS:
            frame[column] = frame[column].astype(_NUMBERS[column])
        else:
            frame[column] = frame[column].astype(object).fillna("").astype(str)
    return frame


def provenance(plan: Plan) -> str:
    """``measured``, or ``synthetic`` where the dummy engine answered."""
    return "synthetic" if plan.study.engine.kind == "dummy" else "measured"
