"""Artefacts: one table or figure from tidy metrics."""

from __future__ import annotations

import importlib
from typing import Any

import pandas as pd

from poise import paths
from poise.artefacts.context import Context
from poise.artefacts.registry import ARTEFACTS
from poise.errors import PoiseError
from poise.files import read_parquet, replacing, write_text
from poise.plan import Plan


def make_table(plan: Plan, artefact: str) -> None:
    """Write a table as tidy CSV, and in the paper's shape as Markdown, HTML and LaTeX."""
    table = _make(plan, artefact)
    name = plan.study.name
    write_text(paths.table(name, artefact, ".md"), table.markdown())
    write_text(paths.table(name, artefact, ".html"), table.html())
    write_text(paths.table(name, artefact, ".tex"), table.latex(artefact))
    write_text(paths.table(name, artefact, ".csv"), table.tidy.to_csv(index=False, lineterminator="\n"))


def make_figure(plan: Plan, artefact: str) -> None:
    """Draw a figure as PNG and PDF, with the same bytes for the same numbers."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from poise.artefacts.figures.style import STYLE

    with mpl.rc_context(STYLE):
        drawn = _make(plan, artefact)
        for suffix, metadata in (
            (".pdf", {"CreationDate": None, "Producer": None}),
            (".png", {"Software": None}),
        ):
            with replacing(paths.figure(plan.study.name, artefact, suffix)) as temporary:
                drawn.savefig(temporary, metadata=metadata)
        plt.close(drawn)


def _make(plan: Plan, name: str) -> Any:
    artefact = ARTEFACTS.get(name)
    if artefact is None:
        raise PoiseError(f"artefact {name!r}: unknown, expected one of {', '.join(ARTEFACTS)}")
    metrics = [read_parquet(paths.metrics(plan.study.name, instrument)) for instrument in artefact.instruments]
    context = Context(plan.study, pd.concat(metrics, ignore_index=True) if metrics else pd.DataFrame())
    context.require(name)
    module, function = artefact.maker.split(":")
    return getattr(importlib.import_module(f"poise.artefacts.{module}"), function)(context)
