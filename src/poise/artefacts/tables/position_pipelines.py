"""Phase 2a: inference paradigms, pairwise aggregation and debiasing (position paper, Tables 6 and 15)."""

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
    tidy_residuals,
    wide,
)
from poise.artefacts.tables.position_common import (
    MEASURES,
    PARADIGM,
    PERFORMANCE,
    at_baseline,
    over_seeds,
    residuals,
    same_runs,
    settings,
)
from poise.artefacts.tables.position_design import (
    AGGREGATION,
    DEBIASING,
    PAPER_MODEL,
    in_paper_order,
    level_title,
    printed_rows,
)
from poise.artefacts.tables.table import Table

FAMILIES = {PARADIGM: "Inference paradigm", AGGREGATION: "Aggregation method", DEBIASING: "Debiasing strategy"}
DEFAULT_AGGREGATION = "weighted_sum"
_BY = ["model", "family", "pipeline", "experiment", "shots"]
_NOTHING = "this study has no other inference paradigm and no correction of position answers"
_POINTWISE = {PARADIGM: "pointwise", AGGREGATION: "pointwise", DEBIASING: "none"}


def pipelines(values: pd.DataFrame) -> pd.DataFrame:
    """Rows of every pipeline, with ``family`` and ``pipeline`` as the paper's Table 6 has them.

    Pairwise inference aggregated by weighted sum is both the paradigm ``pairwise`` and an aggregation method. Of a
    paradigm only P1 is comparable, since the other probes mean something else in its prompts.
    """
    is_paradigm = values["factor"] == PARADIGM
    plain = values["method"] == "icl"
    shown = values["measure"].isin([*PERFORMANCE, "p1"])
    paradigms = values[is_paradigm & (plain | (values["method"] == DEFAULT_AGGREGATION)) & shown]
    aggregated = values[is_paradigm & ~plain]
    corrected = values[(values["factor"] == "") & ~plain]
    found = pd.concat(
        [
            paradigms.assign(family=PARADIGM, pipeline=paradigms["level"]),
            aggregated.assign(family=AGGREGATION, pipeline=aggregated["method"]),
            corrected.assign(family=DEBIASING, pipeline=corrected["method"]),
        ],
        ignore_index=True,
    )
    return found[found["measure"].isin(MEASURES)]


def residual_table(context: Context) -> Table:
    """Each pipeline minus the pointwise baseline (position paper, Table 6)."""
    caption = "Pipeline residuals (×100): pipeline minus the pointwise baseline, over the same data sets and seeds"
    values = settings(context)
    rows = residuals(pipelines(values), at_baseline(values))
    if rows.empty:
        return not_measured(caption, _NOTHING)
    summary = over_seeds(rows, _BY)
    paper = printed_rows("table6", "family", "method")
    shown = set(keys_of(summary, ["family", "pipeline"]))
    missing = [key for key in dict.fromkeys(keys_of(paper, ["factor", "level"])) if key not in shown]
    beside = paper[[key in shown for key in keys_of(paper, ["factor", "level"])]]
    sections = list(_sections(context, summary, "Measured residuals: ", residual_text))
    if len(beside):
        titles = {(f, p): _head(context, f, p) for f, p in dict.fromkeys(keys_of(beside, ["factor", "level"]))}
        sections.append(
            ("The paper's residuals of the same pipelines: Qwen3-8B Instruct, its data sets", printed(beside, titles))
        )
    lost = [{"family": f, "pipeline": p, "note": "not in this study"} for f, p in missing]
    return Table(
        caption,
        tidy_residuals(
            summary, beside.rename(columns={"factor": "family", "level": "pipeline"}).assign(model=PAPER_MODEL), lost
        ),
        tuple(sections),
        (
            RESIDUAL_NOTE,
            *_notes(context, values, rows),
            *_missing_note(context, missing),
            RECONSTRUCTED_NOTE,
        ),
    )


def full_means(context: Context) -> Table:
    """Full means of each pipeline (position paper, Supplementary Table 15)."""
    caption = "Pipelines: mean ± SD over demonstration seeds"
    values = settings(context)
    rows = pipelines(values)
    if rows.empty:
        return not_measured(caption, _NOTHING)
    base = at_baseline(values)
    base = base[base["measure"].isin(MEASURES)]
    baselines = [
        same_runs(base, group).assign(family=family, pipeline=_POINTWISE[str(family)])
        for family, group in rows.groupby("family", sort=False)
    ]
    summary = over_seeds(pd.concat([*baselines, rows], ignore_index=True), _BY)
    return Table(
        caption,
        summary,
        tuple(_sections(context, summary, "", mean_text)),
        (
            "Starred (*): the pointwise baseline without correction, over the data sets and seeds of the family below "
            "it.",
            MEAN_NOTE,
            *_notes(context, values, rows),
            SUPPLEMENT_NOTE.format(table="position_table6"),
            RECONSTRUCTED_NOTE,
        ),
    )


def _sections(context: Context, summary: pd.DataFrame, heading: str, text: Text) -> Iterator[tuple[str, pd.DataFrame]]:
    """One section for each model, families in the paper's order."""
    paper = printed_rows("table6", "family", "method")
    several = len(set(summary["experiment"])) > 1
    for model, group in summary.groupby("model", sort=False):
        titles = {}
        for family in in_paper_order(group["family"], FAMILIES):
            rows = group[group["family"] == family]
            order = [_POINTWISE[family], *paper[paper["factor"] == family]["level"]]
            for pipeline in in_paper_order(rows["pipeline"], order):
                for key in dict.fromkeys(keys_of(rows[rows["pipeline"] == pipeline], _BY)):
                    head = _head(context, family, pipeline)
                    titles[key] = {"Experiment": key[3], **head} if several else head
        shots = ", ".join(dict.fromkeys(group["shots"])).replace("_", " ")
        title = f"{context.model_title(str(model))}, baseline of {shots}"
        yield heading + title, wide(context, group, _BY, titles, text)


def _head(context: Context, family: str, pipeline: str) -> dict[str, str]:
    star = pipeline == _POINTWISE[family]
    factor = PARADIGM if family == AGGREGATION and star else family
    return {"Family": FAMILIES[family], "Pipeline": level_title(context, factor, pipeline) + "*" * star}


def _notes(context: Context, values: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    families = set(rows["family"])
    notes = []
    if AGGREGATION in families:
        notes.append(
            "Pairwise inference asks about one demonstration at a time, so the order and the place of the "
            "demonstrations cannot change it: P2 and P3 of the aggregation methods are 0 by construction, and their "
            "residuals are minus the baseline's rates."
        )
    if DEFAULT_AGGREGATION in set(rows["pipeline"]):
        notes.append(
            "Pairwise is the weighted sum: the same numbers in both families (in the paper two separate runs)."
        )
    if PARADIGM in families:
        notes.append("Of a paradigm only P1 is comparable: its prompt has no demonstration block to reorder or move.")
    if DEBIASING in families:
        notes.append(
            "Averaging over label or demonstration orders merges the variants whose flips a probe would count: –."
        )
    return [*notes, *floor_notes(context, same_runs(at_baseline(values), rows))]


def _missing_note(context: Context, missing: Collection[tuple[str, str]]) -> list[str]:
    text = ", ".join(
        f"{level_title(context, family, pipeline)} ({FAMILIES[family].lower()})" for family, pipeline in missing
    )
    return [f"Rows of the paper that are not in this study: {text}."] if text else []
