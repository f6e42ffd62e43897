"""Fitting one configured method: on optimisation rows, on content-free inputs, or on the rows to correct."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from poise import methods as m
from poise.config.methods import (
    BatchCalibrationMethod,
    ContextualCalibrationMethod,
    DNIPMethod,
    LinearAdapterMethod,
    Method,
    PriorMatchingMethod,
)

CURVE_POINTS = 300


class Predictor(Protocol):
    """What is left of a fitted method: class probabilities in, class indices out."""

    def predict(self, P: np.ndarray) -> np.ndarray:
        """Classes of rows of probabilities."""
        ...


@dataclass(frozen=True)
class Labelled:
    """Class probabilities, shape (n, n_classes), with the true classes, shape (n,)."""

    probabilities: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Evidence:
    """What a method may be fitted on. ``test`` has no labels: only transductive methods look at it.

    Attributes
    ----------
    test
        Class probabilities of the rows to correct.
    optimisation, development
        Labelled rows.
    content_free
        Class probabilities of inputs without content.
    """

    test: np.ndarray
    optimisation: Labelled | None = None
    development: Labelled | None = None
    content_free: np.ndarray | None = None


def fit(method: Method, evidence: Evidence, n_classes: int) -> tuple[Predictor, dict[str, Any]]:
    """Fit a method; return it with a JSON-pure record of what it learned."""
    if isinstance(method, DNIPMethod):
        return _dnip(method, evidence, n_classes)
    estimator: Any
    if isinstance(method, BatchCalibrationMethod):
        estimator = m.BatchCalibration().fit(evidence.test)
    elif isinstance(method, ContextualCalibrationMethod):
        assert evidence.content_free is not None
        estimator = m.ContextualCalibration().fit(evidence.content_free[: method.n_inputs])
    elif isinstance(method, PriorMatchingMethod):
        estimator = m.PriorMatching(prior=method.prior).fit(*_rows(evidence))
    elif isinstance(method, LinearAdapterMethod):
        estimator = m.LinearAdapter(
            n_hidden=method.n_hidden, beta=method.beta, tau=method.tau, mu=method.mu, random_state=method.random_state
        )
        estimator.fit(*_rows(evidence))
    else:
        raise TypeError(f"{method.kind} is not fitted on class probabilities")
    weights = getattr(estimator, "weights_", None)
    return estimator, {} if weights is None else {"weights": weights.tolist()}


def _rows(evidence: Evidence) -> tuple[np.ndarray, np.ndarray]:
    assert evidence.optimisation is not None
    return evidence.optimisation.probabilities, evidence.optimisation.labels


def _dnip(method: DNIPMethod, evidence: Evidence, n_classes: int) -> tuple[Predictor, dict[str, Any]]:
    probabilities, labels = _rows(evidence)
    chosen = optimisation_subset(labels, method.rows, n_classes)
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
    fit_on = probabilities[chosen], labels[chosen]
    tuned: dict[str, Any] = {}
    if method.tuning == "dev":
        development = evidence.development
        assert development is not None
        grid = {
            str(name): [int(v) if name == "n_levels" else v for v in vs] for name, vs in (method.grid or {}).items()
        }
        search = m.DNIPSearch(estimator, grid or None, method.selection)
        search.fit(*fit_on, development.probabilities, development.labels)
        estimator = search.best_estimator_
        tuned = {"tuned": search.best_params_, "development_rows": len(development.labels)}
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
    return estimator, record


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
