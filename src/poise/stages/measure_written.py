"""Metrics of written answers: the label itself, or the label at the end of a chain of thought (DNIP paper, 6 and A)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poise import metrics as m
from poise.answers import read_choices, read_readings, read_reasons
from poise.cells import Cell
from poise.config.prompts import ChainOfThoughtPrompt
from poise.plan import Plan
from poise.stages.imbalance import add_imbalance
from poise.stages.tidy import Tidy, provenance

BASE = "base"
ANSWER_TOKEN = "answer_token"
CHAIN_OF_THOUGHT = "chain_of_thought"
OFF_BY_ONE = "chain_of_thought_off_by_one"
NO_LABEL = "no label"
TEXT_ONLY = "the server tells texts only: the prediction is the last label of the text"


@dataclass(frozen=True)
class _Condition:
    """Predictions on the test rows of one run, -1 where there is none, and what else is known of the texts."""

    labels: np.ndarray
    predictions: np.ndarray
    is_text: bool
    matched: np.ndarray | None = None
    note: str = ""


def written(plan: Plan, experiment: str, model: str, dataset: str) -> list[dict[str, Any]]:
    """Metrics of one model and data set in an experiment of written answers, as rows of the tidy frame.

    Conditions: ``base`` (the plain prompt's most probable label), and ``answer_token``, or ``chain_of_thought`` and
    ``chain_of_thought_off_by_one`` (the same texts, read one token too late). Changes are against ``base`` on the same
    rows.
    """
    classes = plan.study.datasets[dataset].classes
    runs: dict[tuple[str, int], list[Cell]] = {}
    for cell in plan.groups[experiment, model, dataset]:
        runs.setdefault((cell.shots, cell.seed), []).append(cell)
    rows: list[dict[str, Any]] = []
    for (shots, seed), cells in runs.items():
        found = dict(_conditions(plan, cells))
        shared = {
            "experiment": experiment, "model": model, "dataset": dataset, "shots": shots, "seed": seed, "method": "icl",
            "provenance": provenance(plan),
        }  # fmt: skip
        rows += _rows(shared, found, classes)
        for reasons in read_reasons(plan, [cell for cell in cells if _is_chain(plan, cell)]).values():
            tidy = Tidy(**shared, condition=CHAIN_OF_THOUGHT, n=len(reasons))
            tidy.add("template_reasons", reasons.count("template"))
            rows += tidy.rows
    return rows


def _is_chain(plan: Plan, cell: Cell) -> bool:
    return isinstance(plan.prompts[cell.prompt], ChainOfThoughtPrompt)


def _conditions(plan: Plan, cells: Sequence[Cell]) -> Iterator[tuple[str, _Condition]]:
    plain = [cell for cell in cells if not _is_chain(plan, cell)]
    choices = read_choices(plan, plain)
    reasoned = len(plain) < len(cells)
    for cell in plain:
        found = choices[cell.id]
        is_text = cell.decoding != "scores"
        name = ANSWER_TOKEN if is_text and not reasoned else BASE
        yield name, _Condition(found.labels, found.choices[:, 0], is_text)
    for readings in read_readings(plan, [cell for cell in cells if _is_chain(plan, cell)]).values():
        note = TEXT_ONLY if readings.text_only else ""
        yield CHAIN_OF_THOUGHT, _Condition(readings.labels, readings.at_label, False, readings.matched, note)
        if not readings.text_only:
            yield OFF_BY_ONE, _Condition(readings.labels, readings.after_label, False, readings.matched)


def _rows(
    shared: Mapping[str, Any], conditions: Mapping[str, _Condition], classes: Sequence[str]
) -> list[dict[str, Any]]:
    # The plain prompt is what the others are compared with; add_imbalance knows it as icl.
    names = {"icl" if name == BASE else name: name for name in conditions}
    tidies = {
        key: Tidy(**shared, condition=name, n=len(conditions[name].labels)) for key, name in names.items()
    }  # fmt: skip
    predictions = {key: conditions[name].predictions for key, name in names.items()}
    labels = next(iter(conditions.values())).labels
    add_imbalance(tidies, labels, predictions, classes)
    for key, name in names.items():
        tidy, condition, predicted = tidies[key], conditions[name], predictions[key]
        accuracy = m.accuracy(labels, predicted)
        tidy.add("accuracy", accuracy, note=condition.note)
        if "icl" in predictions and key != "icl":
            tidy.add("accuracy_difference", accuracy - m.accuracy(labels, predictions["icl"]), note="minus icl")
        if condition.matched is not None:
            tidy.add("label_match_rate", condition.matched.mean())
        if condition.is_text:
            tidy.add("parse_failure_rate", m.parse_failure_rate(predicted))
        _add_counts(tidy, labels, predicted, classes)
    return [row for tidy in tidies.values() for row in tidy.rows]


def _add_counts(tidy: Tidy, labels: np.ndarray, predicted: np.ndarray, classes: Sequence[str]) -> None:
    """Confusion matrix; where some prediction is no label, these are a column of their own."""
    counts = m.confusion_counts(labels, predicted, len(classes))
    sizes = np.bincount(labels, minlength=len(classes))
    for i, name in enumerate(classes):
        for j, predicted_name in enumerate(classes):
            tidy.add("count", counts[i, j], **{"class": name, "pred_class": predicted_name, "n": int(sizes[i])})
        if (predicted < 0).any():
            missing = sizes[i] - counts[i].sum()
            tidy.add("count", missing, **{"class": name, "pred_class": NO_LABEL, "n": int(sizes[i])})
