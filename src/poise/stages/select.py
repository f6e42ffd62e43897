"""Choosing joint configurations from a study's own factors, on half of the test rows (position paper, 5.2.2).

For each objective the best level of every prompt factor is taken, the baseline where nothing beats it, and the levels
are combined. The study's next plan has the combinations as levels of the factor ``configuration``; they are reported
on the other half of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from poise import metrics as m
from poise import paths
from poise.answers import read_choices
from poise.cells import Cell
from poise.config.factors import Factor, Level
from poise.config.schema import selecting_experiment
from poise.errors import PoiseError
from poise.files import write_json
from poise.plan import Plan
from poise.stages.conditions import BASE, asked_decoding, classes_of
from poise.stages.measure_position import condition_at, selection_half

# Objective by the level that it makes: the contrast whose flips are fewest, or accuracy.
OBJECTIVES = {"accuracy_optimal": "accuracy", "p1_optimal": "p1", "p2a_optimal": "p2a", "p2b_optimal": "p2b"}


def select(plan: Plan) -> None:
    """Write the chosen configurations of a study."""
    experiment, model = selecting_experiment(plan.study)
    config = plan.study.experiment[experiment]
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for dataset in config.datasets:
        cells = [cell for cell in plan.groups.get((experiment, model, dataset), ()) if cell.split == "test"]
        for key, found in _values(plan, cells).items():
            for objective, numbers in found.items():
                # Per data set: the mean over its seeds.
                values.setdefault(key, {}).setdefault(objective, []).append(float(np.mean(numbers)))
    if not values:
        raise PoiseError(f"experiment {experiment}: no answers of model {model} to choose configurations from")
    means = {key: {name: float(np.mean(numbers)) for name, numbers in found.items()} for key, found in values.items()}
    factors = [
        plan.study.factors[name] for name in plan.study.factors_of(config) if plan.study.factors[name].chooses_prompt
    ]
    titles = {
        key: level.title for key, level in plan.study.factors["configuration"].levels.items() if level is not None
    }
    write_json(
        paths.selection(plan.study.name),
        {
            "experiment": experiment,
            "model": model,
            "levels": {
                name: {"title": titles.get(name, name), **combine(factors, means, objective)}
                for name, objective in OBJECTIVES.items()
            },
        },
    )


def combine(
    factors: Sequence[Factor], means: Mapping[tuple[str, str], Mapping[str, float]], objective: str
) -> dict[str, Any]:
    """Combine the best level of each factor; ``means`` is by (factor, level), the baseline's key has empty names."""
    sign = 1 if objective == "accuracy" else -1
    prompt: dict[str, Any] = {}
    shots: str | None = None
    for factor in factors:
        best, best_value = None, means["", ""].get(objective, float("nan"))
        for name, level in factor.changes.items():
            value = means.get((factor.name, name), {}).get(objective)
            if value is not None and np.isfinite(value) and not sign * value <= sign * best_value:
                best, best_value = level, value
        if best is not None:
            prompt |= best.prompt
            shots = best.shots or shots
    return Level(title="chosen", prompt=prompt, shots=shots).model_dump(include={"prompt", "shots"})


def _values(plan: Plan, cells: Sequence[Cell]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Objectives of each setting on the choosing half of the rows, one number a set of demonstrations."""
    cells = [cell for cell in cells if cell.decoding == asked_decoding(plan, cell) and cell.parts == 1]
    choices = read_choices(plan, cells)
    runs: dict[tuple[str, str, str, int], dict[str, np.ndarray]] = {}
    labels: dict[tuple[str, str, str, int], np.ndarray] = {}
    for cell in cells:
        found = choices[cell.id]
        half = selection_half(found.labels)
        key = (cell.factor, cell.level, cell.shots, cell.seed)
        predicted = classes_of(found.choices[:, 0], len(plan.classes(cell)), cell.label_order)
        runs.setdefault(key, {})[cell.condition] = predicted[half]
        labels[key] = found.labels[half]
    contrasts = contrast_conditions(plan)
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for key, by_condition in runs.items():
        numbers = values.setdefault(key[:2], {})
        numbers.setdefault("accuracy", []).append(m.accuracy(labels[key], by_condition[BASE]))
        for contrast, pair in contrasts.items():
            if all(condition in by_condition for condition in pair):
                numbers.setdefault(contrast, []).append(m.flip_rate(*(by_condition[name] for name in pair)).rate)
    return values


def contrast_conditions(plan: Plan) -> dict[str, list[str]]:
    """Conditions that each contrast of the study's probes compares."""
    return {
        contrast: [condition_at(probe, level) for level in levels]
        for probe in plan.study.probes.values()
        for contrast, levels in probe.contrasts.items()
    }
