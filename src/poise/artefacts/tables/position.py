"""Tables of the position instrument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from poise.artefacts.context import (
    Context,
    among,
    keys_of,
    mean_sd,
    p_value,
    percent,
    percent_interval,
    percent_sd,
    reference,
)
from poise.artefacts.tables.common import NOT_MEASURED
from poise.artefacts.tables.position_common import distinct_series
from poise.artefacts.tables.table import Table

_RUN = ["experiment", "model", "dataset", "shots", "seed"]
_SETTING = ["experiment", "model", "dataset", "shots"]
_PROBES = {"p1": "P1 label order", "p2": "P2 demonstration order", "p3": "P3 placement"}
_PAIRS = {
    "p2a": "P2a random–ascending",
    "p2b": "P2b random–descending",
    "p3a": "P3a before–after",
    "p3b": "P3b before–split",
}
_ALPHA = 0.05  # §3.4
_MULTIPLE = ("demonstration_order", "placement")
_STOCHASTIC = {"noise": "Noise", "total": "Total"}
_NO_GENERATION = "no stochastic decoding in this experiment (its key stochastic)"
_NOT_RUN = "a model behind an API, not run in this study"


def baseline_runs(context: Context) -> Context:
    """Metrics of the baseline setting without correction, a series that several experiments share only once.

    Experiments that vary factors measure it on few rows, for comparison with their levels: they are left out where
    another experiment has it.
    """
    metrics = context.metrics
    varied = set(metrics[metrics["factor"] != ""]["experiment"])
    rows = metrics[(metrics["factor"] == "") & (metrics["method"] == "icl")]
    plain = rows[~rows["experiment"].isin(varied)]
    return replace(context, metrics=distinct_series(plain if len(plain) else rows))


def datasets_overview(context: Context) -> Table:
    """The ordered data sets (position paper, Table 1)."""
    tidy = []
    accuracies = baseline_runs(context).metric("accuracy")
    for (name, shots, rows), group in accuracies.groupby(["dataset", "shots", "n"], sort=False):
        dataset = context.study.datasets[str(name)]
        per_class = int(str(shots).split("_")[0])
        tidy.append(
            {
                "dataset": name,
                "m": len(dataset.classes),
                "d": per_class * len(dataset.classes) if str(shots).endswith("per_class") else per_class,
                "domain": dataset.domain,
                "labels": "|".join(dataset.classes),
                "test_rows": int(rows),
                "provenance": group["provenance"].iloc[0],
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
    """Prediction flip rates of the three probes and against sampling noise (position paper, Table 2)."""
    context = baseline_runs(context)
    tidy = _rates(context)
    not_run = [
        name for name, model in context.study.models.items() if model.api and name not in set(context.metrics["model"])
    ]
    missing = pd.DataFrame(
        [
            *(
                {**dict(zip(_SETTING, setting, strict=True)), "measure": measure, "decoding": "stochastic",
                 "note": _NO_GENERATION}
                for setting in dict.fromkeys(keys_of(tidy, _SETTING))
                for measure in _STOCHASTIC
                if not ((tidy["measure"] == measure) & among(tidy, _SETTING, {setting})).any()
            ),
            *(
                {"model": model, "measure": measure, "decoding": "stochastic" if measure in _STOCHASTIC else "greedy",
                 "note": _NOT_RUN}
                for model in not_run
                for measure in (*_PROBES, *_STOCHASTIC)
            ),
        ]
    ).assign(provenance=NOT_MEASURED)  # fmt: skip
    same_data = "sst5" in set(tidy["dataset"])
    paper = reference("position/table2.csv", [*(dict.fromkeys(tidy["model"]) if same_data else ()), *not_run], [])
    paper = paper.rename(columns={"wilson_low": "low", "wilson_high": "high"}).assign(dataset="sst5")
    greedy_only = sorted({context.model_title(name) for name in missing.get("model", []) if name not in not_run})
    return Table(
        "Position sensitivity: prediction flip rates (%) with Wilson 95 % intervals",
        pd.concat([frame for frame in (tidy, missing, paper) if len(frame)], ignore_index=True),
        (
            ("Three probes and sampling noise, each run", _wide_rates(context, tidy, not_run, paper)),
            ("Pairwise contrasts, mean ± SD over demonstration seeds", _mean_rates(context, tidy)),
        ),
        (
            "P2 and P3 count a row as flipped when any order or placement changes its prediction.",
            "Floor: flips between the same requests asked in two groupings. An interval excludes zero for any flip at "
            "all, so read a rate against its floor.",
            "Worst case counts rows without a parsed answer as flipped, in the order of the columns; a most probable "
            "label is always parsed, text may not be.",
            "Noise compares two samples of the same prompt, Total a sample of the natural with one of the reversed "
            "label order, at the experiment's temperature (the paper's: 0.7). McNemar p, one-sided: Total has more "
            "flips than Noise; ✓ below 0.05, × otherwise.",
            *([f"Noise and Total of {', '.join(greedy_only)}: not measured, {_NO_GENERATION}."] if greedy_only else []),
            *([f"Not measured: {', '.join(map(context.model_title, not_run))}, {_NOT_RUN}."] if not_run else []),
            "The prompts are reconstructed: the paper's listings are not public.",
        ),
    )


def _rates(context: Context) -> pd.DataFrame:
    """One row a run and measure, with worst case and numerical floor; McNemar's p stands with the total."""
    measured = []
    for measure in (*_PROBES, *_PAIRS, *_STOCHASTIC):
        rates, worst = context.metric(f"pfr_{measure}"), context.metric(f"pfr_{measure}_worst")
        merged = rates.merge(worst[[*_RUN, "value"]].rename(columns={"value": "worst_case"}), on=_RUN, how="left")
        measured.append(merged.assign(measure=measure))
    floor = context.metric("flip_floor")[[*_RUN, "value", "n", "high"]]
    floor = floor.rename(columns={"value": "floor", "n": "floor_n", "high": "floor_high"})
    p = context.metric("mcnemar_p")
    p = p[p["condition"] == "noise_total"][[*_RUN, "value", "note"]].assign(measure="total")
    p = p.rename(columns={"value": "mcnemar_p", "note": "mcnemar_note"})
    runs = pd.concat(measured, ignore_index=True).merge(floor, on=_RUN, how="left")
    runs = runs.merge(p, on=[*_RUN, "measure"], how="left").rename(columns={"value": "pfr"})
    runs["decoding"] = ["stochastic" if measure in _STOCHASTIC else "greedy" for measure in runs["measure"]]
    columns = [
        *_RUN, "decoding", "measure", "pfr", "low", "high", "n", "worst_case", "floor", "floor_n", "floor_high",
        "mcnemar_p", "mcnemar_note", "note", "provenance",
    ]  # fmt: skip
    return runs[columns]


def _wide_rates(context: Context, tidy: pd.DataFrame, not_run: Sequence[str], paper: pd.DataFrame) -> pd.DataFrame:
    rows = []
    titles = {**_PROBES, **_STOCHASTIC}
    for (experiment, model, dataset, shots, seed), group in tidy.groupby(_RUN, sort=False):
        found = group.set_index("measure")
        base = found.iloc[0]
        row = {**setting_titles(context, experiment, model, dataset, shots), "Seed": str(seed), "n": str(base["n"])}
        row |= {title: _interval(found, measure) for measure, title in titles.items()}
        if "total" in found.index:
            p = found.loc["total", "mcnemar_p"]
            row["McNemar p"] = f"{p_value(p)} {'✓' if p < _ALPHA else '×'}"
        shown = [measure for measure in titles if measure in found.index]
        row["Worst case"] = " / ".join(percent(found.loc[measure, "worst_case"]) for measure in shown)
        floor = "–" if pd.isna(base["floor"]) else f"{percent(base['floor'])} ({int(base['floor_n'])})"
        rows.append({**row, "Floor (n)": floor})
    rows += [{"Model": context.model_title(model), **dict.fromkeys(titles.values(), NOT_MEASURED)} for model in not_run]
    for model, group in paper.groupby("model", sort=False):
        printed = group.set_index("measure")
        row = {"Model": f"{context.model_title(str(model))} (paper)", "Data set": context.dataset_title("sst5")}
        row |= {title: _interval(printed, measure) for measure, title in titles.items()}
        total = printed.loc["total"]
        relation = "< " if total["mcnemar_p_relation"] == "<" else ""
        row["McNemar p"] = f"{relation}{total['mcnemar_p']} {'✓' if total['significant'] == 'yes' else '×'}"
        rows.append(row)
    columns = [
        "Model", "Data set", "Demonstrations", "Seed", "n", *titles.values(), "McNemar p", "Worst case", "Floor (n)",
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    return frame[[column for column in columns if column in frame]].fillna("–")


def _interval(found: pd.DataFrame, measure: str) -> str:
    if measure not in found.index:
        return NOT_MEASURED
    return percent_interval(*found.loc[measure, ["pfr", "low", "high"]].astype(float))


def _mean_rates(context: Context, tidy: pd.DataFrame) -> pd.DataFrame:
    titles = {**_PROBES, **_PAIRS, **_STOCHASTIC}
    summary = mean_sd(tidy.rename(columns={"pfr": "value"}), [*_SETTING, "measure"])
    summary["text"] = [percent_sd(mean, sd) for mean, sd in zip(summary["mean"], summary["sd"], strict=True)]
    rows = []
    for (experiment, model, dataset, shots), group in summary.groupby(_SETTING, sort=False):
        row = setting_titles(context, experiment, model, dataset, shots)
        row |= {titles[measure]: text for measure, text in zip(group["measure"], group["text"], strict=True)}
        rows.append(row)
    return pd.DataFrame(rows).fillna("–")


def setting_titles(context: Context, experiment: str, model: str, dataset: str, shots: str) -> dict[str, str]:
    """First columns of a line: model, data set, demonstrations."""
    return {
        "Model": context.model_title(model),
        "Data set": context.dataset_title(dataset),
        "Demonstrations": context.shots_title(experiment, model, shots).replace("-", " "),
    }


def accuracy_tests(context: Context) -> Table:
    """Accuracy under each condition with McNemar's and Cochran's tests (position paper, §3.4)."""
    context = baseline_runs(context)
    names = {
        "accuracy": "Accuracy",
        "macro_f1": "Macro-F1",
        "spearman_rho": "ρ",
        "mae": "MAE",
        "parse_failure_rate": "Parse failures",
        "label_mass": "Label mass",
        "text_agreement": "Text agrees",
    }
    tests = {
        "mcnemar_p": "McNemar p (natural better than reversed)",
        "cochran_q": "Cochran's Q",
        "cochran_p": "p",
    }
    shown = context.metrics[context.metrics["metric"].isin([*names, *tests])]
    tidy = shown[[*_RUN, "condition", "metric", "value", "n", "note", "provenance"]].reset_index(drop=True)
    summary = mean_sd(shown[shown["metric"].isin(names)], [*_SETTING, "condition", "metric"])
    rows = []
    for (experiment, model, dataset, shots, condition), group in summary.groupby([*_SETTING, "condition"], sort=False):
        by_metric = group.set_index("metric")
        row = {**setting_titles(context, experiment, model, dataset, shots), "Condition": _condition(condition)}
        for metric, title in names.items():
            if metric not in by_metric.index:
                continue
            mean, sd = by_metric.loc[metric, ["mean", "sd"]]
            is_share = metric not in ("spearman_rho", "mae")
            spread = "" if pd.isna(sd) else f" ± {sd:.3f}"
            row[f"{title} (%)" if is_share else title] = percent_sd(mean, sd) if is_share else f"{mean:.3f}{spread}"
        rows.append(row)
    return Table(
        "Accuracy under each probe condition, mean ± SD over demonstration seeds, with tests of each run",
        tidy,
        (("Performance", pd.DataFrame(rows).fillna("–")), ("Tests", _tests(context))),
        (
            "McNemar: one-sided, with continuity correction, signed; Cochran's Q over the conditions of a probe.",
            "ρ is 0 where the prediction is constant; MAE in class steps.",
            "Parse failures: greedy decoding would write no label. Label mass: probability that any label follows.",
            *(
                ["Text agrees: greedy text names the most probable label, among rows whose first token starts a label."]
                if "text_agreement" in set(shown["metric"])
                else []
            ),
        ),
    )


def _tests(context: Context) -> pd.DataFrame:
    rows = []
    for (experiment, model, dataset, shots, seed), group in context.metrics.groupby(_RUN, sort=False):
        found = group[group["metric"].isin(["mcnemar_p", "cochran_q", "cochran_p"])].set_index(["metric", "condition"])[
            "value"
        ]
        rows.append(
            {
                **setting_titles(context, experiment, model, dataset, shots),
                "Seed": str(seed),
                "McNemar p, label order": p_value(found.get(("mcnemar_p", "label_order"))),
                **{
                    f"Cochran {probe.replace('_', ' ')}": _cochran(found, probe)
                    for probe in _MULTIPLE
                    if ("cochran_q", probe) in found
                },
            }
        )
    return pd.DataFrame(rows).fillna("–")


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
