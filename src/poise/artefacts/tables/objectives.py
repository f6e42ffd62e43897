"""The objectives Z_CB, Z_CBs and Z_H compared, a table a data set (DNIP paper, Tables 9 to 15)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd

from poise.artefacts.context import Context, printed
from poise.artefacts.tables.common import (
    FLOOR_NOTE,
    NOT_MEASURED,
    SETTING,
    Cells,
    not_measured,
    setting_title,
    settings_with,
    summarise,
)
from poise.artefacts.tables.table import Table

PAPER_DATASETS = {
    "dbpedia": "DBpedia",
    "agnews": "AGNews",
    "ddi": "DDI",
    "trec": "TREC",
    "rte": "RTE",
    "sst5": "SST-5",
    "pubmedqa": "PubMedQA",
}
FIRST_TABLE = 9
_METHODS = {"dnip": "Z_CB", "dnip_cobias_single": "Z_CBs", "dnip_odd_rate": "Z_H", "icl": "ICL"}
_PRINTED = {"z_cb": "dnip", "z_cbs": "dnip_cobias_single", "z_h": "dnip_odd_rate", "icl": "icl"}
_METRICS = {"cobias": "CB", "cobias_single": "CBs", "odd_rate": "H", "accuracy": "Overall acc."}
_GRID = [*SETTING, "dataset", "method"]


def slots(datasets: Sequence[str]) -> list[str | None]:
    """Data set of each of the seven tables: the paper's, or else the study's next one that is not the paper's."""
    others = iter([name for name in datasets if name not in PAPER_DATASETS])
    return [name if name in datasets else next(others, None) for name in PAPER_DATASETS]


def _compare(context: Context, slot: int) -> Table:
    paper_title = list(PAPER_DATASETS.values())[slot]
    dataset = slots(list(dict.fromkeys(context.metrics["dataset"])))[slot]
    if dataset is None:
        reason = f"this study has no data set for this table; the paper shows {paper_title} here"
        return not_measured("Three DNIP objectives compared: no data set", reason)
    title = context.dataset_title(dataset)
    instead = "" if dataset in PAPER_DATASETS else f" (the paper shows {paper_title} here)"
    rows = context.metrics[context.metrics["dataset"] == dataset]
    rows = settings_with(rows[rows["method"].isin(_METHODS)], ["dnip_cobias_single", "dnip_odd_rate"])
    if rows.empty:
        return not_measured(f"Three DNIP objectives compared on {title}", "no experiment uses icl or DNIP on it")
    shown = summarise(rows, _GRID, [*_METRICS, "class_accuracy", "cobias_floor"])
    tidy = pd.concat([shown, _missing(shown), _printed(rows, slot)], ignore_index=True)
    return Table(
        f"Test scores (%) on {title} for three DNIP objectives, mean over demonstration seeds{instead}",
        tidy.assign(objective=tidy["method"].map({method: name for name, method in _PRINTED.items()})),
        tuple(_sections(context, tidy)),
        (
            "Z_CB, Z_CBs and Z_H minimise COBias (CB), COBias_single (CBs) and the odd prediction rate (H), each with "
            "error rate and PMI; ICL is without correction. SDs are in the CSV file.",
            "CBs: mean gap in accuracy between a class and its odd class, the one that takes most of its wrong "
            "predictions. H: mean share of a class's rows that its odd class takes. CB, CBs, H: lower is better.",
            "The columns after the overall accuracy are class accuracies.",
            FLOOR_NOTE,
            *_missing_note(shown),
        ),
    )


slot_1, slot_2, slot_3, slot_4, slot_5, slot_6, slot_7 = (partial(_compare, slot=k) for k in range(len(PAPER_DATASETS)))


def _missing(shown: pd.DataFrame) -> pd.DataFrame:
    """One row for each method that a setting lacks."""
    return pd.DataFrame(
        [
            {**dict(zip([*SETTING, "dataset"], key, strict=True)), "method": method, "class": "",
             "note": f"method {method} is not in this study", "provenance": NOT_MEASURED}
            for key, group in shown.groupby([*SETTING, "dataset"], sort=False)
            for method in _METHODS
            if method not in set(group["method"])
        ]
    )  # fmt: skip


def _missing_note(shown: pd.DataFrame) -> list[str]:
    names = list(dict.fromkeys(_missing(shown).get("method", [])))
    return [f"Not measured, because not among the methods of this study: {', '.join(names)}."] if names else []


def _printed(rows: pd.DataFrame, slot: int) -> pd.DataFrame:
    paper = printed(f"dnip/table{FIRST_TABLE + slot}.csv", rows)
    return paper.assign(
        experiment="", shots=paper["setting"], method=paper["objective"].map(_PRINTED),
        mean=pd.to_numeric(paper["value"]) / 100, sd=float("nan"), runs=3,
    )[[*_GRID, "metric", "class", "mean", "sd", "runs", "provenance"]]  # fmt: skip


def _sections(context: Context, tidy: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    numbers = tidy[tidy["provenance"] != NOT_MEASURED]
    cells = Cells(numbers, [*SETTING, "method", "provenance"])
    sections = []
    for key, group in numbers.groupby([*SETTING, "provenance"], sort=False):
        *setting, provenance = key
        classes = list(dict.fromkeys(group.loc[group["metric"] == "class_accuracy", "class"]))
        columns = [(metric, "", title) for metric, title in _METRICS.items()]
        columns += [("class_accuracy", name, name) for name in classes]
        wide = []
        for method, objective in _METHODS.items():
            found = method in set(group["method"])
            row = {"Objective": objective}
            for metric, label, column in columns:
                at = (*setting, method, provenance)
                row[column] = cells.text(at, metric, label, with_sd=False) if found else NOT_MEASURED
            wide.append(row)
        sections.append((setting_title(context, setting, provenance), pd.DataFrame(wide)))
    return sections
