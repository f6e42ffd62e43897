"""Correction: fit one method for each set of demonstrations and predict the test rows of its cells."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from poise import methods as m
from poise import paths
from poise.answers import CellAnswers, read_answers
from poise.cells import Cell
from poise.config.methods import DNIPMethod, ICLMethod, Method
from poise.errors import PoiseError
from poise.files import write_json, write_parquet
from poise.plan import Plan
from poise.stages.conditions import PositionRun, correct_conditions, read_position_runs
from poise.stages.fitting import Evidence, Labelled, fit


def correct(plan: Plan, experiment: str, model: str, dataset: str, method: str) -> None:
    """Write what a method predicts (one row a test row of each shots, seed and condition), its fits, their seconds.

    Seconds stand in a file of their own: they differ between runs, and nothing else may.
    """
    config = plan.study.methods[method]
    n_classes = len(plan.study.datasets[dataset].classes)
    cells = plan.groups[experiment, model, dataset]
    position = plan.study.experiment[experiment].instrument == "position"
    _load_compiled(config)
    predictions, fits, timings = [], [], []
    for run in read_position_runs(plan, cells) if position else read_runs(plan, cells):
        where = {"shots": run.shots, "seed": run.seed}
        started = time.perf_counter()
        try:
            if isinstance(run, PositionRun):
                predicted, record = correct_conditions(config, run, n_classes)
            else:
                alone, record = predict(config, run, n_classes)
                predicted = {"base": alone}
        except ValueError as error:
            raise PoiseError(f"method {method} on {dataset}, {run.shots}, seed {run.seed}: {error}") from error
        timings.append({**where, "seconds": time.perf_counter() - started})
        fits.append({**where, **record})
        for condition, classes in predicted.items():
            frame = pd.DataFrame({"row": run.rows, "label": run.labels, "prediction": classes})
            predictions.append(frame.assign(condition=condition, **where))
    target = paths.predictions(plan.study.name, experiment, model, dataset, method)
    write_json(paths.timings(plan.study.name, experiment, model, dataset, method), timings)
    write_json(target.with_suffix(".json"), fits)
    write_parquet(target, pd.concat(predictions, ignore_index=True))


def _load_compiled(method: Method) -> None:
    """Fit four made-up rows, so that loading or compiling a solver is in no run's seconds."""
    if isinstance(method, DNIPMethod):
        rows = np.array([[0.6, 0.4], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]], dtype=np.float32)
        m.DNIP(solver=method.solver, objective=method.objective, limits="dcs").fit(rows, np.array([0, 1, 1, 0]))


@dataclass(frozen=True)
class Run:
    """Answers of one set of demonstrations in the class-accuracy instrument, split by split."""

    shots: str
    seed: int
    test: CellAnswers
    optimisation: CellAnswers
    development: CellAnswers | None = None
    content_free: CellAnswers | None = None

    @property
    def rows(self) -> np.ndarray:
        """Ids of the test rows."""
        return self.test.rows

    @property
    def labels(self) -> np.ndarray:
        """True classes of the test rows."""
        return self.test.labels


def read_runs(plan: Plan, cells: Sequence[Cell]) -> Iterator[Run]:
    """Gather the splits of each set of demonstrations."""
    decimals = plan.study.experiment[cells[0].experiment].round_decimals
    answers = {cell: answer.rounded(decimals) for cell, answer in read_answers(plan, cells).items()}
    splits: dict[tuple[str, int], dict[str, CellAnswers]] = {}
    for cell in cells:
        splits.setdefault((cell.shots, cell.seed), {})[cell.split] = answers[cell.id]
    for (shots, seed), found in splits.items():
        yield Run(shots, seed, **found)


def predict(method: Method, run: Run, n_classes: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Predictions of a method on the test rows of a run, and a JSON-pure record of what it learned."""
    if isinstance(method, ICLMethod):
        return run.test.predictions, {"hard": True} if run.test.hard else {}
    development, content_free = run.development, run.content_free
    evidence = Evidence(
        test=run.test.probabilities,
        optimisation=Labelled(run.optimisation.probabilities, run.optimisation.labels),
        development=None if development is None else Labelled(development.probabilities, development.labels),
        content_free=None if content_free is None else content_free.probabilities,
    )
    predictor, record = fit(method, evidence, n_classes)
    return np.asarray(predictor.predict(run.test.probabilities)), record
