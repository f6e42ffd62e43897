"""Phase 1: what one factor changes (position paper, Tables 4, 12 and 13)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pandas as pd

from poise.artefacts.context import Context, keys_of
from poise.artefacts.tables.common import not_measured
from poise.artefacts.tables.position_cells import (
    MEAN_NOTE,
    RECONSTRUCTED_NOTE,
    RESIDUAL_NOTE,
    SUPPLEMENT_NOTE,
    Text,
    floor_notes,
    mean_text,
    printed,
    residual_text,
    semantic_notes,
    tidy_residuals,
    wide,
)
from poise.artefacts.tables.position_common import (
    FLIPS,
    MEASURES,
    PERFORMANCE,
    SEMANTIC,
    at_baseline,
    factor_residuals,
    model_residuals,
    model_series,
    over_seeds,
    same_runs,
    settings,
)
from poise.artefacts.tables.position_design import (
    MODEL,
    PAPER_MODEL,
    PHASE_2,
    baseline_level,
    factor_order,
    factor_title,
    level_order,
    level_title,
    paper_design,
    paper_level,
    printed_rows,
)
from poise.artefacts.tables.table import Table

_BY = ["of", "factor", "level", "experiment", "shots"]
_NOTHING = "this study varies no factor of Phase 1 and compares no models in one experiment"


def residual_table(context: Context) -> Table:
    """Mean residuals of the Phase 1 factors (position paper, Table 4)."""
    values = settings(context)
    first = baseline_level(context, MODEL)
    rows = pd.concat([_of_model(factor_residuals(_phase_1(values))), _of_model(model_residuals(values, first), first)])
    caption = "Phase 1 factor residuals (×100): level minus baseline, over the same data sets and seeds"
    if rows.empty:
        return not_measured(caption, _NOTHING)
    summary = over_seeds(rows[rows["measure"].isin([*MEASURES, SEMANTIC])], _BY)
    paper = printed_rows("table4", "factor", "level")
    shown = set(keys_of(summary, ["factor", "level"]))
    missing = [key for key in dict.fromkeys(keys_of(paper, ["factor", "level"])) if key not in shown]
    paper = paper[[key in shown for key in keys_of(paper, ["factor", "level"])]]
    sections = list(_sections(context, summary, "Measured residuals", residual_text, MEASURES))
    if len(paper):
        titles = {(f, v): _head(context, f, v) for f, v in _order(context, set(keys_of(paper, ["factor", "level"])))}
        sections.append(
            ("The paper's residuals of the same levels: Qwen3-8B Instruct, its five data sets", printed(paper, titles))
        )
    lost = [{"factor": f, "level": v, "note": "not in this study"} for f, v in missing]
    return Table(
        caption,
        tidy_residuals(
            summary.rename(columns={"of": "baseline_model"}), paper.assign(baseline_model=PAPER_MODEL), lost
        ),
        tuple(sections),
        (
            RESIDUAL_NOTE,
            *semantic_notes(summary),
            *floor_notes(context, _baselines(values, rows)),
            *_missing_note(context, missing),
            RECONSTRUCTED_NOTE,
        ),
    )


def performance_means(context: Context) -> Table:
    """Full means of the performance metrics in Phase 1 (position paper, Supplementary Table 12)."""
    return _means(context, "Phase 1 performance: mean ± SD over demonstration seeds", PERFORMANCE)


def flip_means(context: Context) -> Table:
    """Full means of the flip rates in Phase 1 (position paper, Supplementary Table 13)."""
    return _means(context, "Phase 1 flip rates (%): mean ± SD over demonstration seeds", FLIPS)


def _means(context: Context, caption: str, measures: Collection[str]) -> Table:
    values = settings(context)
    first = baseline_level(context, MODEL)
    models = model_series(values, first)
    levels = _of_model(_phase_1(values))
    frames = [levels[levels["factor"] != ""], _of_model(models.assign(factor=MODEL, level=models["model"]), first)]
    for factor, group in levels[levels["factor"] != ""].groupby("factor", sort=False):
        base = _of_model(same_runs(at_baseline(values), group))
        frames.append(base.assign(factor=factor, level=baseline_level(context, str(factor))))
    rows = pd.concat(frames, ignore_index=True)
    if rows.empty:
        return not_measured(caption, _NOTHING)
    rows = rows[rows["measure"].isin([*measures, *([SEMANTIC] if "p1" in measures else [])])]
    summary = over_seeds(rows, _BY)
    starred = {(f, baseline_level(context, f)) for f in set(summary["factor"])}
    shown = {(factor, paper_level(level)) for factor, level in keys_of(summary, ["factor", "level"])}
    missing = [key for key in keys_of(_phase_1_design(), ["factor", "level"]) if key not in shown]
    return Table(
        caption,
        summary.rename(columns={"of": "baseline_model"}),
        tuple(_sections(context, summary, "", mean_text, measures, starred)),
        (
            "Starred (*): the baseline's level, over the data sets and seeds on which the factor's other levels were "
            "measured.",
            MEAN_NOTE,
            *semantic_notes(summary),
            *(floor_notes(context, _baselines(values, rows)) if "p1" in measures else []),
            SUPPLEMENT_NOTE.format(table="position_table4"),
            *_missing_note(context, missing),
            RECONSTRUCTED_NOTE,
        ),
    )


def _phase_1(values: pd.DataFrame) -> pd.DataFrame:
    return values[~values["factor"].isin(PHASE_2) & (values["method"] == "icl")]


def _phase_1_design() -> pd.DataFrame:
    design = paper_design()
    return design[design["phase"] == "1"]


def _of_model(rows: pd.DataFrame, model: str = "") -> pd.DataFrame:
    """Name the model whose baseline a row belongs to."""
    return rows.assign(of=model or rows["model"])


def _baselines(values: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    return same_runs(at_baseline(values), rows.assign(model=rows["of"]))


def _order(context: Context, keys: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    return [
        (factor, level)
        for factor in factor_order([factor for factor, _ in keys])
        for level in level_order(context, factor, [level for name, level in keys if name == factor])
    ]


def _head(context: Context, factor: str, level: str, star: bool = False) -> dict[str, str]:
    return {"Factor": factor_title(context, factor), "Level": level_title(context, factor, level) + "*" * star}


def _sections(
    context: Context,
    summary: pd.DataFrame,
    heading: str,
    text: Text,
    measures: Collection[str],
    starred: Collection[tuple[str, str]] = (),
) -> Iterator[tuple[str, pd.DataFrame]]:
    """One section for each model whose factors were varied."""
    several = len(set(summary["experiment"])) > 1
    for model, group in summary.groupby("of", sort=False):
        titles = {}
        for factor, level in _order(context, keys_of(group, ["factor", "level"])):
            rows = group[(group["factor"] == factor) & (group["level"] == level)]
            places = list(dict.fromkeys(keys_of(rows, ["experiment", "shots"])))
            for experiment, shots in places:
                head = _head(context, factor, level, (factor, level) in starred)
                key = (model, factor, level, experiment, shots)
                titles[key] = {"Experiment": experiment, **head} if several else head
        shots = ", ".join(dict.fromkeys(group["shots"])).replace("_", " ")
        title = f"{context.model_title(str(model))}, baseline of {shots}"
        yield (f"{heading}: {title}" if heading else title), wide(context, group, _BY, titles, text, measures)


def _missing_note(context: Context, missing: Collection[tuple[str, str]]) -> list[str]:
    by_factor: dict[str, list[str]] = {}
    for factor, level in missing:
        by_factor.setdefault(factor, []).append(level_title(context, factor, level))
    text = "; ".join(f"{factor_title(context, factor)}: {', '.join(levels)}" for factor, levels in by_factor.items())
    return [f"Rows of the paper that are not in this study: {text}."] if text else []
