"""Corrections that divide each class's probability by an estimate of the prior it carries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from poise.methods._validation import (
    ProbabilityInput,
    check_probabilities,
    class_names,
    normalised,
    uniform_zero_rows,
)


class Reweighting(ProbabilityInput, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the corrections that learn one weight a class without labels.

    Attributes
    ----------
    transductive : bool
        Whether the method is meant to be fitted on the unlabelled test batch itself.
    """

    transductive: ClassVar[bool] = False
    weights_: NDArray[np.float64]
    classes_: NDArray[Any]

    def predict(self, P: ArrayLike) -> NDArray[Any]:
        """Class of the largest weighted probability; ties go to the lowest column. (M,)."""
        columns = self._scores(P).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[columns]
        return predicted

    def predict_proba(self, P: ArrayLike) -> NDArray[np.float64]:
        """Weighted probabilities, each row divided by its sum: (M, N)."""
        return normalised(self._scores(P))

    def _scores(self, P: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        return weighted(check_probabilities(self, P, reset=False), self.weights_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags


class BatchCalibration(Reweighting):
    """Batch calibration (Zhou et al., 2024): argmax log p - log(mean of p over the batch).

    Transductive: fitted on the unlabelled test rows that it then corrects, so a row's prediction depends on the
    others. It never sees a label.

    Parameters
    ----------
    classes : sequence, optional
        Class names in column order; without them, classes are the column indices.

    Attributes
    ----------
    weights_ : (N,) float64 array
        1 / mean of P, the largest scaled to 1; a class without any probability in the batch has weight 1.
    classes_ : (N,) array
        Class names in column order.
    n_features_in_ : int
        Columns seen.

    References
    ----------
    Zhou et al., "Batch Calibration: Rethinking Calibration for In-Context Learning and Prompt Engineering",
    ICLR 2024. The mean is divided by (subtracted in log space), not subtracted from the probabilities.
    """

    transductive: ClassVar[bool] = True

    def __init__(self, classes: Sequence[Any] | None = None) -> None:
        self.classes = classes

    def fit(self, P: ArrayLike, y: object = None) -> Self:  # noqa: ARG002
        """Learn the weights from the batch.

        Parameters
        ----------
        P : (M, N) array
            Class probabilities of the batch, averaged as they are given; an all-zero row counts as uniform.
        y : None
            Not used.

        Returns
        -------
        BatchCalibration

        Raises
        ------
        ValueError, TypeError
            For anything but a matrix of finite, non-negative numbers (not all zero), or wrong `classes`.
        """
        probabilities = check_probabilities(self, P, reset=True)
        self.classes_ = class_names(self.classes, self.n_features_in_)
        self.weights_ = reciprocal(uniform_zero_rows(probabilities).mean(axis=0))
        return self


class ContextualCalibration(Reweighting):
    """Contextual calibration (Zhao et al., 2021): p / max(mean of p over content-free inputs, floor).

    Parameters
    ----------
    floor : float, default 1e-10
        The least content-free probability that is divided by; non-negative.
    classes : sequence, optional
        Class names in column order; without them, classes are the column indices.

    Attributes
    ----------
    weights_ : (N,) float64 array
        1 / max(mean of P, floor), the largest scaled to 1.
    classes_ : (N,) array
        Class names in column order.
    n_features_in_ : int
        Columns seen.

    References
    ----------
    Zhao et al., "Calibrate Before Use: Improving Few-shot Performance of Language Models", ICML 2021, who average
    "N/A", the empty text and "[MASK]"; the position paper (G.3) uses "N/A" alone, with the floor.
    """

    def __init__(self, floor: float = 1e-10, classes: Sequence[Any] | None = None) -> None:
        self.floor = floor
        self.classes = classes

    def fit(self, P: ArrayLike, y: object = None) -> Self:  # noqa: ARG002
        """Learn the weights from what the model answers to content-free inputs.

        Parameters
        ----------
        P : (C, N) array
            Class probabilities of the content-free inputs (usually one or three), averaged as they are given.
        y : None
            Not used.

        Returns
        -------
        ContextualCalibration

        Raises
        ------
        ValueError, TypeError
            For anything but a matrix of finite, non-negative numbers (not all zero), wrong `classes`, or a floor
            that is negative or not finite.
        """
        if not (math.isfinite(self.floor) and self.floor >= 0):
            raise ValueError(f"floor must be finite and non-negative, found {self.floor!r}")
        probabilities = check_probabilities(self, P, reset=True)
        self.classes_ = class_names(self.classes, self.n_features_in_)
        self.weights_ = reciprocal(np.maximum(uniform_zero_rows(probabilities).mean(axis=0), self.floor))
        return self


def weighted(probabilities: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted probabilities; the weights alone (as if uniform) for a row that has none. (M, N)."""
    scores = probabilities * weights
    return np.where(scores.any(axis=1, keepdims=True), scores, weights)


def reciprocal(prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / prior, the largest scaled to 1; where the prior is zero, 1 too. (N,), not all zero."""
    positive = prior > 0
    weights: NDArray[np.float64] = np.divide(prior[positive].min(), prior, out=np.ones_like(prior), where=positive)
    return weights
