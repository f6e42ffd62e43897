"""Class-accuracy imbalance: COBias and its relatives (DNIP paper, Section 3 and Appendix B).

Every figure is a fraction in [0, 1]. A class is its index 0..N-1; a prediction of -1 is an unparsed output,
which is wrong but is nobody's odd class. A class without rows has no accuracy: whatever needs it is left out
of the means.
"""

import numpy as np
from numpy.typing import ArrayLike

from poise.metrics._labels import FloatArray, IntArray, label_pair


def confusion_counts(y_true: ArrayLike, y_pred: ArrayLike, n_classes: int | None = None) -> IntArray:
    """Count the rows of each (true, predicted) pair of classes (Eq. 1).

    Parameters
    ----------
    y_true, y_pred
        Class indices, shape (M,); -1 in ``y_pred`` is unparsed.
    n_classes
        N; by default the highest index in either array plus one.

    Returns
    -------
    Shape (N, N), true classes in rows, predicted classes in columns. An unparsed row is in no column: the sum
    of a matrix row can be less than the size of its class.

    Raises
    ------
    ValueError
        If the arrays are empty, do not match, or hold an index out of range.
    """
    true, pred, n = label_pair(y_true, y_pred, n_classes)
    parsed = pred >= 0
    return np.bincount(true[parsed] * n + pred[parsed], minlength=n * n).reshape(n, n)


def class_accuracies(y_true: ArrayLike, y_pred: ArrayLike, n_classes: int | None = None) -> FloatArray:
    """Return the accuracy within each true class, shape (N,), NaN for a class absent from ``y_true``.

    Parameters and errors are those of :func:`confusion_counts`; an unparsed row is wrong.
    """
    true, pred, n = label_pair(y_true, y_pred, n_classes)
    return ratio(np.bincount(true[true == pred], minlength=n), np.bincount(true, minlength=n))


def odd_classes(y_true: ArrayLike, y_pred: ArrayLike, n_classes: int | None = None) -> IntArray:
    """Return each class's most frequent wrong prediction (Eq. 2), shape (N,), -1 where there is none.

    Ties go to the lowest index. Parameters and errors are those of :func:`confusion_counts`.
    """
    wrong = _wrong_counts(y_true, y_pred, n_classes)
    return np.where(wrong.any(axis=1), wrong.argmax(axis=1), -1)


def cobias(y_true: ArrayLike, y_pred: ArrayLike, n_classes: int | None = None) -> float:
    """Return COBias, the mean absolute accuracy difference over all pairs of classes (Eq. 4).

    Pairs with an absent class are left out; with fewer than two classes present the value is 0. Parameters
    and errors are those of :func:`confusion_counts`.
    """
    return float(mean_pairwise_gap(class_accuracies(y_true, y_pred, n_classes)))


def cobias_from_accuracies(accuracies: ArrayLike) -> float:
    """Return COBias (Eq. 4) of class accuracies given as fractions, shape (N,), NaN for an absent class.

    Raises
    ------
    ValueError
        If ``accuracies`` is not one-dimensional or holds a value outside [0, 1] (as percentages would be).
    """
    acc = np.asarray(accuracies, dtype=np.float64)
    if acc.ndim != 1:
        raise ValueError(f"accuracies has shape {acc.shape}, expected one number a class")
    if (outside := (acc < 0) | (acc > 1)).any():
        raise ValueError(f"a class accuracy is {acc[outside][0]:g}, expected a fraction in [0, 1] or NaN")
    return float(mean_pairwise_gap(acc))


def cobias_single(y_true: ArrayLike, y_pred: ArrayLike, n_classes: int | None = None) -> float:
    """Return COBias_single, the mean absolute accuracy difference between a class and its odd class (Eq. 3).

    The mean is over the classes present in ``y_true``. One without an odd class (its predictions are right or
    unparsed) counts as 0; one whose odd class is absent is left out. Parameters and errors are those of
    :func:`confusion_counts`.
    """
    acc = class_accuracies(y_true, y_pred, n_classes)
    odd = odd_classes(y_true, y_pred, n_classes)
    gaps = np.where(odd >= 0, np.abs(acc[odd] - acc), 0.0)
    gaps = gaps[~np.isnan(acc) & ~np.isnan(gaps)]
    return float(gaps.mean()) if gaps.size else 0.0


def odd_rate(y_true: ArrayLike, y_pred: ArrayLike, n_classes: int | None = None) -> float:
    """Return H, the share of a class predicted as its odd class, averaged over the present classes (Eq. 11).

    Parameters and errors are those of :func:`confusion_counts`.
    """
    true, pred, n = label_pair(y_true, y_pred, n_classes)
    totals = np.bincount(true, minlength=n)
    odd_counts = _wrong_counts(true, pred, n).max(axis=1)
    return float((odd_counts[totals > 0] / totals[totals > 0]).mean())


def ratio(correct: IntArray, totals: IntArray) -> FloatArray:
    """Return ``correct / totals``, NaN where the total is 0."""
    fraction = np.full(totals.shape, np.nan)
    np.divide(correct, totals, out=fraction, where=totals > 0)
    return fraction


def mean_pairwise_gap(accuracies: FloatArray) -> FloatArray:
    """Return the mean absolute difference over all pairs of the last axis, shape (..., N) to (...).

    NaNs are left out; fewer than two numbers give 0. In sorted order the gap between neighbours k and k + 1
    lies within k (n - k) pairs, which avoids an array of all N (N - 1) / 2 pairs.
    """
    n = np.sum(~np.isnan(accuracies), axis=-1)
    k = np.arange(1, accuracies.shape[-1])
    gaps = np.diff(np.sort(accuracies, axis=-1), axis=-1)  # NaNs sort last
    total = np.nansum(gaps * k * (n[..., np.newaxis] - k), axis=-1)
    mean: FloatArray = total / np.maximum(n * (n - 1) / 2, 1)
    return mean


def _wrong_counts(y_true: ArrayLike, y_pred: ArrayLike, n_classes: int | None) -> IntArray:
    wrong = confusion_counts(y_true, y_pred, n_classes)
    np.fill_diagonal(wrong, 0)
    return wrong
