"""Metrics of the class-accuracy instrument: accuracy, COBias and the like of each method, and what it learned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from poise import metrics as m
from poise import paths
from poise.answers import read_demonstrations
from poise.files import read_parquet
from poise.plan import Plan
from poise.stages.imbalance import add_imbalance
from poise.stages.tidy import HARD, Tidy, provenance


def class_accuracy(plan: Plan, experiment: str, model: str, dataset: str) -> list[dict[str, Any]]:
    """Metrics of all methods on one model and data set, as rows of the tidy frame."""
    classes = plan.study.datasets[dataset].classes
    runs: dict[tuple[str, int], dict[str, pd.DataFrame]] = {}
    fits: dict[tuple[str, int, str], dict[str, Any]] = {}
    for method in plan.study.methods_of(plan.study.experiment[experiment]):
        path = paths.predictions(plan.study.name, experiment, model, dataset, method)
        for (shots, seed), frame in read_parquet(path).groupby(["shots", "seed"], sort=False):
            runs.setdefault((str(shots), int(seed)), {})[method] = frame
        for fit in json.loads(path.with_suffix(".json").read_text(encoding="utf-8")):
            fits[fit["shots"], fit["seed"], method] = fit
    rows: list[dict[str, Any]] = list(_demonstrations(plan, experiment, model, dataset))
    for (shots, seed), by_method in runs.items():
        labels = next(iter(by_method.values()))["label"].to_numpy()
        predictions = {method: frame["prediction"].to_numpy() for method, frame in by_method.items()}
        tidies = {
            method: Tidy(
                experiment=experiment, model=model, dataset=dataset, shots=shots, seed=seed, method=method,
                condition="base", n=len(labels), provenance=provenance(plan),
            )
            for method in by_method
        }  # fmt: skip
        add_imbalance(tidies, labels, predictions, classes)
        for method, tidy in tidies.items():
            _add_performance(tidy, labels, predictions[method], classes)
            fit = fits[shots, seed, method]
            if fit.get("hard"):
                tidy.add("hard_predictions", 1, note=HARD)
                tidy.add("parse_failure_rate", m.parse_failure_rate(predictions[method]))
            _add_fit(tidy, fit, classes)
            rows += tidy.rows
    return rows


def _demonstrations(plan: Plan, experiment: str, model: str, dataset: str) -> Iterator[dict[str, Any]]:
    """Class of each demonstration of each run, in prompt order: ``value`` is its place, from 1."""
    classes = plan.study.datasets[dataset].classes
    cells = [cell for cell in plan.groups[experiment, model, dataset] if cell.split == "test"]
    shown = read_demonstrations(plan, cells)
    for cell in cells:
        tidy = Tidy(
            experiment=experiment, model=model, dataset=dataset, shots=cell.shots, seed=cell.seed, method="icl",
            condition="base", n=len(shown[cell.id]), provenance=provenance(plan),
        )  # fmt: skip
        for place, label in enumerate(shown[cell.id], start=1):
            tidy.add("demonstration", place, **{"class": classes[label]})
        yield from tidy.rows


def _add_performance(tidy: Tidy, labels: np.ndarray, predicted: np.ndarray, classes: Sequence[str]) -> None:
    n = len(classes)
    counts = m.confusion_counts(labels, predicted, n)
    tidy.add("accuracy", m.accuracy(labels, predicted))
    tidy.add("macro_f1", m.macro_f1(labels, predicted, n))
    tidy.add("cobias_single", m.cobias_single(labels, predicted, n))
    tidy.add("odd_rate", m.odd_rate(labels, predicted, n))
    for i, name in enumerate(classes):
        for j, predicted_name in enumerate(classes):
            tidy.add("count", counts[i, j], **{"class": name, "pred_class": predicted_name}, n=int(counts[i].sum()))


def _add_fit(tidy: Tidy, fit: dict[str, Any], classes: Sequence[str]) -> None:
    """Record what a method learned: weights, objective with its proven bound, annealing curves."""
    n = fit.get("rows")
    for name, weight in zip(classes, fit.get("weights", []), strict=False):
        tidy.add("weight", weight, **{"class": name}, n=n)
    if "objective" not in fit:
        return
    tidy.add("objective", fit["objective"], n=n, note="certified" if fit["certified"] else "not certified")
    if fit["lower_bound"] is not None:
        tidy.add("objective_lower_bound", fit["lower_bound"], n=n)
    tidy.add("evaluations", fit["evaluations"], n=n)
    tidy.add("mu", fit["mu"], n=n)
    for name, value in fit.get("tuned", {}).items():
        tidy.add(f"tuned_{name}", value, n=fit["development_rows"], note="chosen on the development rows")
    curve = fit.get("curve", {})
    for name in ("objective", "best", "temperature"):
        for evaluation, value in zip(curve.get("evaluation", []), curve.get(name, []), strict=False):
            tidy.add(f"curve_{name}", value, n=evaluation, note="n is the number of the evaluation")
