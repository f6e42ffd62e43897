"""DNIP's hyperparameters, chosen on a development set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from poise.methods.dnip.estimator import DNIP

GRID: Mapping[str, Sequence[Any]] = {  # the lists in the authors' later code
    "beta": (0.5, 1, 2.7, 3, 10),
    "tau": (0, 0.2, 1, 5),
    "n_levels": (30, 50, 70, 90),
}
Score = tuple[float, float, float]
_SELECTIONS: Mapping[str, Callable[[Score], tuple[float, ...]]] = {  # smallest key wins
    "acc_then_cobias": lambda score: (-score[0], score[1]),
    "cobias_then_acc": lambda score: (score[1], -score[0]),
    "z": lambda score: (score[2],),
}


class DNIPSearch(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Grid search over DNIP's parameters with a development set.

    Parameters
    ----------
    estimator : DNIP, optional
        The parameters that the grid does not vary, and the beta, tau and mu by which "z" compares.
    grid : mapping of lists, optional
        Values by DNIP parameter; by default `GRID` (80 combinations).
    selection : {"acc_then_cobias", "cobias_then_acc", "z"}
        What wins on the development set: the highest accuracy and then the lowest COBias (the authors' code),
        the reverse order, or the lowest Z. Of equals, the first of the grid.
    n_jobs : int, default 1
        Threads; the solvers release the GIL. The result does not depend on it.

    Attributes
    ----------
    best_estimator_ : DNIP
        Fitted on the optimisation rows.
    best_params_ : dict
        Its values of the grid's parameters.
    best_index_ : int
        Its place in the grid.
    results_ : dict of lists
        "params", "objective" (Z on the optimisation rows), "dev_accuracy", "dev_cobias" and "dev_z".
    classes_, n_features_in_
        As in DNIP.
    """

    def __init__(
        self,
        estimator: DNIP | None = None,
        grid: Mapping[str, Sequence[Any]] | None = None,
        selection: str = "acc_then_cobias",
        n_jobs: int = 1,
    ) -> None:
        self.estimator = estimator
        self.grid = grid
        self.selection = selection
        self.n_jobs = n_jobs

    def fit(self, P: ArrayLike, y: ArrayLike, P_dev: ArrayLike, y_dev: ArrayLike) -> Self:
        """Fit every combination on (P, y), and keep the best on (P_dev, y_dev).

        Parameters
        ----------
        P, P_dev : (M, N) and (D, N) arrays
            Class probabilities.
        y, y_dev : (M,) and (D,) arrays
            Labels, as in `DNIP.fit`.

        Returns
        -------
        DNIPSearch

        Raises
        ------
        ValueError
            As `DNIP.fit`, for either set; for an unknown selection, an empty list in the grid, or n_jobs < 1.
        """
        if self.selection not in _SELECTIONS:
            raise ValueError(f"selection must be one of {', '.join(_SELECTIONS)}, found {self.selection!r}")
        if self.n_jobs < 1:
            raise ValueError(f"n_jobs must be a positive integer, found {self.n_jobs!r}")
        combinations = list(ParameterGrid(dict(GRID if self.grid is None else self.grid)))
        base = DNIP() if self.estimator is None else self.estimator

        def attempt(parameters: dict[str, Any]) -> tuple[DNIP, Score]:
            model: DNIP = clone(base).set_params(**parameters).fit(P, y)
            return model, self._scores(base, model, P_dev, y_dev)

        with ThreadPoolExecutor(self.n_jobs) as pool:
            models, scores = zip(*pool.map(attempt, combinations), strict=True)
        key = _SELECTIONS[self.selection]
        self.best_index_ = min(range(len(scores)), key=lambda index: key(scores[index]))
        self.best_estimator_: DNIP = models[self.best_index_]
        self.best_params_ = combinations[self.best_index_]
        self.results_ = {
            "params": combinations,
            "objective": [model.objective_ for model in models],
            **{name: [s[i] for s in scores] for i, name in enumerate(("dev_accuracy", "dev_cobias", "dev_z"))},
        }
        self.classes_ = self.best_estimator_.classes_
        self.n_features_in_ = self.best_estimator_.n_features_in_
        return self

    def predict(self, P: ArrayLike) -> NDArray[Any]:
        """Predict by the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.predict(P)

    def predict_proba(self, P: ArrayLike) -> NDArray[np.float64]:
        """Weight probabilities by the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(P)

    @staticmethod
    def _scores(base: DNIP, model: DNIP, P_dev: ArrayLike, y_dev: ArrayLike) -> Score:
        parts = base.get_params()
        z = model.evaluate(P_dev, y_dev, **{name: parts[name] for name in ("beta", "tau", "mu", "terms", "objective")})
        error = model.evaluate(P_dev, y_dev, terms=("error",))
        return 1 - error, model.evaluate(P_dev, y_dev, terms=("bias",), objective="cobias"), z
