"""All K levels of one class's weight in one pass over the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poise.methods.dnip.compiled import compiled
from poise.methods.dnip.objective import Columns, Labels, Levels, Objective, evaluate, wins

_BLOCK = 512  # rows a block: its buffers stay in the first-level cache


@compiled
def first_win(p: float, index: int, other: float, other_index: int, n_levels: int) -> int:
    """Lowest level in 1..K at which a class wins a row, or K + 1 if it never does.

    Parameters
    ----------
    p, index
        Probability of the class in this row, and its column index.
    other, other_index
        Best weighted score of the other classes, and its column index.
    n_levels
        K, at most 4,096.

    Notes
    -----
    The quotient can only round onto an integer from closer than any two such ratios lie (both sides have 24
    significant bits times a level of 12), so its floor is right up to the one step that the exact comparison
    decides.
    """
    level = np.floor(min(other / p, n_levels + 1.0))
    if not wins(level * p, index, other, other_index):
        level += 1.0
    return int(min(max(level, 1.0), n_levels + 1.0))


@compiled
def sweep(
    columns: Columns, y: Labels, levels: Levels, target: int, n_levels: int, objective: Objective
) -> NDArray[np.float64]:
    """Objective at every level of one class, the other levels fixed: O(MN + K N^2).

    Each row is won by its best other class below a threshold level and by the target class from there on. A
    histogram of rows over (threshold, true class, best other class) holds all K confusion matrices.

    Parameters
    ----------
    columns : (N, M) float32 array
        Probabilities, one row of the array a class; no all-zero example.
    y : (M,) int64 array
        True column indices.
    levels : (N,) int64 array
        Current levels; the target's own is ignored.
    target : int
        The class whose level varies.
    n_levels : int
        K.
    objective : Objective
        From `bind`.

    Returns
    -------
    (K,) float64 array
        Z at levels 1..K.
    """
    n, m_rows = columns.shape
    histogram = np.zeros((n_levels + 2, n, n), np.int64)
    best = np.empty(_BLOCK, np.float64)
    other = np.empty(_BLOCK, np.int64)
    first = np.empty(_BLOCK, np.int64)
    for start in range(0, m_rows, _BLOCK):
        size = min(_BLOCK, m_rows - start)
        best[:] = -1.0
        other[:] = 0
        for j in range(n):
            if j == target:
                continue
            level, column = float(levels[j]), columns[j, start : start + size]
            for m in range(size):
                score = level * np.float64(column[m])
                ahead = score > best[m]  # ascending j: of equals, the first stays
                best[m] = score if ahead else best[m]
                other[m] = j if ahead else other[m]
        column = columns[target, start : start + size]
        for m in range(size):
            first[m] = first_win(np.float64(column[m]), target, best[m], other[m], n_levels)
        for m in range(size):
            histogram[first[m], y[start + m], other[m]] += 1
    return cumulate(histogram, target, objective)


@compiled
def cumulate(histogram: NDArray[np.int64], target: int, objective: Objective) -> NDArray[np.float64]:
    """Z at levels 1..K of the target class, from rows by (threshold level, true class, best other class)."""
    n_levels, n = histogram.shape[0] - 2, histogram.shape[1]
    confusion = np.zeros((n, n), np.int64)
    for k in range(n_levels + 2):
        confusion += histogram[k]
    values = np.empty(n_levels)
    for k in range(1, n_levels + 1):
        for i in range(n):
            for j in range(n):
                moved = histogram[k, i, j]
                confusion[i, j] -= moved
                confusion[i, target] += moved
        values[k - 1] = evaluate(confusion, objective)
    return values
