"""Flip rates and Wilson intervals against Table 2 of the position paper and cases worked out by hand."""

from decimal import ROUND_HALF_UP, Decimal
from math import isnan
from pathlib import Path

import pandas as pd
import pytest

from poise.metrics import flip_rate, wilson_interval

TABLE2 = Path(__file__).parents[2] / "data" / "reference" / "position" / "table2.csv"
MEASURES = ("p1", "p2", "p3", "noise", "total")
FLIPS = {  # of 200 rows
    "claude-haiku-4.5": (36, 48, 45, 10, 33),
    "claude-sonnet-4.5": (21, 36, 123, 0, 21),
    "gpt-5.4": (17, 36, 65, 10, 20),
    "gemini-3.1-flash-lite": (39, 49, 40, 12, 37),
    "gemini-3.1-pro": (28, 20, 27, 9, 26),
    "deepseek-v4-flash": (33, 60, 55, 26, 29),
    "deepseek-v4-pro": (36, 61, 68, 32, 42),
    "llama-4-maverick": (39, 66, 78, 12, 37),  # P3: 78 of 198
    "qwen3.7-plus": (34, 24, 35, 27, 31),
    "grok-4.3": (19, 58, 38, 15, 19),
}
CELLS = [(m, measure, k) for m, counts in FLIPS.items() for measure, k in zip(MEASURES, counts, strict=True)]
MAVERICK = ("llama-4-maverick", "p3")
# The cells that 200 rows and plain rounding do not give: two rows unparsed, and four slips of print.
SLIPS = {
    MAVERICK,
    ("gemini-3.1-flash-lite", "p3"),
    ("gemini-3.1-pro", "p3"),
    ("qwen3.7-plus", "noise"),
    ("deepseek-v4-flash", "total"),
}


def half_up(value, *digits):
    number = Decimal(value)
    for d in digits:
        number = number.quantize(Decimal(1).scaleb(-d), rounding=ROUND_HALF_UP)
    return str(number)


@pytest.fixture(scope="module")
def printed():
    table = pd.read_csv(TABLE2, dtype=str).set_index(["model", "measure"])
    assert len(table) == len(CELLS) == 50
    return table


@pytest.mark.parametrize(("model", "measure", "k"), CELLS)
def test_table_2_rounded_twice_as_printed(printed, model, measure, k):
    n = 198 if (model, measure) == MAVERICK else 200
    row = printed.loc[(model, measure)]
    assert half_up(k / n, 3) == row.pfr
    assert [half_up(x, 4, 3) for x in wilson_interval(k, n)] == [row.wilson_low, row.wilson_high]


def test_table_2_rounded_once_differs_in_five_cells(printed):
    differ = set()
    for model, measure, k in CELLS:
        row = printed.loc[(model, measure)]
        if [half_up(x, 3) for x in wilson_interval(k, 200)] != [row.wilson_low, row.wilson_high]:
            differ.add((model, measure))
    assert differ == SLIPS


def test_maverick_dropped_two_rows():
    before = [0] * 200
    after = [-1, -1] + [1] * 78 + [0] * 120
    found = flip_rate(before, after)
    assert (found.n_flips, found.n) == (78, 198)
    assert [half_up(x, 3) for x in (found.rate, found.low, found.high)] == ["0.394", "0.329", "0.463"]
    assert found.worst_case == pytest.approx(80 / 200)


def test_wilson_bounds_at_the_ends():
    low, high = wilson_interval(0, 200)
    assert low == pytest.approx(0, abs=1e-15)
    z2 = 1.959963984540054**2
    assert high == pytest.approx(z2 / (200 + z2))
    assert wilson_interval(200, 200) == pytest.approx((1 - high, 1))
    assert all(isnan(x) for x in wilson_interval(0, 0))
    assert wilson_interval(5, 20, confidence=0.5)[0] > wilson_interval(5, 20)[0]


@pytest.mark.parametrize(("k", "n", "confidence"), [(3, 2, 0.95), (-1, 2, 0.95), (0, -1, 0.95), (1, 2, 95)])
def test_wilson_refuses_impossible_input(k, n, confidence):
    with pytest.raises(ValueError, match="expected"):
        wilson_interval(k, n, confidence)


def test_constant_predictions_never_flip():
    found = flip_rate([2, 0, 1], [2, 0, 1], [2, 0, 1])
    assert (found.n_flips, found.n, found.rate, found.worst_case) == (0, 3, 0, 0)
    assert found.low == pytest.approx(0, abs=1e-15)
    assert found.high > 0.5


def test_opposite_predictions_always_flip():
    found = flip_rate([0, 1, 0, 1], [1, 0, 1, 0])
    assert (found.n_flips, found.n, found.rate, found.worst_case) == (4, 4, 1, 1)


def test_one_condition_that_differs_is_a_flip():
    found = flip_rate([0, 1, 2, 2], [0, 1, 2, 0], [0, 0, 2, 2])
    assert (found.n_flips, found.rate) == (2, 0.5)


def test_a_row_unparsed_anywhere_leaves_the_denominator():
    # rows: same, flip, unparsed first, unparsed last (though it flips before), unparsed throughout
    found = flip_rate([0, 0, -1, 0, -1], [0, 1, 0, 1, -1], [0, 1, 0, -1, -1])
    assert (found.n_flips, found.n, found.rate) == (1, 2, 0.5)
    assert found.worst_case == pytest.approx(4 / 5)


def test_another_mark_of_unparsed():
    assert flip_rate([0, 9], [1, 1], unparsed=9).n == 1
    assert flip_rate([0, 9], [1, 1]).n == 2


@pytest.mark.filterwarnings("error")
def test_nothing_parsed_has_no_rate():
    found = flip_rate([-1, 0], [0, -1])
    assert (found.n_flips, found.n, found.worst_case) == (0, 0, 1)
    assert all(isnan(x) for x in (found.rate, found.low, found.high))
    empty = flip_rate([], [])
    assert empty.n == 0
    assert isnan(empty.worst_case)


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        (([0, 1],), "found 1 array of predictions, expected at least two"),
        (([0, 1], [0, 1, 2]), "predictions 1 has 3 rows, expected 2"),
        (([0, 1], [0.0, 1.0]), "predictions 1 is float64"),
        (([[0, 1]], [[0, 1]]), r"predictions 0 is int64 of shape \(1, 2\)"),
    ],
)
def test_bad_predictions_get_one_clear_line(predictions, message):
    with pytest.raises(ValueError, match=message):
        flip_rate(*predictions)
