"""Measurement: predictions become tidy metrics, one row a number (the columns are ``METRIC_COLUMNS``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from poise import metrics as m
from poise import paths
from poise.answers import CellAnswers, read_answers, read_demonstrations
from poise.config.schema import Probe
from poise.files import read_parquet, write_parquet
from poise.plan import BASE_CONDITION, Cell, Plan

METRIC_COLUMNS = [
    "experiment", "model", "dataset", "shots", "seed", "method", "condition", "metric", "class", "pred_class",
    "value", "low", "high", "n", "note", "provenance",
]  # fmt: skip
_TEXT = {
    "experiment",
    "model",
    "dataset",
    "shots",
    "method",
    "condition",
    "metric",
    "class",
    "pred_class",
    "note",
    "provenance",
}


class _Tidy:
    """Collects rows that share some columns."""

    def __init__(self, **shared: Any) -> None:
        self.shared = shared
        self.rows: list[dict[str, Any]] = []

    def add(self, metric: str, value: float, **columns: Any) -> None:
        self.rows.append({**self.shared, "metric": metric, "value": float(value), **columns})


def provenance(plan: Plan) -> str:
    """``measured``, or ``synthetic`` where the dummy engine answered."""
    return "synthetic" if plan.study.engine.kind == "dummy" else "measured"


def measure(plan: Plan, experiment: str, model: str, dataset: str) -> None:
    """Write the metrics of one model and data set in one experiment."""
    instrument = plan.study.experiment[experiment].instrument
    rows = (_class_accuracy if instrument == "class_accuracy" else _position)(plan, experiment, model, dataset)
    write_parquet(paths.cell_metrics(plan.study.name, experiment, model, dataset), tidy_frame(rows))


def collect(plan: Plan, instrument: str) -> None:
    """Gather the metrics of one instrument into one file; ``timing`` gathers the seconds that fits took."""
    if instrument == "timing":
        write_parquet(paths.metrics(plan.study.name, instrument), tidy_frame(_timings(plan)))
        return
    names = {experiment.name for experiment in plan.experiments(instrument)}
    frames = [read_parquet(paths.cell_metrics(plan.study.name, *group)) for group in plan.groups if group[0] in names]
    frame = pd.concat(frames, ignore_index=True) if frames else tidy_frame([])
    write_parquet(paths.metrics(plan.study.name, instrument), frame)


def _timings(plan: Plan) -> Iterator[dict[str, Any]]:
    for experiment, model, dataset, method in plan.corrections:
        path = paths.predictions(plan.study.name, experiment, model, dataset, method).with_suffix(".timings.json")
        for run in json.loads(path.read_text(encoding="utf-8")):
            yield {
                "experiment": experiment, "model": model, "dataset": dataset, "shots": run["shots"],
                "seed": run["seed"], "method": method, "condition": "base", "metric": "fit_seconds",
                "value": run["seconds"], "provenance": provenance(plan),
            }  # fmt: skip


def tidy_frame(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a frame with all metric columns and fixed types."""
    frame = pd.DataFrame(list(rows), columns=METRIC_COLUMNS)
    for column in METRIC_COLUMNS:
        if column in _TEXT:
            frame[column] = frame[column].astype(object).fillna("").astype(str)
        elif column in ("n", "seed"):
            frame[column] = frame[column].astype("Int64")
        else:
            frame[column] = frame[column].astype(float)
    return frame


def _class_accuracy(plan: Plan, experiment: str, model: str, dataset: str) -> list[dict[str, Any]]:
    classes = plan.study.datasets[dataset].classes
    runs: dict[tuple[str, int], dict[str, pd.DataFrame]] = {}
    fits: dict[tuple[str, int, str], dict[str, Any]] = {}
    for method in plan.study.experiment[experiment].methods:
        path = paths.predictions(plan.study.name, experiment, model, dataset, method)
        for (shots, seed), frame in read_parquet(path).groupby(["shots", "seed"], sort=False):
            runs.setdefault((str(shots), int(seed)), {})[method] = frame
        for fit in json.loads(path.with_suffix(".json").read_text(encoding="utf-8")):
            fits[fit["shots"], fit["seed"], method] = fit
    rows: list[dict[str, Any]] = list(_demonstrations(plan, experiment, model, dataset))
    for (shots, seed), by_method in runs.items():
        labels = next(iter(by_method.values()))["label"].to_numpy()
        # ICL first: changes are against it, on the same resampled rows.
        names = sorted(by_method, key=lambda name: name != "icl")
        predictions = [by_method[name]["prediction"].to_numpy() for name in names]
        bootstrap = m.cobias_bootstrap(labels, *predictions, n_classes=len(classes))
        values = [m.cobias(labels, predicted, len(classes)) for predicted in predictions]
        for k, method in enumerate(names):
            tidy = _Tidy(
                experiment=experiment, model=model, dataset=dataset, shots=shots, seed=seed, method=method,
                condition="base", n=len(labels), provenance=provenance(plan),
            )  # fmt: skip
            interval = bootstrap.intervals[k]
            tidy.add("cobias", values[k], low=interval.low, high=interval.high)
            if k and names[0] == "icl":
                change = bootstrap.differences[k - 1]
                tidy.add("cobias_difference", values[k] - values[0], low=change.low, high=change.high, note="minus icl")
            _add_imbalance(tidy, labels, predictions[k], classes)
            _add_fit(tidy, fits[shots, seed, method], classes)
            rows += tidy.rows
    return rows


def _demonstrations(plan: Plan, experiment: str, model: str, dataset: str) -> Iterator[dict[str, Any]]:
    """Class of each demonstration of each run, in prompt order: ``value`` is its place, from 1."""
    classes = plan.study.datasets[dataset].classes
    cells = [cell for cell in plan.groups[experiment, model, dataset] if cell.split == "test"]
    shown = read_demonstrations(plan, cells)
    for cell in cells:
        tidy = _Tidy(
            experiment=experiment, model=model, dataset=dataset, shots=cell.shots, seed=cell.seed, method="icl",
            condition="base", n=len(shown[cell.id]), provenance=provenance(plan),
        )  # fmt: skip
        for place, label in enumerate(shown[cell.id], start=1):
            tidy.add("demonstration", place, **{"class": classes[label]})
        yield from tidy.rows


def _add_imbalance(tidy: _Tidy, labels: np.ndarray, predicted: np.ndarray, classes: Sequence[str]) -> None:
    n = len(classes)
    counts = m.confusion_counts(labels, predicted, n)
    accuracies = m.class_accuracies(labels, predicted, n)
    present = ~np.isnan(accuracies)
    tidy.add("accuracy", m.accuracy(labels, predicted))
    tidy.add("macro_f1", m.macro_f1(labels, predicted, n))
    tidy.add("cobias_single", m.cobias_single(labels, predicted, n))
    tidy.add("odd_rate", m.odd_rate(labels, predicted, n))
    floor = m.cobias_sampling_floor(counts.sum(axis=1)[present], float(accuracies[present].mean()))
    tidy.add("cobias_floor", floor, note="mean COBias under equal class accuracies at these class counts")
    for i, name in enumerate(classes):
        n_class = int(counts[i].sum())
        note = "" if present[i] else "no test row of this class"
        tidy.add("class_accuracy", accuracies[i], **{"class": name}, n=n_class, note=note)
        for j, predicted_name in enumerate(classes):
            tidy.add("count", counts[i, j], **{"class": name, "pred_class": predicted_name}, n=n_class)


def _add_fit(tidy: _Tidy, fit: dict[str, Any], classes: Sequence[str]) -> None:
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


def _position(plan: Plan, experiment: str, model: str, dataset: str) -> list[dict[str, Any]]:
    cells = plan.groups[experiment, model, dataset]
    answers = read_answers(plan, cells)
    n_classes = len(plan.study.datasets[dataset].classes)
    runs: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        runs.setdefault((cell.shots, cell.seed), []).append(cell)
    rows: list[dict[str, Any]] = []
    for (shots, seed), members in runs.items():
        tidy = _Tidy(
            experiment=experiment, model=model, dataset=dataset, shots=shots, seed=seed, method="icl",
            provenance=provenance(plan),
        )  # fmt: skip
        for cell in members:
            _add_ordinal(tidy, answers[cell.id], cell.condition, n_classes)
        base = next(cell for cell in members if cell.condition == "base")
        _add_floor(tidy, answers[base.id])
        for name in plan.study.experiment[experiment].probes:
            probe = plan.study.probes[name]
            by_level = {level: answers[_cell_at(members, probe, level).id] for level in probe.levels}
            _add_probe(tidy, probe, by_level)
        rows += tidy.rows
    return rows


def _cell_at(cells: Sequence[Cell], probe: Probe, level: str) -> Cell:
    wanted = {**BASE_CONDITION, probe.field: level}
    return next(cell for cell in cells if all(getattr(cell, key) == value for key, value in wanted.items()))


def _add_ordinal(tidy: _Tidy, answers: CellAnswers, condition: str, n_classes: int) -> None:
    labels, predicted = answers.labels, answers.predictions
    n = len(labels)
    rho = m.spearman_rho(labels, predicted)
    agree = answers.greedy >= 0
    tidy.add("accuracy", m.accuracy(labels, predicted), condition=condition, n=n)
    tidy.add("macro_f1", m.macro_f1(labels, predicted, n_classes), condition=condition, n=n)
    note = "" if rho.defined else "undefined for a constant prediction, counted as 0"
    tidy.add("spearman_rho", rho.value, condition=condition, n=n, note=note)
    tidy.add("mae", m.mean_absolute_error(labels, predicted), condition=condition, n=n)
    tidy.add("parse_failure_rate", m.parse_failure_rate(answers.greedy), condition=condition, n=n,
             note="greedy decoding writes no label")  # fmt: skip
    tidy.add("label_mass", answers.label_mass.mean(), condition=condition, n=n)
    share = float((answers.greedy[agree] == predicted[agree]).mean()) if agree.any() else float("nan")
    tidy.add("greedy_agreement", share, condition=condition, n=int(agree.sum()))


def _add_floor(tidy: _Tidy, answers: CellAnswers) -> None:
    """Numerical floor: flips between the same requests in two groupings."""
    again = ~np.isnan(answers.regrouped).any(axis=1)
    if not again.any():
        return
    flips = m.flip_rate(answers.predictions[again], answers.regrouped[again].argmax(axis=1))
    tidy.add("flip_floor", flips.rate, condition="base", low=flips.low, high=flips.high, n=flips.n)
    gap = np.abs(answers.probabilities[again] - answers.regrouped[again]).max()
    tidy.add(
        "regrouping_gap",
        gap,
        condition="base",
        n=int(again.sum()),
        note="largest difference of a class probability",
    )


def _add_probe(tidy: _Tidy, probe: Probe, by_level: dict[str, CellAnswers]) -> None:
    right = {level: answers.predictions == answers.labels for level, answers in by_level.items()}
    for contrast, levels in probe.contrasts.items():
        flips = m.flip_rate(*(by_level[level].predictions for level in levels))
        tidy.add(f"pfr_{contrast}", flips.rate, condition=contrast, low=flips.low, high=flips.high, n=flips.n)
        tidy.add(f"pfr_{contrast}_worst", flips.worst_case, condition=contrast, n=len(right[levels[0]]))
    n = len(right[probe.levels[0]])
    if len(probe.levels) == 2:
        first, second = (right[level] for level in probe.levels)
        b, c = int((first & ~second).sum()), int((~first & second).sum())
        tidy.add("mcnemar_p", m.mcnemar_one_sided(b, c), condition=probe.name, n=n,
                 note=f"right under {probe.levels[0]} only: {b}; under {probe.levels[1]} only: {c}")  # fmt: skip
    else:
        q, p = m.cochran_q(np.column_stack(list(right.values())))
        tidy.add("cochran_q", q, condition=probe.name, n=n, note=f"{len(probe.levels) - 1} degrees of freedom")
        tidy.add("cochran_p", p, condition=probe.name, n=n)
