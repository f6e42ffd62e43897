"""Choices become classes by paradigm and label order; corrections under probe conditions, from planted biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from poise.answers import CellAnswers, CellChoices
from poise.config.compose import compose_study
from poise.config.methods import Method
from poise.config.prompts import ListwisePrompt, PairwisePrompt, Prompt
from poise.stages.conditions import (
    ASCENDING,
    BASE,
    DESCENDING,
    REVERSED,
    PositionRun,
    classes_of,
    correct_conditions,
    predict_cell,
)

METHOD: TypeAdapter[Method] = TypeAdapter(Method)
PLACED = "placement=after"
PAIRWISE = PairwisePrompt(
    kind="pairwise", name="p", instruction="", passage="{slot}: {text}", question="?", answers=("A", "B")
)


def _listwise(labelled: bool) -> ListwisePrompt:
    return ListwisePrompt(kind="listwise", name="l", labelled=labelled, instruction="", item="{text}", query="{text}")


def _choices(table: list[list[int]]) -> CellChoices:
    chosen = np.array(table)
    rows = np.arange(len(chosen))
    blank = np.full(len(rows), np.nan)
    return CellChoices(rows, np.zeros(len(rows), dtype=int), chosen, chosen, blank, blank)


def _predict(prompt: Prompt, order: str, table: list[list[int]], shown: list[int], n: int = 3) -> dict[str, list[int]]:
    found = predict_cell(prompt, order, _choices(table), shown, n)
    return {method: predicted.tolist() for method, predicted in found.items()}


# --- choices become classes ---


@pytest.fixture(scope="module")
def pointwise() -> Prompt:
    prompt = compose_study(["study=joint"]).experiment["joint"].prompt
    assert prompt is not None
    return prompt


def test_positions_stand_for_classes_and_unparsed_answers_stay() -> None:
    positions = np.array([0, 1, 2, -1])
    assert classes_of(positions, 3, "natural").tolist() == [0, 1, 2, -1]
    assert classes_of(positions, 3, "reversed").tolist() == [2, 1, 0, -1]
    assert classes_of(np.array([0, 1, 2, 3, -1]), 4, "reversed").tolist() == [3, 2, 1, 0, -1]


def test_pointwise_answers_are_mapped_back(pointwise: Prompt) -> None:
    answers = [[0], [1], [2], [-1]]
    assert _predict(pointwise, "natural", answers, [0, 1, 2]) == {"icl": [0, 1, 2, -1]}
    assert _predict(pointwise, "reversed", answers, [0, 1, 2]) == {"icl": [2, 1, 0, -1]}


# Forward and backward choice (0 is Passage A) against demonstrations of classes 0, 1, 2; the text is A, then B.
ABOVE, BELOW = [0, 1], [1, 0]
UNDECIDED = [0, 0]
CLASS_0 = [*UNDECIDED, *BELOW, *BELOW]
CLASS_1 = [*ABOVE, *UNDECIDED, *BELOW]
CLASS_2 = [*ABOVE, *ABOVE, *UNDECIDED]


def test_pairs_are_aggregated_by_every_rule() -> None:
    found = _predict(PAIRWISE, "natural", [CLASS_0, CLASS_1, CLASS_2], [0, 1, 2])
    assert set(found) == {"majority_vote", "mean_score", "weighted_sum", "copeland", "bradley_terry"}
    assert all(predicted == [0, 1, 2] for predicted in found.values()), found


def test_the_reversed_question_asks_which_passage_is_further_down() -> None:
    down_0 = [*UNDECIDED, *ABOVE, *ABOVE]  # of class 0: further down than demonstrations of 1 and 2
    down_1 = [*BELOW, *UNDECIDED, *ABOVE]
    down_2 = [*BELOW, *BELOW, *UNDECIDED]
    found = _predict(PAIRWISE, "reversed", [down_0, down_1, down_2], [0, 1, 2])
    assert all(predicted == [0, 1, 2] for predicted in found.values()), found
    # The answers of the natural question, given to the reversed one, mean the other end of the scale.
    found = _predict(PAIRWISE, "reversed", [CLASS_0, CLASS_1, CLASS_2], [0, 1, 2])
    assert found["copeland"] == [2, 1, 0]


def test_pairs_go_with_the_demonstrations_in_the_order_shown() -> None:
    # Demonstrations of classes 2, 0, 1: below the first, above the second, undecided on the third.
    found = _predict(PAIRWISE, "natural", [[*BELOW, *ABOVE, *UNDECIDED]], [2, 0, 1])
    assert all(predicted == [1] for predicted in found.values()), found
    # Weighted: S = 3 - 1 = 2 and -1 on [-6, 6], by class: (above 2, below 0) is a contradiction that weights resolve.
    contradiction = _predict(PAIRWISE, "natural", [[*ABOVE, *BELOW, *UNDECIDED]], [2, 0, 1])
    assert contradiction["weighted_sum"] == [2]
    assert contradiction["copeland"] == [1]


def test_unparsed_pairs_are_undecided() -> None:
    found = _predict(PAIRWISE, "natural", [[0, -1, -1, 1, -1, -1]], [0, 1, 2])
    # No comparison counts: votes are the demonstrations' own classes, sums are 0.
    assert found["majority_vote"] == found["mean_score"] == found["weighted_sum"] == found["copeland"] == [1]


@pytest.mark.parametrize(("order", "expected"), [("natural", [0, 1, 1, 2, -1]), ("reversed", [2, 1, 1, 0, -1])])
def test_listwise_places_are_averaged_then_mapped_back(order: str, expected: list[int]) -> None:
    # Positions 1..3; means 1.33, 2, 1.5 (to the even 2), 3 with one unparsed, none parsed.
    table = [[0, 0, 1], [0, 1, 2], [0, 1, -1], [2, -1, 2], [-1, -1, -1]]
    assert _predict(_listwise(labelled=False), order, table, [0, 1, 2]) == {"icl": expected}


@pytest.mark.parametrize(("order", "expected"), [("natural", [0, 2, 1, -1]), ("reversed", [2, 0, 1, -1])])
def test_listwise_compare_votes_are_counted_then_mapped_back(order: str, expected: list[int]) -> None:
    # Majorities; three tied classes give the middle one.
    table = [[0, 0, 2], [2, -1, -1], [2, 1, 0], [-1, -1, -1]]
    assert _predict(_listwise(labelled=True), order, table, [0, 1, 2]) == {"icl": expected}


# --- corrections by condition ---


def _answers(probabilities: np.ndarray, labels: np.ndarray) -> CellAnswers:
    normalised = (probabilities / probabilities.sum(axis=1, keepdims=True)).astype(np.float32)
    n = len(normalised)
    blank = np.full_like(normalised, np.nan)
    return CellAnswers(np.arange(n), labels, normalised, normalised.argmax(axis=1), np.ones(n), blank)


def _run(**parts: Any) -> PositionRun:
    labels = next(iter(parts["test"].values())).labels if parts.get("test") else np.zeros(4, dtype=int)
    empty: Mapping[str, Any] = {"predicted": {}, "test": {}, "content_free": {}, "optimisation": {}}
    return PositionRun(
        **{"shots": "1_per_class", "seed": 0, "rows": np.arange(len(labels)), "labels": labels, **empty, **parts}
    )


def _correct(run: PositionRun, n_classes: int = 3, **config: object) -> dict[str, np.ndarray]:
    method = METHOD.validate_python({"name": "m", "title": "M", **config})
    return correct_conditions(method, run, n_classes)[0]


def test_label_averaging_is_the_rounded_mean_of_both_label_orders() -> None:
    natural = np.array([0, 0, 1, 2, 4, -1])
    reversed_ = np.array([0, 1, 2, 4, 1, 2])
    run = _run(predicted={BASE: natural, REVERSED: reversed_, PLACED: natural})
    # Labels 1..5: means 1, 1.5, 2.5, 4, 3.5; halves to the even label.
    found = _correct(run, 5, kind="label_averaging")
    assert {condition: classes.tolist() for condition, classes in found.items()} == {BASE: [0, 1, 1, 3, 3, -1]}
    assert _correct(run, 5, kind="label_averaging", rounding="half_up")[BASE].tolist() == [0, 1, 2, 3, 3, -1]


def test_demonstration_averaging_is_that_of_both_class_orders() -> None:
    predicted = {
        BASE: np.array([4, 4, 4]),
        ASCENDING: np.array([0, 1, -1]),
        DESCENDING: np.array([2, 2, 2]),
        "demonstration_order=random": np.array([4, 4, 4]),
    }
    found = _correct(_run(predicted=predicted), 5, kind="demonstration_averaging")
    # Means 2 and 2.5 on the labels, the half to the even 2.
    assert {condition: classes.tolist() for condition, classes in found.items()} == {BASE: [1, 1, -1]}


def _under(order: str, content: np.ndarray, by_position: np.ndarray) -> np.ndarray:
    """Class scores of a reader with a bias by label position, under a label order."""
    return content * (by_position[::-1] if order == REVERSED else by_position)


LABELS = np.tile(np.arange(3), 40)
CONTENT = np.where(np.eye(3, dtype=bool)[LABELS], 3.0, 1.0)
PRIOR = np.array([16.0, 1.0, 1.0])  # outweighs the content


@pytest.fixture(scope="module")
def biased() -> PositionRun:
    """Answers proportional to a prior of the label position times the content."""
    test = {
        condition: _answers(_under(condition, CONTENT, PRIOR), LABELS)
        for condition in (BASE, REVERSED, ASCENDING, PLACED)
    }
    null = {condition: _answers(_under(condition, np.ones((1, 3)), PRIOR), np.array([-1])) for condition in test}
    optimisation = {
        "natural": _answers(_under(BASE, CONTENT[:60], PRIOR), LABELS[:60]),
        "reversed": _answers(_under(REVERSED, CONTENT[:60], PRIOR), LABELS[:60]),
    }
    predicted = {condition: answers.predictions for condition, answers in test.items()}
    return _run(predicted=predicted, test=test, content_free=null, optimisation=optimisation)


def test_the_planted_bias_decides_without_correction(biased: PositionRun) -> None:
    assert {condition: set(found) for condition, found in biased.predicted.items()} == {
        BASE: {0}, REVERSED: {2}, ASCENDING: {0}, PLACED: {0},
    }  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [
        {"kind": "pride"},
        {"kind": "contextual_calibration"},
        {"kind": "batch_calibration"},
        {"kind": "dnip", "axis": "label_token", "fit_on": "natural"},
        {"kind": "dnip", "axis": "label_token", "fit_on": "reversed"},
        {"kind": "dnip", "axis": "label_token", "fit_on": "pooled"},
    ],
)
def test_what_corrects_by_label_removes_a_bias_by_label_under_every_condition(
    biased: PositionRun, config: dict[str, object]
) -> None:
    found = _correct(biased, **config)
    assert set(found) == set(biased.test)
    for condition, predicted in found.items():
        np.testing.assert_array_equal(predicted, LABELS, err_msg=condition)


@pytest.mark.parametrize(
    ("fit_on", "good", "bad", "always"), [("natural", BASE, REVERSED, 2), ("reversed", REVERSED, BASE, 0)]
)
def test_weights_by_class_hold_for_the_order_that_they_were_fitted_on_only(
    biased: PositionRun, fit_on: str, good: str, bad: str, always: int
) -> None:
    found = _correct(biased, kind="dnip", axis="class", fit_on=fit_on)
    np.testing.assert_array_equal(found[good], LABELS)
    assert set(found[bad]) == {always}


def test_under_the_other_order_weights_by_class_are_worse_than_none() -> None:
    """A mild bias for the first label, which only less sure rows give in to."""
    sure = np.where(np.arange(len(LABELS)) % 2 == 0, 2.5, 1.5)
    content = np.where(np.eye(3, dtype=bool)[LABELS], sure[:, None], 1.0)
    bias = np.array([2.0, 1.0, 1.0])
    test = {condition: _answers(_under(condition, content, bias), LABELS) for condition in (BASE, REVERSED)}
    run = _run(
        test=test,
        optimisation={"natural": test[BASE]},
        predicted={condition: answers.predictions for condition, answers in test.items()},
    )
    right = {condition: float((found == LABELS).mean()) for condition, found in run.predicted.items()}
    by_class = _correct(run, kind="dnip", axis="class")
    by_label = _correct(run, kind="dnip", axis="label_token")
    assert right[BASE] == right[REVERSED] == pytest.approx(2 / 3)
    assert (by_class[BASE] == LABELS).all()
    assert (by_class[REVERSED] == LABELS).mean() == pytest.approx(1 / 2)  # class 0 is lost, sure or not
    assert (by_label[BASE] == LABELS).all()
    assert (by_label[REVERSED] == LABELS).all()


def test_weights_by_class_from_both_orders_treat_both_ends_alike(biased: PositionRun) -> None:
    method = METHOD.validate_python(
        {"name": "m", "title": "M", "kind": "dnip", "fit_on": "pooled", "solver": "exact", "limits": "dcs"}
    )
    found, record = correct_conditions(method, biased, 3)
    assert record["rows"] == 2 * 60
    accuracy = [(found[condition] == LABELS).mean() for condition in (BASE, REVERSED)]
    assert max(accuracy) < 1  # no weights of classes undo what is a bias of labels


def test_pride_divides_by_the_mean_of_each_position_over_rows_and_orders(biased: PositionRun) -> None:
    method = METHOD.validate_python({"name": "m", "title": "M", "kind": "pride"})
    _, record = correct_conditions(method, biased, 3)
    by_position = np.concatenate(
        [biased.test[BASE].probabilities, biased.test[REVERSED].probabilities[:, ::-1]]
    ).astype(float)  # fmt: skip
    weights = 1 / by_position.mean(axis=0)
    np.testing.assert_allclose(record["weights"], weights / weights.max(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["contextual_calibration", "batch_calibration"])
def test_calibration_is_fitted_anew_under_each_condition(biased: PositionRun, kind: str) -> None:
    """The bias goes to another label in one condition: only its own inputs tell."""
    moved = np.array([1.0, 1.0, 16.0])
    test = {BASE: biased.test[BASE], PLACED: _answers(CONTENT * moved, LABELS)}
    null = {BASE: biased.content_free[BASE], PLACED: _answers(moved[None], np.array([-1]))}
    found = _correct(_run(test=test, content_free=null), kind=kind)
    assert set(found) == {BASE, PLACED}
    for condition, predicted in found.items():
        np.testing.assert_array_equal(predicted, LABELS, err_msg=condition)


def test_contextual_calibration_by_hand() -> None:
    test = {BASE: _answers(np.array([[0.6, 0.4], [0.8, 0.2]]), np.array([0, 1]))}
    null = {BASE: _answers(np.array([[0.7, 0.3], [0.1, 0.9]]), np.array([-1, -1]))}
    run = _run(test=test, content_free=null)
    # One input: 0.6/0.7 < 0.4/0.3, 0.8/0.7 > 0.2/0.3. Two inputs: means 0.4 and 0.6.
    assert _correct(run, 2, kind="contextual_calibration", n_inputs=1)[BASE].tolist() == [1, 0]
    assert _correct(run, 2, kind="contextual_calibration", n_inputs=2)[BASE].tolist() == [0, 0]


def test_prior_matching_learns_from_the_natural_order_alone(biased: PositionRun) -> None:
    without = _run(
        predicted=biased.predicted, test=biased.test, optimisation={"natural": biased.optimisation["natural"]}
    )  # fmt: skip
    found = _correct(without, kind="prior_matching")
    assert set(found) == set(biased.test)
    assert (found[BASE] == LABELS).mean() > 0.9
    assert (found[REVERSED] == LABELS).mean() < 0.5


def test_some_of_the_pooled_rows_are_of_both_orders() -> None:
    """Rows of the reversed order would be fitted on with other weights than those of the natural order."""
    natural = _answers(CONTENT * PRIOR, LABELS)
    turned = _answers(CONTENT * PRIOR[::-1], LABELS)
    run = _run(test={BASE: natural, REVERSED: turned}, optimisation={"natural": natural, "reversed": turned})
    method = {"kind": "dnip", "fit_on": "pooled", "rows": 110, "solver": "exact", "limits": "dcs"}
    found = _correct(run, **method)
    alone = _correct(run, **{**method, "fit_on": "natural"})
    assert (alone[BASE] == LABELS).all()
    assert not (found[BASE] == LABELS).all()
