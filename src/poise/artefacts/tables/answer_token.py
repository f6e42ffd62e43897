"""Confusion matrices of answers as they are written (DNIP paper, appendix A: Tables 7 and 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from poise.artefacts.context import Context, printed, reference
from poise.artefacts.tables.chain_of_thought import (
    DIFFERENCE_NOTE,
    PLAIN,
    dataset_title,
    experiments_with,
    missing_rows,
    missing_tidy,
    model_title,
    score_sections,
    summarise_written,
    tidy_scores,
    wanted_pairs,
)
from poise.artefacts.tables.common import FLOOR_NOTE, NOT_MEASURED
from poise.artefacts.tables.imbalance import count_matrix, first_runs, printed_matrix, with_margins
from poise.artefacts.tables.table import Table
from poise.config.prompts import ICLPrompt

ANSWER_TOKEN = "answer_token"
_NOTES = (
    "The prediction is the label that the model writes, not the most probable class (appendix A of the paper).",
    "Rows are true classes, columns predictions; Acc. and Prec. in percent. An answer that names no label is wrong.",
)
_CONDITIONS = {ANSWER_TOKEN: "Written answers, all runs", PLAIN: "Most probable labels after the same prompts"}


def chatgpt_answer_token(context: Context) -> Table:
    """Answer-token confusion matrix of ChatGPT on DDI (DNIP paper, Table 7), and of the study's other API models."""
    return _answer_token(
        context,
        "Answer-token confusion matrix of ChatGPT on DDI",
        lambda model: model in context.study.models and context.study.models[model].api,
        pd.DataFrame({"model": ["chatgpt"], "dataset": ["ddi"]}),
        reference("dnip/table7.csv", ["chatgpt"], ["ddi"]),
        "no experiment of this study asks ChatGPT, which is behind an API, for written answers; add the model "
        "gpt-3.5-turbo-instruct, the engine openai and the experiment answer_token",
    )


def local_answer_token(context: Context) -> Table:
    """Answer-token confusion matrix of a local model (DNIP paper, Table 8)."""
    wanted = wanted_pairs(context.study)
    return _answer_token(
        context,
        "Answer-token confusion matrix of a local model",
        lambda model: model not in context.study.models or not context.study.models[model].api,
        wanted,
        printed("dnip/table8.csv", wanted),
        "no experiment of this study asks a local model for written answers; add answer_token to its experiments",
    )


def _answer_token(
    context: Context, caption: str, of_this: Callable[[str], bool], wanted: pd.DataFrame, paper: pd.DataFrame,
    reason: str,
) -> Table:  # fmt: skip
    rows = experiments_with(context, ANSWER_TOKEN)
    rows = rows[[of_this(model) for model in rows["model"]]]
    of_paper = [
        (
            f"{model_title(context, str(model))}, {dataset_title(context, str(dataset))} (paper)",
            with_margins(printed_matrix(group)),
        )
        for (model, dataset), group in paper.groupby(["model", "dataset"], sort=False)
    ]
    if rows.empty:
        missing = (NOT_MEASURED.capitalize(), missing_rows(context, wanted, ["Confusion matrix"]))
        tidy = pd.concat([missing_tidy(wanted, reason), paper], ignore_index=True)
        return Table(caption, tidy, (missing, *of_paper), (f"Not measured: {reason}.", *_NOTES))
    counts = rows[(rows["metric"] == "count") & (rows["condition"] == ANSWER_TOKEN)]
    matrices = []
    for (model, dataset, shots, seed), run in first_runs(counts):
        where = f"{context.model_title(model)}, {context.dataset_title(dataset)}"
        matrices.append((f"{where}, {shots.replace('_', '-')}, seed {seed}", with_margins(count_matrix(run))))
    context = replace(context, metrics=rows)
    summary = summarise_written(rows)
    shown = counts.rename(columns={"class": "true_class", "metric": "quantity"}).assign(method="icl_answer_token")
    columns = ["model", "dataset", "experiment", "shots", "seed", "method", "quantity", "true_class", "pred_class",
               "value", "provenance"]  # fmt: skip
    return Table(
        caption,
        pd.concat([shown[columns], tidy_scores(rows, summary), paper], ignore_index=True),
        (*matrices, *of_paper, *score_sections(context, summary, _CONDITIONS)),
        (*_NOTES, *_word_notes(context, rows), DIFFERENCE_NOTE, FLOOR_NOTE),
    )


def _word_notes(context: Context, rows: pd.DataFrame) -> list[str]:
    """Words that count as answers, where they are not the classes' names: other words are read as no label."""
    notes = []
    for name, dataset in dict.fromkeys(zip(rows["experiment"], rows["dataset"], strict=True)):
        if name not in context.study.experiment or dataset not in context.study.datasets:
            continue
        found = context.study.datasets[dataset]
        prompt = context.study.experiment[name].prompt or found.prompt
        if isinstance(prompt, ICLPrompt) and [w.casefold() for w in prompt.label_words] != [
            c.casefold() for c in found.classes
        ]:
            words = ", ".join(prompt.label_words)
            notes.append(f"{context.dataset_title(dataset)}: the labels of its prompt are, in class order, {words}.")
    return list(dict.fromkeys(notes))
