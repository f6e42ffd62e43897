"""The DNIP objective (Eq. 5), and the one scoring rule that every solver and ``predict`` share.

All terms are functions of the N x N confusion counts, so solvers exchange integers: two ways of reaching the
same predictions give bitwise the same objective.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from poise.methods.dnip.compiled import compiled

Columns = NDArray[np.float32]  # (N, M), C order: one contiguous column of probabilities a class
Labels = NDArray[np.int64]  # (M,) true column indices
Levels = NDArray[np.int64]  # (N,) weight levels in 1..K
Counts = NDArray[np.int64]  # (N, N) confusion counts [true, predicted]


class Solution(NamedTuple):
    """What a solver returns.

    Attributes
    ----------
    levels : (N,) int64 array
        The best levels found, in 1..K.
    value : float
        Z at these levels.
    evaluations : int
        Objective values computed, or (in proofs) bounded.
    certified : bool
        Whether `value` is proven to be the global minimum.
    lower_bound : float
        A proven lower bound on the global minimum (-inf where nothing is proven).
    history : dict of arrays
        Curves, one entry an evaluation, of solvers that record them.
    """

    levels: Levels
    value: float
    evaluations: int
    certified: bool = False
    lower_bound: float = -math.inf
    history: Mapping[str, NDArray[np.float64]] = {}


BIASES = ("cobias", "cobias_single", "odd_rate")
TERMS = ("error", "bias", "pmi")
MAX_LEVELS = 4096


class Objective(NamedTuple):
    """A bound objective: what `evaluate` needs besides the confusion counts.

    Attributes
    ----------
    kind : int
        Index into `BIASES`.
    error, bias, pmi : float
        Weights of the three terms (1, beta, tau; 0 for an ablated term).
    true : (N,) int64 array
        Rows of each class.
    logs : (M + 1,) float64 array
        log(count + mu).
    offset : float
        N log((M + mu N)^2 / (M + mu N^2)) - sum_j log(true_j + mu): the constant part of sum_j PMI_j.
    """

    kind: int
    error: float
    bias: float
    pmi: float
    true: NDArray[np.int64]
    logs: NDArray[np.float64]
    offset: float


def bind(
    y: Labels,
    n_classes: int,
    *,
    bias: str = "cobias",
    beta: float = 2.7,
    tau: float = 0.2,
    mu: float = 4000.0,
    terms: Collection[str] = TERMS,
) -> Objective:
    """Bind Eq. 5 (or one of its variants) to a labelled set.

    Parameters
    ----------
    y : (M,) int64 array
        True column indices.
    n_classes : int
        N.
    bias : {"cobias", "cobias_single", "odd_rate"}
        The bias term: Eq. 4, Eq. 3, or the mean of Eq. 11 (as in Eq. 12).
    beta, tau : float
        Weights of the bias and PMI terms, non-negative. A term that stands alone has weight 1 (the z2 and z3
        ablations of Figure 3).
    mu : float
        Add-mu smoothing of Eq. 7, in rows; positive.
    terms : collection of {"error", "bias", "pmi"}
        The terms kept.

    Returns
    -------
    Objective

    Raises
    ------
    ValueError
        For an unknown bias or term, no term, negative or non-finite weights, or mu <= 0.
    """
    if bias not in BIASES:
        raise ValueError(f"objective must be one of {', '.join(BIASES)}, found {bias!r}")
    chosen = set(terms)
    if isinstance(terms, str) or not chosen or not chosen <= set(TERMS):
        raise ValueError(f"terms must be a non-empty choice of {', '.join(TERMS)}, found {terms!r}")
    for name, value in (("beta", beta), ("tau", tau)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and non-negative, found {value!r}")
    if not (math.isfinite(mu) and mu > 0):
        raise ValueError(f"mu must be finite and positive, found {mu!r}")
    alone = len(chosen) == 1
    n_rows = len(y)
    true = np.bincount(y, minlength=n_classes).astype(np.int64)
    logs = np.log(np.arange(n_rows + 1) + mu)
    scale = 2 * math.log(n_rows + mu * n_classes) - math.log(n_rows + mu * n_classes**2)
    return Objective(
        kind=BIASES.index(bias),
        error=1.0 if "error" in chosen else 0.0,
        bias=(1.0 if alone else float(beta)) if "bias" in chosen else 0.0,
        pmi=(1.0 if alone else float(tau)) if "pmi" in chosen else 0.0,
        true=true,
        logs=logs,
        offset=n_classes * scale - float(logs[true].sum()),
    )


@compiled
def evaluate(confusion: Counts, objective: Objective) -> float:
    """Z = error + beta * bias - tau * sum_j PMI_j (Eq. 5), of confusion counts.

    Classes without rows have no accuracy: they leave the bias term (their pairs in Eq. 4, themselves and
    their role as odd class in Eq. 3, themselves in Eq. 11), whose mean is over what remains. A class without
    errors has no odd class and contributes 0. Odd-class ties go to the lowest index.
    """
    n = confusion.shape[0]
    true, logs = objective.true, objective.logs
    correct, rows, pmi = 0, 0, objective.offset
    for j in range(n):
        predicted = 0
        for i in range(n):
            predicted += confusion[i, j]
        rows += true[j]
        correct += confusion[j, j]
        pmi += logs[confusion[j, j]] - logs[predicted]
    total, count = 0.0, 0
    for i in range(n):
        if true[i] == 0:
            continue
        accuracy = confusion[i, i] / true[i]
        if objective.kind == 0:
            for j in range(i):
                if true[j] > 0:
                    total += abs(accuracy - confusion[j, j] / true[j])
                    count += 1
            continue
        count += 1
        odd, most = -1, 0
        for j in range(n):
            if j != i and confusion[i, j] > most and (true[j] > 0 or objective.kind == 2):
                odd, most = j, confusion[i, j]
        if odd >= 0 and objective.kind == 1:
            total += abs(accuracy - confusion[odd, odd] / true[odd])
        elif odd >= 0:
            total += most / true[i]
    bias = total / count if count > 0 else 0.0
    return objective.error * (1.0 - correct / rows) + objective.bias * bias - objective.pmi * pmi


@compiled
def wins(score: float, index: int, other: float, other_index: int) -> bool:
    """Whether a weighted score wins over another: the larger, and of equals the lower column index."""
    return score > other or (score == other and index < other_index)


@compiled
def weighted_argmax(columns: Columns, levels: Levels) -> NDArray[np.int64]:
    """Weighted argmax (Eq. 6): column indices, of level x float32 probability taken exactly in float64.

    Parameters
    ----------
    columns : (N, M) float32 array
        Probabilities, one row of the array a class.
    levels : (N,) int64 array
        Weight levels.

    Returns
    -------
    (M,) int64 array
    """
    n, m_rows = columns.shape
    best = np.full(m_rows, -1.0)
    winner = np.zeros(m_rows, np.int64)
    for j in range(n):
        level, column = float(levels[j]), columns[j]
        for m in range(m_rows):
            score = level * np.float64(column[m])
            if wins(score, j, best[m], winner[m]):
                best[m] = score
                winner[m] = j
    return winner


@compiled
def confusion_counts(y: Labels, predicted: Labels, n_classes: int) -> Counts:
    """Confusion counts [true, predicted] of M rows, (N, N) int64."""
    counts = np.zeros((n_classes, n_classes), np.int64)
    for m in range(len(y)):
        counts[y[m], predicted[m]] += 1
    return counts
