"""DNIP as a scikit-learn classifier over a matrix of class probabilities."""

from __future__ import annotations

import numbers
from collections.abc import Collection, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from poise.methods._validation import (
    ProbabilityInput,
    check_probabilities,
    class_names,
    label_indices,
    smoothing,
    uniform_zero_rows,
    warn_absent_classes,
)
from poise.methods.dnip import exact, heat_bath, metropolis
from poise.methods.dnip.objective import (
    MAX_LEVELS,
    TERMS,
    Objective,
    Solution,
    bind,
    confusion_counts,
    evaluate,
    weighted_argmax,
)

SOLVERS = ("heat_bath", "metropolis", "exact")


class DNIP(ProbabilityInput, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Debiasing as Nonlinear Integer Programming: one correction weight a class (Eq. 5-10).

    Chooses a weight k/K, k in 1..K, for each class's probability so that the weighted argmax minimises
    Z = error rate + beta * bias - tau * sum_j PMI_j on a labelled set.

    Parameters
    ----------
    n_levels : int, default 30
        K, the points of the weight scale; at most 4,096.
    beta, tau : float, default 2.7 and 0.2
        Weights of the bias and PMI terms. A term that stands alone has weight 1.
    mu : float or {"paper", "scaled"}, default 4000
        Smoothing of the PMI term, in rows: "paper" is 4,000, "scaled" 4,000 M / 9,500.
    objective : {"cobias", "cobias_single", "odd_rate"}
        The bias term: Eq. 4, Eq. 3 or Eq. 11 as in Eq. 12.
    solver : {"heat_bath", "metropolis", "exact"}
        Annealing over whole sweeps (the default), the paper's Algorithm 1, or certified branch and bound.
    classes : sequence, optional
        Class names in column order; without them, classes are the column indices.
    random_state : int, RandomState or None, default 1
        Seed of the annealing.
    n_restarts : int, optional
        Restarts of the heat bath (also where `exact` begins); by default 8 to 64, more the fewer the rows.
    terms : collection of {"error", "bias", "pmi"}
        The terms of Z kept, for ablations.
    limits : {"paper", "dcs"} or (int, int), default "paper"
        Inner-loop limits of Metropolis (accepted, generated): 150/300, or 3/6.
    init : {"ones", "random"}
        Where Metropolis starts.
    time_limit_s : float or None, default 600
        Seconds after which `exact` returns the best found, not certified. Six classes take about a second;
        beyond ten or so it may not end in any useful time.

    Attributes
    ----------
    weights_ : (N,) float64 array
        Correction weights in (0, 1], `levels_ / n_levels`.
    levels_ : (N,) int64 array
        Weight levels in 1..K.
    objective_ : float
        Z (Eq. 5) on the fitted rows, in the paper's units.
    certified_ : bool
        Whether `objective_` is proven to be the global minimum (within 1e-12).
    lower_bound_ : float
        A proven lower bound on that minimum; -inf where nothing is proven.
    n_evaluations_ : int
        Objective values computed (by `exact`, boxes bounded included).
    history_ : dict
        For Metropolis "objective", "best" and "temperature", one entry an evaluation; else empty.
    classes_ : (N,) array
        Class names in column order.
    mu_ : float
        The smoothing used.
    n_features_in_, n_zero_rows_ : int
        Columns seen; rows without any probability, which count as uniform here and in `predict`.

    Notes
    -----
    Probabilities are used as float32, and a weighted score is integer level x probability in float64, which
    is exact: ties are true ties, and go to the lowest column. A class absent from `y` keeps its column; its
    pairs leave the bias term (with a warning).
    """

    def __init__(
        self,
        n_levels: int = 30,
        beta: float = 2.7,
        tau: float = 0.2,
        mu: float | str = 4000,
        objective: str = "cobias",
        solver: str = "heat_bath",
        classes: Sequence[Any] | None = None,
        random_state: int | np.random.RandomState | None = 1,
        *,
        n_restarts: int | None = None,
        terms: Collection[str] = TERMS,
        limits: str | tuple[int, int] = "paper",
        init: str = "ones",
        time_limit_s: float | None = 600,
    ) -> None:
        self.n_levels = n_levels
        self.beta = beta
        self.tau = tau
        self.mu = mu
        self.objective = objective
        self.solver = solver
        self.classes = classes
        self.random_state = random_state
        self.n_restarts = n_restarts
        self.terms = terms
        self.limits = limits
        self.init = init
        self.time_limit_s = time_limit_s

    def fit(self, P: ArrayLike, y: ArrayLike) -> Self:
        """Learn the weights from M labelled rows.

        Parameters
        ----------
        P : (M, N) array
            Non-negative class probabilities, N >= 2; rows need not sum to one.
        y : (M,) array
            Column indices, or names among `classes`.

        Returns
        -------
        DNIP

        Raises
        ------
        ValueError, TypeError
            For anything but a matrix of finite, non-negative numbers (not all zero), unknown labels, or a
            parameter out of its range.
        """
        self._check_parameters()
        probabilities = check_probabilities(self, P, reset=True).astype(np.float32)
        n_rows, n_classes = probabilities.shape
        self.classes_ = class_names(self.classes, n_classes)
        true = label_indices(y, self.classes_, n_rows, named=self.classes is not None)
        warn_absent_classes(true, self.classes_)
        self.n_zero_rows_ = int((~probabilities.any(axis=1)).sum())
        self.mu_ = smoothing(self.mu, n_rows)
        solution = self._solve(_columns(probabilities), true)
        self.levels_ = solution.levels
        self.weights_ = solution.levels / self.n_levels
        self.objective_ = solution.value
        self.certified_ = solution.certified
        self.lower_bound_ = solution.lower_bound
        self.n_evaluations_ = solution.evaluations
        self.history_ = dict(solution.history)
        return self

    def predict(self, P: ArrayLike) -> NDArray[Any]:
        """Class of the largest weighted probability (Eq. 10); ties go to the lowest column."""
        columns = _columns(self._seen(P))
        predicted: NDArray[Any] = self.classes_[weighted_argmax(columns, self.levels_)]
        return predicted

    def predict_proba(self, P: ArrayLike) -> NDArray[np.float64]:
        """Weighted probabilities (Eq. 9), each row divided by its sum: (M, N)."""
        weighted = _columns(self._seen(P)).T * self.levels_.astype(np.float64)
        proba: NDArray[np.float64] = weighted / weighted.sum(axis=1, keepdims=True)
        return proba

    def evaluate(self, P: ArrayLike, y: ArrayLike, **parameters: Any) -> float:
        """Z (Eq. 5) of the fitted weights on labelled rows.

        Parameters
        ----------
        P : (M, N) array
            Class probabilities.
        y : (M,) array
            Labels, as in `fit`.
        **parameters
            Values of `objective`, `beta`, `tau`, `mu` or `terms` to use instead of the estimator's own, such
            as ``terms=("bias",)`` for the bare bias term.

        Returns
        -------
        float

        Raises
        ------
        ValueError, TypeError
            As `fit`.
        """
        probabilities = self._seen(P)
        true = label_indices(y, self.classes_, len(probabilities), named=self.classes is not None)
        objective = clone(self).set_params(**parameters)._bind(true, self.n_features_in_)
        predicted = weighted_argmax(_columns(probabilities), self.levels_)
        return float(evaluate(confusion_counts(true, predicted, self.n_features_in_), objective))

    def _seen(self, P: ArrayLike) -> NDArray[np.float32]:
        check_is_fitted(self)
        return check_probabilities(self, P, reset=False).astype(np.float32)

    def _check_parameters(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, found {self.solver!r}")
        if not isinstance(self.n_levels, numbers.Integral) or not 2 <= self.n_levels <= MAX_LEVELS:
            raise ValueError(f"n_levels must be an integer from 2 to {MAX_LEVELS}, found {self.n_levels!r}")
        if self.n_restarts is not None and (not isinstance(self.n_restarts, numbers.Integral) or self.n_restarts < 1):
            raise ValueError(f"n_restarts must be a positive integer, found {self.n_restarts!r}")
        if self.time_limit_s is not None and not self.time_limit_s >= 0:
            raise ValueError(f"time_limit_s must be None or seconds, found {self.time_limit_s!r}")

    def _bind(self, true: NDArray[np.int64], n_classes: int) -> Objective:
        return bind(
            true,
            n_classes,
            bias=self.objective,
            beta=self.beta,
            tau=self.tau,
            mu=smoothing(self.mu, len(true)),
            terms=self.terms,
        )

    def _solve(self, columns: NDArray[np.float32], true: NDArray[np.int64]) -> Solution:
        objective = self._bind(true, len(columns))
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        problem = (columns, true, int(self.n_levels), objective, rng)
        if self.solver == "metropolis":
            return metropolis.solve(*problem, limits=self.limits, init=self.init)
        if self.solver == "exact":
            return exact.solve(*problem, n_restarts=self.n_restarts, time_limit_s=self.time_limit_s)
        return heat_bath.solve(*problem, n_restarts=self.n_restarts)


def _columns(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """Solvers' layout, (N, M) contiguous, with all-zero rows made uniform."""
    return np.ascontiguousarray(uniform_zero_rows(probabilities).T)
