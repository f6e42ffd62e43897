"""Class-accuracy imbalance against the printed matrices of the DNIP paper and cases worked out by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from poise import metrics

DNIP = Path(__file__).parents[2] / "data" / "reference" / "dnip"
AGNEWS = ["world", "sports", "business", "tech"]
AGNEWS_COUNTS = [1286, 1270, 1204, 1240]  # the first 5,000 rows of the test split
DDI = ["negative", "effect", "mechanism", "advice", "interaction"]
DDI_COUNTS = [4737, 360, 302, 221, 96]

# table: classes, accuracy, COBias, COBias_single, H, class accuracies (all percent), odd classes
PRINTED = {
    1: (
        (AGNEWS, AGNEWS_COUNTS, 74.84, 41.61, 25.78, 19.82),
        [84.99, 98.19, 96.93, 18.95],
        ["business", "business", "world", "business"],
    ),
    2: (
        (AGNEWS, AGNEWS_COUNTS, 88.16, 6.91, 4.20, 7.14),
        [85.54, 97.64, 85.38, 83.87],
        ["tech", "world", "tech", "business"],
    ),
    7: (
        (DDI, DDI_COUNTS, 21.68, 27.67, 41.49, 29.59),
        [17.08, 30.28, 56.95, 35.75, 72.92],
        ["interaction"] * 4 + ["negative"],
    ),
    8: (
        (DDI, DDI_COUNTS, 34.13, 17.93, 16.50, 32.66),
        [36.92, 9.17, 40.73, 16.29, 10.42],
        ["mechanism"] + ["negative"] * 4,
    ),
}


def printed_matrix(table, classes):
    rows = pd.read_csv(DNIP / f"table{table}.csv").query("quantity == 'count'")
    matrix = rows.pivot_table(index="true_class", columns="pred_class", values="value")
    return matrix.loc[classes, classes].to_numpy().astype(int)


def rows_of(matrix):
    """Spell a confusion matrix out as rows."""
    true, pred = np.indices(matrix.shape).reshape(2, -1)
    return np.repeat(true, matrix.ravel()), np.repeat(pred, matrix.ravel())


@pytest.mark.parametrize("table", PRINTED)
def test_printed_matrices_give_the_figures_computed_from_them(table):
    (classes, counts, accuracy, cobias, single, odd_rate), class_acc, odd = PRINTED[table]
    matrix = printed_matrix(table, classes)
    y_true, y_pred = rows_of(matrix)

    assert np.array_equal(metrics.confusion_counts(y_true, y_pred), matrix)
    assert np.bincount(y_true).tolist() == counts
    assert [classes[i] for i in metrics.odd_classes(y_true, y_pred)] == odd
    to_two_decimals = {"abs": 0.00501, "rel": 0}
    assert 100 * metrics.accuracy(y_true, y_pred) == pytest.approx(accuracy, **to_two_decimals)
    assert 100 * metrics.cobias(y_true, y_pred) == pytest.approx(cobias, **to_two_decimals)
    assert 100 * metrics.cobias_single(y_true, y_pred) == pytest.approx(single, **to_two_decimals)
    assert 100 * metrics.odd_rate(y_true, y_pred) == pytest.approx(odd_rate, **to_two_decimals)
    assert 100 * metrics.class_accuracies(y_true, y_pred) == pytest.approx(class_acc, **to_two_decimals)


@pytest.mark.parametrize("table", [1, 2])
def test_printed_class_accuracies(table):
    printed = pd.read_csv(DNIP / f"table{table}.csv").query("quantity == 'class_accuracy'")
    found = metrics.class_accuracies(*rows_of(printed_matrix(table, AGNEWS)))
    assert found.round(2).tolist() == printed.set_index("true_class").value[AGNEWS].tolist()


def test_table_5_accuracy_and_cobias_of_every_seed():
    groups = pd.read_csv(DNIP / "table5.csv").groupby(["method", "seed"])
    assert len(groups) == 6
    for _, rows in groups:
        acc = rows.query("metric == 'class_accuracy'").sort_values("class_id").value.to_numpy() / 100
        printed = rows.set_index("metric").value
        y_true = np.repeat(range(4), AGNEWS_COUNTS)
        right = np.rint(acc * AGNEWS_COUNTS).astype(int)
        y_pred = np.concatenate(
            [[i] * k + [-1] * (n - k) for i, (k, n) in enumerate(zip(right, AGNEWS_COUNTS, strict=True))]
        )
        assert 100 * metrics.accuracy(y_true, y_pred) == pytest.approx(printed["accuracy"], abs=0.07)
        assert 100 * metrics.cobias_from_accuracies(acc) == pytest.approx(printed["cobias"], abs=0.0501)


@pytest.mark.parametrize(
    ("n", "percent"), [(2, 100), (3, 66.7), (4, 66.7), (5, 60), (6, 60), (14, 53.8)], ids=lambda x: str(x)
)
def test_cobias_reaches_its_maximum_and_never_exceeds_it(n, percent):
    half_right = [float(i < n // 2) for i in range(n)]
    maximum = metrics.cobias_from_accuracies(half_right)
    assert round(100 * maximum, 1) == percent
    rng = np.random.default_rng(0)
    draws = [metrics.cobias_from_accuracies(rng.beta(0.1, 0.1, n)) for _ in range(500)]
    assert max(draws) <= maximum + 1e-12
    assert max(draws) > 0.8 * maximum  # so the bound is put to the test


@pytest.mark.parametrize("n", [2, 3, 7, 14])
def test_cobias_is_the_mean_over_all_pairs(n):
    acc = np.random.default_rng(n).random(n)
    pairs = [abs(acc[i] - acc[j]) for i in range(n) for j in range(i + 1, n)]
    assert metrics.cobias_from_accuracies(acc) == pytest.approx(np.mean(pairs), rel=1e-12)


def test_equal_accuracies_have_no_cobias_at_all():
    assert metrics.cobias_from_accuracies([1 / 3] * 7) == 0


def test_absent_classes_are_left_out():
    y_true, y_pred = [0, 0, 1, 1, 3], [0, 0, 1, 2, 0]  # accuracies 1, 1/2, absent, 0
    assert metrics.class_accuracies(y_true, y_pred) == pytest.approx([1, 0.5, np.nan, 0], nan_ok=True)
    assert metrics.cobias(y_true, y_pred) == pytest.approx((0.5 + 1 + 0.5) / 3)
    assert metrics.cobias(y_true, y_pred, n_classes=9) == metrics.cobias(y_true, y_pred)
    assert metrics.odd_classes(y_true, y_pred).tolist() == [-1, 2, -1, 0]
    # class 0 has no odd class: 0; class 1's is absent: left out; class 3 against class 0: 1
    assert metrics.cobias_single(y_true, y_pred) == pytest.approx((0 + 1) / 2)
    assert metrics.odd_rate(y_true, y_pred) == pytest.approx((0 + 0.5 + 1) / 3)


def test_fewer_than_two_classes_have_no_cobias():
    assert metrics.cobias([2, 2], [2, 0]) == 0
    assert metrics.cobias_single([2, 2], [2, 0]) == 0


def test_an_odd_class_tie_goes_to_the_lowest_index():
    y_true, y_pred = [0, 0, 0, 1, 2, 2], [2, 1, 0, 1, 2, 0]
    assert metrics.odd_classes(y_true, y_pred).tolist() == [1, -1, 0]
    assert metrics.cobias_single(y_true, y_pred) == pytest.approx((2 / 3 + 0 + 1 / 6) / 3)


def test_an_unparsed_row_is_wrong_but_in_no_column():
    y_true, y_pred = [0, 0, 0, 1], [-1, -1, 0, 0]
    assert metrics.confusion_counts(y_true, y_pred).tolist() == [[1, 0], [1, 0]]
    assert metrics.class_accuracies(y_true, y_pred) == pytest.approx([1 / 3, 0])
    assert metrics.odd_classes(y_true, y_pred).tolist() == [-1, 0]
    assert metrics.odd_rate(y_true, y_pred) == pytest.approx((0 + 1) / 2)


@pytest.mark.parametrize(
    ("y_true", "y_pred", "n", "message"),
    [
        ([0, 1], [0], None, "y_pred has 1 rows, expected 2"),
        ([], [], None, "y_true has no rows"),
        ([0, -1], [0, 0], None, r"y_true\[1\] is -1, expected a class index from 0$"),
        ([0, 1], [0, -2], None, r"y_pred\[1\] is -2, expected a class index from -1$"),
        ([0, 1], [0, 2], 2, r"y_pred\[1\] is 2, expected a class index from -1 to 1"),
        ([0.0, 1.0], [0, 1], None, "y_true is float64"),
        ([[0], [1]], [0, 1], None, r"y_true is int64 of shape \(2, 1\)"),
    ],
)
def test_bad_labels_get_one_clear_line(y_true, y_pred, n, message):
    with pytest.raises(ValueError, match=message):
        metrics.cobias(y_true, y_pred, n)


def test_percentages_are_refused():
    with pytest.raises(ValueError, match=r"is 85, expected a fraction in \[0, 1\]"):
        metrics.cobias_from_accuracies([0.2, 85.0])
