"""COBias by chance: the floor against exact enumeration, the bootstrap against resampling rows one by one."""

from itertools import product
from math import comb

import numpy as np
import pytest

from poise import metrics


def exact_floor(n1, n2, p):
    def pmf(k, n):
        return comb(n, k) * p**k * (1 - p) ** (n - k)

    return sum(pmf(i, n1) * pmf(j, n2) * abs(i / n1 - j / n2) for i, j in product(range(n1 + 1), range(n2 + 1)))


def test_sampling_floor_is_the_exact_expectation():
    two = metrics.cobias_sampling_floor([5, 12], 0.7, n_draws=200_000)
    assert two == pytest.approx(exact_floor(5, 12, 0.7), abs=2e-3)
    three = metrics.cobias_sampling_floor([5, 0, 12, 30], 0.7, n_draws=200_000)
    pairs = [exact_floor(5, 12, 0.7), exact_floor(5, 30, 0.7), exact_floor(12, 30, 0.7)]
    assert three == pytest.approx(np.mean(pairs), abs=2e-3)


def test_sampling_floor_is_zero_without_chance_and_repeats_itself():
    assert metrics.cobias_sampling_floor([3, 4, 5], 1.0) == 0
    floor = metrics.cobias_sampling_floor([30, 40], 0.6)
    assert floor == metrics.cobias_sampling_floor([30, 40], 0.6)
    assert floor != metrics.cobias_sampling_floor([30, 40], 0.6, random_state=1)


@pytest.mark.parametrize(("counts", "accuracy", "n_draws"), [([5, -1], 0.5, 10), ([5, 5], 50, 10), ([5, 5], 0.5, 0)])
def test_sampling_floor_refuses_impossible_input(counts, accuracy, n_draws):
    with pytest.raises(ValueError, match="expected"):
        metrics.cobias_sampling_floor(counts, accuracy, n_draws)


@pytest.fixture
def two_methods():
    """Two correlated predictors on 250 rows, with a class so rare that it vanishes from some resamples."""
    rng = np.random.default_rng(3)
    y_true = np.repeat([0, 1, 2, 3], [120, 80, 48, 2])
    first = np.where(rng.random(250) < np.array([0.9, 0.6, 0.3, 0.5])[y_true], y_true, rng.integers(-1, 4, 250))
    second = np.where(rng.random(250) < 0.3, y_true, first)
    return y_true, first, second


def ends(interval):
    return [interval.low, interval.high]


def test_bootstrap_agrees_with_resampling_rows(two_methods):
    y_true, first, second = two_methods
    rng = np.random.default_rng(17)
    samples, vanished = [], 0
    for _ in range(6000):
        i = rng.integers(0, 250, 250)
        vanished += 3 not in y_true[i]
        samples.append([metrics.cobias(y_true[i], y_pred[i], 4) for y_pred in (first, second)])
    first_sample, second_sample = np.transpose(samples)
    assert vanished > 500

    found = metrics.cobias_bootstrap(y_true, first, second, n_resamples=6000, confidence=0.9)
    for interval, sample in zip(
        [*found.intervals, *found.differences],
        [first_sample, second_sample, second_sample - first_sample],
        strict=True,
    ):
        assert ends(interval) == pytest.approx(np.quantile(sample, [0.05, 0.95]), abs=0.005)


def test_bootstrap_is_paired(two_methods):
    y_true, first, second = two_methods
    same = metrics.cobias_bootstrap(y_true, first, first)
    assert same.intervals[0] == same.intervals[1]
    assert ends(same.differences[0]) == [0, 0]
    assert same.intervals[0].low < same.intervals[0].high

    paired = metrics.cobias_bootstrap(y_true, first, second)
    width = {
        kind: np.diff(ends(x)).item() for kind, x in zip("12d", [*paired.intervals, *paired.differences], strict=True)
    }
    assert width["d"] < 0.9 * np.hypot(width["1"], width["2"])  # what independent resamples would give


def test_bootstrap_of_one_or_three_predictions(two_methods):
    y_true, first, second = two_methods
    assert metrics.cobias_bootstrap(y_true, first).differences == ()
    three = metrics.cobias_bootstrap(y_true, first, second, first)
    assert three.intervals[0] == three.intervals[2]
    assert ends(three.differences[1]) == [0, 0]
    assert three.differences[0].high != 0


def test_bootstrap_repeats_itself_and_follows_its_settings(two_methods):
    y_true, first, _ = two_methods
    one = metrics.cobias_bootstrap(y_true, first)
    assert one == metrics.cobias_bootstrap(y_true, first)
    assert one != metrics.cobias_bootstrap(y_true, first, random_state=1)
    narrow = metrics.cobias_bootstrap(y_true, first, confidence=0.5).intervals[0]
    assert one.intervals[0].low < narrow.low < narrow.high < one.intervals[0].high


def test_bootstrap_refuses_impossible_input():
    with pytest.raises(ValueError, match="no predictions"):
        metrics.cobias_bootstrap([0, 1])
    with pytest.raises(ValueError, match="confidence is 95"):
        metrics.cobias_bootstrap([0, 1], [0, 1], confidence=95)
    with pytest.raises(ValueError, match="n_resamples is 0"):
        metrics.cobias_bootstrap([0, 1], [0, 1], n_resamples=0)
    with pytest.raises(ValueError, match="y_pred has 1 rows"):
        metrics.cobias_bootstrap([0, 1], [0, 1], [0])
