"""Measurement: predictions become tidy metrics, one row a number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd

from poise import paths
from poise.files import read_parquet, write_parquet
from poise.plan import Plan
from poise.stages.measure_class_accuracy import class_accuracy
from poise.stages.measure_position import position
from poise.stages.measure_written import written
from poise.stages.tidy import provenance, tidy_frame

_STAGES = {"class_accuracy": class_accuracy, "position": position, "written": written}


def measure(plan: Plan, experiment: str, model: str, dataset: str) -> None:
    """Write the metrics of one model and data set in one experiment."""
    rows = _STAGES[plan.study.experiment[experiment].instrument](plan, experiment, model, dataset)
    write_parquet(paths.cell_metrics(plan.study.name, experiment, model, dataset), tidy_frame(rows))


def collect(plan: Plan, instrument: str) -> None:
    """Gather the metrics of one instrument into one file; ``timing`` gathers the seconds that fits took."""
    if instrument == "timing":
        write_parquet(paths.metrics(plan.study.name, instrument), tidy_frame(_timings(plan)))
        return
    names = {experiment.name for experiment in plan.experiments(instrument)}
    frames = [read_parquet(paths.cell_metrics(plan.study.name, *group)) for group in plan.groups if group[0] in names]
    frame = pd.concat(frames, ignore_index=True) if frames else tidy_frame([])
    write_parquet(paths.metrics(plan.study.name, instrument), frame)


def _timings(plan: Plan) -> Iterator[dict[str, Any]]:
    for experiment, model, dataset, method in plan.corrections:
        path = paths.predictions(plan.study.name, experiment, model, dataset, method).with_suffix(".timings.json")
        for run in json.loads(path.read_text(encoding="utf-8")):
            yield {
                "experiment": experiment, "model": model, "dataset": dataset, "shots": run["shots"],
                "seed": run["seed"], "method": method, "condition": "base", "metric": "fit_seconds",
                "value": run["seconds"], "provenance": provenance(plan),
            }  # fmt: skip
