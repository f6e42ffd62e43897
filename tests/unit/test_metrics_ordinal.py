"""Ordinal performance on cases worked out by hand, unparsed outputs included."""

import subprocess
import sys
from math import isnan

import pytest

from poise import metrics


def test_an_unparsed_row_is_wrong():
    assert metrics.accuracy([0, 1, 2, 2], [0, 1, 2, -1]) == 0.75


def test_macro_f1_counts_an_unparsed_row_against_its_class_only():
    y_true, y_pred = [0, 0, 1, 1], [0, -1, 1, 0]
    # class 0: precision 1/2, recall 1/2; class 1: precision 1, recall 1/2; class 2: in neither array
    assert metrics.macro_f1(y_true, y_pred, 3) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert metrics.macro_f1([0, 0], [-1, -1], 3) == 0


def test_macro_f1_counts_a_class_that_is_only_predicted():
    assert metrics.macro_f1([0, 0], [0, 1], 3) == pytest.approx((2 / 3 + 0) / 2)


def test_spearman_uses_parsed_rows_and_average_ranks():
    # without the unparsed row: ranks 1, 2, 3.5, 3.5 against 1, 2.5, 2.5, 4; deviations give 3.75 / 4.5
    found = metrics.spearman_rho([0, 1, 2, 2, 0], [0, 1, 1, 2, -1])
    assert found.defined
    assert found.value == pytest.approx(3.75 / 4.5)
    assert metrics.spearman_rho([0, 1, 2], [4, 3, 0]).value == pytest.approx(-1)


@pytest.mark.parametrize(
    ("y_true", "y_pred"),
    [([0, 1, 2], [1, 1, 1]), ([1, 1, 1], [0, 1, 2]), ([0, 1], [-1, -1]), ([0, 1], [1, -1])],
)
def test_spearman_of_a_constant_is_zero_and_flagged(y_true, y_pred):
    assert metrics.spearman_rho(y_true, y_pred) == metrics.SpearmanRho(0, defined=False)


def test_mean_absolute_error_is_in_class_steps_of_parsed_rows():
    assert metrics.mean_absolute_error([0, 4, 2, 1], [4, 3, 2, -1]) == pytest.approx(5 / 3)
    assert isnan(metrics.mean_absolute_error([0, 1], [-1, -1]))


def test_parse_failure_rate():
    assert metrics.parse_failure_rate([-1, 0, 3, -1]) == 0.5
    with pytest.raises(ValueError, match=r"y_pred\[1\] is -2"):
        metrics.parse_failure_rate([0, -2])


def test_importing_the_metrics_loads_no_heavy_library():
    code = "import sys, poise.metrics; print(*{'scipy', 'sklearn', 'statsmodels', 'pandas'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
