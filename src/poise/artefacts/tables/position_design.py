"""Factors and levels of the position paper: titles, order, and which of them a study measured (Table 3)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pandas as pd

from poise import paths
from poise.artefacts.context import Context
from poise.artefacts.tables.common import NOT_MEASURED
from poise.artefacts.tables.position_common import CONFIGURATION, PARADIGM, at_baseline, settings
from poise.artefacts.tables.table import Table

MODEL = "model"
AGGREGATION = "aggregation_method"
DEBIASING = "debiasing_strategy"
PAPER_MODEL = "qwen3-8b-instruct"  # the baseline of the paper's Phases 1 and 2
PHASE_2 = (PARADIGM, DEBIASING, AGGREGATION, CONFIGURATION)
# What the paper calls otherwise.
_RENAMED_FACTORS = {"combined_phase_1_factors": CONFIGURATION}
_RENAMED_LEVELS = {"demo_averaging": "demonstration_averaging"}
_SAME_MODEL = {"qwen3-8b": PAPER_MODEL}
_TITLES = {
    CONFIGURATION: "Combined Phase 1 factors",
    DEBIASING: "Debiasing strategy",
    "neutral_id": "Neutral ID",
    "qwen3-8b-base": "Qwen3-8B Base",
    "qwen3-8b-instruct": "Qwen3-8B Instruct",
    "qwen3-8b-thinking": "Qwen3-8B Thinking",
    "qwen3-4b": "Qwen3-4B",
    "gemma3-12b": "Gemma3-12B",
    "ministral-3-8b": "Ministral-3-8B",
    "gemma4-12b": "Gemma4-12B",
    "granite-4-8b": "Granite-4-8B",
    "ordinal_explicit": "Ordinal-explicit",
    "colon_space": "Colon + space",
    "newline_tab": "Newline + tab",
    "listwise_compare": "Listwise-compare",
    "bradley_terry": "Bradley–Terry",
    "pride": "PriDe",
    "accuracy_optimal": "A (accuracy-optimal)",
    "p1_optimal": "P1-optimal",
    "p2a_optimal": "P2a-optimal",
    "p2b_optimal": "P2b-optimal",
}


@cache
def paper_design() -> pd.DataFrame:
    """Table 3 of the paper by our ids: ``phase, factor, level, baseline`` (``yes`` or ``no``)."""
    return printed_rows("table3", "factor", "level")


def printed_rows(table: str, factor: str, level: str) -> pd.DataFrame:
    """Rows of a printed table of the paper by our ids; the columns that say what a row is become factor and level."""
    rows = pd.read_csv(paths.reference_dir() / f"position/{table}.csv", dtype=str, keep_default_na=False)
    rows = rows.rename(columns={factor: "factor", level: "level", "metric": "measure"})
    rows["factor"] = rows["factor"].replace(_RENAMED_FACTORS)
    return rows.assign(level=rows["level"].replace(_RENAMED_LEVELS), provenance="paper")


def baseline_level(context: Context, factor: str) -> str:
    """Level of a factor that the baseline has: the study's, or else the paper's."""
    if factor == MODEL:
        return next(iter(context.study.models))
    if factor in context.study.factors:
        return context.study.factors[factor].baseline
    design = paper_design()
    starred = design[(design["factor"] == factor) & (design["baseline"] == "yes")]["level"]
    return str(starred.iloc[0]) if len(starred) else "baseline"


def paper_level(level: str) -> str:
    """Id that a level, or a model by our name for it, has in the paper's tables."""
    return _SAME_MODEL.get(level, level)


def factor_title(context: Context, factor: str) -> str:
    """Name of a factor as tables print it."""
    factors = context.study.factors
    return factors[factor].title if factor in factors else _title(factor)


def level_title(context: Context, factor: str, level: str) -> str:
    """Name of a level, a model or a correction as tables print it."""
    if factor == MODEL:
        return context.model_title(level) if level in context.study.models else _title(level)
    if level in context.study.methods:
        return context.method_title(level)
    factors = context.study.factors
    config = factors[factor].levels.get(level) if factor in factors else None
    return config.title if config is not None else _title(level)


def in_paper_order(names: Iterable[str], paper: Iterable[str]) -> list[str]:
    """Distinct names, those of the paper first and in its order, then the others in their own."""
    known = list(dict.fromkeys(names))
    ordered = [name for name in dict.fromkeys(paper) if name in known]
    return [*ordered, *(name for name in known if name not in ordered)]


def factor_order(factors: Iterable[str]) -> list[str]:
    """Factors in the order of Table 3, those that it does not have last."""
    return in_paper_order(factors, paper_design()["factor"])


def level_order(context: Context, factor: str, levels: Iterable[str]) -> list[str]:
    """Levels of a factor in the order of Table 3, the baseline first where it has none; models in the study's."""
    if factor == MODEL:
        return in_paper_order(levels, context.study.models)
    design = paper_design()
    paper = list(design[design["factor"] == factor]["level"])
    start = baseline_level(context, factor)
    return in_paper_order(levels, paper if start in paper else [start, *paper])


def measured_levels(context: Context) -> dict[str, list[str]]:
    """Models and, by factor in the paper's order, levels that a study measured; no factor with only its baseline."""
    values = settings(context)
    base = at_baseline(values)
    found = {
        factor: list(dict.fromkeys(group["level"])) for factor, group in values.groupby("factor", sort=False) if factor
    }
    found[MODEL] = list(dict.fromkeys(base["model"]))
    found[DEBIASING] = list(dict.fromkeys(values[(values["factor"] == "") & (values["method"] != "icl")]["method"]))
    corrected = values[(values["factor"] != "") & (values["method"] != "icl")]
    found[AGGREGATION] = list(dict.fromkeys(corrected["method"]))
    varied = {}
    for factor in factor_order(found):
        start = baseline_level(context, factor)
        if factor == MODEL:
            varied[factor] = level_order(context, factor, found[factor])
        elif any(level != start for level in found[factor]):
            varied[factor] = level_order(context, factor, [start, *found[factor]])
    return varied


def factor_families(context: Context) -> Table:
    """Factors and levels of the paper, and those that this study measured (position paper, Table 3)."""
    measured = measured_levels(context)
    design = paper_design()
    provenance = str(context.metrics["provenance"].iloc[0])
    tidy, wide = [], []
    for factor in factor_order([*design["factor"], *measured]):
        paper = design[design["factor"] == factor]
        here = measured.get(factor, [])
        alias = {paper_level(level) for level in here}
        start = baseline_level(context, factor)
        absent = [level for level in paper["level"] if level not in alias]
        starred = set(paper[paper["baseline"] == "yes"]["level"])
        phase = paper["phase"].iloc[0] if len(paper) else "–"
        shared = {"phase": phase, "factor": factor}
        tidy += [
            {**shared, "level": level, "baseline": "yes" if level == start else "no", "provenance": provenance,
             "in_paper": "yes" if paper_level(level) in set(paper["level"]) else "no"}
            for level in here
        ]  # fmt: skip
        tidy += [
            {**shared, "level": level, "baseline": "yes" if level in starred else "no", "in_paper": "yes",
             "provenance": NOT_MEASURED, "note": "not in this study"}
            for level in absent
        ]  # fmt: skip
        titles = [
            [level_title(context, factor, level) + "*" * (level in stars) for level in levels]
            for levels, stars in ((here, {start}), (absent, starred))
        ]
        wide.append(
            {
                "Phase": phase,
                "Factor": factor_title(context, factor),
                "Levels in this study": ", ".join(titles[0]) or "not in this study",
                "Levels of the paper not in this study": ", ".join(titles[1]) or "–",
            }
        )
    return Table(
        "Factor families and configurations: which of them this study measures",
        pd.DataFrame(tidy),
        (("", pd.DataFrame(wide)),),
        (
            "Starred (*): the level that the baseline has: the study's in the first column, the paper's in the second.",
            "Phase 1 changes one factor of the prompt, the task or the model; Phase 2 changes the pipeline or several "
            "factors at once. Factors with phase – are this study's own.",
        ),
    )


def _title(name: str) -> str:
    text = name.replace("_", " ")
    for count in ("shot", "way"):
        text = text.replace(f" {count}", f"-{count}")
    return _TITLES.get(name, text[:1].upper() + text[1:])
