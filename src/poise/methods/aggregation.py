"""Classes from comparisons with labelled demonstrations (position paper, Supplements G.1 and G.2).

Pairwise: :func:`consensus` turns the two calls for each demonstration into a score F in {+1, 0, -1}, and a rule of
`AGGREGATION_RULES` turns a row of scores into a class. Listwise: :func:`listwise_position` and
:func:`majority_of_groups` join the answers of the groups of demonstrations.

Classes are indices 0..M-1 (0 is the lowest of the scale) outside, and the paper's labels y in 1..M inside the
arithmetic. All rules are functions of the pairs (F, y) as a set: the order of the demonstrations never matters.

The paper prints no formula for ties of the majority vote, for the bins of the weighted sum and of Copeland's score
beyond "equal width", nor for the step from Bradley-Terry strengths to a class. Those parts are Poise's reading.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poise.methods.averaging import UNPARSED, IntArray, integers, round_labels

PSEUDO_COUNT = 0.1
"""Wins that each item of the Bradley-Terry fit has over each other item before any comparison."""

_TOLERANCE, _MAX_ITERATIONS = 1e-12, 10_000
_TIE = 1e-9  # distances of log-strengths closer than this are equal: well above the error of the fit


def consensus(forward: ArrayLike, backward: ArrayLike, reversed_question: bool = False) -> NDArray[np.int8]:
    """Join the forward and the backward answer to each comparison into one score (Supplement G.1).

    Parameters
    ----------
    forward, backward : (n_rows, n_demos) integer arrays
        The passage chosen: 0 is Passage A, 1 Passage B, -1 unparsed. The test text is Passage A in the forward call
        and Passage B in the backward call.
    reversed_question : bool
        Whether the question was which passage is more negative.

    Returns
    -------
    (n_rows, n_demos) int8 array
        +1 where both calls hold the test text for more positive than the demonstration, -1 where both hold it for
        less positive, 0 where they disagree or either is unparsed.

    Raises
    ------
    ValueError
        For arrays that are empty, not two-dimensional, not of integers or of different shapes, or another value.
    """
    there = integers(forward, "forward", ndim=2, lowest=UNPARSED, highest=1)
    back = integers(backward, "backward", ndim=2, lowest=UNPARSED, highest=1)
    if there.shape != back.shape:
        raise ValueError(f"backward has shape {back.shape}, expected {there.shape} as in forward")
    test = ((there == 0) & (back == 1)).astype(np.int8)
    demonstration = ((there == 1) & (back == 0)).astype(np.int8)
    return demonstration - test if reversed_question else test - demonstration


def majority_vote(F: ArrayLike, demo_labels: ArrayLike, n_classes: int) -> IntArray:
    """Return the most frequent vote; among tied classes the nearest to the mean vote, then the lower (G.2).

    A demonstration votes for its own class, or the next class up (F = +1) or down (F = -1) if there is one.

    Parameters
    ----------
    F : (n_rows, N) integer array
        Scores from :func:`consensus`: +1, 0 or -1.
    demo_labels : (N,) integer array
        Class index of each demonstration.
    n_classes : int
        M.

    Returns
    -------
    (n_rows,) integer array
        Class indices.

    Raises
    ------
    ValueError
        For arrays that are empty, of other dimensions, not of integers or that do not match, another score, or a
        class index out of range.
    """
    scores, labels = _comparisons(F, demo_labels, n_classes)
    votes = _votes(scores, labels, n_classes)
    classes = np.arange(1, n_classes + 1)
    counts = (votes[:, :, None] == classes).sum(axis=1)
    # N times the distance from the mean, so that equal distances are equal integers
    distance = np.abs(len(labels) * classes - votes.sum(axis=1, keepdims=True))
    tied = counts == counts.max(axis=1, keepdims=True)
    return np.where(tied, distance, np.iinfo(np.intp).max).argmin(axis=1)


def mean_score(F: ArrayLike, demo_labels: ArrayLike, n_classes: int, *, rounding: str = "half_even") -> IntArray:
    """Return the rounded mean of the votes (G.2); arrays and errors as in :func:`majority_vote`.

    A half on the scale 1..M is rounded as in :func:`poise.methods.averaging.round_labels`.
    """
    scores, labels = _comparisons(F, demo_labels, n_classes)
    mean = _votes(scores, labels, n_classes).sum(axis=1) / len(labels)
    return np.clip(round_labels(mean, rounding), 1, n_classes) - 1


def weighted_sum(F: ArrayLike, demo_labels: ArrayLike, n_classes: int) -> IntArray:
    """Return the bin of S = sum F y among M equal bins of [-sum y, sum y] (G.1, G.2; the paper's default rule).

    A boundary belongs to the bin above it. Arrays and errors as in :func:`majority_vote`.
    """
    scores, labels = _comparisons(F, demo_labels, n_classes)
    return _equal_bin(scores @ labels, int(labels.sum()), n_classes)


def copeland(F: ArrayLike, demo_labels: ArrayLike, n_classes: int) -> IntArray:
    """Return the bin of net = sum F among M equal bins of [-N, N] (G.2).

    A boundary belongs to the bin above it. The labels of the demonstrations play no part. Arrays and errors as in
    :func:`majority_vote`.
    """
    scores, labels = _comparisons(F, demo_labels, n_classes)
    return _equal_bin(scores.sum(axis=1), len(labels), n_classes)


def bradley_terry(F: ArrayLike, demo_labels: ArrayLike, n_classes: int) -> IntArray:
    """Return the class whose demonstrations are on average as strong as the test text (G.2).

    The paper gives the model, P(A over B) = s_A / (s_A + s_B), and nothing more; the rest is our reading. The items
    are the test text and its N demonstrations, and each pair is compared once: the test text with a demonstration
    by F, two demonstrations by their labels, a tie (F = 0, equal labels) being half a win each. Every item also has
    `PSEUDO_COUNT` wins over every other, which keeps the strengths finite. The class predicted has the mean
    log-strength nearest to the test text's; the lower one of two equally near. A class without a demonstration is
    never predicted. As F moves the demonstrations too, a score that contradicts the others may lower the class.
    Arrays and errors as in :func:`majority_vote`.
    """
    scores, labels = _comparisons(F, demo_labels, n_classes)
    # Demonstrations of a class are interchangeable: sorted by class, then score, far fewer rows differ.
    order = np.sort(labels)
    rows, inverse = np.unique(np.sort(3 * labels + scores, axis=1) - 3 * order, axis=0, return_inverse=True)
    return np.array([_class_of_equal_strength(row, order) for row in rows], dtype=np.intp)[inverse.reshape(-1)] - 1


AGGREGATION_RULES: dict[str, Callable[[ArrayLike, ArrayLike, int], IntArray]] = {
    "majority_vote": majority_vote,
    "mean_score": mean_score,
    "weighted_sum": weighted_sum,
    "copeland": copeland,
    "bradley_terry": bradley_terry,
}
"""Rules of Supplement G.2 by name; all take (F, demo_labels, n_classes)."""


def listwise_position(positions: ArrayLike, n_classes: int, rounding: str = "half_even") -> IntArray:
    """Return the rounded, clipped mean position of a text among groups of demonstrations (listwise, G.1).

    Parameters
    ----------
    positions : (n_rows, n_groups) integer array
        Position in each group from 0, as the probe counts (the paper maps a reversed probe back after the mean); -1
        is unparsed and left out of the mean. One beyond the last class counts as given: only the mean is clipped.
    n_classes : int
        M.
    rounding : {"half_even", "half_up"}
        As in :func:`poise.methods.averaging.round_labels`, on positions 1..M.

    Returns
    -------
    (n_rows,) integer array
        Class indices; -1 where no group is parsed.

    Raises
    ------
    ValueError
        For an array that is empty, not two-dimensional or not of integers, a position below -1, fewer than one
        class, or another rounding.
    """
    found = integers(positions, "positions", ndim=2, lowest=UNPARSED)
    if n_classes < 1:
        raise ValueError(f"n_classes is {n_classes}, expected at least 1")
    parsed = (found != UNPARSED).sum(axis=1)
    mean = (found + 1).sum(axis=1) / np.maximum(parsed, 1)  # an unparsed position is 0 of 1..M: adds nothing
    label = np.clip(round_labels(mean, rounding), 1, n_classes)
    return np.where(parsed > 0, label - 1, UNPARSED)


def majority_of_groups(positions: ArrayLike) -> IntArray:
    """Return the class chosen in most groups of demonstrations (listwise-compare, G.1).

    Among tied classes it is the middle one, and the lower of the two in the middle of an even number: always a class
    that was chosen.

    Parameters
    ----------
    positions : (n_rows, n_groups) integer array
        Label chosen in each group from 0, as the probe counts (the paper maps reversed labels back after the vote);
        -1 is unparsed and has no vote.

    Returns
    -------
    (n_rows,) integer array
        Class indices; -1 where no group is parsed.

    Raises
    ------
    ValueError
        For an array that is empty, not two-dimensional or not of integers, or an index below -1.
    """
    found = integers(positions, "positions", ndim=2, lowest=UNPARSED)
    classes = np.unique(found)
    counts = ((found[:, :, None] == classes) & (classes != UNPARSED)).sum(axis=1)
    most = counts.max(axis=1, keepdims=True)
    tied = counts == most
    middle = (tied.sum(axis=1, keepdims=True) + 1) // 2
    chosen = classes[(tied.cumsum(axis=1) == middle).argmax(axis=1)]
    return np.where(most[:, 0] > 0, chosen, UNPARSED)


def _comparisons(F: ArrayLike, demo_labels: ArrayLike, n_classes: int) -> tuple[IntArray, IntArray]:
    """Return the scores (n_rows, N) and the labels 1..M of the demonstrations (N,), checked."""
    scores = integers(F, "F", ndim=2, lowest=-1, highest=1)
    labels = integers(demo_labels, "demo_labels", ndim=1, lowest=0, highest=n_classes - 1)
    if len(labels) != scores.shape[1]:
        raise ValueError(f"demo_labels has {len(labels)} labels, expected {scores.shape[1]}, one a column of F")
    return scores, labels + 1


def _votes(scores: IntArray, labels: IntArray, n_classes: int) -> IntArray:
    """Return the vote v of each demonstration, a label 1..M. (n_rows, N)."""
    return np.clip(labels + scores, 1, n_classes)


def _equal_bin(score: IntArray, limit: int, n_classes: int) -> IntArray:
    """Return the index of the bin of `score` among equal bins of [-limit, limit], in exact integers."""
    return np.minimum((score + limit) * n_classes // (2 * limit), n_classes - 1)


def _class_of_equal_strength(scores: IntArray, labels: IntArray) -> int:
    """Return the label 1..M whose demonstrations' mean log-strength is nearest to the test text's, item 0."""
    from choix import ilsr_pairwise_dense  # loads much of SciPy

    n_items = len(labels) + 1
    outcome = np.zeros((n_items, n_items))  # +1: the item of the row wins, 0: a tie
    outcome[0, 1:], outcome[1:, 0] = scores, -scores
    outcome[1:, 1:] = np.sign(labels[:, None] - labels)
    wins = (1 + outcome) / 2 + PSEUDO_COUNT
    np.fill_diagonal(wins, 0)
    # The pseudo-counts are in the matrix: choix's own `alpha` regularises its Markov chain, not the likelihood.
    strength = ilsr_pairwise_dense(wins, alpha=0.0, max_iter=_MAX_ITERATIONS, tol=_TOLERANCE)
    classes = np.unique(labels)
    distance = np.abs([strength[1:][labels == label].mean() - strength[0] for label in classes])
    return int(classes[np.argmax(distance <= distance.min() + _TIE)])
