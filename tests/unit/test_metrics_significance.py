"""McNemar's test against Table 2 of the position paper, Cochran's Q against a table worked out by hand."""

from math import exp
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from poise.metrics import cochran_q, mcnemar_one_sided

TABLE2 = Path(__file__).parents[2] / "data" / "reference" / "position" / "table2.csv"
PAIRS = {  # (flips of the total only, of the noise only): the one pair that gives the printed p
    "gpt-5.4": (15, 5),
    "deepseek-v4-flash": (13, 10),
    "deepseek-v4-pro": (23, 13),
    "qwen3.7-plus": (18, 14),
    "grok-4.3": (11, 7),
}


@pytest.fixture(scope="module")
def table():
    return pd.read_csv(TABLE2, dtype={"mcnemar_p": str}).set_index(["model", "measure"])


@pytest.mark.parametrize("model", PAIRS)
def test_printed_p_of_the_implied_pairs(table, model):
    row, p = table.loc[(model, "total")], mcnemar_one_sided(*PAIRS[model])
    assert row.mcnemar_p_relation == "="
    assert f"{p:.3f}" == row.mcnemar_p
    assert (p < 0.05) == (row.significant == "yes")


def test_every_printed_p_is_possible_given_the_flip_counts(table):
    for model in table.index.unique("model"):
        row = table.loc[(model, "total")]
        total, noise = (round(200 * table.loc[(model, measure)].pfr) for measure in ("total", "noise"))
        p_values = [mcnemar_one_sided(total - both, noise - both) for both in range(noise + 1)]
        if row.mcnemar_p_relation == "<":
            assert max(p_values) < float(row.mcnemar_p), model  # whatever the overlap
        else:
            assert row.mcnemar_p in [f"{p:.3f}" for p in p_values], model


def test_mcnemar_is_one_sided_and_signed():
    assert mcnemar_one_sided(15, 5) == pytest.approx(norm.sf(9 / 20**0.5))
    assert mcnemar_one_sided(5, 15) == pytest.approx(norm.sf(-11 / 20**0.5))  # not |b - c|
    assert mcnemar_one_sided(8, 7) == 0.5
    assert mcnemar_one_sided(0, 0) == 1
    assert mcnemar_one_sided(400, 0) == pytest.approx(norm.sf(399 / 20), rel=1e-9)  # no cancellation to 0


@pytest.mark.parametrize(("b", "c"), [(-1, 2), (2, -1)])
def test_mcnemar_refuses_negative_counts(b, c):
    with pytest.raises(ValueError, match="at least 0"):
        mcnemar_one_sided(b, c)


def test_cochran_q_by_hand():
    # Successes: columns 6, 2, 3; rows 3, 2, 2, 1, 1, 1, 1, 0; in all 11.
    # Q = 2 (3 (36 + 4 + 9) - 121) / (3 * 11 - (9 + 4 + 4 + 1 + 1 + 1 + 1)) = 52 / 12.
    # With 2 degrees of freedom p = exp(-Q / 2).
    outcomes = [[1, 1, 1], [1, 1, 0], [1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]]
    q, p = cochran_q(outcomes)
    assert q == pytest.approx(52 / 12)
    assert p == pytest.approx(exp(-26 / 12))
    assert cochran_q(np.array(outcomes, dtype=bool)) == (q, p)


def test_cochran_q_of_two_columns_is_mcnemars_chi_square():
    outcomes = [[1, 0]] * 9 + [[0, 1]] * 4 + [[1, 1]] * 5 + [[0, 0]] * 2
    assert cochran_q(outcomes)[0] == pytest.approx((9 - 4) ** 2 / (9 + 4))


@pytest.mark.parametrize("column", [[0, 0, 0], [1, 1, 1], [0, 1, 1]])
def test_cochran_q_of_identical_columns(column):
    assert cochran_q(np.column_stack([column] * 3)) == (0, 1)


def test_cochran_q_of_equal_totals_is_zero():
    q, p = cochran_q([[1, 0], [0, 1]])
    assert q == pytest.approx(0)
    assert p == pytest.approx(1)


@pytest.mark.parametrize("outcomes", [[0, 1], [[0], [1]], [[0, 2]], [[0, -1]], np.zeros((0, 3))])
def test_cochran_q_refuses_other_tables(outcomes):
    with pytest.raises(ValueError, match="expected"):
        cochran_q(outcomes)
