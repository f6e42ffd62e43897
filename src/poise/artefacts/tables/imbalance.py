"""Tables of the class-accuracy instrument."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from poise.artefacts.context import (
    Context,
    mean_over_datasets,
    mean_sd,
    percent,
    percent_interval,
    percent_sd,
    reference,
)
from poise.artefacts.tables.table import Table

_GRID = ["method", "model", "shots", "dataset"]


def confusion_before(context: Context) -> Table:
    """Confusion matrix of plain ICL (DNIP paper, Table 1)."""
    return _confusion(context, "icl", "Confusion matrix before correction", "dnip/table1.csv")


def confusion_after(context: Context) -> Table:
    """Confusion matrix after DNIP (DNIP paper, Table 2)."""
    return _confusion(context, "dnip", "Confusion matrix after DNIP", "dnip/table2.csv")


def first_runs(counts: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str, int], pd.DataFrame]]:
    """Counts of the first shots and seed of each model and data set."""
    for (model, dataset), rows in counts.groupby(["model", "dataset"], sort=False):
        shots, seed = rows["shots"].iloc[0], int(rows["seed"].iloc[0])
        yield (str(model), str(dataset), shots, seed), rows[(rows["shots"] == shots) & (rows["seed"] == seed)]


def count_matrix(rows: pd.DataFrame) -> pd.DataFrame:
    """Square matrix of counts: true classes down, predicted classes across, both in class order."""
    classes = list(dict.fromkeys(rows["class"]))
    return rows.pivot_table(index="class", columns="pred_class", values="value").loc[classes, classes]


def _confusion(context: Context, method: str, caption: str, printed: str) -> Table:
    counts = context.metric("count")
    counts = counts[counts["method"] == method]
    tidy, sections = [], []
    for (model, dataset, shots, seed), rows in first_runs(counts):
        matrix = count_matrix(rows)
        sections.append(
            (
                f"{context.model_title(model)}, {context.dataset_title(dataset)}, {shots}, seed {seed}",
                _margins(matrix),
            )
        )
        shared = {"model": model, "dataset": dataset, "shots": shots, "seed": seed, "method": method,
                  "provenance": rows["provenance"].iloc[0]}  # fmt: skip
        tidy += [
            {
                **shared,
                "quantity": "count",
                "true_class": true,
                "pred_class": predicted,
                "value": int(matrix.loc[true, predicted]),
            }
            for true in matrix.index
            for predicted in matrix.columns
        ]
    paper = reference(printed, list(counts["model"].unique()), list(counts["dataset"].unique()))
    for (model, dataset), rows in paper[paper["quantity"] == "count"].groupby(["model", "dataset"], sort=False):
        wide = rows.assign(value=rows["value"].astype(float)).rename(columns={"true_class": "class"})
        sections.append(
            (
                f"{context.model_title(str(model))}, {context.dataset_title(str(dataset))} (paper)",
                _margins(count_matrix(wide)),
            )
        )
    frame = pd.concat([pd.DataFrame(tidy), paper], ignore_index=True)
    return Table(
        caption,
        frame,
        tuple(sections),
        ("Rows are true classes, columns predictions; Acc. and Prec. in percent.",),
    )


def _margins(matrix: pd.DataFrame) -> pd.DataFrame:
    counts = matrix.to_numpy().astype(int)
    totals, predicted, right = counts.sum(axis=1), counts.sum(axis=0), np.diag(counts)
    with np.errstate(invalid="ignore"):
        accuracy, precision = right / totals, right / predicted
    wide = pd.DataFrame(counts.astype(str), columns=list(matrix.columns))
    wide.insert(0, "True \\ Pred.", list(matrix.index))
    wide["All"] = totals.astype(str)
    wide["Acc."] = [percent(value) for value in accuracy]
    wide.loc[len(wide)] = [
        "All",
        *predicted.astype(str),
        str(totals.sum()),
        percent(right.sum() / totals.sum()),
    ]
    wide.loc[len(wide)] = ["Prec.", *(percent(value) for value in precision), "", ""]
    return wide


def main_table(context: Context) -> Table:
    """Accuracy and COBias before and after correction (DNIP paper, Table 3)."""
    parts = []
    for metric in ("accuracy", "cobias", "cobias_floor"):
        rows = context.metric(metric)
        rows = pd.concat([rows, mean_over_datasets(rows, _GRID)], ignore_index=True)
        parts.append(mean_sd(rows, _GRID).assign(metric=metric))
    summary = pd.concat(parts, ignore_index=True)
    paper = reference("dnip/table3.csv", list(summary["model"].unique()), list(summary["dataset"].unique()))
    paper = paper.assign(
        mean=pd.to_numeric(paper["mean"]) / 100, sd=pd.to_numeric(paper["sd"]) / 100, runs=3,
        method=paper["method"].replace({"icl_dnip": "dnip"}), shots=paper["setting"],
    )[summary.columns.intersection([*_GRID, "metric", "mean", "sd", "runs", "provenance"])]  # fmt: skip
    summary = pd.concat([summary, paper], ignore_index=True)
    runs = context.metric("cobias").assign(kind="cobias")
    changes = context.metric("cobias_difference").assign(kind="cobias_difference")
    by_run = pd.concat([runs, changes], ignore_index=True)
    tidy = pd.concat(
        [
            summary.assign(seed=pd.NA),
            by_run.rename(columns={"value": "mean"})[
                [*_GRID, "seed", "metric", "mean", "low", "high", "n", "note", "provenance"]
            ],
        ],
        ignore_index=True,
    )
    return Table(
        "Test accuracy and COBias (%), mean ± SD over demonstration seeds",
        tidy,
        (
            ("", _paper_shape(context, summary)),
            ("COBias of each run, with 95 % bootstrap intervals", _by_run(context)),
        ),
        (
            "COBias is the mean absolute difference of class accuracies over all pairs (Eq. 4); lower is better.",
            "The floor is the mean COBias that equal class accuracies would show at these class counts.",
            "Change is after minus before on the same resampled test rows; an interval below 0 is a reduction.",
            "All is the mean over the data sets of this study.",
            *_mu_note(context),
        ),
    )


def _mu_note(context: Context) -> list[str]:
    values = sorted({float(value) for value in context.metric("mu")["value"]})
    rows = sorted({int(n) for n in context.metric("mu")["n"]})
    return (
        [f"PMI smoothing mu: {', '.join(f'{value:g}' for value in values)} on {rows} optimisation rows."]
        if values
        else []
    )


def _paper_shape(context: Context, summary: pd.DataFrame) -> pd.DataFrame:
    datasets = ["all", *(name for name in dict.fromkeys(summary["dataset"]) if name != "all")]
    indexed = summary.set_index([*_GRID, "metric", "provenance"])
    rows = []
    for (method, model, shots, provenance), _ in summary.groupby(
        ["method", "model", "shots", "provenance"], sort=False
    ):
        row = {
            "Method": context.method_title(method),
            "Model": context.model_title(model) + (" (paper)" if provenance == "paper" else ""),
            "Demonstrations": shots.replace("_", "-"),
        }
        for metric, title in (("accuracy", "Acc."), ("cobias", "COBias")):
            for dataset in datasets:
                name = "All" if dataset == "all" else dataset
                key = (method, model, shots, dataset, metric, provenance)
                if key not in indexed.index:
                    row[f"{title} {name}"] = "–"
                    continue
                found = indexed.loc[key]
                floor_key = (method, model, shots, dataset, "cobias_floor", provenance)
                floor = (
                    f" (floor {percent(indexed.loc[floor_key]['mean'])})"
                    if metric == "cobias" and floor_key in indexed.index
                    else ""
                )
                row[f"{title} {name}"] = percent_sd(found["mean"], found["sd"]) + floor
        rows.append(row)
    return pd.DataFrame(rows)


def _by_run(context: Context) -> pd.DataFrame:
    keys = ["model", "dataset", "shots", "seed"]
    floors = context.metric("cobias_floor").set_index([*keys, "method"])["value"]
    rows = []
    for key, group in context.metric("cobias").groupby(keys, sort=False):
        model, dataset, shots, seed = key
        row = {
            "Model": context.model_title(model),
            "Data set": context.dataset_title(dataset),
            "Demonstrations": shots.replace("_", "-"),
            "Seed": str(seed),
            "n": str(group["n"].iloc[0]),
        }
        for _, run in group.iterrows():
            title = context.method_title(run["method"])
            row[title] = percent_interval(run["value"], run["low"], run["high"])
            row[f"{title} floor"] = percent(floors[(*key, run["method"])])
        changes = context.metric("cobias_difference")
        match = (changes[keys] == pd.Series(dict(zip(keys, key, strict=True)))).all(axis=1)
        for _, change in changes[match].iterrows():
            row[f"Change, {context.method_title(change['method'])}"] = percent_interval(
                change["value"], change["low"], change["high"]
            )
        rows.append(row)
    return pd.DataFrame(rows).fillna("–")
