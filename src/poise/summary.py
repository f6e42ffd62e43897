"""What a plan would ask, in words and numbers, before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tabulate import tabulate

from poise import paths
from poise.config.schema import selects
from poise.plan import Plan
from poise.planfile import caveats, describe
from poise.pricing import Estimate


def describe_plan(plan: Plan, path: Path, prices: Sequence[Estimate]) -> str:
    """Summarise a plan: sources, cells and requests by experiment, batches to run, the command that runs it."""
    study = plan.study
    lines = [f"Study {study.name}: {study.title}", f"  plan     {path}"]
    lines += [f"  model    {model.name}: {describe(model)}{caveats(plan, model)}" for model in study.models.values()]
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
    lines += [*price_lines(plan, prices), ""]
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


def price_lines(plan: Plan, prices: Sequence[Estimate]) -> list[str]:
    """What each model takes: requests, tokens, hours, dollars, with where the figures are from."""
    rows = [
        [
            item.model.name, f"{_number(item.n_left)} of {_number(item.n_requests)}", _number(item.prompt_tokens),
            _number(item.computed_tokens), _number(item.new_tokens), _hours(item), _cost(item),
        ]
        for item in prices
    ]  # fmt: skip
    header = [
        "model", "requests left", "tokens in prompts", "tokens to compute", "tokens to write, at most",
        "hours on one device", "US dollars, at most",
    ]  # fmt: skip
    lines = [
        "What is left to ask, estimated from a few prompts; the text that prompts share is computed once:",
        "",
        tabulate(rows, header, disable_numparse=True, colalign=("left", *["right"] * (len(header) - 1))),
        "",
    ]
    notes: dict[str, list[str]] = {}
    for item in prices:
        for note in _notes(plan, item):
            notes.setdefault(note, []).append(item.model.name)
    for note, names in notes.items():
        whose = "all models" if len(names) == len(prices) > 1 else ", ".join(names)
        lines.append(f"  {whose}: {note}")
    return lines


def _notes(plan: Plan, item: Estimate) -> Iterator[str]:
    """What a row of the table rests on."""
    if item.n_left == 0:
        return
    if item.prompt_tokens is None:
        yield f"? is known once the data are prepared: snakemake --cores 1 sources --config study={plan.study.name}"
    elif not item.own_tokenizer:
        yield "a token is taken for four characters, as the model's own tokenizer is not here"
    if item.rate is None:
        yield item.rate_source
    else:
        yield f"{item.rate:,.0f} tokens a second, {item.rate_source}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


def _hours(item: Estimate) -> str:
    if item.n_left == 0:
        return "0"
    return "?" if item.hours is None else f"{item.hours:.2g}"


def _cost(item: Estimate) -> str:
    if not item.model.api:
        return "–"
    if item.model.price is None:
        return "price not configured"
    return "?" if item.cost_usd is None else f"{item.cost_usd:,.2f}"
