"""What a plan would ask, in words and numbers, before anything runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tabulate import tabulate

from poise import paths
from poise.plan import Plan
from poise.planfile import describe


def describe_plan(plan: Plan, path: Path) -> str:
    """Summarise a plan: sources, cells and requests by experiment, batches to run, the command that runs it."""
    study = plan.study
    lines = [f"Study {study.name}: {study.title}", f"  plan     {path}"]
    lines += [f"  model    {model.name}: {describe(model)}" for model in study.models.values()]
    lines += [f"  data     {dataset.name}: {describe(dataset)}" for dataset in study.datasets.values()]
    rows = []
    for (experiment, model, dataset), cells in plan.groups.items():
        by_split = Counter(cell.split for cell in cells)
        conditions = len({cell.condition for cell in cells})
        known = [cell.rows for cell in cells]
        requests = str(sum(n for n in known if n is not None)) if None not in known else "all rows"
        splits = ", ".join(f"{n} {split}" for split, n in by_split.items())
        rows.append([experiment, model, dataset, splits, conditions, requests])
    header = ["experiment", "model", "data set", "cells", "conditions", "requests at most"]
    lines += ["", tabulate(rows, header), ""]
    done = [batch for batch in plan.batches if (paths.batch_dir(batch.model, batch.id) / "responses.parquet").exists()]
    lines.append(
        f"Batches: {len(plan.batches)}, of which {len(done)} are answered already (one model load for each other)."
    )
    lines.append(f"Artefacts: {', '.join(study.artefacts)}")
    lines += ["", f"Run it:  snakemake --cores all --config study={study.name}"]
    return "\n".join(lines)
