"""Order of the demonstrations' labels against scores, seed by seed (DNIP paper, Table 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from poise.artefacts.context import Context, percent, percent_interval, printed
from poise.artefacts.tables.common import SETTING, floor_text, not_measured
from poise.artefacts.tables.table import Table

_CELL = [*SETTING, "dataset"]
_METHODS = {"icl": "ICL", "dnip": "+DNIP"}
_METRICS = ["accuracy", "cobias", "cobias_floor", "class_accuracy"]


def label_order(context: Context) -> Table:
    """Label order of each seed's demonstrations, with the scores that follow (DNIP paper, Table 5)."""
    caption = "Label order in prompts and test scores (%)"
    shown = context.metric("demonstration")
    shown = shown[shown["n"] > 1]
    if shown.empty:
        return not_measured(caption, "no setting of this study has more than one demonstration")
    first = shown.loc[(shown["shots"] != "5_shot").sort_values(kind="stable").index[0]]
    chosen = context.only(_METHODS).metrics
    chosen = chosen[(chosen[_CELL] == first[_CELL]).all(axis=1)]
    classes = list(dict.fromkeys(chosen.loc[chosen["metric"] == "class_accuracy", "class"]))
    orders = {
        int(seed): [classes.index(name) for name in rows.sort_values("value")["class"]]
        for seed, rows in chosen[chosen["metric"] == "demonstration"].groupby("seed", sort=False)
    }
    scores = chosen[chosen["metric"].isin(_METRICS)]
    ids = {"": "", **{name: str(k) for k, name in enumerate(classes)}}
    tidy = scores[[*_CELL, "method", "seed", "metric", "class", "value", "low", "high", "n", "provenance"]].assign(
        class_id=scores["class"].map(ids), label_order=[" ".join(map(str, orders[seed])) for seed in scores["seed"]]
    )
    paper = printed("dnip/table5.csv", chosen).rename(columns={"setting": "shots"})
    paper = paper.replace({"method": {"icl_dnip": "dnip"}}).astype({"value": float, "seed": int})
    paper = paper.assign(value=paper["value"] / 100)
    where = f"{context.model_title(first['model'])}, {context.dataset_title(first['dataset'])}"
    shots = context.shots_title(first["experiment"], first["model"], first["shots"])
    sections = [(f"{where}, {shots}", _wide(tidy))]
    if len(paper):
        sections.append((f"{where}, {paper['shots'].iloc[0].replace('_', '-')} (paper)", _wide(paper)))
    return Table(
        f"{caption}: {where}, {shots}",
        pd.concat([tidy, paper], ignore_index=True),
        tuple(sections),
        (
            "Label order: classes of the demonstrations from the first to the last, by number.",
            "Brackets: 95 % bootstrap interval of the run. The floor is the mean COBias that equal class accuracies "
            "would show at these class counts.",
            *_position_note(scores, classes, orders),
        ),
    )


def _wide(tidy: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for method, title in _METHODS.items():
        for seed, run in tidy[tidy["method"] == method].groupby("seed", sort=False):
            by_metric = run.set_index("metric")
            cobias = by_metric.loc["cobias"]
            interval = percent_interval(cobias["value"], cobias.get("low"), cobias.get("high"))
            floor = by_metric["value"].get("cobias_floor", float("nan"))
            row = {
                "Method": title,
                "Seed": str(seed),
                "Label order": ", ".join(cobias["label_order"].split()) or "–",
                "Acc.": percent(by_metric.loc["accuracy", "value"]),
                "COBias": interval + floor_text(floor),
            }
            classes = run[run["metric"] == "class_accuracy"]
            for number, name, value in zip(classes["class_id"], classes["class"], classes["value"], strict=True):
                row[f"Class {number} ({name})"] = percent(value)
            rows.append(row)
    return pd.DataFrame(rows)


def _position_note(scores: pd.DataFrame, classes: Sequence[str], orders: dict[int, list[int]]) -> list[str]:
    """How often the last or the majority label's class is the one that ICL gets right most often."""
    icl = scores[(scores["method"] == "icl") & (scores["metric"] == "class_accuracy")]
    last = majority = 0
    for seed, order in orders.items():
        accuracies = icl[icl["seed"] == seed].set_index("class")["value"]
        best = {classes.index(name) for name in accuracies.index[accuracies == accuracies.max()]}
        counts = Counter(order)
        last += order[-1] in best
        majority += bool(best & {label for label, count in counts.items() if count == max(counts.values())})
    return [
        f"Under ICL, the class of the last demonstration has the highest class accuracy in {last} of {len(orders)} "
        f"seeds, the class (or one of the classes) with most demonstrations in {majority}."
    ]
