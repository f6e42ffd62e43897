"""DNIP's solvers side by side, on drawn probabilities of the paper's optimisation-set sizes.

    python benchmarks/dnip_solvers.py [--repeats 5] [--numpy-evaluations 1500] [--time-limit 60]

Every figure is from this one run. Beside the solvers stand a plain vectorised NumPy annealing (Algorithm 1,
one argmax over the whole matrix an evaluation; a stated number of its 40,500 evaluations is timed and
extrapolated) and the seconds the paper prints (Table 4, on another machine: only the ratio's order of
magnitude means anything). Compilation is timed apart, in fresh processes with an empty and a filled cache.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from poise.methods import DNIP

PAPER_EVALUATIONS = 40_500
TABLE_4 = Path(__file__).parents[1] / "data" / "reference" / "dnip" / "table4.csv"
SETS = {  # rows and classes of the paper's full optimisation sets
    "agnews": (9500, 4),
    "dbpedia": (9500, 14),
    "sst5": (8116, 5),
    "trec": (5179, 6),
    "rte": (2365, 2),
    "ddi": (9500, 5),
    "pubmedqa": (950, 3),
}
FIRST_FIT = (
    "import time; s = time.perf_counter(); import numpy as np; from poise.methods import DNIP;"
    "p = np.random.default_rng(0).random((50, 3)); i = time.perf_counter();"
    "DNIP(solver='{solver}').fit(p, np.arange(50) % 3); print(i - s, time.perf_counter() - i)"
)


def drawn(n_rows, n_classes, seed):
    """LLM-like probabilities: a confusion structure and a strong bias to some classes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(n_classes, n_rows, p=rng.dirichlet(np.full(n_classes, 5.0)))
    logits = rng.normal(size=(n_rows, n_classes)) + rng.normal(0, 0.6, (n_classes, n_classes))[y]
    logits[np.arange(n_rows), y] += 2.0 * rng.gamma(2, 0.5, n_rows)
    logits += rng.normal(0, 1.5, n_classes)
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True), y


def numpy_annealing(P, y, evaluations, n_levels=30, beta=2.7, tau=0.2, mu=4000, seed=1):
    """Seconds of so many evaluations of Algorithm 1 in vectorised NumPy."""
    rng = np.random.default_rng(seed)
    m, n = P.shape
    true = np.bincount(y, minlength=n)
    upper = np.triu_indices(n, 1)

    def z(levels):
        predicted = (P * (levels / n_levels)).argmax(axis=1)
        counts = np.bincount(y * n + predicted, minlength=n * n).reshape(n, n)
        hits, made = counts.diagonal(), counts.sum(axis=0)
        accuracy = hits / true
        cobias = np.abs(accuracy[upper[0]] - accuracy[upper[1]]).mean()
        both = (hits + mu) / (m + mu * n * n)
        pmi = np.log(both / ((made + mu) / (m + mu * n) * (true + mu) / (m + mu * n))).sum()
        return 1 - hits.sum() / m + beta * cobias - tau * pmi

    begun = time.perf_counter()
    levels = np.full(n, n_levels)
    current = z(levels)
    for step in range(evaluations):
        temperature = 200_000 * 0.95 ** (135 * step / evaluations)
        candidate = levels.copy()
        candidate[rng.integers(n)] = rng.integers(1, n_levels + 1)
        value = z(candidate)
        if value <= current or rng.random() < np.exp((current - value) * m / temperature):
            levels, current = candidate, value
    return time.perf_counter() - begun


def median_fit(model, P, y, repeats):
    """Median seconds of some fits, and the last fitted model."""
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        model.fit(P, y)
        seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds)), model


def compilation():
    """Print seconds of the first fit in a fresh process, without and with the cache on disk."""
    for solver in ("heat_bath", "metropolis", "exact"):
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            runs = [
                subprocess.run(
                    [sys.executable, "-c", FIRST_FIT.format(solver=solver)],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.split()
                for _ in range(2)
            ]
        cold, warm = (float(seconds) for _, seconds in runs)
        print(f"first fit, {solver:<10}  compiling {cold:6.2f} s   cached {warm:5.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--numpy-evaluations", type=int, default=1500)
    parser.add_argument("--time-limit", type=float, default=60.0, help="of the exact solver, seconds")
    options = parser.parse_args()
    warnings.simplefilter("error")
    paper = {}
    if TABLE_4.exists():
        with TABLE_4.open(newline="") as lines:
            paper = {row["dataset"]: float(row["time_s"]) for row in csv.DictReader(lines)}

    compilation()
    share = PAPER_EVALUATIONS / options.numpy_evaluations
    print(f"\nmedian of {options.repeats} fits; numpy: {options.numpy_evaluations} evaluations x {share:.1f}")
    print("gap: objective above the exact solver's (above the proven bound where that ended uncertified)\n")
    print(
        f"{'set':<9}{'M':>6}{'N':>4} | seconds{'heat':>7}{'metrop.':>9}{'exact':>9}{'numpy':>8}{'paper':>7} |"
        f" ratios{'numpy/heat':>11}{'paper/heat':>11}{'paper/exact':>12} |"
        f" gaps{'heat':>9}{'metrop.':>9}  certified"
    )
    for seed, (name, (n_rows, n_classes)) in enumerate(SETS.items()):
        P, y = drawn(n_rows, n_classes, seed)
        fits = {}
        for solver in ("heat_bath", "metropolis", "exact"):
            model = DNIP(solver=solver, time_limit_s=options.time_limit)
            repeats = 1 if solver == "exact" and n_classes > 8 else options.repeats
            fits[solver] = median_fit(model, P, y, repeats)
        plain = numpy_annealing(P, y, options.numpy_evaluations) * share
        heat, exact = fits["heat_bath"][0], fits["exact"][0]
        walk = fits["metropolis"][0]
        printed = paper.get(name, float("nan"))
        bound = fits["exact"][1].lower_bound_
        above = {solver: model.objective_ - bound for solver, (_, model) in fits.items()}
        print(
            f"{name:<9}{n_rows:>6}{n_classes:>4} |        {heat:>7.3f}{walk:>9.3f}{exact:>9.3f}"
            f"{plain:>8.1f}{printed:>7.0f} |       {plain / heat:>11.0f}{printed / heat:>11.0f}"
            f"{printed / exact:>12.0f} |     {above['heat_bath']:>9.5f}{above['metropolis']:>9.5f}"
            f"  {fits['exact'][1].certified_}",
            flush=True,
        )


if __name__ == "__main__":
    main()
