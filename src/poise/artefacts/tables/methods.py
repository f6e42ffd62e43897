"""Corrections of the same probabilities, ranked by accuracy and by COBias."""

from __future__ import annotations

import pandas as pd

from poise.artefacts.context import Context, among, mean_over_datasets
from poise.artefacts.tables.common import (
    FLOOR_NOTE,
    RUN,
    SETTING,
    Cells,
    changes_from_icl,
    not_measured,
    setting_title,
    summarise,
)
from poise.artefacts.tables.table import Table
from poise.config.methods import DNIPMethod, Method, PriorMatchingMethod

_GRID = [*SETTING, "dataset", "method"]
_METRICS = ("accuracy", "cobias", "cobias_floor")
_LEARNS_FROM = {
    "icl": "nothing",
    "dnip": "labelled optimisation rows",
    "linear_adapter": "labelled optimisation rows",
    "contextual_calibration": "content-free inputs (label-free)",
    "batch_calibration": "the test rows, unlabelled (transductive)",
}


def learns_from(method: Method) -> str:
    """What a correction looks at before it corrects."""
    if isinstance(method, PriorMatchingMethod):
        labels = method.prior == "labels"
        return "labelled optimisation rows" if labels else "unlabelled optimisation rows (label-free)"
    return _LEARNS_FROM[method.kind]


def is_ablation(method: Method) -> bool:
    """Whether a method only takes something away from DNIP: terms of its objective, or optimisation rows."""
    return isinstance(method, DNIPMethod) and (len(set(method.terms)) < 3 or method.rows is not None)


def comparison(context: Context) -> Table:
    """All corrections on the same probabilities, ranked by accuracy and by COBias."""
    caption = "Comparison of corrections on the same probabilities (%), mean ± SD over demonstration seeds"
    methods = [name for name, method in context.study.methods.items() if not is_ablation(method)]
    context = context.only(methods)
    if context.metrics.empty:
        return not_measured(caption, "no experiment of this study uses a method that is not an ablation")
    rows = context.metrics[context.metrics["metric"].isin(_METRICS)]
    by = [*_GRID, "metric", "class"]
    summary = summarise(pd.concat([rows, mean_over_datasets(rows, by)], ignore_index=True), _GRID, _METRICS)
    summary = with_ranks(summary)
    changes = changes_from_icl(context).rename(columns={"value": "mean"})
    tidy = pd.concat(
        [summary, changes[[*RUN, "method", "metric", "class", "mean", "low", "high", "note", "provenance"]]],
        ignore_index=True,
    )
    tidy["learns_from"] = [learns_from(context.study.methods[name]) for name in tidy["method"]]
    return Table(
        caption,
        tidy,
        tuple(_sections(context, summary)),
        (
            "Ranks are by mean, 1 is best: the highest accuracy, the lowest COBias; equal means share a rank (=). Rows "
            "stand in the order of accuracy, then of COBias.",
            "All data sets: the mean over the data sets of the setting, run by run.",
            "Reduced: runs in which the 95 % bootstrap interval of the change in COBias from ICL, on the same "
            "resampled test rows, lies below 0.",
            FLOOR_NOTE,
            "A transductive method sees the test rows that it corrects, so it compares only with methods that may; a "
            "label-free one needs no label at all.",
        ),
    )


def with_ranks(summary: pd.DataFrame) -> pd.DataFrame:
    """Add ``rank`` within each setting, data set and metric; means equal to twelve decimals share the best rank."""
    signed = summary["mean"].where(summary["metric"] != "accuracy", -summary["mean"]).round(12)
    ranks = signed.groupby([summary[key] for key in [*SETTING, "dataset", "metric"]]).rank(method="min")
    return summary.assign(rank=ranks.where(summary["metric"] != "cobias_floor").astype("Int64"))


def _sections(context: Context, summary: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    sections = []
    for setting, group in summary.groupby(SETTING, sort=False):
        datasets = [name for name in dict.fromkeys(group["dataset"]) if name != "all"]
        title = setting_title(context, setting)
        for dataset in [*(["all"] if len(datasets) > 1 else []), *datasets]:
            name = "all data sets" if dataset == "all" else context.dataset_title(dataset)
            sections.append((f"{title}: {name}", _wide(context, group[group["dataset"] == dataset], setting, dataset)))
    return sections


def _wide(context: Context, group: pd.DataFrame, setting: tuple[str, ...], dataset: str) -> pd.DataFrame:
    cells = Cells(group, ["method"])
    ranks = {metric: group[group["metric"] == metric].set_index("method")["rank"] for metric in ("accuracy", "cobias")}
    order = pd.DataFrame(ranks).sort_values(["accuracy", "cobias"], kind="stable").index
    reduced = _reduced(context, setting, dataset)
    return pd.DataFrame(
        [
            {
                "Correction": context.method_title(method),
                "Learns from": learns_from(context.study.methods[method]),
                "Accuracy": cells.text((method,), "accuracy"),
                "Accuracy rank": _rank(ranks["accuracy"], method),
                "COBias": cells.text((method,), "cobias"),
                "COBias rank": _rank(ranks["cobias"], method),
                "Reduced": reduced.get(method, "–"),
            }
            for method in order
        ]
    )


def _rank(ranks: pd.Series, method: str) -> str:
    rank = ranks[method]
    return f"{rank}=" if (ranks == rank).sum() > 1 else f"{rank}"


def _reduced(context: Context, setting: tuple[str, ...], dataset: str) -> dict[str, str]:
    """How many runs of each method have a COBias below ICL's, by the paired interval."""
    changes = changes_from_icl(context)
    changes = changes[among(changes, SETTING, {setting})]
    changes = changes if dataset == "all" else changes[changes["dataset"] == dataset]
    return {
        str(method): f"{int((rows['high'] < 0).sum())} of {len(rows)} runs"
        for method, rows in changes.groupby("method", sort=False)
    }
