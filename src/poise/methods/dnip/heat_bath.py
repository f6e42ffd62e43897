"""The default solver: heat-bath annealing over whole sweeps, then exact coordinate descent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poise.methods.dnip.compiled import compiled
from poise.methods.dnip.objective import Columns, Labels, Levels, Objective, Solution
from poise.methods.dnip.sweep import sweep

HOT, COLD = 0.1, 1e-3  # temperatures in units of Z: from "most levels" to "a few rows"
CYCLES = 40  # annealing cycles a restart, each over all N classes
RESTARTS = (8, 64)  # fewest and most restarts
RESTART_ROWS = 80_000  # rows times restarts, between them


@compiled
def descend(columns: Columns, y: Labels, levels: Levels, n_levels: int, objective: Objective) -> tuple[float, int]:
    """Exact coordinate descent, in place, until no single level improves the objective.

    Returns
    -------
    (Z, sweeps) : (float, int)
        The objective reached and the number of sweeps made.
    """
    n = len(levels)
    values = sweep(columns, y, levels, 0, n_levels, objective)
    current = values[levels[0] - 1]
    sweeps, target, settled = 1, 0, 0
    while settled < n:
        if sweeps > 1:
            values = sweep(columns, y, levels, target, n_levels, objective)
        k = np.argmin(values)
        settled += 1
        if values[k] < current:
            current = values[k]
            levels[target] = k + 1
            settled = 1
        sweeps += 1
        target = (target + 1) % n
    return current, sweeps - 1


@compiled
def anneal(
    columns: Columns,
    y: Labels,
    levels: Levels,
    n_levels: int,
    objective: Objective,
    temperatures: NDArray[np.float64],
    uniforms: NDArray[np.float64],
) -> tuple[Levels, float, int]:
    """One restart: Gibbs sampling of one level at a time while it cools, then `descend` from the best point.

    Only ratios of levels matter, but small levels are a coarse grid: between two scales lie walls that no
    single level can cross. So each cycle first proposes all levels rescaled to a random maximum (Metropolis
    rule). Every sweep shows all K values of a class: the best of them counts even when another is drawn.

    Parameters
    ----------
    levels : (N,) int64 array
        The start; left as the walk's last state.
    temperatures : (C,) float64 array
        Temperature of each cycle, in units of Z.
    uniforms : (C, N + 3) float64 array
        The draws, in [0, 1): one a class, then scale, class swept and acceptance of the rescaling.

    Returns
    -------
    (levels, Z, sweeps) : ((N,) int64 array, float, int)
    """
    n = len(levels)
    best, lowest, current = levels.copy(), np.inf, np.inf
    for cycle in range(len(temperatures)):
        draws, temperature = uniforms[cycle], temperatures[cycle]
        scale = (1.0 + np.floor(draws[n] * n_levels)) / levels.max()
        for step in range(n + 1):
            candidate = levels if step else np.maximum(1, np.floor(levels * scale + 0.5).astype(np.int64))
            target = step - 1 if step else int(draws[n + 1] * n)
            values = sweep(columns, y, candidate, target, n_levels, objective)
            k = np.argmin(values)
            if values[k] < lowest:
                lowest = values[k]
                best[:] = candidate
                best[target] = k + 1
            if step:
                mass = np.cumsum(np.exp((values[k] - values) / temperature))
                drawn = np.searchsorted(mass, draws[target] * mass[-1], side="right")
                levels[target] = min(drawn, n_levels - 1) + 1
                current = values[levels[target] - 1]
            elif draws[n + 2] < np.exp((current - values[candidate[target] - 1]) / temperature):
                levels[:] = candidate
    value, sweeps = descend(columns, y, best, n_levels, objective)
    return best, value, sweeps + len(temperatures) * (n + 1)


def solve(
    columns: Columns,
    y: Labels,
    n_levels: int,
    objective: Objective,
    rng: np.random.Generator,
    n_restarts: int | None = None,
) -> Solution:
    """Best of several restarts: the first from all-equal weights, the others from random levels.

    The result is a local optimum in every single level, and never above the objective without correction.

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
        The only source of chance.
    n_restarts : int, optional
        Restarts; by default 8 to 64, more the fewer the rows: on few rows the objective is rough and a restart cheap.

    Returns
    -------
    Solution
        Its evaluations are the objective values computed: K a sweep.
    """
    n = len(columns)
    if n_restarts is None:
        n_restarts = int(np.clip(RESTART_ROWS // len(y), *RESTARTS))
    temperatures = np.geomspace(HOT, COLD, CYCLES)
    best, lowest, total = np.full(n, n_levels), np.inf, 0
    for restart in range(n_restarts):
        start = np.full(n, n_levels) if restart == 0 else rng.integers(1, n_levels + 1, n)
        uniforms = rng.random((CYCLES, n + 3))
        levels, value, sweeps = anneal(columns, y, start, n_levels, objective, temperatures, uniforms)
        total += sweeps * n_levels
        if value < lowest:
            best, lowest = levels, value
    return Solution(best, float(lowest), total)
