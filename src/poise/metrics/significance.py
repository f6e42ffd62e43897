"""Tests of paired binary outcomes (position paper, Section 3.4 and Table 2)."""

from math import erfc, sqrt

import numpy as np
from numpy.typing import ArrayLike


def mcnemar_one_sided(b: int, c: int) -> float:
    """Return the p-value of McNemar's test that the first of two paired outcomes is the more frequent.

    z = (b - c - 1) / sqrt(b + c) and p = 1 - Phi(z): one-sided, with continuity correction, the only usual
    variant that can give the paper's ten printed p-values. Without discordant rows p is 1.

    Parameters
    ----------
    b, c
        Rows with the first outcome only, and with the second only.

    Raises
    ------
    ValueError
        If a count is negative.
    """
    if b < 0 or c < 0:
        raise ValueError(f"found {b} and {c} discordant rows, expected counts of at least 0")
    if b + c == 0:
        return 1.0
    return erfc((b - c - 1) / sqrt(2 * (b + c))) / 2  # 1 - Phi(z), precise in the tail


def cochran_q(outcomes: ArrayLike) -> tuple[float, float]:
    """Return Cochran's Q, which tests whether k paired conditions succeed equally often, and its p-value.

    Parameters
    ----------
    outcomes
        Shape (n_rows, k) of 0 and 1 (or booleans), k >= 2.

    Returns
    -------
    Q and its chi-square p-value with k - 1 degrees of freedom; (0, 1) if all conditions agree on every row.

    Raises
    ------
    ValueError
        If ``outcomes`` has another shape or holds anything but 0 and 1.
    """
    table = np.asarray(outcomes)
    if table.ndim != 2 or table.shape[0] < 1 or table.shape[1] < 2:
        raise ValueError(f"outcomes has shape {table.shape}, expected (rows, two or more conditions)")
    if not np.isin(table, (0, 1)).all():
        raise ValueError("outcomes holds other values than 0 and 1, expected 1 for a success and 0 for a failure")
    if (table == table[:, :1]).all():
        return 0.0, 1.0
    from statsmodels.stats.contingency_tables import cochrans_q  # over a second to import

    result = cochrans_q(table)
    return float(result.statistic), float(result.pvalue)
