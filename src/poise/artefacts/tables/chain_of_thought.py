"""Chain of thought against the plain prompt (DNIP paper, Table 6), and what the tables of written answers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from poise.artefacts.context import Context, among, keys_of, mean_over_datasets, percent_interval, percent_sd, printed
from poise.artefacts.tables.common import FLOOR_NOTE, NOT_MEASURED, Cells, summarise
from poise.artefacts.tables.table import Table
from poise.config.schema import Study

PLAIN = "base"
CHAIN_OF_THOUGHT = "chain_of_thought"
OFF_BY_ONE = "chain_of_thought_off_by_one"
DIFFERENCE_NOTE = "Δ is against the plain prompt's most probable label on the same test rows, run by run."
_RUN = ["model", "experiment", "shots", "dataset", "condition"]
_METRICS = (
    "accuracy", "accuracy_difference", "cobias", "cobias_difference", "cobias_floor", "label_match_rate",
    "parse_failure_rate",
)  # fmt: skip
_READINGS = {
    PLAIN: "Plain prompt",
    CHAIN_OF_THOUGHT: "Chain of thought, read where the last label starts",
    OFF_BY_ONE: "The same texts, read one token too late, as the authors' code does",
}
_REASON = "no experiment of this study asks for a chain of thought; add chain_of_thought to its experiments"


def chain_of_thought(context: Context) -> Table:
    """Chain-of-thought prompting (DNIP paper, Table 6)."""
    caption = "Chain-of-thought prompting: test scores (%) and changes against the plain prompt"
    rows = experiments_with(context, CHAIN_OF_THOUGHT)
    wanted = rows if len(rows) else wanted_pairs(context.study)
    paper = printed("dnip/table6.csv", wanted)
    numbers = {key: pd.to_numeric(paper[key]) / 100 for key in ("mean", "sd", "delta")}
    of_paper = [
        (f"{context.model_title(str(model))}, 1-shot (paper)", _printed_scores(context, group))
        for model, group in paper.groupby("model", sort=False)
    ]
    lost = (
        "The paper's reasoning sentences are not printed; it attributes the lower COBias to noisier class "
        "probabilities, not to better reasoning."
    )
    if rows.empty:
        columns = ["Accuracy", "Δ accuracy", "COBias", "Δ COBias", "Label-match rate"]
        missing = (NOT_MEASURED.capitalize(), missing_rows(context, wanted, columns))
        tidy = pd.concat([missing_tidy(wanted, _REASON), paper.assign(**numbers)], ignore_index=True)
        return Table(caption, tidy, (missing, *of_paper), (f"Not measured: {_REASON}.", lost))
    context = replace(context, metrics=rows)
    summary = summarise_written(rows)
    sections = score_sections(context, summary, _READINGS)
    sections.append(("COBias of each run, with 95 % bootstrap intervals", _by_run(context, rows)))
    return Table(
        caption,
        pd.concat([tidy_scores(rows, summary), paper.assign(**numbers)], ignore_index=True),
        (*sections, *of_paper),
        (
            DIFFERENCE_NOTE,
            "Label-match rate: texts that hold a label. Where none does, labels are scored at the last token written.",
            FLOOR_NOTE,
            *_settings_notes(context, rows),
            *(note for note in dict.fromkeys(rows["note"]) if note.startswith("the server tells texts only")),
            lost,
        ),
    )


def experiments_with(context: Context, condition: str) -> pd.DataFrame:
    """Rows of the experiments, models and data sets that measured a condition."""
    keys = ["experiment", "model", "dataset"]
    rows = context.metrics
    return rows[among(rows, keys, set(keys_of(rows[rows["condition"] == condition], keys)))]


def summarise_written(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and SD over seeds of the scores, and their means over data sets where there are several."""
    scores = rows[rows["metric"].isin(_METRICS)]
    by = [*_RUN, "metric", "class"]
    several = scores.groupby(["model", "experiment", "shots"])["dataset"].transform("nunique") > 1
    return summarise(pd.concat([scores, mean_over_datasets(scores[several], by)], ignore_index=True), _RUN, _METRICS)


def tidy_scores(rows: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds, then each run's own values with their intervals."""
    by_run = rows[rows["metric"].isin(_METRICS)].rename(columns={"value": "mean"})
    columns = [*_RUN, "seed", "metric", "mean", "low", "high", "n", "note", "provenance"]
    return pd.concat([summary.drop(columns="class").assign(seed=pd.NA), by_run[columns]], ignore_index=True)


def score_sections(
    context: Context, summary: pd.DataFrame, titles: Mapping[str, str]
) -> list[tuple[str, pd.DataFrame]]:
    """One section for each condition: a row for each model, setting and data set."""
    sections = []
    sizes = context.metric("accuracy").groupby(_RUN)["n"].first()
    for condition, title in titles.items():
        part = summary[summary["condition"] == condition]
        lines = []
        for key in dict.fromkeys(keys_of(part, _RUN)):
            model, experiment, shots, dataset, _ = key
            n = sizes.get(key)
            lines.append(
                {
                    "Model": context.model_title(model),
                    "Demonstrations": context.shots_title(experiment, model, shots),
                    "Data set": "All" if dataset == "all" else context.dataset_title(dataset),
                    "n": "" if n is None else str(n),
                    **_scores(part, key),
                }
            )
        if lines:
            frame = pd.DataFrame(lines)
            empty = [column for column in frame if column != "n" and set(frame[column]) == {"–"}]
            sections.append((title, frame.drop(columns=empty)))
    return sections


def _scores(summary: pd.DataFrame, key: tuple[str, ...]) -> dict[str, str]:
    cells = Cells(summary, _RUN)
    found = summary[[row == key for row in keys_of(summary, _RUN)]].set_index("metric")

    def change(metric: str) -> str:
        return _signed(*found.loc[metric, ["mean", "sd"]]) if metric in found.index else "–"

    return {
        "Accuracy": cells.text(key, "accuracy"),
        "Δ accuracy": change("accuracy_difference"),
        "COBias": cells.text(key, "cobias"),
        "Δ COBias": change("cobias_difference"),
        "Label-match rate": cells.text(key, "label_match_rate"),
        "No label": cells.text(key, "parse_failure_rate"),
    }


def _signed(mean: float, sd: float) -> str:
    rounded = round(mean, 3) + 0.0  # as printed, and no -0.0
    shown = percent_sd(rounded, sd)
    return f"+{shown}" if rounded > 0 else shown


def _by_run(context: Context, rows: pd.DataFrame) -> pd.DataFrame:
    lines = []
    for key, group in rows.groupby(["model", "experiment", "shots", "dataset", "seed"], sort=False):
        model, experiment, shots, dataset, seed = key
        line = {
            "Model": context.model_title(model),
            "Demonstrations": context.shots_title(experiment, model, shots),
            "Data set": context.dataset_title(dataset),
            "Seed": str(seed),
        }
        values = group.set_index(["metric", "condition"])[["value", "low", "high"]]
        for condition, title in ((PLAIN, "Plain"), (CHAIN_OF_THOUGHT, "Last label"), (OFF_BY_ONE, "One too late")):
            if ("cobias", condition) in values.index:
                line[title] = percent_interval(*values.loc[("cobias", condition)])
            if ("cobias_difference", condition) in values.index:
                line[f"Δ, {title.lower()}"] = percent_interval(*values.loc[("cobias_difference", condition)])
        lines.append(line)
    return pd.DataFrame(lines).fillna("–")


def _settings_notes(context: Context, rows: pd.DataFrame) -> list[str]:
    notes = []
    for name in dict.fromkeys(rows["experiment"]):
        thinking = context.study.experiment[name].reasoning if name in context.study.experiment else None
        if thinking is not None:
            how = f"sampled at temperature {thinking.temperature:g}" if thinking.temperature else "greedy"
            notes.append(f"{name}: {thinking.max_new_tokens} new tokens at most, {how}; reasons are ours.")
    counts = rows[rows["metric"] == "template_reasons"]
    notes.append(
        f"Demonstrations whose reason is the template, as no sentence of their own is configured: "
        f"{int(counts['value'].sum())} of {int(counts['n'].sum())}."
    )
    return notes


def wanted_pairs(study: Study) -> pd.DataFrame:
    """Models and data sets of the study's class-accuracy experiments; the names stay empty if it has none."""
    pairs = [
        (model, dataset)
        for experiment in study.experiment.values()
        if experiment.instrument == "class_accuracy"
        for model in experiment.models or study.models
        for dataset in experiment.datasets
    ]
    return pd.DataFrame(list(dict.fromkeys(pairs)) or [("", "")], columns=["model", "dataset"])


def missing_tidy(wanted: pd.DataFrame, reason: str) -> pd.DataFrame:
    """Tidy rows that say what is not measured, and why."""
    return wanted.assign(note=reason, provenance=NOT_MEASURED)


def missing_rows(context: Context, wanted: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Rows of a section that say what is not measured."""
    return pd.DataFrame(
        {
            "Model": [model_title(context, name) for name in wanted["model"]],
            "Data set": [dataset_title(context, name) for name in wanted["dataset"]],
            **{column: [NOT_MEASURED] * len(wanted) for column in columns},
        }
    )


def model_title(context: Context, name: str) -> str:
    """Model as tables print it, the paper's own among them."""
    return "ChatGPT (gpt-3.5-turbo-instruct)" if name == "chatgpt" else context.model_title(name) or "–"


def dataset_title(context: Context, name: str) -> str:
    """Data set as tables print it, also where the study lacks it."""
    if name in context.study.datasets:
        return context.dataset_title(name)
    return {"ddi": "DDI", "all": "All seven", "": "–"}.get(name) or name


def _printed_scores(context: Context, paper: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for dataset, group in paper.groupby("dataset", sort=False):
        row = {"Data set": dataset_title(context, str(dataset))}
        for metric, title in (("accuracy", "accuracy"), ("cobias", "COBias")):
            found = group[group["metric"] == metric].iloc[0]
            mean, sd = (pd.to_numeric(found[key]) / 100 for key in ("mean", "sd"))
            row |= {title[0].upper() + title[1:]: percent_sd(mean, sd), f"Δ {title}": f"{float(found['delta']):+.1f}"}
        rows.append(row)
    return pd.DataFrame(rows)
