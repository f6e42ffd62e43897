"""Checks that every metric makes on its label arrays."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.intp]
FloatArray = NDArray[np.float64]

UNPARSED = -1
"""The prediction of an output in which no label was found."""


def labels(values: ArrayLike, name: str) -> IntArray:
    """Return ``values`` as a one-dimensional integer array.

    Raises
    ------
    ValueError
        If ``values`` is empty, not one-dimensional, or not of an integer type.
    """
    array = np.asarray(values)
    if array.size == 0:
        raise ValueError(f"{name} has no rows, expected at least one")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, expected one integer a row")
    return array.astype(np.intp)


def predicted_labels(y_pred: ArrayLike) -> IntArray:
    """Return ``y_pred`` as an integer array of class indices, -1 for an unparsed row.

    Raises
    ------
    ValueError
        As :func:`labels`, or if a prediction is below -1.
    """
    pred = labels(y_pred, "y_pred")
    _check_range(pred, "y_pred", UNPARSED, None)
    return pred


def label_pair(y_true: ArrayLike, y_pred: ArrayLike, n_classes: int | None = None) -> tuple[IntArray, IntArray, int]:
    """Return both arrays, checked against each other, and the number of classes.

    Without ``n_classes`` it is the highest index in either array plus one.

    Raises
    ------
    ValueError
        If an array is empty, not one-dimensional or not integer, the lengths differ, or an index is out of
        range.
    """
    true, pred = labels(y_true, "y_true"), labels(y_pred, "y_pred")
    if len(true) != len(pred):
        raise ValueError(f"y_pred has {len(pred)} rows, expected {len(true)} as in y_true")
    _check_range(true, "y_true", 0, n_classes)
    _check_range(pred, "y_pred", UNPARSED, n_classes)
    return true, pred, int(max(true.max(), pred.max())) + 1 if n_classes is None else n_classes


def _check_range(array: IntArray, name: str, lowest: int, n_classes: int | None) -> None:
    bad = array < lowest if n_classes is None else (array < lowest) | (array >= n_classes)
    if bad.any():
        row = int(bad.argmax())
        highest = "" if n_classes is None else f" to {n_classes - 1}"
        raise ValueError(f"{name}[{row}] is {array[row]}, expected a class index from {lowest}{highest}")
