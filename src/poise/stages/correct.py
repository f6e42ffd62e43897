"""Correction: fit one method on the optimisation rows of each cell, predict its test rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from poise import paths
from poise.answers import CellAnswers, read_answers
from poise.config.schema import Method
from poise.errors import PoiseError
from poise.files import write_json, write_parquet
from poise.plan import Cell, Plan


def correct(plan: Plan, experiment: str, model: str, dataset: str, method: str) -> None:
    """Write the predictions of a method (one row a test row of each shots and seed) and, beside them, its fits."""
    config = plan.study.methods[method]
    cells = plan.groups[experiment, model, dataset]
    answers = read_answers(plan, cells)
    predictions, fits = [], []
    for test, optimisation in paired_splits(cells):
        predicted, fit = predict(config, answers[optimisation.id], answers[test.id], f"{dataset}, seed {test.seed}")
        fits.append({"shots": test.shots, "seed": test.seed, **fit})
        predictions.append(
            pd.DataFrame(
                {
                    "shots": test.shots,
                    "seed": test.seed,
                    "row": answers[test.id].rows,
                    "label": answers[test.id].labels,
                    "prediction": predicted,
                }
            )
        )
    target = paths.predictions(plan.study.name, experiment, model, dataset, method)
    write_json(target.with_suffix(".json"), fits)
    write_parquet(target, pd.concat(predictions, ignore_index=True))


def paired_splits(cells: tuple[Cell, ...]) -> Iterator[tuple[Cell, Cell]]:
    """Test cells with the optimisation cells of the same demonstrations."""
    optimisation = {(cell.shots, cell.seed): cell for cell in cells if cell.split == "optimisation"}
    for cell in cells:
        if cell.split == "test":
            yield cell, optimisation[cell.shots, cell.seed]


def predict(method: Method, fit_on: CellAnswers, test: CellAnswers, where: str) -> tuple[np.ndarray, dict[str, Any]]:
    """Predictions of a method on test answers, and a JSON-pure record of what it learned."""
    if method.kind == "icl":
        return test.predictions, {}
    from poise.methods import DNIP

    estimator = DNIP(
        n_levels=method.n_levels,
        beta=method.beta,
        tau=method.tau,
        mu=method.mu,
        objective=method.objective,
        solver=method.solver,
        random_state=method.random_state,
    )
    try:
        estimator.fit(fit_on.probabilities, fit_on.labels)
    except ValueError as error:
        raise PoiseError(f"method {method.name} on {where}: {error}") from error
    record = {
        "weights": estimator.weights_.tolist(),
        "objective": float(estimator.objective_),
        "evaluations": int(estimator.n_evaluations_),
        "certified": bool(estimator.certified_),
        "rows": len(fit_on.labels),
        "mu": float(estimator.mu_),
    }
    return np.asarray(estimator.predict(test.probabilities)), record
