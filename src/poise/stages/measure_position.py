"""Metrics of the position instrument: performance under each condition, flips between conditions, tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from poise import metrics as m
from poise import paths
from poise.answers import CellAnswers, CellChoices, read_answers, read_choices, read_demonstrations
from poise.cells import BASE_CONDITION, Cell, corrected
from poise.config.prompts import OrdinalPrompt, PairwisePrompt
from poise.config.schema import Probe, selects
from poise.files import read_parquet
from poise.plan import Plan
from poise.stages.conditions import BASE, REVERSED, asked_decoding, predict_cell
from poise.stages.imbalance import add_imbalance
from poise.stages.stochastic import add_stochastic
from poise.stages.tidy import HARD, Tidy, add_flips, provenance

# Predictions by method, then by condition.
Predictions = dict[str, dict[str, np.ndarray]]
Run = tuple[str, int]


def position(plan: Plan, experiment: str, model: str, dataset: str) -> list[dict[str, Any]]:
    """Metrics of all settings, methods and conditions of one model and data set, as rows of the tidy frame."""
    cells = [cell for cell in plan.groups[experiment, model, dataset] if cell.split == "test"]
    asked = [cell for cell in cells if cell.decoding == asked_decoding(plan, cell)]
    choices = read_choices(plan, cells)
    demonstrations = read_demonstrations(plan, asked)
    answers = read_answers(plan, [cell for cell in asked if cell.decoding == "scores" and _is_pointwise(plan, cell)])
    corrections = _read_corrections(plan, experiment, model, dataset)
    rows: list[dict[str, Any]] = []
    for (shots, seed, factor, level), members in _settings(asked).items():
        shared = {
            "experiment": experiment, "model": model, "dataset": dataset, "shots": shots, "seed": seed,
            "factor": factor, "level": level, "provenance": provenance(plan),
        }  # fmt: skip
        first = members[0]
        classes = plan.classes(first)
        labels = choices[first.id].labels
        predictions: Predictions = {}
        for cell in members:
            found = predict_cell(
                plan.prompts[cell.prompt], cell.label_order, choices[cell.id], demonstrations[cell.id], len(classes)
            )
            for method, predicted in found.items():
                predictions.setdefault(method, {})[cell.condition] = predicted
        if not factor:
            predictions |= corrections.get((shots, seed), {})
        rows += _setting_rows(plan, experiment, shared, labels, predictions, classes)
        if isinstance(plan.prompts[first.prompt], PairwisePrompt):
            rows += _orderless(plan, experiment, shared, list(predictions), labels)
        icl = Tidy(**shared, method="icl")
        _add_semantic(icl, plan, members, choices, _reported(plan, experiment, factor, labels))
        for cell in members:
            if cell.id in answers:
                _add_scoring(icl, answers[cell.id], cell.condition)
                if not factor and cell.condition == BASE:
                    _add_floor(icl, answers[cell.id])
        if not factor:
            texts = [cell for cell in cells if (cell.shots, cell.seed, cell.factor) == (shots, seed, "")]
            add_stochastic(icl, texts, choices, predictions["icl"][BASE], len(classes))
        rows += icl.rows
    return rows


def _settings(cells: Sequence[Cell]) -> dict[tuple[str, int, str, str], list[Cell]]:
    found: dict[tuple[str, int, str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.shots, cell.seed, cell.factor, cell.level), []).append(cell)
    return found


def _is_pointwise(plan: Plan, cell: Cell) -> bool:
    return isinstance(plan.prompts[cell.prompt], OrdinalPrompt)


def _read_corrections(plan: Plan, experiment: str, model: str, dataset: str) -> dict[Run, Predictions]:
    """Corrected predictions of the baseline setting by run."""
    found: dict[Run, Predictions] = {}
    for method in corrected(plan.study, plan.study.experiment[experiment], model):
        frame = read_parquet(paths.predictions(plan.study.name, experiment, model, dataset, method))
        for (shots, seed, condition), rows in frame.groupby(["shots", "seed", "condition"], sort=False):
            run = found.setdefault((str(shots), int(seed)), {})
            run.setdefault(method, {})[str(condition)] = rows["prediction"].to_numpy()
    return found


def _setting_rows(
    plan: Plan,
    experiment: str,
    shared: dict[str, Any],
    labels: np.ndarray,
    predictions: Predictions,
    classes: Sequence[str],
) -> list[dict[str, Any]]:
    """Performance and flips of one setting, on all rows.

    Where configurations are chosen on half of the rows, they and a copy of the baseline are reported on the other half.
    """
    config = plan.study.experiment[experiment]
    probes = [plan.study.probes[name] for name in config.probes]
    among = _reported(plan, experiment, shared["factor"], labels)
    rows = _measured(shared, labels, predictions, classes, probes, among)
    if experiment in selects(plan.study) and not shared["factor"]:
        again = {**shared, "factor": "configuration", "level": "baseline"}
        among = _reported(plan, experiment, "configuration", labels)
        rows += _measured(again, labels, predictions, classes, probes, among)
    return rows


def _reported(plan: Plan, experiment: str, factor: str, labels: np.ndarray) -> np.ndarray:
    """Mask of the rows that a factor is reported on: those that no configuration was chosen on, or all."""
    halves = factor == "configuration" and experiment in selects(plan.study)
    return ~selection_half(labels) if halves else np.ones(len(labels), dtype=bool)


def _orderless(
    plan: Plan, experiment: str, shared: dict[str, Any], methods: Sequence[str], labels: np.ndarray
) -> list[dict[str, Any]]:
    """Flip rates of pairwise inference under probes that cannot touch it: each pair is a prompt of its own."""
    note = "0 by construction: a pair is asked by itself, whatever the order and the place of the others"
    rows: list[dict[str, Any]] = []
    for method in methods:
        tidy = Tidy(**shared, method=method)
        for probe in map(plan.study.probes.get, plan.study.experiment[experiment].probes):
            if probe is not None and probe.field != "label_order":
                for contrast in probe.contrasts:
                    tidy.add(f"pfr_{contrast}", 0.0, condition=contrast, n=len(labels), note=note)
                    tidy.add(f"pfr_{contrast}_worst", 0.0, condition=contrast, n=len(labels), note=note)
        rows += tidy.rows
    return rows


def selection_half(labels: np.ndarray) -> np.ndarray:
    """Mask of the rows that configurations are chosen on: every other row of each class, the first included."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        chosen[np.flatnonzero(labels == label)[::2]] = True
    return chosen


def _measured(
    shared: dict[str, Any],
    labels: np.ndarray,
    predictions: Predictions,
    classes: Sequence[str],
    probes: Sequence[Probe],
    among: np.ndarray,
) -> list[dict[str, Any]]:
    labels = labels[among]
    kept = {
        method: {condition: predicted[among] for condition, predicted in by_condition.items()}
        for method, by_condition in predictions.items()
    }
    tidies = {method: Tidy(**shared, method=method) for method in kept}
    for method, tidy in tidies.items():
        for condition, predicted in kept[method].items():
            _add_ordinal(tidy, labels, predicted, condition, len(classes))
        for probe in probes:
            _add_probe(tidy, probe, labels, kept[method])
    if not shared["factor"]:
        for condition in kept["icl"]:
            here = {method: found[condition] for method, found in kept.items() if condition in found}
            add_imbalance(tidies, labels, here, classes, condition=condition)
    return [row for tidy in tidies.values() for row in tidy.rows]


def _add_ordinal(tidy: Tidy, labels: np.ndarray, predicted: np.ndarray, condition: str, n_classes: int) -> None:
    where = {"condition": condition, "n": len(labels)}
    tidy.add("accuracy", m.accuracy(labels, predicted), **where)
    tidy.add("macro_f1", m.macro_f1(labels, predicted, n_classes), **where)
    rho = m.spearman_rho(labels, predicted)
    note = "" if rho.defined else "undefined for a constant prediction, counted as 0"
    tidy.add("spearman_rho", rho.value, note=note, **where)
    tidy.add("mae", m.mean_absolute_error(labels, predicted), **where)


def _add_scoring(tidy: Tidy, answers: CellAnswers, condition: str) -> None:
    """Whether the model would write a label at all, and whether it is the most probable one."""
    n = len(answers.labels)
    parsed = answers.greedy >= 0
    tidy.add("parse_failure_rate", m.parse_failure_rate(answers.greedy), condition=condition, n=n,
             note="greedy decoding writes no label")  # fmt: skip
    if answers.hard:
        tidy.add("hard_predictions", 1, condition=condition, n=n, note=HARD)
        return
    tidy.add("label_mass", answers.label_mass.mean(), condition=condition, n=n)
    share = float((answers.greedy[parsed] == answers.predictions[parsed]).mean()) if parsed.any() else float("nan")
    tidy.add("greedy_agreement", share, condition=condition, n=int(parsed.sum()))


def _add_floor(tidy: Tidy, answers: CellAnswers) -> None:
    """Numerical floor: flips between the same requests in two groupings."""
    again = ~np.isnan(answers.regrouped).any(axis=1)
    if not again.any():
        return
    flips = m.flip_rate(answers.predictions[again], answers.regrouped[again].argmax(axis=1))
    tidy.add("flip_floor", flips.rate, condition=BASE, low=flips.low, high=flips.high, n=flips.n)
    gap = np.abs(answers.probabilities[again] - answers.regrouped[again]).max()
    note = "largest difference of a class probability"
    tidy.add("regrouping_gap", gap, condition=BASE, n=int(again.sum()), note=note)


def _add_semantic(
    tidy: Tidy, plan: Plan, members: Sequence[Cell], choices: Mapping[str, CellChoices], among: np.ndarray
) -> None:
    """P1 of natural-language labels if a word answered under the reversed order keeps its own meaning.

    ``pfr_p1`` maps it back as the paper does (M - parsed, E.1), though the word names another class.
    """
    prompt = plan.prompts[members[0].prompt]
    by_condition = {cell.condition: choices[cell.id].choices[among, 0] for cell in members}
    if isinstance(prompt, OrdinalPrompt) and prompt.label_format == "natural_language" and REVERSED in by_condition:
        note = "a word keeps its meaning under the reversed order"
        add_flips(tidy, "p1_semantic", [by_condition[BASE], by_condition[REVERSED]], note)


def _add_probe(tidy: Tidy, probe: Probe, labels: np.ndarray, predictions: Mapping[str, np.ndarray]) -> None:
    """Add flip rates of a probe's contrasts and tests of its accuracies, as far as a method has the conditions."""
    by_level = {level: predictions.get(condition_at(probe, level)) for level in probe.levels}
    found = {level: predicted for level, predicted in by_level.items() if predicted is not None}
    for contrast, levels in probe.contrasts.items():
        if all(level in found for level in levels):
            add_flips(tidy, contrast, [found[level] for level in levels])
    if len(found) < len(probe.levels):
        return
    right = {level: predicted == labels for level, predicted in found.items()}
    n = len(labels)
    if len(probe.levels) == 2:
        first, second = right.values()
        b, c = int((first & ~second).sum()), int((~first & second).sum())
        tidy.add("mcnemar_p", m.mcnemar_one_sided(b, c), condition=probe.name, n=n,
                 note=f"right under {probe.levels[0]} only: {b}; under {probe.levels[1]} only: {c}")  # fmt: skip
    else:
        q, p = m.cochran_q(np.column_stack(list(right.values())))
        tidy.add("cochran_q", q, condition=probe.name, n=n, note=f"{len(probe.levels) - 1} degrees of freedom")
        tidy.add("cochran_p", p, condition=probe.name, n=n)


def condition_at(probe: Probe, level: str) -> str:
    """Name of the condition in which a probe is at one of its levels."""
    return BASE if BASE_CONDITION[probe.field] == level else f"{probe.field}={level}"
