"""The paper's Algorithm 1: simulated annealing, one candidate an evaluation, with its curves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poise.methods.dnip.compiled import compiled
from poise.methods.dnip.objective import (
    Columns,
    Labels,
    Levels,
    Objective,
    Solution,
    confusion_counts,
    evaluate,
    weighted_argmax,
)

HOTTEST, COLDEST, DECAY = 200_000.0, 200.0, 0.95  # on the M-scaled objective
LIMITS = {"paper": (150, 300), "dcs": (3, 6)}


@compiled
def walk(
    columns: Columns,
    y: Labels,
    levels: Levels,
    n_levels: int,
    objective: Objective,
    accepted_limit: int,
    generated_limit: int,
    temperatures: NDArray[np.float64],
    uniforms: NDArray[np.float64],
) -> tuple[Levels, float, NDArray[np.float64]]:
    """Algorithm 1 from given levels (left as the last state), fed with given draws.

    A worse candidate is accepted with probability exp(-M dZ / T): line 12 of the paper lacks the sign.

    Parameters
    ----------
    accepted_limit, generated_limit : int
        A temperature ends at so many candidates that were no worse, or so many in all.
    temperatures : (C,) float64 array
        In units of M Z.
    uniforms : (C * generated_limit, 3) float64 array
        Draws in [0, 1) for class, level and acceptance of each candidate.

    Returns
    -------
    (levels, Z, curves) : ((N,) int64 array, float, (3, evaluations) float64 array)
        The best levels, their objective, and current Z, best Z and temperature after each candidate.
    """
    n, m_rows = columns.shape
    current = evaluate(confusion_counts(y, weighted_argmax(columns, levels), n), objective)
    best, lowest = levels.copy(), current
    curves = np.empty((3, len(uniforms)))
    step = 0
    for temperature in temperatures:
        accepted, generated = 0, 0
        while accepted < accepted_limit and generated < generated_limit:
            target = int(uniforms[step, 0] * n)
            old = levels[target]
            new = 1 + int(uniforms[step, 1] * (n_levels - 1))
            levels[target] = new + 1 if new >= old else new
            value = evaluate(confusion_counts(y, weighted_argmax(columns, levels), n), objective)
            if value <= current:
                current = value
                accepted += 1
                if value < lowest:
                    lowest = value
                    best[:] = levels
            elif uniforms[step, 2] < np.exp((current - value) * m_rows / temperature):
                current = value
            else:
                levels[target] = old
            curves[0, step], curves[1, step], curves[2, step] = current, lowest, temperature
            generated += 1
            step += 1
    return best, lowest, curves[:, :step]


def solve(
    columns: Columns,
    y: Labels,
    n_levels: int,
    objective: Objective,
    rng: np.random.Generator,
    limits: str | tuple[int, int] = "paper",
    init: str = "ones",
) -> Solution:
    """Algorithm 1 with geometric cooling from 200,000 to 200 by 0.95: 135 temperatures.

    Parameters
    ----------
    columns : (N, M) float32 array
        Probabilities, one row of the array a class.
    y : (M,) int64 array
        True column indices.
    n_levels : int
        K, at least 2.
    objective : Objective
        From `bind`.
    rng : numpy.random.Generator
        The only source of chance.
    limits : {"paper", "dcs"} or (int, int)
        Inner-loop limits (accepted, generated).
    init : {"ones", "random"}
        Start from all-equal weights, as the authors' code does, or from random ones, as the paper says.

    Returns
    -------
    Solution
        With curves "objective", "best" and "temperature", and the candidates generated as evaluations.

    Raises
    ------
    ValueError
        For unknown or non-positive limits, or an unknown start.
    """
    pair = LIMITS.get(limits) if isinstance(limits, str) else tuple(limits)
    if pair is None or len(pair) != 2 or min(pair) < 1:
        raise ValueError(f"limits must be 'paper', 'dcs' or two positive integers, found {limits!r}")
    if init not in ("ones", "random"):
        raise ValueError(f"init must be 'ones' or 'random', found {init!r}")
    n = len(columns)
    start = np.full(n, n_levels) if init == "ones" else rng.integers(1, n_levels + 1, n)
    outer = int(np.log(COLDEST / HOTTEST) / np.log(DECAY)) + 1
    temperatures = np.array([HOTTEST * DECAY**k for k in range(outer)])
    uniforms = rng.random((outer * pair[1], 3))
    best, value, curves = walk(columns, y, start, n_levels, objective, *pair, temperatures, uniforms)
    history = dict(zip(("objective", "best", "temperature"), curves, strict=True))
    return Solution(best, value, curves.shape[1], history=history)
