"""How much of a COBias is chance: its sampling floor, and paired bootstrap intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from poise.metrics._labels import FloatArray, label_pair
from poise.metrics.imbalance import mean_pairwise_gap, ratio


@dataclass(frozen=True, slots=True)
class Interval:
    """The two ends of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CobiasBootstrap:
    """Percentile intervals of COBias, as fractions.

    Attributes
    ----------
    intervals
        One for each array of predictions, in the order given.
    differences
        Of COBias minus that of the first array, for the second array onwards (empty for a single array).
    """

    intervals: tuple[Interval, ...]
    differences: tuple[Interval, ...]


def cobias_sampling_floor(
    class_counts: ArrayLike, accuracy: float, n_draws: int = 10_000, random_state: int = 0
) -> float:
    """Return the mean COBias of a classifier that is equally accurate on every class.

    COBias is a mean of absolute differences, so chance alone keeps it above 0: this is how far, with the
    correct answers of each class drawn from a binomial distribution.

    Parameters
    ----------
    class_counts
        Rows of each class, shape (N,); a class with 0 rows is left out.
    accuracy
        The true accuracy of every class, in [0, 1].
    n_draws
        Simulated test sets.
    random_state
        Seed of the draws.

    Raises
    ------
    ValueError
        If a count is negative or no integer, ``accuracy`` is outside [0, 1], or ``n_draws`` is below 1.
    """
    counts = np.asarray(class_counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise ValueError(f"class_counts is {class_counts!r}, expected one count of at least 0 a class")
    if not 0 <= accuracy <= 1:
        raise ValueError(f"accuracy is {accuracy:g}, expected a fraction in [0, 1]")
    _check_draws("n_draws", n_draws)
    correct = np.random.default_rng(random_state).binomial(counts, accuracy, size=(n_draws, len(counts)))
    return float(mean_pairwise_gap(ratio(correct, np.broadcast_to(counts, correct.shape))).mean())


def cobias_bootstrap(
    y_true: ArrayLike,
    *predictions: ArrayLike,
    n_classes: int | None = None,
    n_resamples: int = 2000,
    confidence: float = 0.95,
    random_state: int = 0,
) -> CobiasBootstrap:
    """Return paired bootstrap intervals of COBias: every array is judged on the same resampled rows.

    COBias depends on a row through its class and which predictions are right, so resampling rows is a
    multinomial draw over the distinct combinations of these: the same distribution, at a cost that hardly
    grows with the rows.

    Parameters
    ----------
    y_true
        Class indices, shape (M,).
    *predictions
        One array or more of shape (M,), -1 for unparsed.
    n_classes
        N; by default the highest index plus one.
    n_resamples
        Bootstrap samples. A class that vanishes from a sample is left out of its COBias.
    confidence
        Coverage of the percentile intervals, in (0, 1).
    random_state
        Seed of the draws.

    Raises
    ------
    ValueError
        If there are no predictions, an array does not match ``y_true``, or a number is out of range.
    """
    if not predictions:
        raise ValueError("found no predictions, expected at least one array")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence:g}, expected a fraction in (0, 1)")
    _check_draws("n_resamples", n_resamples)
    pairs = [label_pair(y_true, y_pred, n_classes) for y_pred in predictions]
    true = pairs[0][0]

    rows = np.column_stack([true, *(pred == true for _, pred, _ in pairs)])
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    draws = np.random.default_rng(random_state).multinomial(len(true), counts / len(true), size=n_resamples)

    in_class = (kinds[:, :1] == np.arange(true.max() + 1)).astype(np.intp)
    totals = draws @ in_class
    samples = [mean_pairwise_gap(ratio(draws @ (in_class * right[:, np.newaxis]), totals)) for right in kinds.T[1:]]
    return CobiasBootstrap(
        intervals=tuple(_percentile_interval(sample, confidence) for sample in samples),
        differences=tuple(_percentile_interval(sample - samples[0], confidence) for sample in samples[1:]),
    )


def _percentile_interval(sample: FloatArray, confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(sample, [tail, 1 - tail])
    return Interval(float(low), float(high))


def _check_draws(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}, expected at least 1")
