"""Tables of the class-accuracy paper that this version cannot measure: they say so, beside what the paper prints."""

from __future__ import annotations

import pandas as pd

from poise.artefacts.context import Context, percent_sd, printed, reference
from poise.artefacts.tables.common import NOT_MEASURED
from poise.artefacts.tables.imbalance import printed_matrix, with_margins
from poise.artefacts.tables.table import Table
from poise.config.schema import Study

_NO_GENERATION = "needs text generation, which this version of Poise does not ask for"
_ANSWER_TOKEN = "The prediction is the answer token itself, not the most probable class (appendix A of the paper)."


def chain_of_thought(context: Context) -> Table:
    """Chain-of-thought prompting (DNIP paper, Table 6)."""
    wanted = _wanted(context.study)
    columns = ["Accuracy", "Δ accuracy", "COBias", "Δ COBias", "Label-match rate"]
    paper = printed("dnip/table6.csv", wanted)
    sections = [(NOT_MEASURED.capitalize(), _missing_rows(context, wanted, columns))]
    for model, rows in paper.groupby("model", sort=False):
        sections.append((f"{context.model_title(str(model))}, 1-shot (paper)", _printed_scores(context, rows)))
    numbers = {key: pd.to_numeric(paper[key]) / 100 for key in ("mean", "sd", "delta")}
    return Table(
        "1-shot chain-of-thought prompting: test scores (%) and changes against plain 1-shot",
        pd.concat([_tidy(wanted, _NO_GENERATION), paper.assign(**numbers)], ignore_index=True),
        tuple(sections),
        (
            f"Not measured: chain of thought {_NO_GENERATION}.",
            "The paper's reasoning sentences are not printed; it attributes the lower COBias to noisier class "
            "probabilities, not to better reasoning.",
        ),
    )


def chatgpt_answer_token(context: Context) -> Table:
    """Answer-token confusion matrix of ChatGPT on DDI (DNIP paper, Table 7): only the paper's."""
    reason = "an API model of the paper; not run"
    wanted = pd.DataFrame({"model": ["chatgpt"], "dataset": ["ddi"]})
    return _answer_token(
        context,
        "Answer-token confusion matrix of ChatGPT on DDI",
        wanted,
        reason,
        reference("dnip/table7.csv", ["chatgpt"], ["ddi"]),
    )


def local_answer_token(context: Context) -> Table:
    """Answer-token confusion matrix of a local model (DNIP paper, Table 8)."""
    wanted = _wanted(context.study)
    caption = "Answer-token confusion matrix of a local model"
    return _answer_token(context, caption, wanted, _NO_GENERATION, printed("dnip/table8.csv", wanted))


def _answer_token(context: Context, caption: str, wanted: pd.DataFrame, reason: str, paper: pd.DataFrame) -> Table:
    sections = [(NOT_MEASURED.capitalize(), _missing_rows(context, wanted, ["Confusion matrix"]))]
    for (model, dataset), rows in paper.groupby(["model", "dataset"], sort=False):
        heading = f"{_model_title(context, str(model))}, {_dataset_title(context, str(dataset))} (paper)"
        sections.append((heading, with_margins(printed_matrix(rows))))
    return Table(
        caption,
        pd.concat([_tidy(wanted, reason), paper], ignore_index=True),
        tuple(sections),
        (
            f"Not measured: {reason}.",
            _ANSWER_TOKEN,
            "Rows are true classes, columns predictions; Acc. and Prec. in percent.",
        ),
    )


def _wanted(study: Study) -> pd.DataFrame:
    """Models and data sets of the study's class-accuracy experiments; the names stay empty if it has none."""
    pairs = [
        (model, dataset)
        for experiment in study.experiment.values()
        if experiment.instrument == "class_accuracy"
        for model in experiment.models or study.models
        for dataset in experiment.datasets
    ]
    return pd.DataFrame(list(dict.fromkeys(pairs)) or [("", "")], columns=["model", "dataset"])


def _tidy(wanted: pd.DataFrame, reason: str) -> pd.DataFrame:
    return wanted.assign(note=reason, provenance=NOT_MEASURED)


def _missing_rows(context: Context, wanted: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Model": [_model_title(context, name) for name in wanted["model"]],
            "Data set": [_dataset_title(context, name) for name in wanted["dataset"]],
            **{column: [NOT_MEASURED] * len(wanted) for column in columns},
        }
    )


def _model_title(context: Context, name: str) -> str:
    return "ChatGPT (gpt-3.5-turbo-instruct)" if name == "chatgpt" else context.model_title(name) or "–"


def _dataset_title(context: Context, name: str) -> str:
    return {"ddi": "DDI", "all": "All seven", "": "–"}.get(name) or context.dataset_title(name)


def _printed_scores(context: Context, paper: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for dataset, group in paper.groupby("dataset", sort=False):
        row = {"Data set": _dataset_title(context, str(dataset))}
        for metric, title in (("accuracy", "accuracy"), ("cobias", "COBias")):
            found = group[group["metric"] == metric].iloc[0]
            mean, sd = (pd.to_numeric(found[key]) / 100 for key in ("mean", "sd"))
            row |= {title[0].upper() + title[1:]: percent_sd(mean, sd), f"Δ {title}": f"{float(found['delta']):+.1f}"}
        rows.append(row)
    return pd.DataFrame(rows)
