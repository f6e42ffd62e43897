"""Averages of hard ordinal labels (position paper, Supplement G.3).

Labels go in and out as class indices 0..M-1 with -1 for an unparsed answer, but are averaged on the paper's labels
1..M: rounding a half to even depends on where the scale starts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.intp]

UNPARSED = -1
ROUNDING = ("half_even", "half_up")


def integers(values: ArrayLike, name: str, *, ndim: int, lowest: int, highest: int | None = None) -> IntArray:
    """`values` as an integer array of so many dimensions, each value from `lowest` to `highest`.

    Raises
    ------
    ValueError
        For an empty array, other dimensions, other than integers, or a value out of range.
    """
    array = np.asarray(values)
    if array.size == 0 or array.ndim != ndim or array.dtype.kind not in "iu":
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, expected integers in {ndim} dimension(s)")
    array = array.astype(np.intp)
    bad = array < lowest if highest is None else (array < lowest) | (array > highest)
    if bad.any():
        where = tuple(np.argwhere(bad)[0].tolist())
        until = " or more" if highest is None else f" to {highest}"
        raise ValueError(f"{name}[{', '.join(map(str, where))}] is {array[where]}, expected {lowest}{until}")
    return array


def round_labels(values: ArrayLike, rounding: str = "half_even") -> IntArray:
    """Round averages of labels 1..M to whole labels.

    Parameters
    ----------
    values : array
        Averages on the 1-based scale, of any shape. A quotient of two small integers is exactly a half in floating
        point if and only if it is one, so a half is always seen as such.
    rounding : {"half_even", "half_up"}
        What becomes of a half: the even neighbour (the paper's `round`, read as Python's), or the higher one.

    Returns
    -------
    integer array of the same shape
        Labels on the 1-based scale.

    Raises
    ------
    ValueError
        For another rounding, or averages that are no finite numbers.
    """
    if rounding not in ROUNDING:
        raise ValueError(f"rounding is {rounding!r}, expected one of {', '.join(ROUNDING)}")
    averages = np.asarray(values, dtype=np.float64)
    if not np.isfinite(averages).all():
        raise ValueError("values holds NaN or infinity, expected averages of labels")
    if rounding == "half_even":
        return np.rint(averages).astype(np.intp)
    below = np.floor(averages)
    return (below + (averages - below >= 0.5)).astype(np.intp)


def average_labels(first: ArrayLike, second: ArrayLike, rounding: str = "half_even") -> IntArray:
    """Average two predictions a row: label-order and demonstration-order averaging (Supplement G.3).

    Parameters
    ----------
    first, second : (n,) integer arrays
        Class indices under the two orders, in the natural frame; -1 is unparsed.
    rounding : {"half_even", "half_up"}
        As in :func:`round_labels`, on labels 1..M: classes 0 and 1 (labels 1 and 2) give class 1 either way,
        classes 1 and 2 give class 1 by "half_even" and 2 by "half_up".

    Returns
    -------
    (n,) integer array
        Class indices; -1 where either prediction is unparsed.

    Raises
    ------
    ValueError
        For arrays that are empty, not one-dimensional, not of integers or of different lengths, an index below -1,
        or another rounding.
    """
    a = integers(first, "first", ndim=1, lowest=UNPARSED)
    b = integers(second, "second", ndim=1, lowest=UNPARSED)
    if len(a) != len(b):
        raise ValueError(f"second has {len(b)} rows, expected {len(a)} as in first")
    average = round_labels(((a + 1) + (b + 1)) / 2, rounding) - 1
    return np.where((a == UNPARSED) | (b == UNPARSED), UNPARSED, average)
