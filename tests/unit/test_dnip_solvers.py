"""Solvers: brute force is the judge of the exact one, which is the judge of the others."""

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest

from poise.methods import DNIP
from poise.methods.dnip import exact, heat_bath, metropolis
from poise.methods.dnip.objective import (
    BIASES,
    TERMS,
    Solution,
    bind,
    confusion_counts,
    evaluate,
    weighted_argmax,
)
from tests.unit.test_dnip_objective import skewed, slow_argmax, slow_z, tied


def problem(P, y, n_levels=30, **options):
    return np.ascontiguousarray(P.T), y, n_levels, bind(y, P.shape[1], **options)


def brute_force(P, y, n_levels, objective):
    """Least Z over all K^N points, by independent numpy predictions."""
    n, scores = P.shape[1], P.astype(np.float64)
    least = np.inf
    for levels in itertools.product(range(1, n_levels + 1), repeat=n):
        predicted = (scores * levels).argmax(axis=1)
        counts = np.bincount(y * n + predicted, minlength=n * n).reshape(n, n)
        least = min(least, evaluate(counts, objective))
    return least


def rng():
    return np.random.default_rng(1)


TWENTY = [
    (n, seed, {"signal": (1, 2, 3, 1.5)[seed % 4], "skew": (1, 2, 0.5, 3)[seed % 4]})
    for seed, n in enumerate([2, 3, 3, 4, 4, 4, 5, 5, 5, 5] * 2)
]


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("case", [skewed, tied])
def test_exact_and_heat_bath_reach_the_brute_force_optimum_at_k_30(n, case):
    P, y = case(120, n, seed=n)
    args = problem(P, y)
    least = brute_force(P, y, 30, args[3])
    for solution in (exact.solve(*args, rng()), heat_bath.solve(*args, rng())):
        assert solution.value == least
        assert slow_z(y, slow_argmax(P, solution.levels), n) == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize("bias", BIASES)
def test_exact_equals_brute_force_from_the_worst_start(bias):
    # no help from the heat bath: the search itself must find and prove the optimum
    subsets = [t for k in (1, 2, 3) for t in itertools.combinations(TERMS, k)]
    for seed in range(28):
        n, n_levels = 2 + seed % 3, 5
        P, y = (skewed, tied)[seed % 2](25, n, seed)
        if seed % 5 == 0:
            y[y == 0] = 1
        mu, beta = (4000.0, 0.5)[seed % 2], seed / 9
        columns, _, _, objective = problem(P, y, bias=bias, mu=mu, beta=beta, tau=1.0, terms=subsets[seed % 7])
        tree = exact._root(columns, n_levels, Solution(np.full(n, n_levels), np.inf, 0))
        assert exact.explore(P, y, tree, n_levels, objective, 10**9)
        assert tree.value[0] == pytest.approx(brute_force(P, y, n_levels, objective), abs=1e-11)
        counts = confusion_counts(y, weighted_argmax(columns, tree.best), n)
        assert evaluate(counts, objective) == tree.value[0]


@pytest.mark.parametrize("bias", BIASES)
def test_bounds_hold_for_points_drawn_from_boxes(bias):
    draw = np.random.default_rng(5)
    for seed in range(30):
        n = 2 + seed % 4
        P, y = (skewed, tied)[seed % 2](80, n, seed)
        if seed % 6 == 0:
            y[y == 0] = 1
        columns, _, _, objective = problem(P, y, bias=bias, mu=(4000.0, 0.5)[seed % 2])
        low = draw.integers(1, 25, n)
        high = low + draw.integers(0, 8, n)
        tree = exact._root(columns, 33, Solution(low, np.inf, 0))
        possible = exact._settle(P, y, tree, 1, low, high)
        bound = exact.lower_bound(tree.settled[1], possible, objective)
        for _ in range(40):
            levels = draw.integers(low, high + 1)
            z = evaluate(confusion_counts(y, weighted_argmax(columns, levels), n), objective)
            assert bound <= z + 1e-12


def test_heat_bath_is_optimal_on_at_least_19_of_20_and_never_above_metropolis():
    optimal = 0
    for n, seed, shape in TWENTY:
        args = problem(*skewed(700, n, seed, **shape))
        best = exact.solve(*args, rng())
        found = heat_bath.solve(*args, rng())
        assert best.certified
        assert best.lower_bound == best.value
        assert found.value >= best.value - 1e-12
        optimal += found.value <= best.value + 1e-12
        assert found.value <= metropolis.solve(*args, rng()).value
    assert optimal >= 19


@pytest.mark.parametrize("seed", range(3))
def test_heat_bath_is_not_above_metropolis_at_14_classes(seed):
    args = problem(*skewed(1500, 14, seed))
    assert heat_bath.solve(*args, rng()).value <= metropolis.solve(*args, rng()).value


@pytest.mark.parametrize("bias", BIASES)
def test_heat_bath_ends_in_a_local_optimum_no_worse_than_equal_weights(bias):
    P, y = skewed(400, 6, 3)
    args = problem(P, y, bias=bias)
    solution = heat_bath.solve(*args, rng(), n_restarts=1)
    assert solution.value <= slow_z(y, slow_argmax(P, [1] * 6), 6, bias=bias) + 1e-12
    for target, k in itertools.product(range(6), range(1, 31)):
        levels = solution.levels.copy()
        levels[target] = k
        assert evaluate(confusion_counts(y, weighted_argmax(args[0], levels), 6), args[3]) >= solution.value


def test_the_first_restart_begins_without_correction(monkeypatch):
    starts = []
    anneal = heat_bath.anneal

    def spy(columns, y, levels, *rest):
        starts.append(levels.tolist())
        return anneal(columns, y, levels, *rest)

    monkeypatch.setattr(heat_bath, "anneal", spy)
    heat_bath.solve(*problem(*skewed(100, 4, 0)), rng())
    assert starts[0] == [30] * 4
    assert len({tuple(start) for start in starts}) == 64


def test_fewer_rows_get_more_restarts(monkeypatch):
    counts = []
    for n_rows in (500, 2000, 9500):
        starts = []
        monkeypatch.setattr(heat_bath, "anneal", lambda *args, seen=starts: (seen.append(1), (args[2], 0.0, 1))[1])
        heat_bath.solve(*problem(*skewed(n_rows, 3, 0)), rng())
        counts.append(len(starts))
    assert counts == [64, 40, 8]


def test_more_restarts_never_hurt_and_are_counted():
    args = problem(*skewed(500, 10, 4))
    one, six = (heat_bath.solve(*args, rng(), n_restarts=r) for r in (1, 6))
    assert six.value <= one.value
    assert six.evaluations > 5 * one.evaluations / 2
    assert one.evaluations % 30 == 0


def test_an_exhausted_time_limit_gives_the_best_found_uncertified():
    args = problem(*skewed(1500, 12, 0))
    solution = exact.solve(*args, rng(), time_limit_s=0)
    assert not solution.certified
    assert solution.lower_bound < solution.value
    assert solution.value <= heat_bath.solve(*args, rng()).value


def test_interrupted_search_goes_on_where_it_stopped():
    P, y = skewed(500, 4, 2)
    columns, _, _, objective = problem(P, y)
    start = Solution(np.full(4, 30), np.inf, 0)
    whole, parts = exact._root(columns, 30, start), exact._root(columns, 30, start)
    assert exact.explore(P, y, whole, 30, objective, 10**9)
    slices = 1
    while not exact.explore(P, y, parts, 30, objective, 2000):
        slices += 1
    assert slices > 3
    assert parts.value[0] == whole.value[0]
    assert parts.counters.tolist() == whole.counters.tolist()


def test_metropolis_follows_algorithm_1():
    args = problem(*skewed(300, 4, 0))
    solution = metropolis.solve(*args, rng())
    curves = solution.history
    temperature, current, best = curves["temperature"], curves["objective"], curves["best"]
    assert len(np.unique(temperature)) == 135
    assert temperature[0] == 200_000
    assert temperature[-1] >= 200
    assert temperature[-1] * 0.95 < 200
    assert solution.evaluations == len(current) <= 135 * 300
    assert np.all(np.diff(best) <= 0)
    assert best[-1] == solution.value
    _, per_temperature = np.unique(temperature, return_counts=True)
    assert per_temperature.max() <= 300
    assert per_temperature.min() >= 150
    assert metropolis.solve(*args, rng(), limits="dcs").evaluations <= 135 * 6
    assert metropolis.solve(*args, rng(), limits=(1, 1)).evaluations == 135


def walk_at(temperature, accept_draw, steps=400):
    """A walk at one temperature whose acceptance draws are all the same number."""
    columns, y, n_levels, objective = problem(*skewed(300, 4, 0))
    draws = np.random.default_rng(0).random((steps, 3))
    draws[:, 2] = accept_draw
    start = np.full(4, n_levels)
    limits = (steps + 1, steps)
    *_, curves = metropolis.walk(columns, y, start, n_levels, objective, *limits, np.array([temperature]), draws)
    return np.diff(curves[0])


def test_worse_moves_are_accepted_with_a_probability_below_one():
    assert (walk_at(100.0, 0.0) > 0).any()  # draw 0: every worse move is taken
    assert not (walk_at(100.0, 1 - 1e-16) > 0).any()  # draw just below 1: none of any size
    uphill = walk_at(100.0, 0.5)  # draw 1/2: those with M dZ < T log 2
    assert (uphill > 0).any()
    assert uphill.max() * 300 < 100.0 * np.log(2)
    assert walk_at(100.0, 0.0).max() * 300 > 100.0 * np.log(2)


def test_metropolis_always_proposes_another_level():
    columns, y, _, objective = problem(*skewed(300, 2, 0))
    draws = np.array([[0.0, 0.0, 0.0]] * 4)  # class 0, the first other level, accepted: with K = 2, a flip
    for start in ([1, 2], [2, 2]):
        limits = (5, 4)
        *_, curves = metropolis.walk(columns, y, np.array(start), 2, objective, *limits, np.ones(1), draws)
        assert np.all(np.diff(curves[0]) != 0)


@pytest.mark.parametrize("solver", [heat_bath.solve, metropolis.solve, exact.solve])
def test_solvers_are_deterministic_for_a_seed(solver):
    args = problem(*skewed(300, 5, 1))
    first, second = solver(*args, rng()), solver(*args, rng())
    assert first.levels.tolist() == second.levels.tolist()
    assert first.evaluations == second.evaluations
    for name, curve in first.history.items():
        assert np.array_equal(curve, second.history[name])


def test_metropolis_depends_on_its_seed():
    args = problem(*skewed(300, 5, 1))
    first, second = (metropolis.solve(*args, np.random.default_rng(s)) for s in (1, 2))
    assert not np.array_equal(first.history["objective"][:50], second.history["objective"][:50])


def test_reversed_columns_have_the_same_optimum_when_no_scores_tie():
    for seed in range(3):
        P, y = skewed(400, 4, seed)
        forward = exact.solve(*problem(P, y), rng())
        backward = exact.solve(*problem(P[:, ::-1].copy(), 3 - y), rng())
        assert backward.value == pytest.approx(forward.value, abs=1e-12)


def test_machine_code_is_kept_apart_for_each_version_of_the_source() -> None:
    import numba

    from poise.methods.dnip import compiled

    folder = Path(compiled.__file__).parent
    DNIP().fit(np.array([[0.6, 0.4], [0.3, 0.7]]), [0, 1])
    state = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.py"))))
    assert Path(numba.config.CACHE_DIR).name == f"numba-{state.hexdigest()[:12]}"
    assert list(Path(numba.config.CACHE_DIR).rglob("*.nbi"))
