"""The objective against a plain transcription of the paper, and the sweep against naive re-evaluation."""

import itertools
import math

import numpy as np
import pytest

from poise.methods.dnip.objective import BIASES, TERMS, bind, confusion_counts, evaluate, weighted_argmax
from poise.methods.dnip.sweep import first_win, sweep


def skewed(n_rows, n_classes, seed, signal=1.5, skew=1.5, temperature=1.0):
    """LLM-like probabilities: class priors, a confusion structure and a strong bias to some classes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(n_classes, n_rows, p=rng.dirichlet(np.full(n_classes, 3.0)))
    logits = rng.normal(size=(n_rows, n_classes)) + rng.normal(0, 0.6, (n_classes, n_classes))[y]
    logits[np.arange(n_rows), y] += signal * rng.gamma(2, 0.5, n_rows)
    logits = (logits + rng.normal(0, skew, n_classes)) * temperature
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (P / P.sum(axis=1, keepdims=True)).astype(np.float32), y.astype(np.int64)


def tied(n_rows, n_classes, seed):
    """Few distinct values, zeros and denormals: exact ties everywhere."""
    rng = np.random.default_rng(seed)
    values = np.array([0, 0, 0.1, 0.2, 0.3, 0.5, 1e-45, 3e-45, 1e-40, 1.0], dtype=np.float32)
    P = values[rng.integers(0, len(values), (n_rows, n_classes))]
    P[~P.any(axis=1)] = 1
    return P, rng.integers(0, n_classes, n_rows).astype(np.int64)


def slow_argmax(P, levels):
    """Exact rational arithmetic would agree: a level times a float32 fits into a Python float."""
    scores = [[int(level) * float(p) for level, p in zip(levels, row, strict=True)] for row in P]
    return [row.index(max(row)) for row in scores]


def slow_z(y, predicted, n, bias="cobias", beta=2.7, tau=0.2, mu=4000.0, terms=TERMS):
    """Eq. 1-7, 11 and 12, term by term over the rows."""
    y, predicted, m = list(map(int, y)), list(map(int, predicted)), len(y)
    rows = list(zip(y, predicted, strict=True))
    error = sum(t != p for t, p in rows) / m
    present = [c for c in range(n) if c in y]
    accuracy = {c: sum(t == p == c for t, p in rows) / y.count(c) for c in present}
    if bias == "cobias":
        gaps = [abs(accuracy[i] - accuracy[j]) for i, j in itertools.combinations(present, 2)]
        imbalance = sum(gaps) / len(gaps) if gaps else 0.0
    else:
        parts = []
        for i in present:
            rivals = [j for j in range(n) if j != i and (bias == "odd_rate" or j in present)]
            wrong = {j: sum((t, p) == (i, j) for t, p in rows) for j in rivals}
            odd = max(rivals, key=lambda j: (wrong[j], -j)) if rivals else None
            if odd is None or wrong[odd] == 0:
                parts.append(0.0)
            elif bias == "cobias_single":
                parts.append(abs(accuracy[odd] - accuracy[i]))
            else:
                parts.append(wrong[odd] / y.count(i))
        imbalance = sum(parts) / len(parts)
    pmi = 0.0
    for j in range(n):
        both = (sum(t == p == j for t, p in rows) + mu) / (m + mu * n * n)
        pmi += math.log(both / ((predicted.count(j) + mu) / (m + mu * n) * (y.count(j) + mu) / (m + mu * n)))
    if len(terms) == 1:
        beta = tau = 1.0
    return (
        (error if "error" in terms else 0)
        + (beta * imbalance if "bias" in terms else 0)
        - (tau * pmi if "pmi" in terms else 0)
    )


ABLATIONS = [t for k in (1, 2, 3) for t in itertools.combinations(TERMS, k)]


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("terms", ABLATIONS, ids="-".join)
def test_objective_is_the_papers(bias, terms):
    for seed, (n, mu) in enumerate([(2, 4000.0), (3, 1.0), (5, 0.01), (7, 100.0)]):
        rng = np.random.default_rng(seed)
        y, predicted = rng.integers(0, n, (2, 60))
        if seed == 2:
            y[y == 1] = 0  # an absent class, still predicted
        options = {"bias": bias, "beta": 1.3, "tau": 0.7, "mu": mu, "terms": terms}
        z = evaluate(confusion_counts(y, predicted, n), bind(y, n, **options))
        assert z == pytest.approx(slow_z(y, predicted, n, **options), abs=1e-12)


def test_odd_class_ties_go_to_the_lowest_index_and_no_errors_mean_no_odd_class():
    confusion = np.array([[4, 0, 0], [1, 2, 1], [0, 1, 3]])  # odd of class 1: class 0, not class 2
    objective = bind(np.repeat([0, 1, 2], 4), 3, bias="cobias_single", terms=("bias",))
    assert evaluate(confusion, objective) == pytest.approx((0 + 0.5 + 0.25) / 3)


def test_cobias_of_the_papers_table_1():
    # Tables 1 and 2: the printed confusion counts before and after correction
    after = np.array([[1100, 50, 67, 69], [16, 1240, 11, 3], [44, 2, 1028, 130], [55, 7, 138, 1040]])
    objective = bind(np.repeat(np.arange(4), after.sum(axis=1)), 4, terms=("bias",))
    accuracy = after.diagonal() / after.sum(axis=1)
    pairs = [abs(a - b) for a, b in itertools.combinations(accuracy, 2)]
    assert evaluate(after, objective) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": "gini"}, "objective must be one of"),
        ({"terms": ()}, "terms must be"),
        ({"terms": ("error", "z9")}, "terms must be"),
        ({"terms": "error"}, "terms must be"),
        ({"beta": -1.0}, "beta must be"),
        ({"tau": math.nan}, "tau must be"),
        ({"mu": 0.0}, "mu must be"),
    ],
)
def test_bad_objectives_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bind(np.array([0, 1]), 2, **options)


@pytest.mark.parametrize("case", [tied, skewed])
def test_weighted_argmax_is_exact_with_ties_to_the_lowest(case):
    for seed in range(5):
        P, _ = case(200, 6, seed)
        levels = np.random.default_rng(seed).integers(1, 31, 6)
        assert weighted_argmax(np.ascontiguousarray(P.T), levels).tolist() == slow_argmax(P, levels)


def test_a_near_tie_that_float32_products_would_lose():
    candidates = np.linspace(0.1, 0.3, 50, dtype=np.float32)
    p = next(p for p in candidates if float(np.float32(3) * p) < 3 * float(p))
    columns = np.array([[np.float32(3) * p], [p]])
    assert np.float32(1) * columns[0, 0] == np.float32(3) * columns[1, 0]  # in float32, a tie for class 0
    assert weighted_argmax(columns, np.array([1, 3]))[0] == 1
    assert weighted_argmax(np.array([[p], [p]]), np.array([7, 7]))[0] == 0


def test_first_win_agrees_with_the_comparison_at_every_level():
    rng = np.random.default_rng(0)
    for trial in range(3000):
        n_levels = (30, 7, 4096)[trial % 3]
        p = float(np.float32(rng.choice([rng.random(), 1e-45, 0.1, 0.5])))
        rival = int(rng.integers(1, n_levels + 1))
        q = p if trial % 2 else float(np.float32(rng.random()))
        index, other = rng.permutation(4)[:2]
        wins_at = [k for k in range(1, n_levels + 1) if k * p > rival * q or (k * p == rival * q and index < other)]
        expected = wins_at[0] if wins_at else n_levels + 1
        assert first_win(p, index, rival * q, other, n_levels) == expected


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize(("case", "n_rows"), [(tied, 150), (skewed, 1100)])
def test_sweep_equals_naive_reevaluation_of_every_level(case, n_rows, bias):
    for seed, n in enumerate((2, 3, 5, 8)):
        P, y = case(n_rows, n, seed)
        columns = np.ascontiguousarray(P.T)
        objective = bind(y, n, bias=bias, mu=5.0)
        levels = np.random.default_rng(seed).integers(1, 13, n)
        for target in range(n):
            values = sweep(columns, y, levels, target, 12, objective)
            for k in range(1, 13):
                moved = levels.copy()
                moved[target] = k
                naive = evaluate(confusion_counts(y, weighted_argmax(columns, moved), n), objective)
                assert values[k - 1] == naive  # same counts, so the same bits
