"""The certified global optimum, by branch and bound over boxes of levels.

In a box low_j <= level_j <= high_j, a row that one class wins at every point is settled: its confusion count
is known. Only the other rows are handed on to the two halves of the box, so a small box costs a small part of
a pass. The counts of settled and open rows bound the objective from below; a box that cannot beat the best
point known is dropped, and a box that is a line is evaluated like a sweep.
"""

from __future__ import annotations

import math
import time
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from poise.methods.dnip import heat_bath
from poise.methods.dnip.compiled import compiled
from poise.methods.dnip.objective import Columns, Counts, Labels, Levels, Objective, Solution, wins
from poise.methods.dnip.sweep import cumulate, first_win

TOLERANCE = 1e-12  # objective differences below it count as rounding
_SLICE = 4_000_000  # rows visited between two looks at the clock: about 0.2 s


class Tree(NamedTuple):
    """The state of a depth-first search over S pending boxes and D depths.

    Attributes
    ----------
    low, high : (S, N) int64 arrays
        Pending boxes, last in first out.
    depth : (S,) int64 array
        Their depths, from 1.
    bound : (S,) float64 array
        Lower bounds inherited from their parents.
    rows : (D, M) int32 array
        Rows still open in the box last visited at each depth; depth 0 holds all.
    open_rows : (D,) int64 array
        How many they are.
    settled : (D, N, N) int64 array
        Confusion counts of the other rows.
    counters : (2,) int64 array
        Pending boxes; boxes bounded and points evaluated.
    best : (N,) int64 array
        The best levels known.
    value : (1,) float64 array
        Their objective.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    depth: NDArray[np.int64]
    bound: NDArray[np.float64]
    rows: NDArray[np.int32]
    open_rows: NDArray[np.int64]
    settled: NDArray[np.int64]
    counters: NDArray[np.int64]
    best: Levels
    value: NDArray[np.float64]


@compiled
def lower_bound(settled: Counts, possible: Counts, objective: Objective) -> float:
    """Lower bound of Z over a box.

    Class j has between settled_jj and settled_jj + possible_jj correct rows, and at least the settled wrong
    predictions. Error and PMI terms are bounded by a linear function of the accuracies A (the PMI term is
    convex in A_j: its tangent at the upper end). With Eq. 4, what remains is to minimise
    -sum_j gain_j A_j + lam sum_{i<j} |A_i - A_j| over the accuracy intervals. By the coarea formula that is
    an integral over thresholds t of min over S = {j: A_j > t} of lam |S| (n - |S|) - sum_{j in S} gain_j,
    where intervals force classes into or out of S: solved exactly by trying prefixes of falling gain.

    Parameters
    ----------
    settled : (N, N) int64 array
        Confusion counts of rows whose winner is the same everywhere in the box.
    possible : (N, N) int64 array
        Open rows of each true class that each class can win.
    objective : Objective
        From `bind`.

    Returns
    -------
    float
    """
    n, true = len(possible), objective.true
    rows, present = 0, 0
    for j in range(n):
        rows += true[j]
        present += 1 if true[j] > 0 else 0
    low, high, gain = np.zeros(n), np.zeros(n), np.zeros(n)
    total = objective.error - objective.pmi * objective.offset
    for j in range(n):
        most = settled[j, j] + possible[j, j]
        predicted = possible[j, j]
        for i in range(n):
            predicted += settled[i, j]
        log_most, log_predicted = objective.logs[most], objective.logs[predicted]
        total -= objective.pmi * (log_most - log_predicted)
        if true[j] > 0:
            low[j], high[j] = settled[j, j] / true[j], most / true[j]
            slope = objective.pmi * (math.exp(-log_most) - math.exp(-log_predicted)) * true[j]
            gain[j] = objective.error * true[j] / rows + slope
            total += slope * high[j]
    if objective.kind != 0:
        for i in range(n):
            total -= gain[i] * high[i]
            if true[i] > 0:
                total += objective.bias / present * _least_oddity(i, settled, possible, low, high, objective)
        return total
    lam = objective.bias / max(present * (present - 1) / 2, 1.0)
    order = np.argsort(-gain)
    cuts = np.sort(np.concatenate((low, high)))
    for c in range(1, 2 * n):
        width = cuts[c] - cuts[c - 1]
        if width <= 0.0:
            continue
        size, linear = 0, 0.0
        for j in range(n):
            if low[j] >= cuts[c]:
                size += 1
                linear -= gain[j]
        least = linear + lam * size * (present - size)
        for j in order:
            if low[j] < cuts[c] <= high[j]:
                size += 1
                linear -= gain[j]
                least = min(least, linear + lam * size * (present - size))
        total += least * width
    if cuts[0] > 0.0:  # below every interval all classes are in S
        total -= gain.sum() * cuts[0]
    return total


@compiled
def _least_oddity(
    i: int,
    settled: Counts,
    possible: Counts,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    objective: Objective,
) -> float:
    """Lower bound of class i's part of Eq. 3 or Eq. 11 over a box."""
    n, true = len(low), objective.true
    most = 0
    for j in range(n):
        if j != i and (true[j] > 0 or objective.kind == 2):
            most = max(most, settled[i, j])
    if objective.kind == 2:
        rate: float = max(most / true[i], (1.0 - high[i]) / (n - 1))
        return rate
    if most == 0:
        return 0.0  # perhaps without errors, hence without an odd class
    least = math.inf
    for j in range(n):
        if j != i and true[j] > 0 and settled[i, j] + possible[i, j] >= most:  # j may be the odd class
            least = min(least, max(low[i] - high[j], low[j] - high[i], 0.0))
    return least


@compiled
def _settle(table: NDArray[np.float32], y: Labels, tree: Tree, depth: int, low: Levels, high: Levels) -> Counts:
    """Part the parent's open rows into settled and still open; returns what the open ones may become."""
    n = table.shape[1]
    possible = np.zeros((n, n), np.int64)
    settled = tree.settled[depth]
    settled[:] = tree.settled[depth - 1]
    kept = 0
    for r in range(tree.open_rows[depth - 1]):
        m = tree.rows[depth - 1, r]
        leader, best = 0, -1.0  # the winner where all are at their lowest
        for j in range(n):
            score = low[j] * np.float64(table[m, j])
            if score > best:
                leader, best = j, score
        contested = False
        for j in range(n):
            if j != leader and wins(high[j] * np.float64(table[m, j]), j, best, leader):
                contested = True
                possible[y[m], j] += 1
        if contested:
            tree.rows[depth, kept] = m
            kept += 1
            possible[y[m], leader] += 1
        else:
            settled[y[m], leader] += 1
    tree.open_rows[depth] = kept
    return possible


@compiled
def _evaluate_line(
    table: NDArray[np.float32],
    y: Labels,
    tree: Tree,
    depth: int,
    low: Levels,
    high: Levels,
    target: int,
    n_levels: int,
    objective: Objective,
) -> None:
    """Evaluate a box in which only the target's level varies, and keep its best point."""
    n = table.shape[1]
    histogram = np.zeros((n_levels + 2, n, n), np.int64)
    histogram[0] = tree.settled[depth]  # bin 0 is never moved
    for r in range(tree.open_rows[depth]):
        m = tree.rows[depth, r]
        other, best = 0, -1.0
        for j in range(n):
            score = low[j] * np.float64(table[m, j])
            if j != target and score > best:
                other, best = j, score
        histogram[first_win(np.float64(table[m, target]), target, best, other, n_levels), y[m], other] += 1
    values = cumulate(histogram, target, objective)
    k = low[target] + np.argmin(values[low[target] - 1 : high[target]])
    if values[k - 1] < tree.value[0] - TOLERANCE:
        tree.value[0] = values[k - 1]
        tree.best[:] = low
        tree.best[target] = k


@compiled
def explore(
    table: NDArray[np.float32], y: Labels, tree: Tree, n_levels: int, objective: Objective, budget: int
) -> bool:
    """Work on the pending boxes until none is left (True) or `budget` rows were visited (False).

    Parameters
    ----------
    table : (M, N) float32 array
        Probabilities; no all-zero row.
    y : (M,) int64 array
        True column indices.
    tree : Tree
        The search's state, updated in place.
    n_levels : int
        K.
    objective : Objective
        From `bind`.
    budget : int
        Row visits allowed.
    """
    n = table.shape[1]
    low, high = np.empty(n, np.int64), np.empty(n, np.int64)
    while tree.counters[0] > 0:
        if budget <= 0:
            return False
        top = tree.counters[0] - 1
        tree.counters[0] = top
        if tree.bound[top] >= tree.value[0] - TOLERANCE:
            continue
        depth = tree.depth[top]
        low[:], high[:] = tree.low[top], tree.high[top]
        budget -= tree.open_rows[depth - 1]
        possible = _settle(table, y, tree, depth, low, high)
        bound = lower_bound(tree.settled[depth], possible, objective)
        tree.counters[1] += 1
        if bound >= tree.value[0] - TOLERANCE:
            continue
        wide, target = 0, 0  # split the level that is least determined, as a ratio
        for j in range(n):
            wide += 1 if high[j] > low[j] else 0
            if high[j] * low[target] > high[target] * low[j]:
                target = j
        if wide <= 1:
            _evaluate_line(table, y, tree, depth, low, high, target, n_levels, objective)
            tree.counters[1] += high[target] - low[target] + 1
            continue
        middle = int(math.sqrt(low[target] * high[target]))
        for half in range(2):
            tree.low[top], tree.high[top] = low, high
            if half == 0:
                tree.high[top, target] = middle
            else:
                tree.low[top, target] = middle + 1
            tree.depth[top] = depth + 1
            tree.bound[top] = bound
            top += 1
        tree.counters[0] = top
    return True


@cache
def _splits(low: int, high: int) -> int:
    """Most splits that one level's range low..high can undergo."""
    if low == high:
        return 0
    middle = math.isqrt(low * high)
    return 1 + max(_splits(low, middle), _splits(middle + 1, high))


def _root(columns: Columns, n_levels: int, start: Solution) -> Tree:
    """Start a tree with one pending box: all levels of all classes."""
    n, m_rows = columns.shape
    depths = n * _splits(1, n_levels) + 2
    tree = Tree(
        low=np.ones((depths + 1, n), np.int64),
        high=np.full((depths + 1, n), n_levels),
        depth=np.ones(depths + 1, np.int64),
        bound=np.full(depths + 1, -np.inf),
        rows=np.empty((depths, m_rows), np.int32),
        open_rows=np.full(depths, m_rows),
        settled=np.zeros((depths, n, n), np.int64),
        counters=np.array([1, start.evaluations]),
        best=start.levels.copy(),
        value=np.array([start.value]),
    )
    tree.rows[0] = np.arange(m_rows)
    return tree


def solve(
    columns: Columns,
    y: Labels,
    n_levels: int,
    objective: Objective,
    rng: np.random.Generator,
    n_restarts: int | None = None,
    time_limit_s: float | None = None,
) -> Solution:
    """Global optimum of Eq. 5 on the K^N grid, from the heat bath's solution on.

    Parameters
    ----------
    columns : (N, M) float32 array
        Probabilities, one row of the array a class; no all-zero example.
    y : (M,) int64 array
        True column indices.
    n_levels : int
        K.
    objective : Objective
        From `bind`.
    rng : numpy.random.Generator
        For the heat bath, whose restarts are `n_restarts`.
    time_limit_s : float, optional
        Seconds after which the search ends with the best point known, not certified.

    Returns
    -------
    Solution
        Certified if the search ended: no point is lower by more than 1e-12. Otherwise `lower_bound` is the
        least bound of the boxes left.
    """
    begun = time.monotonic()
    tree = _root(columns, n_levels, heat_bath.solve(columns, y, n_levels, objective, rng, n_restarts))
    table = np.ascontiguousarray(columns.T)
    ended = False
    while not ended and (time_limit_s is None or time.monotonic() - begun < time_limit_s):
        ended = bool(explore(table, y, tree, n_levels, objective, _SLICE))
    value = float(tree.value[0])
    least = min((value, *tree.bound[: tree.counters[0]].tolist()))
    return Solution(tree.best, value, int(tree.counters[1]), certified=ended, lower_bound=least)
