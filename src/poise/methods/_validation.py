"""What all methods ask of a probability matrix, its classes and its labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

Float = TypeVar("Float", np.float32, np.float64)

PAPER_MU, PAPER_ROWS = 4000.0, 9500


class ProbabilityInput:
    """Mixin: the tags of estimators whose input columns are the classes themselves.

    Input is non-negative; and scikit-learn's checks, which feed features instead, cannot expect a good score.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.positive_only = True
        tags.classifier_tags.poor_score = True
        return tags


def numbers(P: ArrayLike) -> NDArray[np.float64]:
    """`P` as an array of real numbers, of any shape.

    Raises
    ------
    ValueError
        For rows of unequal length, text and complex numbers.
    TypeError
        For values that are no numbers.
    """
    try:
        values = np.asarray(P)
        if not np.iscomplexobj(values):
            return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"P must be a matrix of numbers (dense, not sparse), one column a class: {error}") from error
    raise ValueError("Complex data not supported: P must hold probabilities")


def check_probabilities(estimator: Any, P: ArrayLike, *, reset: bool) -> NDArray[np.float64]:
    """Check a matrix of class probabilities, and its columns against those that the estimator was fitted on.

    Parameters
    ----------
    estimator : estimator
        Learns `n_features_in_` (and `feature_names_in_`, of a data frame) if `reset`; else must have them.
    P : (M, N) array
        Non-negative class probabilities, N >= 2; rows need not sum to one.
    reset : bool
        Whether this is the matrix to fit on.

    Returns
    -------
    (M, N) float64 array

    Raises
    ------
    ValueError, TypeError
        For a wrong shape, other columns than those fitted, NaN, infinite (in float32) or negative values, nothing
        but zeros to fit on, and as `numbers`.
    """
    values = numbers(P)
    if values.ndim != 2:
        raise ValueError(f"P must be a matrix (rows, classes), found {values.ndim} dimension(s). Reshape your data")
    n_rows, n_columns = values.shape
    if n_rows < 1 or (reset and n_columns < 2):
        raise ValueError(
            f"P must have at least one row and two columns, found {n_rows} row(s), {n_columns} feature(s)"
            f" (shape=({n_rows}, {n_columns})) while a minimum of 2 is required."
        )
    validate_data(estimator, P, reset=reset, skip_check_array=True)
    for fault, found in (
        ("P is NaN", np.isnan(values)),
        ("P is infinite", np.abs(values) > np.finfo(np.float32).max),
        ("Negative values in data: P is negative", values < 0),
    ):
        if found.any():
            row, column = np.argwhere(found)[0]
            raise ValueError(f"{fault} at row {row}, column {column}: {values[row, column]}")
    if reset and not values.any():
        raise ValueError("P holds no probability above zero")
    return values


def uniform_zero_rows(values: NDArray[Float]) -> NDArray[Float]:
    """Rows without any probability become uniform; the others stay as they are. (M, N), of the same type."""
    uniform = values.dtype.type(1 / values.shape[1])
    return np.where(values.any(axis=1, keepdims=True), values, uniform)


def normalised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row divided by its sum; rows without any probability become uniform. (M, N)."""
    rows = uniform_zero_rows(values)
    shares: NDArray[np.float64] = rows / rows.sum(axis=1, keepdims=True)
    return shares


def class_names(classes: Sequence[Any] | None, n_classes: int) -> NDArray[Any]:
    """Class names in column order: those given, or the column indices. (N,).

    Raises
    ------
    ValueError
        Unless the names are distinct, and one a column.
    """
    if classes is None:
        return np.arange(n_classes)
    names = np.asarray(classes)
    if names.shape != (n_classes,) or len(set(names.tolist())) != n_classes:
        raise ValueError(f"classes must be {n_classes} distinct names, one a column, found {list(classes)!r}")
    return names


def label_indices(y: ArrayLike | None, names: NDArray[Any], n_rows: int, *, named: bool) -> NDArray[np.int64]:
    """Column indices of labels. (M,).

    Parameters
    ----------
    y : (M,) array
        Names among `names`.
    names : (N,) array
        Classes in column order.
    n_rows : int
        M.
    named : bool
        Whether the user named the classes (for the error).

    Raises
    ------
    ValueError
        For no labels, a wrong shape, or a label that is not among the names.
    """
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(f"y must hold one label for each of the {n_rows} rows of P, found shape {labels.shape}")
    position = {name: index for index, name in enumerate(names.tolist())}
    try:
        return np.array([position[label] for label in labels.tolist()], dtype=np.int64)
    except (KeyError, TypeError):
        row, label = next((i, v) for i, v in enumerate(labels.tolist()) if v not in position)
        expected = "one of classes" if named else f"a column index 0..{len(names) - 1} (or name the classes)"
        continuous = isinstance(label, float) and not label.is_integer()
        raise ValueError(f"y[{row}] must be {expected}, found {label!r}{', continuous' * continuous}") from None


def warn_absent_classes(true: NDArray[np.int64], names: NDArray[Any]) -> None:
    """Warn of classes without a row, on behalf of the caller's caller."""
    absent = np.setdiff1d(np.arange(len(names)), true)
    if len(absent):
        listed = ", ".join(str(name) for name in names[absent])
        warnings.warn(f"no row of y has class {listed}: left out of the bias term", stacklevel=3)


def smoothing(mu: float | str, n_rows: int) -> float:
    """Resolve mu, the smoothing of the PMI term in rows, for so many rows.

    Raises
    ------
    ValueError
        For a name other than "paper" (4,000) or "scaled" (4,000 M / 9,500).
    """
    if isinstance(mu, str):
        if mu not in ("paper", "scaled"):
            raise ValueError(f"mu must be a number, 'paper' or 'scaled', found {mu!r}")
        return PAPER_MU if mu == "paper" else PAPER_MU * n_rows / PAPER_ROWS
    return float(mu)
