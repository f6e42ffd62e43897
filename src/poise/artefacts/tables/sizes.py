"""Size of the optimisation set (DNIP paper, Table 16)."""

from __future__ import annotations

import re
from typing import Any

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

_SIZES = (10, 100, 500, 1000)
_GRID = [*SETTING, "dataset", "method"]
_METRICS = {"accuracy": "Acc.", "cobias": "COBias"}


def optimisation_sizes(context: Context) -> Table:
    """Accuracy and COBias by number of optimisation rows (DNIP paper, Table 16)."""
    caption = "DNIP by size of the optimisation set: test accuracy and COBias (%), mean ± SD over demonstration seeds"
    methods = size_methods(context.metrics["method"])
    rows = settings_with(context.only(methods).metrics, set(methods) - {"icl", "dnip"})
    if rows.empty:
        return not_measured(caption, "no experiment of this study uses icl or DNIP")
    measured = _measured(rows, methods)
    paper = _printed(rows, methods)
    return Table(
        caption,
        pd.concat([measured, paper], ignore_index=True).rename(columns={"size": "opt_set"}),
        tuple(_sections(context, pd.concat([measured, paper], ignore_index=True), list(methods.values()))),
        (
            "Size 0 is ICL, without correction; full is every optimisation row of the data set in this study.",
            "Up to 100 rows: equally many of each class, the rest from the last class (one more row than classes where "
            "there are more than 10 classes). Above: the first rows in random order.",
            FLOOR_NOTE,
            *_rows_notes(context, measured),
        ),
    )


def size_methods(present: Any) -> dict[str, str]:
    """Printed size of each method: the paper's, and any other ``dnip_rows_<n>`` that was measured, rising."""
    found = {int(match[1]) for match in (re.fullmatch(r"dnip_rows_(\d+)", name) for name in set(present)) if match}
    sizes = {f"dnip_rows_{n}": f"{n:,}" for n in sorted({*_SIZES, *found})}
    return {"icl": "0", **sizes, "dnip": "full"}


def _measured(rows: pd.DataFrame, methods: dict[str, str]) -> pd.DataFrame:
    """Mean and SD by size, or why a size was not measured."""
    summary = summarise(rows, _GRID, [*_METRICS, "cobias_floor"])
    used = rows[rows["metric"] == "objective"].groupby(_GRID)["n"].max()
    parts = []
    for key, group in summary.groupby([*SETTING, "dataset"], sort=False):
        counts = {method: int(used.get((*key, method), 0)) for method in methods}
        full = max(counts.values())
        for method, size in methods.items():
            found = group[group["method"] == method]
            shared: dict[str, Any] = {"size": size, "n_opt": counts[method], "note": ""}
            wanted = int(size.replace(",", "")) if size not in ("0", "full") else 0
            if found.empty:
                shared["note"] = f"method {method} is not in this study"
            elif wanted > full:
                shared["note"] = f"{full} rows only"
            if shared["note"]:
                where = dict(zip([*SETTING, "dataset"], key, strict=True))
                found = pd.DataFrame([{**where, "method": method, "metric": metric} for metric in _METRICS])
                shared |= {"provenance": NOT_MEASURED, "n_opt": pd.NA}
            parts.append(found.assign(**shared))
    return pd.concat(parts, ignore_index=True)


def _printed(rows: pd.DataFrame, methods: dict[str, str]) -> pd.DataFrame:
    paper = printed("dnip/table16.csv", rows)
    size = paper["opt_set"].replace({"1000": "1,000"})
    return paper.assign(
        experiment="", shots="1_shot", size=size, method=size.map({size: name for name, size in methods.items()}),
        mean=pd.to_numeric(paper["mean"]) / 100, sd=pd.to_numeric(paper["sd"]) / 100, runs=3,
        n_opt=pd.to_numeric(paper["n_opt"]), note=paper["note"].str.replace("_", " "),
    )[[*_GRID, "metric", "mean", "sd", "runs", "size", "n_opt", "note", "provenance"]]  # fmt: skip


def _sections(context: Context, shown: pd.DataFrame, sizes: list[str]) -> list[tuple[str, pd.DataFrame]]:
    shown = shown.assign(source=["paper" if kind == "paper" else "" for kind in shown["provenance"]])
    sections = []
    for key, group in shown.groupby([*SETTING, "source"], sort=False):
        *setting, source = key
        cells = Cells(group.assign(**{"class": ""}), ["dataset", "size"])
        notes = group[group["note"] != ""].set_index(["dataset", "size"])["note"]
        wide = []
        for size in sizes:
            for metric, title in _METRICS.items():
                row = {"Rows": size if metric == "accuracy" else "", "Metric": title}
                for dataset in dict.fromkeys(group["dataset"]):
                    at = (dataset, size)
                    row[context.dataset_title(dataset)] = (
                        _reason(notes.loc[[at]].iloc[0]) if at in notes.index else cells.text(at, metric)
                    )
                wide.append(row)
        sections.append((setting_title(context, setting, source), pd.DataFrame(wide)))
    return sections


def _reason(note: str) -> str:
    return f"{NOT_MEASURED} ({note})" if note.endswith("rows only") else NOT_MEASURED if "not in" in note else note


def _rows_notes(context: Context, measured: pd.DataFrame) -> list[str]:
    """Rows of the full sets, rows that differ from the size asked for, methods that the study lacks."""
    fitted = measured[(measured["metric"] == "accuracy") & (measured["size"] != "0")]
    used = fitted[fitted["provenance"] != NOT_MEASURED].drop_duplicates(["dataset", "size", "n_opt"])
    full = [f"{context.dataset_title(row.dataset)}: {row.n_opt:,}" for row in used[used["size"] == "full"].itertuples()]
    other = [
        f"{row.n_opt:,} for {row.size} on {context.dataset_title(row.dataset)}"
        for row in used[used["size"] != "full"].itertuples()
        if f"{row.n_opt:,}" != row.size
    ]
    absent = fitted.loc[fitted["note"].str.contains("not in"), "method"].unique()
    return [
        *([f"Rows of the full set: {'; '.join(full)}."] if full else []),
        *([f"Rows used where they are not the size asked for: {'; '.join(other)}."] if other else []),
        *([f"Not measured, because not among the methods of this study: {', '.join(absent)}."] if len(absent) else []),
    ]
