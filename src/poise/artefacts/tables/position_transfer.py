"""Phase 2b: the same configurations on several models (position paper, Tables 5 and 14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from poise.artefacts.context import Context, keys_of
from poise.artefacts.tables.common import NOT_MEASURED, not_measured
from poise.artefacts.tables.position_cells import (
    MEAN_NOTE,
    RECONSTRUCTED_NOTE,
    RESIDUAL_NOTE,
    SUPPLEMENT_NOTE,
    floor_notes,
    mean_text,
    printed,
    residual_text,
    semantic_notes,
    tidy_residuals,
    wide,
)
from poise.artefacts.tables.position_common import (
    CONFIGURATION,
    MEASURES,
    SEMANTIC,
    at_baseline,
    model_series,
    over_seeds,
    residuals,
    same_runs,
    settings,
)
from poise.artefacts.tables.position_design import (
    MODEL,
    baseline_level,
    in_paper_order,
    level_order,
    level_title,
    printed_rows,
)
from poise.artefacts.tables.table import Table

BASELINE = "baseline"
_ON = ("experiment", "shots", "level")
_BY = ["model", "level", "experiment", "shots"]
_SELECTED_NOTE = (
    "The configurations were selected on one half of the test rows; all lines, the baseline too, are measured on the "
    "other half."
)
_NOTHING = "no experiment of this study varies the factor configuration"
_ONE_MODEL = "a second model is needed (study=demo_full has two)"


def configurations(values: pd.DataFrame) -> pd.DataFrame:
    """Rows of each configuration, the level ``baseline`` among them, by model.

    Where configurations were selected on half of the test rows, the baseline is that of the other half, which the
    instrument measures as a level of its own; otherwise it is the plain baseline of the same experiment.
    """
    rows = values[(values["factor"] == CONFIGURATION) & (values["method"] == "icl")]
    plain = same_runs(at_baseline(values), rows[~rows["experiment"].isin(_selecting(values))])
    return pd.concat([plain.assign(factor=CONFIGURATION, level=BASELINE), rows], ignore_index=True)


def residual_table(context: Context) -> Table:
    """Each model minus the baseline model under the same configuration (position paper, Table 5)."""
    first = baseline_level(context, MODEL)
    title = context.model_title(first)
    caption = f"Cross-model residuals (×100): model minus {title} under the same configuration"
    values = settings(context)
    rows = configurations(values)
    if rows.empty:
        rows = model_series(values, first).assign(level=BASELINE)
    if rows.empty:
        return not_measured(caption, f"{_NOTHING}, nor compares models; {_ONE_MODEL}")
    is_first = rows["model"] == first
    pairs = residuals(rows[~is_first], rows[is_first], on=_ON)
    pairs = pairs[pairs["measure"].isin([*MEASURES, SEMANTIC])]
    paper = printed_rows("table5", "model", "config")
    levels = level_order(context, CONFIGURATION, [BASELINE, *rows["level"]])
    paper_titles = _titles(context, in_paper_order(paper["factor"], []), in_paper_order(paper["level"], []))
    compared = (
        "The paper's residuals: model minus Qwen3-8B Instruct, its five data sets",
        printed(paper, paper_titles),
    )
    notes = [*([_SELECTED_NOTE] if _selecting(values) else []), RECONSTRUCTED_NOTE]
    if pairs.empty:
        reason = f"no other model was measured under the same configuration as {title}: {_ONE_MODEL}"
        lost = [{"level": level, "note": reason} for level in levels]
        cells = dict.fromkeys(MEASURES.values(), NOT_MEASURED)
        empty = [
            {"Model": "–", "Configuration": level_title(context, CONFIGURATION, level), **cells} for level in levels
        ]
        return Table(
            caption,
            tidy_residuals(pd.DataFrame(), _named(paper), lost).assign(factor=CONFIGURATION),
            (("Measured residuals", pd.DataFrame(empty)), compared),
            (f"Not measured: {reason}.", *notes),
        )
    summary = over_seeds(pairs, _BY)
    found = set(keys_of(summary, ["model", "level"]))
    models = in_paper_order(summary["model"], context.study.models)
    titles = _titles(context, models, levels)
    lines = _lines(summary, titles)
    lost = [
        {"model": model, "level": level, "note": "not in this study"}
        for model, level in titles
        if (model, level) not in found
    ]
    lost_text = ", ".join(" ".join(titles[row["model"], row["level"]].values()) for row in lost)
    return Table(
        caption,
        tidy_residuals(summary, _named(paper), lost).assign(factor=CONFIGURATION),
        (("Measured residuals", wide(context, summary, _BY, lines, residual_text)), compared),
        (
            RESIDUAL_NOTE,
            *semantic_notes(summary),
            *floor_notes(context, same_runs(at_baseline(values), rows)),
            *([f"Not in this study: {lost_text}."] if lost else []),
            *notes,
        ),
    )


def full_means(context: Context) -> Table:
    """Full means of each configuration and model (position paper, Supplementary Table 14)."""
    caption = "Configurations on each model: mean ± SD over demonstration seeds"
    values = settings(context)
    rows = configurations(values)
    if rows.empty:
        return not_measured(caption, _NOTHING)
    rows = rows[rows["measure"].isin([*MEASURES, SEMANTIC])]
    summary = over_seeds(rows, _BY)
    levels = level_order(context, CONFIGURATION, [BASELINE, *summary["level"]])
    titles = _titles(
        context, in_paper_order(summary["model"], context.study.models), levels, baseline_level(context, MODEL)
    )
    lines = _lines(summary, titles)
    return Table(
        caption,
        summary.assign(factor=CONFIGURATION),
        (("", wide(context, summary, _BY, lines, mean_text)),),
        (
            "Starred (*): the model with which the others are compared in position_table5.",
            MEAN_NOTE,
            *semantic_notes(summary),
            *floor_notes(context, same_runs(at_baseline(values), rows)),
            SUPPLEMENT_NOTE.format(table="position_table5"),
            *([_SELECTED_NOTE] if _selecting(values) else []),
            RECONSTRUCTED_NOTE,
        ),
    )


def _selecting(values: pd.DataFrame) -> set[str]:
    """Experiments that selected their configurations on half of the test rows."""
    return set(values[(values["factor"] == CONFIGURATION) & (values["level"] == BASELINE)]["experiment"])


def _titles(
    context: Context, models: Iterable[str], levels: Iterable[str], starred: str = ""
) -> dict[tuple[str, str], Mapping[str, str]]:
    return {
        (model, level): {
            "Model": level_title(context, MODEL, model) + "*" * (model == starred),
            "Configuration": level_title(context, CONFIGURATION, level),
        }
        for model in models
        for level in levels
    }


def _lines(summary: pd.DataFrame, titles: Mapping[tuple[str, str], Mapping[str, str]]) -> dict[Any, Mapping[str, str]]:
    """Title of each line of the summary, in the order of the titles."""
    keys = list(dict.fromkeys(keys_of(summary, _BY)))
    return {key: first for name, first in titles.items() for key in keys if key[:2] == name}


def _named(paper: pd.DataFrame) -> pd.DataFrame:
    return paper.rename(columns={"factor": "model"})
