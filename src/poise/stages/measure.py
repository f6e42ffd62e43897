"""Measurement: predictions become tidy metrics, one row a number."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from poise import gathering, paths
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


def collect(plan: Plan, instrument: str, part: int | None = None) -> None:
    """Gather the metrics of one instrument, or one part of them, into one file; ``timing`` has the seconds of fits."""
    study = plan.study.name
    if part is None:
        write_parquet(paths.metrics(study, instrument), _gathered(plan, gathering.inputs(plan, instrument)))
    else:
        found = _gathered(plan, gathering.part_sources(plan, instrument, part))
        write_parquet(paths.metrics_part(study, instrument, part), found)


def _gathered(plan: Plan, files: Sequence[Path]) -> pd.DataFrame:
    seconds = {paths.timings(plan.study.name, *correction): correction for correction in plan.corrections}
    frames = [
        tidy_frame(_timings(plan, path, *seconds[path])) if path in seconds else read_parquet(path) for path in files
    ]
    return pd.concat(frames, ignore_index=True) if frames else tidy_frame([])


def _timings(
    plan: Plan, path: Path, experiment: str, model: str, dataset: str, method: str
) -> Iterator[dict[str, Any]]:
    for run in json.loads(path.read_text(encoding="utf-8")):
        yield {
            "experiment": experiment, "model": model, "dataset": dataset, "shots": run["shots"],
            "seed": run["seed"], "method": method, "condition": "base", "metric": "fit_seconds",
            "value": run["seconds"], "provenance": provenance(plan),
        }  # fmt: skip
