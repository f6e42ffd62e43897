"""Positional instability: the prediction flip rate and its interval (position paper, Section 3, Table 2)."""

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import ArrayLike

from poise.metrics._labels import UNPARSED


@dataclass(frozen=True, slots=True)
class FlipRate:
    """A prediction flip rate (PFR) with its Wilson 95 % interval; the rates are fractions.

    Attributes
    ----------
    n_flips, n
        Rows that flip, and rows that every condition could parse.
    rate, low, high
        ``n_flips / n`` and its interval; NaN if ``n`` is 0.
    worst_case
        The rate over all rows if every row left out had flipped; NaN without rows.
    """

    n_flips: int
    n: int
    rate: float
    low: float
    high: float
    worst_case: float


def flip_rate(*predictions: ArrayLike, unparsed: int = UNPARSED) -> FlipRate:
    """Return the share of rows whose prediction differs between conditions.

    A row flips if any condition differs from the first. A row that is unparsed under any condition leaves
    numerator and denominator alike (the paper's 78/198 in Table 2) and returns in ``worst_case``.

    Parameters
    ----------
    *predictions
        Two arrays or more of integers, shape (n_rows,), one a condition, all in terms of the same classes:
        answers to reversed labels are mapped back before.
    unparsed
        The value that marks an unparsed row.

    Raises
    ------
    ValueError
        If there are fewer than two arrays, or they are not integers of one length.
    """
    if len(predictions) < 2:
        raise ValueError(f"found {len(predictions)} array of predictions, expected at least two to compare")
    arrays = [np.asarray(values) for values in predictions]
    for i, array in enumerate(arrays):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(f"predictions {i} is {array.dtype} of shape {array.shape}, expected one integer a row")
        if len(array) != len(arrays[0]):
            raise ValueError(f"predictions {i} has {len(array)} rows, expected {len(arrays[0])} as in predictions 0")
    table = np.stack(arrays)
    parsed = (table != unparsed).all(axis=0)
    n_flips, n, n_rows = int((table != table[0]).any(axis=0)[parsed].sum()), int(parsed.sum()), len(parsed)
    low, high = wilson_interval(n_flips, n)
    return FlipRate(
        n_flips=n_flips,
        n=n,
        rate=n_flips / n if n else nan,
        low=low,
        high=high,
        worst_case=(n_flips + n_rows - n) / n_rows if n_rows else nan,
    )


def wilson_interval(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval (no continuity correction) of the proportion k / n; NaNs if n is 0.

    Raises
    ------
    ValueError
        If not 0 <= k <= n, or ``confidence`` is outside (0, 1).
    """
    if not 0 <= k <= n:
        raise ValueError(f"found {k} of {n}, expected a count from 0 to {n}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence:g}, expected a fraction in (0, 1)")
    if n == 0:
        return nan, nan
    from statsmodels.stats.proportion import proportion_confint  # over a second to import

    low, high = proportion_confint(k, n, alpha=1 - confidence, method="wilson")
    return float(low), float(high)
