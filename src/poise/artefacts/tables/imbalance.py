"""Confusion matrices and the main table of the class-accuracy instrument (DNIP paper, Tables 1 to 3)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from poise.artefacts.context import Context, keys_of, mean_over_datasets, percent, percent_interval, printed
from poise.artefacts.tables.common import FLOOR_NOTE, RUN, Cells, changes_from_icl, not_measured, summarise
from poise.artefacts.tables.table import Table

_GRID = ["method", "model", "experiment", "shots", "dataset"]
_METHODS = ("icl", "dnip")


def confusion_before(context: Context) -> Table:
    """Confusion matrix of plain ICL (DNIP paper, Table 1)."""
    return _confusion(context, "icl", "Confusion matrix before correction", "dnip/table1.csv")


def confusion_after(context: Context) -> Table:
    """Confusion matrix after DNIP (DNIP paper, Table 2)."""
    return _confusion(context, "dnip", "Confusion matrix after DNIP", "dnip/table2.csv")


def first_runs(counts: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str, int], pd.DataFrame]]:
    """Counts of the first experiment, shots and seed of each model and data set."""
    run = ["experiment", "shots", "seed"]
    for (model, dataset), rows in counts.groupby(["model", "dataset"], sort=False):
        first = rows.iloc[0]
        yield (
            (str(model), str(dataset), first["shots"], int(first["seed"])),
            rows[(rows[run] == first[run]).all(axis=1)],
        )


def count_matrix(rows: pd.DataFrame) -> pd.DataFrame:
    """Counts: true classes down, predicted classes across, both in class order; what is no class comes last."""
    classes = list(dict.fromkeys(rows["class"]))
    others = [name for name in dict.fromkeys(rows["pred_class"]) if name not in classes]
    return rows.pivot_table(index="class", columns="pred_class", values="value").loc[classes, [*classes, *others]]


def printed_matrix(rows: pd.DataFrame) -> pd.DataFrame:
    """Square matrix of a paper's printed counts."""
    return count_matrix(rows.assign(value=rows["value"].astype(float)).rename(columns={"true_class": "class"}))


def _confusion(context: Context, method: str, caption: str, paper_file: str) -> Table:
    counts = context.only([method]).metric("count")
    if counts.empty:
        return not_measured(caption, f"no experiment of this study uses the method {method}")
    tidy, sections = [], []
    for (model, dataset, shots, seed), rows in first_runs(counts):
        matrix = count_matrix(rows)
        where = f"{context.model_title(model)}, {context.dataset_title(dataset)}"
        sections.append((f"{where}, {shots.replace('_', '-')}, seed {seed}", with_margins(matrix)))
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
    paper = printed(paper_file, counts)
    for (model, dataset), rows in paper[paper["quantity"] == "count"].groupby(["model", "dataset"], sort=False):
        heading = f"{context.model_title(str(model))}, {context.dataset_title(str(dataset))} (paper)"
        sections.append((heading, with_margins(printed_matrix(rows))))
    frame = pd.concat([pd.DataFrame(tidy), paper], ignore_index=True)
    return Table(
        caption,
        frame,
        tuple(sections),
        ("Rows are true classes, columns predictions; Acc. and Prec. in percent.",),
    )


def with_margins(matrix: pd.DataFrame) -> pd.DataFrame:
    """Counts as text, with totals, class accuracies and precisions; a last column may be of no class."""
    counts = matrix.to_numpy().astype(int)
    totals, predicted, right = counts.sum(axis=1), counts.sum(axis=0), np.diag(counts)
    with np.errstate(invalid="ignore"):
        accuracy, precision = right / totals, right / predicted[: len(right)]
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
    shares = [percent(value) for value in precision]
    wide.loc[len(wide)] = ["Prec.", *shares, *[""] * (wide.shape[1] - 1 - len(shares))]
    return wide


def main_table(context: Context) -> Table:
    """Accuracy and COBias before and after correction (DNIP paper, Table 3)."""
    context = context.only(_METHODS)
    caption = "Test accuracy and COBias (%), mean ± SD over demonstration seeds"
    if context.metrics.empty:
        return not_measured(caption, "no experiment of this study uses the methods icl or dnip")
    metrics = ("accuracy", "cobias", "cobias_floor")
    rows = context.metrics[context.metrics["metric"].isin(metrics)]
    rows = pd.concat([rows, mean_over_datasets(rows, [*_GRID, "metric", "class"])], ignore_index=True)
    summary = pd.concat([summarise(rows, _GRID, metrics), _printed(context)], ignore_index=True)
    by_run = pd.concat([context.metric("cobias"), changes_from_icl(context)]).rename(columns={"value": "mean"})[
        [*_GRID, "seed", "metric", "mean", "low", "high", "n", "note", "provenance"]
    ]
    paper_note = ["All of the paper's rows is the mean over the paper's seven data sets."]
    return Table(
        caption,
        pd.concat([summary.drop(columns="class").assign(seed=pd.NA), by_run], ignore_index=True),
        (
            ("", _paper_shape(context, summary)),
            ("COBias of each run, with 95 % bootstrap intervals", _by_run(context)),
        ),
        (
            "COBias is the mean absolute difference of class accuracies over all pairs (Eq. 4); lower is better.",
            FLOOR_NOTE,
            "Change is after minus before on the same resampled test rows; an interval below 0 is a reduction.",
            "All is the mean over the data sets of a row, run by run.",
            *(paper_note if "paper" in set(summary["provenance"]) else []),
            *_mu_note(context),
            *_hard_notes(context),
        ),
    )


def _printed(context: Context) -> pd.DataFrame:
    paper = printed("dnip/table3.csv", context.metrics)
    paper = paper.assign(
        experiment="", mean=pd.to_numeric(paper["mean"]) / 100, sd=pd.to_numeric(paper["sd"]) / 100, runs=3,
        method=paper["method"].replace({"icl_dnip": "dnip"}), shots=paper["setting"], **{"class": ""},
    )  # fmt: skip
    return paper[[*_GRID, "metric", "class", "mean", "sd", "runs", "provenance"]]


def _mu_note(context: Context) -> list[str]:
    values = sorted({float(value) for value in context.metric("mu")["value"]})
    rows = sorted({int(n) for n in context.metric("mu")["n"]})
    return (
        [f"PMI smoothing mu: {', '.join(f'{value:g}' for value in values)} on {rows} optimisation rows."]
        if values
        else []
    )


def _hard_notes(context: Context) -> list[str]:
    """Models that gave labels only, and what that means."""
    rows = context.metric("hard_predictions")
    return [f"{context.model_title(model)}: {note}." for model, note in dict.fromkeys(keys_of(rows, ["model", "note"]))]


def _paper_shape(context: Context, summary: pd.DataFrame) -> pd.DataFrame:
    datasets = ["all", *(name for name in dict.fromkeys(summary["dataset"]) if name != "all")]
    setting = ["method", "model", "experiment", "shots"]
    cells = Cells(summary, [*setting, "dataset", "provenance"])
    rows = []
    keys = dict.fromkeys(keys_of(summary, [*setting, "provenance"]))
    for key in sorted(keys, key=lambda key: _METHODS.index(key[0])):
        method, model, experiment, shots, provenance = key
        row = {
            "Method": context.method_title(method),
            "Model": context.model_title(model) + (" (paper)" if provenance == "paper" else ""),
            "Demonstrations": context.shots_title(experiment, model, shots),
        }
        for metric, title in (("accuracy", "Acc."), ("cobias", "COBias")):
            for dataset in datasets:
                cell = cells.text((method, model, experiment, shots, dataset, provenance), metric)
                row[f"{title} {'All' if dataset == 'all' else dataset}"] = cell
        rows.append(row)
    return pd.DataFrame(rows)


def _by_run(context: Context) -> pd.DataFrame:
    floors = context.metric("cobias_floor").set_index([*RUN, "method"])["value"]
    changes = changes_from_icl(context).set_index([*RUN, "method"])[["value", "low", "high"]]
    rows = []
    for key, group in context.metric("cobias").groupby(RUN, sort=False):
        experiment, model, shots, dataset, seed = key
        row = {
            "Model": context.model_title(model),
            "Data set": context.dataset_title(dataset),
            "Demonstrations": context.shots_title(experiment, model, shots),
            "Seed": str(seed),
            "n": str(group["n"].iloc[0]),
        }
        runs = group.set_index("method")[["value", "low", "high"]]
        for method in _METHODS:
            title = context.method_title(method)
            if method in runs.index:
                row[title] = percent_interval(*runs.loc[method])
                row[f"{title} floor"] = percent(floors[(*key, method)])
            if (*key, method) in changes.index:
                row[f"Change, {title}"] = percent_interval(*changes.loc[(*key, method)])
        rows.append(row)
    return pd.DataFrame(rows).fillna("–")
