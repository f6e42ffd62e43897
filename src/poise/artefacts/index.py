"""The page that lists every table and figure: id, rule, module, place in the papers. Light."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from poise.artefacts.registry import ARTEFACTS, Artefact, artefact_outputs, location

_HEAD = """\
# Tables and figures

Every artefact by its id, as `src/poise/artefacts/registry.py` registers it. `make docs` writes this page and a test
keeps it fresh. The rules are in [workflow/rules/artefacts.smk](../workflow/rules/artefacts.smk): `table` calls
`poise table`, `figure` calls `poise figure`. Their functions read tidy metrics and the plan, nothing else.

To make one: `snakemake --cores all {table}`,
or `{figure}`; of another study, with its name in the place of `demo` and
`--config study=<name>`. A study makes those that its `artefacts` name.

`paper` numbers, from `data/reference/`, stand beside measured ones of the same model and data set.
"""
_PARTS = {
    "dnip_table": "Class-accuracy imbalance: tables",
    "dnip_figure": "Class-accuracy imbalance: figures",
    "position_table": "Positional instability: tables",
    "position_figure": "Positional instability: figures",
    "joint": "Both instruments on one grid",
}


def artefact_page() -> str:
    """All artefacts as a Markdown page."""
    study = "demo"
    table, figure = (artefact_outputs(study, name)[0] for name in ("dnip_table3", "position_figure3"))
    parts = [_HEAD.format(table=table.with_suffix(".md"), figure=figure)]
    for part, title in _PARTS.items():
        rows = [_row(name, artefact) for name, artefact in ARTEFACTS.items() if _part(name, artefact) == part]
        parts.append("\n".join([f"## {title}\n", *_table(rows)]) + "\n")
    return "\n".join(parts)


def _part(name: str, artefact: Artefact) -> str:
    instrument = name.partition("_")[0]
    return instrument if instrument == "joint" else f"{instrument}_{artefact.kind}"


def _row(name: str, artefact: Artefact) -> list[str]:
    module, _, function = artefact.maker.partition(":")
    return [
        f"`{name}`",
        f"**{artefact.title}.** {artefact.reading}",
        location(name),
        f"`{artefact.kind}`",
        f"[{module}](../src/poise/artefacts/{module.replace('.', '/')}.py) `{function}`",
        ", ".join(artefact.instruments),
        ", ".join(f"`{Path(file).name}`" for file in artefact.reference) or "none",
    ]


def _table(rows: Iterable[list[str]]) -> list[str]:
    names = ["id", "shows", "in the papers", "rule", "module and function", "reads metrics of", "`paper` numbers"]
    lines = [names, ["---"] * len(names), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
