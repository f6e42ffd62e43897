"""Prior matching: weights under which the model predicts each class as often, in the mean, as a prior says."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from poise.methods._validation import check_probabilities, class_names, label_indices, normalised
from poise.methods.calibration import Reweighting, weighted

LOWEST = -575.0  # of a log weight below the largest: exp(LOWEST) times a float32 probability is still above zero


class PriorMatching(Reweighting):
    """Weights w for which the mean over rows of w_j p_j / sum_k w_k p_k is the prior of each class j.

    Where a solution exists it is unique up to scale, and the fixed point of log w_j += log prior_j - log mean_j
    (Sinkhorn's iteration), whose first step from equal weights is batch calibration.

    With ``prior="uniform"`` (or an array) it needs no label, and may be fitted on the unlabelled test batch itself,
    which makes it transductive, or on any other rows of the same model and prompt.

    Parameters
    ----------
    prior : {"uniform", "labels"} or (N,) array, default "uniform"
        The class shares to match: equal, those of `y`, or given (non-negative, with sum 1).
    max_iter : int, default 1000
        Iterations at most.
    tol : float, default 1e-8
        The largest difference between mean and prior at which the iteration ends.
    classes : sequence, optional
        Class names in column order; without them, classes are the column indices.

    Attributes
    ----------
    weights_ : (N,) float64 array
        The largest is 1. A class of prior 0 has weight 0, and one without probability in any row weight 1.
    prior_ : (N,) float64 array
        The prior matched.
    n_iter_ : int
        Iterations done.
    classes_ : (N,) array
        Class names in column order.
    n_features_in_ : int
        Columns seen.

    References
    ----------
    Liusie et al., "Mitigating Word Bias in Zero-shot Prompt-based Classifiers", IJCNLP-AACL 2023 (prior matching).
    Sinkhorn and Knopp, "Concerning nonnegative matrices and doubly stochastic matrices", 1967.
    """

    def __init__(
        self,
        prior: str | ArrayLike = "uniform",
        max_iter: int = 1000,
        tol: float = 1e-8,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.prior = prior
        self.max_iter = max_iter
        self.tol = tol
        self.classes = classes

    def fit(self, P: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the weights.

        Parameters
        ----------
        P : (M, N) array
            Class probabilities; the scale of a row does not matter, and an all-zero row counts as uniform.
        y : (M,) array, optional
            Labels, used by ``prior="labels"`` only: column indices, or names among `classes`.

        Returns
        -------
        PriorMatching

        Raises
        ------
        ValueError, TypeError
            For anything but a matrix of finite, non-negative numbers (not all zero), unknown or missing labels, or
            a parameter out of its range.

        Warns
        -----
        ConvergenceWarning
            If the prior is not reached in `max_iter` iterations, or cannot be: a class has no probability.
        """
        if not isinstance(self.max_iter, numbers.Integral) or self.max_iter < 1:
            raise ValueError(f"max_iter must be a positive integer, found {self.max_iter!r}")
        if not self.tol > 0:
            raise ValueError(f"tol must be positive, found {self.tol!r}")
        probabilities = check_probabilities(self, P, reset=True)
        self.classes_ = class_names(self.classes, self.n_features_in_)
        self.prior_ = self._prior(y, len(probabilities))
        wanted, possible = self.prior_ > 0, probabilities.any(axis=0)
        active = wanted & possible
        if not active.any():
            raise ValueError("no class whose prior is above zero has any probability in P")
        target = self.prior_
        if not possible[wanted].all():
            names = ", ".join(str(name) for name in self.classes_[wanted & ~possible])
            warnings.warn(f"no probability of class {names}: its prior cannot be met", ConvergenceWarning, stacklevel=2)
            target = np.where(active, self.prior_, 0) / self.prior_[active].sum()

        log_weights, self.weights_ = np.zeros(active.sum()), wanted.astype(np.float64)
        for iteration in range(1, self.max_iter + 1):
            self.n_iter_ = iteration
            mean = normalised(weighted(probabilities, self.weights_)).mean(axis=0)
            gap = np.abs(mean - target).max()
            if gap <= self.tol:
                break
            log_weights += np.log(target[active] / np.maximum(mean[active], np.finfo(np.float64).tiny))
            log_weights = np.maximum(log_weights - log_weights.max(), LOWEST)
            self.weights_[active] = np.exp(log_weights)
        else:
            message = f"prior not met to {self.tol} in {self.max_iter} iterations: last differed by {gap:.1e}"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def _prior(self, y: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
        n_classes = self.n_features_in_
        if isinstance(self.prior, str):
            if self.prior == "uniform":
                return np.full(n_classes, 1 / n_classes)
            if self.prior != "labels":
                raise ValueError(f"prior must be 'uniform', 'labels' or an array, found {self.prior!r}")
            true = label_indices(y, self.classes_, n_rows, named=self.classes is not None)
            return np.bincount(true, minlength=n_classes) / n_rows
        try:
            prior = np.array(self.prior, dtype=np.float64)
        except (TypeError, ValueError):
            prior = np.empty(0)
        if prior.shape != (n_classes,) or not (prior >= 0).all() or not abs(prior.sum() - 1) <= 1e-6:
            raise ValueError(f"prior must be {n_classes} non-negative numbers with sum 1, found {self.prior!r}")
        prior /= prior.sum()
        return prior

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = isinstance(self.prior, str) and self.prior == "labels"
        return tags
