"""Performance of an ordinal classifier (position paper, Section 3.3).

A prediction of -1 is an unparsed output: wrong for accuracy and F1, left out where a rank or a distance is
needed, and counted by :func:`parse_failure_rate`.
"""

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import ArrayLike

from poise.metrics._labels import label_pair, predicted_labels


@dataclass(frozen=True, slots=True)
class SpearmanRho:
    """Spearman's rank correlation; not ``defined`` where either side is constant: ``value`` is then 0."""

    value: float
    defined: bool


def accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the share of rows predicted exactly, in [0, 1]; an unparsed row is wrong.

    Raises
    ------
    ValueError
        If the arrays, each of shape (M,), are empty, do not match, or hold an index out of range.
    """
    true, pred, _ = label_pair(y_true, y_pred)
    return float((true == pred).mean())


def macro_f1(y_true: ArrayLike, y_pred: ArrayLike, n_classes: int | None = None) -> float:
    """Return the mean F1 over the classes, in [0, 1].

    A class found in neither array is left out of the mean. Unparsed rows lower the recall of their true
    class: they form a class of their own, which is never correct and not averaged. Errors are those of
    :func:`accuracy`.
    """
    true, pred, _ = label_pair(y_true, y_pred, n_classes)
    from sklearn.metrics import f1_score  # over a second to import

    found = np.union1d(true, pred[pred >= 0])
    return float(f1_score(true, pred, labels=found, average="macro", zero_division=0.0))


def spearman_rho(y_true: ArrayLike, y_pred: ArrayLike) -> SpearmanRho:
    """Return Spearman's rank correlation over the parsed rows, in [-1, 1].

    If predictions or labels are constant (or no row is parsed) it does not exist: 0, marked as not defined.
    Errors are those of :func:`accuracy`.
    """
    true, pred, _ = label_pair(y_true, y_pred)
    true, pred = true[pred >= 0], pred[pred >= 0]
    if len(np.unique(true)) < 2 or len(np.unique(pred)) < 2:
        return SpearmanRho(0.0, defined=False)
    from scipy.stats import spearmanr  # most of a second to import

    return SpearmanRho(float(spearmanr(true, pred).statistic), defined=True)


def mean_absolute_error(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the mean distance of the parsed rows in class steps, NaN if no row is parsed.

    Errors are those of :func:`accuracy`.
    """
    true, pred, _ = label_pair(y_true, y_pred)
    parsed = pred >= 0
    return float(np.abs(true - pred)[parsed].mean()) if parsed.any() else nan


def parse_failure_rate(y_pred: ArrayLike) -> float:
    """Return the share of unparsed rows, in [0, 1].

    Raises
    ------
    ValueError
        If ``y_pred`` is empty, not one-dimensional, not integer, or holds an index below -1.
    """
    return float((predicted_labels(y_pred) < 0).mean())
