"""What a plan would ask, in words and numbers, before anything runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tabulate import tabulate

from poise import paths
from poise.cells import reachable
from poise.config.schema import Model, selects
from poise.plan import Plan
from poise.planfile import describe


def describe_plan(plan: Plan, path: Path) -> str:
    """Summarise a plan: sources, cells and requests by experiment, batches to run, the command that runs it."""
    study = plan.study
    lines = [f"Study {study.name}: {study.title}", f"  plan     {path}"]
    lines += [f"  model    {model.name}: {describe(model)}{_caveats(plan, model)}" for model in study.models.values()]
    lines += [f"  data     {dataset.name}: {describe(dataset)}" for dataset in study.datasets.values()]
    rows = []
    for (experiment, model, dataset), cells in plan.groups.items():
        by_split = Counter(cell.split for cell in cells)
        conditions = len({cell.condition for cell in cells})
        known = [None if cell.rows is None else cell.rows * cell.parts for cell in cells]
        requests = str(sum(n for n in known if n is not None)) if None not in known else "all rows"
        splits = ", ".join(f"{n} {split}" for split, n in by_split.items())
        rows.append([experiment, model, dataset, splits, conditions, requests])
    header = ["experiment", "model", "data set", "cells", "conditions", "requests at most"]
    lines += ["", tabulate(rows, header), ""]
    done = [batch for batch in plan.batches if (paths.batch_dir(batch.model, batch.id) / "responses.parquet").exists()]
    lines.append(
        f"Batches: {len(plan.batches)}, of which {len(done)} are answered already (one model load for each other)."
    )
    if selects(study):
        chosen = paths.selection(study.name)
        lines.append(
            f"Joint configurations: as chosen in {chosen}."
            if chosen.is_file()
            else f"Joint configurations: this run chooses them ({chosen}); run the study once more to measure them."
        )
    lines.append(f"Artefacts: {', '.join(study.artefacts)}")
    lines += ["", f"Run it:  snakemake --cores all --config study={study.name}"]
    return "\n".join(lines)


def _caveats(plan: Plan, model: Model) -> str:
    """What to know of a model before trusting, or waiting for, its rows."""
    notes = ["assumed: the paper does not name the checkpoint"] if model.assumed else []
    engine = plan.study.engine_of(model)
    if not reachable(engine, model):
        hint = "add +engine@api=openai to ask it" if model.api else "its weights need engine=transformers or vllm"
        notes.append(f"the {engine.kind} engine does not reach it: no cells, its rows are not measured; {hint}")
    return "".join(f" ({note})" for note in notes)
