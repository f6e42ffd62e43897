"""The position instrument's answers by probe condition: predictions, and corrections applied under each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poise import methods as m
from poise.answers import CellAnswers, CellChoices, read_answers, read_choices
from poise.cells import Cell, fitted_orders
from poise.config.methods import (
    BatchCalibrationMethod,
    ContextualCalibrationMethod,
    DemonstrationAveragingMethod,
    DNIPMethod,
    LabelAveragingMethod,
    Method,
    PriDeMethod,
)
from poise.config.prompts import ListwisePrompt, PairwisePrompt, Prompt
from poise.plan import Plan
from poise.prompts.scale import label_position
from poise.stages.fitting import Evidence, Labelled, fit

BASE = "base"
REVERSED = "label_order=reversed"
ASCENDING = "demonstration_order=ascending"
DESCENDING = "demonstration_order=descending"
_ORDERS = {"natural": BASE, "reversed": REVERSED}


def predict_cell(
    prompt: Prompt, label_order: str, chosen: CellChoices, demonstrations: Sequence[int], n_classes: int
) -> dict[str, np.ndarray]:
    """Classes that a cell predicts, by method: ``icl``, or one for each aggregation rule where pairs were compared.

    Parameters
    ----------
    prompt
        Its kind is the paradigm.
    label_order
        ``natural`` or ``reversed``; chosen positions are mapped back to classes.
    chosen
        What the model chose, position by position.
    demonstrations
        Class of each demonstration, in the order that pairs were asked in.
    n_classes
        Number of classes.
    """
    choices = chosen.choices
    if isinstance(prompt, PairwisePrompt):
        scores = m.consensus(choices[:, 0::2], choices[:, 1::2], reversed_question=label_order == "reversed")
        labels = np.asarray(demonstrations)
        return {name: rule(scores, labels, n_classes) for name, rule in m.AGGREGATION_RULES.items()}
    if isinstance(prompt, ListwisePrompt):
        place = m.majority_of_groups(choices) if prompt.labelled else m.listwise_position(choices, n_classes)
    else:
        place = choices[:, 0]
    return {"icl": classes_of(place, n_classes, label_order)}


def classes_of(positions: np.ndarray, n_classes: int, label_order: str) -> np.ndarray:
    """Classes that label positions stand for; an unparsed answer stays -1."""
    by_position = np.array([label_position(k, n_classes, label_order) for k in range(n_classes)] + [-1])
    mapped: np.ndarray = by_position[positions]
    return mapped


@dataclass(frozen=True)
class PositionRun:
    """Answers of one set of demonstrations at the baseline setting.

    Attributes
    ----------
    shots, seed
        Which demonstrations.
    rows, labels
        Ids and true classes of the test rows.
    predicted
        Uncorrected predictions by condition.
    test, content_free
        Scores by condition; empty for a model that answers in text.
    optimisation
        Scores of labelled rows by label order.
    """

    shots: str
    seed: int
    rows: np.ndarray
    labels: np.ndarray
    predicted: Mapping[str, np.ndarray]
    test: Mapping[str, CellAnswers]
    content_free: Mapping[str, CellAnswers]
    optimisation: Mapping[str, CellAnswers]


def read_position_runs(plan: Plan, cells: Sequence[Cell]) -> Iterator[PositionRun]:
    """Gather the baseline setting's answers, one run for each set of demonstrations."""
    decimals = plan.study.experiment[cells[0].experiment].round_decimals
    runs: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        if not cell.factor and cell.decoding == asked_decoding(plan, cell):
            runs.setdefault((cell.shots, cell.seed), []).append(cell)
    asked = [cell for members in runs.values() for cell in members]
    found = read_answers(plan, [cell for cell in asked if cell.decoding == "scores"])
    answers = {key: answer.rounded(decimals) for key, answer in found.items()}
    choices = read_choices(plan, [cell for cell in asked if cell.split == "test"])
    for (shots, seed), members in runs.items():
        test = [cell for cell in members if cell.split == "test"]
        scored = [cell for cell in members if cell.decoding == "scores"]
        first = choices[test[0].id]
        yield PositionRun(
            shots=shots,
            seed=seed,
            rows=first.rows,
            labels=first.labels,
            predicted={
                cell.condition: classes_of(choices[cell.id].choices[:, 0], len(plan.classes(cell)), cell.label_order)
                for cell in test
            },
            test={cell.condition: answers[cell.id] for cell in scored if cell.split == "test"},
            content_free={cell.condition: answers[cell.id] for cell in scored if cell.split == "content_free"},
            optimisation={cell.label_order: answers[cell.id] for cell in scored if cell.split == "optimisation"},
        )


def asked_decoding(plan: Plan, cell: Cell) -> str:
    """How a model answers outside Phase 0b: by scores, or in greedy text."""
    return "scores" if plan.study.models[cell.model].answers == "scores" else "greedy"


def correct_conditions(
    method: Method, run: PositionRun, n_classes: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Predictions of a method under every condition that it leaves comparable, and a record of what it learned.

    Averaging merges conditions, so that one prediction is left (position paper, G.3). Calibrations are fitted anew
    under each condition; DNIP and other weights are fitted once and applied under all.
    """
    predicted = run.predicted
    if isinstance(method, LabelAveragingMethod):
        return {BASE: m.average_labels(predicted[BASE], predicted[REVERSED], method.rounding)}, {}
    if isinstance(method, DemonstrationAveragingMethod):
        return {BASE: m.average_labels(predicted[ASCENDING], predicted[DESCENDING], method.rounding)}, {}
    if isinstance(method, PriDeMethod):
        return _pride(run)
    if isinstance(method, BatchCalibrationMethod | ContextualCalibrationMethod):
        found: dict[str, np.ndarray] = {}
        for condition, answers in run.test.items():
            null = run.content_free.get(condition)
            evidence = Evidence(answers.probabilities, content_free=None if null is None else null.probabilities)
            predictor, _ = fit(method, evidence, n_classes)
            found[condition] = np.asarray(predictor.predict(answers.probabilities))
        return found, {}
    return _weighted(method, run, n_classes)


def _pride(run: PositionRun) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    both = [_by_position(run.test[condition].probabilities, order) for order, condition in _ORDERS.items()]
    fitted = m.PriDe().fit(np.stack(both))
    return _apply_by_position(fitted, run), {"weights": fitted.weights_.tolist()}


def _weighted(method: Method, run: PositionRun, n_classes: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """One set of weights, by class or by prompt label, fitted on the rows of one label order or of both."""
    by_position = isinstance(method, DNIPMethod) and method.axis == "label_token"
    stacked, labels = [], []
    for order in fitted_orders(method):
        answers = run.optimisation[order]
        stacked.append(_by_position(answers.probabilities, order) if by_position else answers.probabilities)
        labels.append(classes_of(answers.labels, n_classes, order) if by_position else answers.labels)
    # Row by row, so that a method that takes some of the rows takes both orders alike.
    rows = Labelled(np.stack(stacked, axis=1).reshape(-1, n_classes), np.stack(labels, axis=1).reshape(-1))
    evidence = Evidence(test=run.test[BASE].probabilities, optimisation=rows)
    predictor, record = fit(method, evidence, n_classes)
    if by_position:
        return _apply_by_position(predictor, run), record
    return {
        condition: np.asarray(predictor.predict(answers.probabilities)) for condition, answers in run.test.items()
    }, record


def _apply_by_position(predictor: Any, run: PositionRun) -> dict[str, np.ndarray]:
    found = {}
    for condition, answers in run.test.items():
        order = "reversed" if condition == REVERSED else "natural"
        places = np.asarray(predictor.predict(_by_position(answers.probabilities, order)))
        found[condition] = classes_of(places, answers.probabilities.shape[1], order)
    return found


def _by_position(probabilities: np.ndarray, order: str) -> np.ndarray:
    """Columns in the order in which the prompt lists the labels."""
    return probabilities[:, ::-1] if order == "reversed" else probabilities
