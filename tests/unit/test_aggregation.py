"""Aggregation rules against cases worked out by hand, and Bradley-Terry against a direct likelihood maximum."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from poise.methods import (
    AGGREGATION_RULES,
    bradley_terry,
    consensus,
    copeland,
    listwise_position,
    majority_of_groups,
    majority_vote,
    mean_score,
    weighted_sum,
)

RULES = pytest.mark.parametrize("rule", AGGREGATION_RULES.values(), ids=AGGREGATION_RULES)
ANSWERS = np.array(list(product((0, 1, -1), repeat=2))).T[:, None]  # AA AB A- BA BB B- -A -B --


def every_row(n_demos: int) -> np.ndarray:
    return np.array(list(product((-1, 0, 1), repeat=n_demos)))


def votes(*labels: int) -> tuple[list[list[int]], list[int]]:
    """One row whose votes are these labels 1..M: F = 0 votes for the demonstration's own class."""
    return [[0] * len(labels)], [label - 1 for label in labels]


def test_consensus_asks_both_calls_to_name_the_same_text():
    assert consensus(*ANSWERS).tolist() == [[0, 1, 0, -1, 0, 0, 0, 0, 0]]
    assert consensus(*ANSWERS, reversed_question=True).tolist() == [[0, -1, 0, 1, 0, 0, 0, 0, 0]]
    assert consensus(*ANSWERS).dtype == np.int8


def test_registry_names_the_five_rules():
    rules = [majority_vote, mean_score, weighted_sum, copeland, bradley_terry]
    assert list(AGGREGATION_RULES.items()) == [(rule.__name__, rule) for rule in rules]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # votes 11234 22234 23334 23444 23455
        (majority_vote, [0, 1, 2, 3, 4]),
        # their means 2.2 2.6 3 3.4 3.8
        (mean_score, [1, 2, 2, 2, 3]),
        # S = -14 -11 -6 1 10 in bins of width 6 from -15
        (weighted_sum, [0, 0, 1, 2, 4]),
        # net = -4 -2 0 2 4 in bins of width 2 from -5
        (copeland, [0, 1, 2, 3, 4]),
        # the text and the demonstration of its class have the same record, hence the same strength
        (bradley_terry, [0, 1, 2, 3, 4]),
    ],
)
def test_faultless_comparisons_with_one_demonstration_a_class(rule, expected):
    classes = np.arange(5)
    assert rule(np.sign(classes[:, None] - classes), classes, 5).tolist() == expected


@pytest.mark.parametrize(
    ("cast", "winner"),
    [
        ((2, 2, 3), 2),
        ((1, 1, 4, 4, 5), 4),  # mean 3
        ((1, 1, 2, 4, 4), 1),  # mean 2.4: 1.4 against 1.6
        ((2, 2, 3, 3), 2),  # mean 2.5: the lower
        ((1, 2, 3, 4, 5), 3),
        ((1, 5), 1),
        ((1, 1, 2, 2, 5, 5, 4), 2),  # mean 20/7: 2 is nearer than 1 and 5
        ((3, 3, 1, 5, 5, 5), 5),  # 3 is nearer to the mean 22/6, but has fewer votes
    ],
)
def test_majority_vote_ties_go_to_the_mean_then_down(cast, winner):
    assert majority_vote(*votes(*cast), 5).tolist() == [winner - 1]


def test_votes_move_by_one_class_and_stop_at_the_ends():
    labels = [0, 1, 2]
    # votes 2 3 3, then 1 1 2, then 2 2 2
    assert majority_vote([[1, 1, 1], [-1, -1, -1], [1, 0, -1]], labels, 3).tolist() == [2, 0, 1]
    # means 8/3, 4/3, 2
    assert mean_score([[1, 1, 1], [-1, -1, -1], [1, 0, -1]], labels, 3).tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("cast", "half_even", "half_up"),
    [((1, 2), 2, 2), ((2, 3), 2, 3), ((3, 4), 4, 4), ((4, 5), 4, 5), ((2, 2, 3, 3), 2, 3), ((2, 3, 3), 3, 3)],
)
def test_mean_score_rounds_labels_from_one(cast, half_even, half_up):
    assert mean_score(*votes(*cast), 5).tolist() == [half_even - 1]
    assert mean_score(*votes(*cast), 5, rounding="half_up").tolist() == [half_up - 1]


def test_weighted_sum_puts_a_boundary_in_the_bin_above():
    # labels 1 2 3: bins of [-6, 6] meet at -2 and 2
    F = [[-1, -1, -1], [-1, -1, 0], [0, -1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]]
    assert weighted_sum(F, [0, 1, 2], 3).tolist() == [0, 0, 1, 1, 1, 2, 2]  # S = -6 -3 -2 0 1 2 6
    # labels 1 1: two bins meet at 0
    assert weighted_sum([[1, -1], [0, -1], [-1, -1]], [0, 0], 2).tolist() == [1, 0, 0]


def test_copeland_puts_a_boundary_in_the_bin_above_whatever_the_labels():
    F = [[-1] * (4 - k) + [0] * k for k in range(5)] + [[1] * k + [0] * (4 - k) for k in range(1, 5)]
    # net -4 -3 -2 -1 0 1 2 3 4; four bins meet at -2, 0, 2
    for labels in ([0, 1, 2, 3], [3, 3, 3, 3]):
        assert copeland(F, labels, 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("n_classes", [3, 5, 7])
def test_no_decided_comparison_gives_the_middle_class(n_classes):
    labels = np.tile(np.arange(n_classes), 5)
    for rule in AGGREGATION_RULES.values():
        assert rule(np.zeros((2, len(labels)), dtype=np.int8), labels, n_classes).tolist() == [n_classes // 2] * 2


@RULES
def test_texts_beyond_all_demonstrations_get_the_end_classes(rule):
    labels = np.array([0, 4] * 30)  # the sum of the labels does not fit F's eight bits
    # votes 1 4 and 2 5, each class as often: means 2.5 (to 2) and 3.5 (to 4), and a tie that goes down
    expected = {mean_score: [1, 3], majority_vote: [0, 1]}.get(rule, [0, 4])
    assert rule(np.stack([-np.ones(60), np.ones(60)]).astype(np.int8), labels, 5).tolist() == expected


@RULES
def test_order_of_the_demonstrations_never_matters(rule):
    rng = np.random.default_rng(3)
    seen = set()
    for n_classes in (3, 4, 5):
        labels = rng.integers(0, n_classes, 7)
        F = rng.integers(-1, 2, (40, 7)).astype(np.int8)
        found = rule(F, labels, n_classes)
        seen |= set(found.tolist())
        for _ in range(3):
            order = rng.permutation(7)
            assert rule(F[:, order], labels[order], n_classes).tolist() == found.tolist()
    assert len(seen) > 1


@RULES
def test_rows_do_not_influence_each_other(rule):
    F = every_row(4)[::-1]
    assert rule(F, [2, 0, 1, 0], 3).tolist() == [rule(row[None], [2, 0, 1, 0], 3)[0] for row in F]


@pytest.mark.parametrize("rule", [mean_score, weighted_sum, copeland, bradley_terry])
@pytest.mark.parametrize(("labels", "n_classes"), [((0, 1, 2, 3, 4), 5), ((0, 0, 1, 1, 2), 3), ((0, 2, 2, 4, 4), 5)])
def test_a_higher_score_never_lowers_the_class(rule, labels, n_classes):
    F = every_row(5)
    if rule is bradley_terry:  # holds where no text is above one demonstration and below another of a lower class
        F = F[(np.diff(F, axis=1) <= 0).all(axis=1)]
    found = dict(zip(map(tuple, F.tolist()), rule(F, labels, n_classes).tolist(), strict=True))
    compared = 0
    for row, label in found.items():
        for i in range(5):
            higher = found.get((*row[:i], row[i] + 1, *row[i + 1 :]))
            if higher is not None:
                assert higher >= label
                compared += 1
    assert compared >= 20


def likeliest_class(row, labels):
    """The class whose mean log-strength is nearest to the text's, at the maximum of the regularised likelihood."""
    n = len(labels) + 1
    wins = np.full((n, n), 0.1)
    for i in range(1, n):
        wins[0, i] += (1 + row[i - 1]) / 2
        wins[i, 0] += (1 - row[i - 1]) / 2
        for j in range(1, n):
            wins[i, j] += 1.0 if labels[i - 1] > labels[j - 1] else 0.5 if labels[i - 1] == labels[j - 1] else 0.0
    np.fill_diagonal(wins, 0)

    def loss(free):
        s = np.concatenate([[0], free])
        return (wins * np.logaddexp(0, s[None, :] - s[:, None])).sum()

    def slope(free):
        s = np.concatenate([[0], free])
        shortfall = wins / (1 + np.exp(s[:, None] - s[None, :]))
        return (shortfall.sum(axis=0) - shortfall.sum(axis=1))[1:]

    strength = minimize(loss, np.zeros(n - 1), jac=slope, method="BFGS", options={"gtol": 1e-9}).x
    distance = {c: abs(strength[np.equal(labels, c)].mean()) for c in sorted(set(labels))}
    return next(c for c, d in distance.items() if d < min(distance.values()) + 1e-6)


# the last also tells 0.1 from a pseudo-count of 0.05 or 0.2
@pytest.mark.parametrize(("labels", "n_classes"), [((0, 0, 1, 2), 3), ((1, 3, 0, 3), 5), ((0, 1, 1, 2, 3), 4)])
def test_bradley_terry_is_the_maximum_of_the_regularised_likelihood(labels, n_classes):
    F = every_row(len(labels))
    expected = [likeliest_class(row, labels) for row in F]
    assert bradley_terry(F, labels, n_classes).tolist() == expected


def test_bradley_terry_by_symmetry():
    assert bradley_terry([[0, 0]], [0, 1], 2).tolist() == [0]  # equally far from both: the lower
    assert bradley_terry([[0, 0]], [4, 2], 5).tolist() == [2]
    assert bradley_terry([[1, -1]], [0, 2], 3).tolist() == [0]  # halfway, but class 1 has no demonstration
    assert bradley_terry([[-1], [0], [1]], [1], 3).tolist() == [1, 1, 1]
    # each meets each once, so equal wins are equal strengths: the text has 3, the demonstrations 0 2 2 4 4;
    # classes 1 and 2 are equally near
    assert bradley_terry([[1, -1, 1, -1, 1]], [0, 1, 2, 3, 4], 5).tolist() == [1]
    # the text has 2 1/2 wins, the demonstrations 0 2 2 1/2 4 4
    assert bradley_terry([[1, -1, 0, -1, 1]], [0, 1, 2, 3, 4], 5).tolist() == [2]


def test_listwise_position_is_the_rounded_mean_of_the_parsed_groups():
    # labels 1 2; 2 3; 2 3 3; 5 -; - - -; 5 5 5
    positions = [[0, 1, -1], [1, 2, -1], [1, 2, 2], [4, -1, -1], [-1, -1, -1], [4, 4, 4], [-1, 0, 0]]
    assert listwise_position(positions, 5).tolist() == [1, 1, 2, 4, -1, 4, 0]
    assert listwise_position(positions, 5, rounding="half_up").tolist() == [1, 2, 2, 4, -1, 4, 0]


def test_listwise_position_is_clipped_after_the_mean():
    # insertion after the last of three texts: labels 4 4, 4 3, 4 1
    assert listwise_position([[3, 3], [3, 2], [3, 0]], 3).tolist() == [2, 2, 1]


def test_majority_of_groups():
    positions = [[2, 2, 0], [4, -1, -1], [-1, -1, -1], [-1, 3, 3]]
    assert majority_of_groups(positions).tolist() == [2, 4, -1, 3]
    assert majority_of_groups([[-1, -1]]).tolist() == [-1]


@pytest.mark.parametrize(
    ("groups", "chosen"),
    [
        ((0, 1, 4), 1),
        ((4, 0, -1), 0),  # of two the lower, not the mean: nobody chose class 2
        ((3, 3, 1, 1, 0), 1),
        ((0, 2, 3, 4), 2),
        ((4, 4, 0, 0, 3, 3, 1), 3),
        ((0, 1, 2, 3, 4), 2),
    ],
)
def test_tied_groups_give_the_middle_tied_class(groups, chosen):
    assert majority_of_groups([groups]).tolist() == [chosen]


@RULES
@pytest.mark.parametrize(
    ("F", "labels", "message"),
    [
        ([[0, 2]], [0, 1], r"F\[0, 1\] is 2, expected -1 to 1"),
        ([0, 1], [0, 1], r"F is int64 of shape \(2,\)"),
        ([[0.0, 1.0]], [0, 1], "F is float64"),
        ([[0, 1]], [0, 3], r"demo_labels\[1\] is 3, expected 0 to 2"),
        ([[0, 1]], [-1, 2], r"demo_labels\[0\] is -1"),
        ([[0, 1]], [0], "demo_labels has 1 labels, expected 2"),
        ([[]], [], "F is float64"),
    ],
)
def test_rules_name_wrong_input(rule, F, labels, message):
    with pytest.raises(ValueError, match=message):
        rule(F, labels, 3)


def test_answers_name_wrong_input():
    with pytest.raises(ValueError, match=r"backward has shape \(1, 1\), expected \(1, 2\)"):
        consensus([[0, 1]], [[0]])
    with pytest.raises(ValueError, match=r"forward\[0, 1\] is 2, expected -1 to 1"):
        consensus([[0, 2]], [[0, 1]])
    with pytest.raises(ValueError, match=r"positions\[0, 0\] is -2"):
        listwise_position([[-2]], 3)
    with pytest.raises(ValueError, match="n_classes is 0"):
        listwise_position([[0]], 0)
    with pytest.raises(ValueError, match="rounding is 'down'"):
        mean_score([[0]], [0], 3, rounding="down")
    with pytest.raises(ValueError, match=r"positions is int64 of shape \(2,\)"):
        majority_of_groups([0, 1])
