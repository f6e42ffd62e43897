"""Averages of labels by hand: a half is rounded on the scale 1..M, and an unparsed answer stays unparsed."""

import numpy as np
import pytest

from poise.methods import ROUNDING, average_labels, round_labels


def test_halves_go_to_the_even_label_or_up():
    halves = [1.5, 2.5, 3.5, 4.5]
    assert round_labels(halves).tolist() == [2, 2, 4, 4]
    assert round_labels(halves, "half_up").tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("rounding", ROUNDING)
def test_only_halves_depend_on_the_rounding(rounding):
    just_below = np.nextafter(2.5, 0)
    assert round_labels([[1, 2.4], [just_below, 2.6]], rounding).tolist() == [[1, 2], [2, 3]]


@pytest.mark.parametrize("rounding", ROUNDING)
def test_every_mean_of_up_to_forty_labels_rounds_as_the_fraction_does(rounding):
    for n in range(1, 41):
        for total in range(n, 5 * n + 1):
            whole, rest = divmod(total, n)
            up = 2 * rest > n or (2 * rest == n and (rounding == "half_up" or whole % 2 == 1))
            assert round_labels(total / n, rounding) == whole + up


# labels 1..5 of the pairs: (1,2) 1.5, (2,3) 2.5, (3,4) 3.5, (4,5) 4.5, (1,5) 3, (5,2) 3.5, (3,3) 3, (1,4) 2.5
FIRST, SECOND = [0, 1, 2, 3, 0, 4, 2, 0], [1, 2, 3, 4, 4, 1, 2, 3]


def test_two_predictions_are_averaged_on_labels_from_one():
    assert average_labels(FIRST, SECOND).tolist() == [1, 1, 3, 3, 2, 3, 2, 1]
    assert average_labels(FIRST, SECOND, "half_up").tolist() == [1, 2, 3, 4, 2, 3, 2, 2]
    assert average_labels(SECOND, FIRST).tolist() == average_labels(FIRST, SECOND).tolist()


def test_a_row_unparsed_in_either_is_unparsed():
    assert average_labels([-1, 3, -1, 2], [2, -1, -1, 2]).tolist() == [-1, -1, -1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0]), "second has 1 rows, expected 2"),
        (([], []), "first is float64"),
        (([0.5], [1]), "first is float64"),
        (([0], [[1]]), r"second is int64 of shape \(1, 1\)"),
        (([0, -2], [0, 0]), r"first\[1\] is -2, expected -1 or more"),
        (([0], [0], "up"), "rounding is 'up', expected one of half_even, half_up"),
    ],
)
def test_wrong_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        average_labels(*arguments)


def test_an_average_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        round_labels([1.0, np.nan])
