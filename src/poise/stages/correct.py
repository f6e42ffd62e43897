"""Correction: fit one method on the optimisation rows of each cell, predict its test rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from poise import methods as m
from poise import paths
from poise.answers import CellAnswers, read_answers
from poise.config.methods import (
    ContextualCalibrationMethod,
    DNIPMethod,
    ICLMethod,
    LinearAdapterMethod,
    Method,
    PriorMatchingMethod,
)
from poise.errors import PoiseError
from poise.files import write_json, write_parquet
from poise.plan import Cell, Plan

CURVE_POINTS = 300


@dataclass(frozen=True)
class Run:
    """Answers that one correction works on: those of one set of demonstrations."""

    shots: str
    seed: int
    test: CellAnswers
    optimisation: CellAnswers
    development: CellAnswers | None
    content_free: CellAnswers | None


def correct(plan: Plan, experiment: str, model: str, dataset: str, method: str) -> None:
    """Write the predictions of a method (one row a test row of each shots and seed), its fits and their seconds.

    Seconds stand in a file of their own: they differ between runs, and nothing else may.
    """
    config = plan.study.methods[method]
    n_classes = len(plan.study.datasets[dataset].classes)
    predictions, fits, timings = [], [], []
    _load_compiled(config)
    for run in runs(plan, plan.groups[experiment, model, dataset]):
        where = {"shots": run.shots, "seed": run.seed}
        started = time.perf_counter()
        try:
            predicted, fit = predict(config, run, n_classes)
        except ValueError as error:
            raise PoiseError(f"method {method} on {dataset}, {run.shots}, seed {run.seed}: {error}") from error
        timings.append({**where, "seconds": time.perf_counter() - started})
        fits.append({**where, **fit})
        frame = pd.DataFrame({"row": run.test.rows, "label": run.test.labels, "prediction": predicted})
        predictions.append(frame.assign(**where))
    target = paths.predictions(plan.study.name, experiment, model, dataset, method)
    write_json(target.with_suffix(".timings.json"), timings)
    write_json(target.with_suffix(".json"), fits)
    write_parquet(target, pd.concat(predictions, ignore_index=True))


def _load_compiled(method: Method) -> None:
    """Fit four made-up rows, so that loading or compiling a solver is in no run's seconds."""
    if isinstance(method, DNIPMethod):
        rows = np.array([[0.6, 0.4], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]], dtype=np.float32)
        m.DNIP(solver=method.solver, objective=method.objective, limits="dcs").fit(rows, np.array([0, 1, 1, 0]))


def runs(plan: Plan, cells: Sequence[Cell]) -> Iterator[Run]:
    """Gather the splits of each set of demonstrations."""
    decimals = plan.study.experiment[cells[0].experiment].round_decimals
    answers = {cell: answer.rounded(decimals) for cell, answer in read_answers(plan, cells).items()}
    splits: dict[tuple[str, int], dict[str, CellAnswers]] = {}
    for cell in cells:
        splits.setdefault((cell.shots, cell.seed), {})[cell.split] = answers[cell.id]
    for (shots, seed), found in splits.items():
        yield Run(
            shots, seed, found["test"], found["optimisation"], found.get("development"), found.get("content_free")
        )


def predict(method: Method, run: Run, n_classes: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Predictions of a method on the test rows of a run, and a JSON-pure record of what it learned."""
    test = run.test.probabilities
    if isinstance(method, ICLMethod):
        return run.test.predictions, {}
    if isinstance(method, DNIPMethod):
        return _dnip(method, run, n_classes)
    estimator: Any
    if isinstance(method, ContextualCalibrationMethod):
        assert run.content_free is not None
        estimator = m.ContextualCalibration().fit(run.content_free.probabilities[: method.n_inputs])
    elif isinstance(method, PriorMatchingMethod):
        estimator = m.PriorMatching(prior=method.prior)
        estimator.fit(run.optimisation.probabilities, run.optimisation.labels)
    elif isinstance(method, LinearAdapterMethod):
        estimator = m.LinearAdapter(
            n_hidden=method.n_hidden, beta=method.beta, tau=method.tau, mu=method.mu, random_state=method.random_state
        )
        estimator.fit(run.optimisation.probabilities, run.optimisation.labels)
    else:
        estimator = m.BatchCalibration().fit(test)
    weights = getattr(estimator, "weights_", None)
    return np.asarray(estimator.predict(test)), {} if weights is None else {"weights": weights.tolist()}


def _dnip(method: DNIPMethod, run: Run, n_classes: int) -> tuple[np.ndarray, dict[str, Any]]:
    chosen = optimisation_subset(run.optimisation.labels, method.rows, n_classes)
    estimator = m.DNIP(
        n_levels=method.n_levels,
        beta=method.beta,
        tau=method.tau,
        mu=method.mu,
        objective=method.objective,
        terms=tuple(method.terms),
        solver=method.solver,
        limits=method.limits,
        time_limit_s=method.time_limit_s,
        random_state=method.random_state,
    )
    fit_on = run.optimisation.probabilities[chosen], run.optimisation.labels[chosen]
    tuned: dict[str, Any] = {}
    if method.tuning == "dev":
        assert run.development is not None
        grid = {
            str(name): [int(v) if name == "n_levels" else v for v in vs] for name, vs in (method.grid or {}).items()
        }
        search = m.DNIPSearch(estimator, grid or None, method.selection)
        search.fit(*fit_on, run.development.probabilities, run.development.labels)
        estimator = search.best_estimator_
        tuned = {"tuned": search.best_params_, "development_rows": len(run.development.labels)}
    else:
        estimator.fit(*fit_on)
    record: dict[str, Any] = {
        "weights": estimator.weights_.tolist(),
        "objective": float(estimator.objective_),
        "lower_bound": float(estimator.lower_bound_) if np.isfinite(estimator.lower_bound_) else None,
        "evaluations": int(estimator.n_evaluations_),
        "certified": bool(estimator.certified_),
        "rows": len(chosen),
        "mu": float(estimator.mu_),
        **tuned,
    }
    if estimator.history_:
        record["curve"] = _thinned(estimator.history_)
    return np.asarray(estimator.predict(run.test.probabilities)), record


def optimisation_subset(labels: np.ndarray, n: int | None, n_classes: int) -> np.ndarray:
    """Indices of ``n`` optimisation rows, as the DNIP paper's Table 16 draws them.

    Up to 100: equally many of each class, the remainder from the last class (one more than the classes if ``n`` is
    smaller than their number). More: the first ``n``; the rows are in random order already.
    """
    if n is None or n >= len(labels):
        return np.arange(len(labels))
    if n > 100:
        return np.arange(n)
    n = n if n >= n_classes else n_classes + 1
    quotas = [n // n_classes] * (n_classes - 1) + [n // n_classes + n % n_classes]
    picked = [np.flatnonzero(labels == label)[:quota] for label, quota in enumerate(quotas)]
    return np.sort(np.concatenate(picked))


def _thinned(history: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """Annealing curves at evenly spaced evaluations, numbered from 1."""
    length = len(history["objective"])
    places = np.unique(np.linspace(0, length - 1, min(length, CURVE_POINTS)).astype(int))
    curve = {name: np.asarray(values)[places].tolist() for name, values in history.items()}
    return {"evaluation": (places + 1).tolist(), **curve}
