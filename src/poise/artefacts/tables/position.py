"""Tables of the position instrument."""

from __future__ import annotations

import pandas as pd

from poise.artefacts.context import (
    Context,
    mean_sd,
    p_value,
    percent,
    percent_interval,
    percent_sd,
    reference,
)
from poise.artefacts.tables.table import Table

_RUN = ["model", "dataset", "shots", "seed"]
_PROBES = {"p1": "P1 label order", "p2": "P2 demonstration order", "p3": "P3 placement"}
_PAIRS = {
    "p2a": "P2a random–ascending",
    "p2b": "P2b random–descending",
    "p3a": "P3a before–after",
    "p3b": "P3b before–split",
}
_MULTIPLE = ("demonstration_order", "placement")
_NO_GENERATION = "needs stochastic generation, which this version of Poise does not ask for"


def datasets_overview(context: Context) -> Table:
    """The ordered data sets (position paper, Table 1)."""
    tidy = []
    for (name, shots), rows in context.metric("accuracy").groupby(["dataset", "shots"], sort=False):
        dataset = context.study.datasets[str(name)]
        per_class = int(str(shots).split("_")[0])
        tidy.append(
            {
                "dataset": name,
                "m": len(dataset.classes),
                "d": per_class * len(dataset.classes) if str(shots).endswith("per_class") else per_class,
                "domain": dataset.domain,
                "labels": "|".join(dataset.classes),
                "test_rows": int(rows["n"].iloc[0]),
                "provenance": rows["provenance"].iloc[0],
            }
        )
    frame = pd.DataFrame(tidy)
    printed = reference("position/table1.csv", [], list(frame["dataset"]))
    frame = pd.concat([frame, printed[printed["dataset"].isin(frame["dataset"])]], ignore_index=True)
    wide = pd.DataFrame(
        {
            "Data set": [
                context.dataset_title(name) + (" (paper)" if kind == "paper" else "")
                for name, kind in zip(frame["dataset"], frame["provenance"], strict=True)
            ],
            "m": frame["m"].astype(str),
            "D": frame["d"].astype(str),
            "Domain": frame["domain"],
            "Labels (ordinal order)": frame["labels"].str.replace("|", ", ", regex=False),
            "Test rows": frame["test_rows"].map(lambda n: "–" if pd.isna(n) else str(int(n))),
        }
    )
    return Table("Ordered data sets: m classes, D demonstrations in a prompt", frame, (("", wide),))


def flip_rates(context: Context) -> Table:
    """Prediction flip rates of the three probes (position paper, Table 2)."""
    measured = []
    for contrast in (*_PROBES, *_PAIRS):
        rates, worst = context.metric(f"pfr_{contrast}"), context.metric(f"pfr_{contrast}_worst")
        merged = rates.merge(worst[[*_RUN, "value"]].rename(columns={"value": "worst_case"}), on=_RUN)
        measured.append(merged.assign(measure=contrast))
    floor = context.metric("flip_floor")[[*_RUN, "value", "n", "high"]]
    floor = floor.rename(columns={"value": "floor", "n": "floor_n", "high": "floor_high"})
    runs = pd.concat(measured, ignore_index=True).merge(floor, on=_RUN, how="left")
    columns = [
        *_RUN,
        "measure",
        "value",
        "low",
        "high",
        "n",
        "worst_case",
        "floor",
        "floor_n",
        "floor_high",
        "provenance",
    ]
    tidy = runs[columns].rename(columns={"value": "pfr"}).assign(decoding="greedy", note="")
    missing = pd.DataFrame(
        [
            {"model": model, "dataset": dataset, "shots": shots, "measure": measure, "decoding": "stochastic",
             "provenance": "not measured", "note": _NO_GENERATION}
            for (model, dataset, shots), _ in runs.groupby(["model", "dataset", "shots"], sort=False)
            for measure in ("noise", "total")
        ]
    )  # fmt: skip
    paper = reference("position/table2.csv", list(runs["model"].unique()), [])
    paper = (
        paper.rename(columns={"wilson_low": "low", "wilson_high": "high"})
        if "sst5" in set(runs["dataset"])
        else paper.iloc[:0]
    )
    return Table(
        "Position sensitivity: prediction flip rates (%) with Wilson 95 % intervals",
        pd.concat([tidy, missing, paper], ignore_index=True),
        (
            ("Three probes, each run", _wide_rates(context, tidy, _PROBES, paper)),
            ("Pairwise contrasts, mean ± SD over demonstration seeds", _mean_rates(context, runs)),
        ),
        (
            "P2 and P3 count a row as flipped when any order or placement changes its prediction.",
            "Floor: flips between the same requests asked in two groupings. An interval excludes zero for any flip at "
            "all, so read a rate against its floor.",
            "Worst case counts rows without a parsed answer as flipped; predictions here are the most probable label, "
            "so none is unparsed.",
            f"Noise and Total (temperature 0.7): not measured; {_NO_GENERATION}.",
            "The prompts are reconstructed: the paper's listings are not public.",
        ),
    )


def _wide_rates(context: Context, tidy: pd.DataFrame, probes: dict[str, str], paper: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (model, dataset, shots, seed), group in tidy.groupby(_RUN, sort=False):
        by_measure = group.set_index("measure")
        any_row = by_measure.iloc[0]
        row = {"Model": context.model_title(model), "Data set": context.dataset_title(dataset),
               "Demonstrations": shots.replace("_", " "), "Seed": str(seed), "n": str(any_row["n"])}  # fmt: skip
        for probe, title in probes.items():
            found = by_measure.loc[probe]
            row[title] = percent_interval(found["pfr"], found["low"], found["high"])
        row["Worst case"] = " / ".join(percent(by_measure.loc[probe]["worst_case"]) for probe in probes)
        row["Floor (n)"] = (
            "–" if pd.isna(any_row["floor"]) else f"{percent(any_row['floor'])} ({int(any_row['floor_n'])})"
        )
        row["Noise"] = row["Total"] = "not measured"
        rows.append(row)
    for model, group in paper.groupby("model", sort=False):
        printed = group.set_index("measure")[["pfr", "low", "high"]].astype(float)
        row = {
            "Model": f"{context.model_title(str(model))} (paper)",
            "Data set": context.dataset_title("sst5"),
        }
        row |= {title: percent_interval(*printed.loc[probe]) for probe, title in probes.items()}
        row |= {title: percent_interval(*printed.loc[title.lower()]) for title in ("Noise", "Total")}
        rows.append(row)
    return pd.DataFrame(rows).fillna("–")


def _mean_rates(context: Context, runs: pd.DataFrame) -> pd.DataFrame:
    titles = {**_PROBES, **_PAIRS}
    summary = mean_sd(runs, ["model", "dataset", "shots", "measure"])
    summary["text"] = [percent_sd(mean, sd) for mean, sd in zip(summary["mean"], summary["sd"], strict=True)]
    rows = []
    for (model, dataset, shots), group in summary.groupby(["model", "dataset", "shots"], sort=False):
        row = {
            "Model": context.model_title(model),
            "Data set": context.dataset_title(dataset),
            "Demonstrations": shots.replace("_", " "),
        }
        row |= {titles[measure]: text for measure, text in zip(group["measure"], group["text"], strict=True)}
        rows.append(row)
    return pd.DataFrame(rows)


def accuracy_tests(context: Context) -> Table:
    """Accuracy under each condition with McNemar's and Cochran's tests (position paper, §3.4)."""
    names = {
        "accuracy": "Accuracy",
        "macro_f1": "Macro-F1",
        "spearman_rho": "ρ",
        "mae": "MAE",
        "parse_failure_rate": "Parse failures",
        "label_mass": "Label mass",
    }
    tests = {
        "mcnemar_p": "McNemar p (natural better than reversed)",
        "cochran_q": "Cochran's Q",
        "cochran_p": "p",
    }
    shown = context.metrics[context.metrics["metric"].isin([*names, *tests])]
    tidy = shown[[*_RUN, "condition", "metric", "value", "n", "note", "provenance"]].reset_index(drop=True)
    summary = mean_sd(shown[shown["metric"].isin(names)], ["model", "dataset", "shots", "condition", "metric"])
    rows = []
    for (model, dataset, shots, condition), group in summary.groupby(
        ["model", "dataset", "shots", "condition"], sort=False
    ):
        by_metric = group.set_index("metric")
        row = {"Model": context.model_title(model), "Data set": context.dataset_title(dataset),
               "Demonstrations": shots.replace("_", " "), "Condition": _condition(condition)}  # fmt: skip
        for metric, title in names.items():
            mean, sd = by_metric.loc[metric, ["mean", "sd"]]
            is_share = metric not in ("spearman_rho", "mae")
            spread = "" if pd.isna(sd) else f" ± {sd:.3f}"
            row[f"{title} (%)" if is_share else title] = percent_sd(mean, sd) if is_share else f"{mean:.3f}{spread}"
        rows.append(row)
    return Table(
        "Accuracy under each probe condition, mean ± SD over demonstration seeds, with tests of each run",
        tidy,
        (("Performance", pd.DataFrame(rows)), ("Tests", _tests(context))),
        (
            "McNemar: one-sided, with continuity correction, signed; Cochran's Q over the conditions of a probe.",
            "ρ is 0 where the prediction is constant; MAE in class steps.",
            "Parse failures: greedy decoding would write no label. Label mass: probability that any label follows.",
        ),
    )


def _tests(context: Context) -> pd.DataFrame:
    rows = []
    for (model, dataset, shots, seed), group in context.metrics.groupby(_RUN, sort=False):
        found = group[group["metric"].isin(["mcnemar_p", "cochran_q", "cochran_p"])].set_index(["metric", "condition"])[
            "value"
        ]
        rows.append(
            {
                "Model": context.model_title(model),
                "Data set": context.dataset_title(dataset),
                "Demonstrations": shots.replace("_", " "),
                "Seed": str(seed),
                "McNemar p, label order": p_value(found.get(("mcnemar_p", "label_order"))),
                **{
                    f"Cochran {probe.replace('_', ' ')}": _cochran(found, probe)
                    for probe in _MULTIPLE
                    if ("cochran_q", probe) in found
                },
            }
        )
    return pd.DataFrame(rows)


def _cochran(found: pd.Series, probe: str) -> str:
    return f"Q = {found[('cochran_q', probe)]:.2f}, p {_relation(found[('cochran_p', probe)])}"


def _relation(p: float) -> str:
    text = p_value(p)
    return text if text.startswith("<") else f"= {text}"


def _condition(condition: str) -> str:
    if condition == "base":
        return "base (natural labels, base order, demonstrations before)"
    field, level = condition.split("=")
    return f"{field.replace('_', ' ')}: {level}"
