"""Tables of written answers: chain of thought read at two places, answer tokens, what is not measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poise.artefacts.context import Context
from poise.artefacts.tables import answer_token, chain_of_thought
from poise.config.compose import compose_study
from poise.config.schema import Study
from poise.errors import PoiseError
from poise.planfile import make_plan
from poise.stages import artefacts as stage
from poise.stages.measure import collect, tidy_frame

COT, OFF = "chain_of_thought", "chain_of_thought_off_by_one"


@pytest.fixture(scope="module")
def study() -> Study:
    """Models and data sets of the paper, an API model, and data that the paper has not."""
    return compose_study(
        ["study=demo", "name=p", "model=[gemma-2-2b,llama-2-13b,gpt-3.5-turbo-instruct]", "dataset=[rte,r8,ddi]",
         "experiment=[class_accuracy,chain_of_thought,answer_token]", "method=[icl]",
         "experiment.class_accuracy.datasets=[rte,r8,ddi]", "experiment.chain_of_thought.datasets=[rte,r8,ddi]",
         "experiment.answer_token.datasets=[rte,r8,ddi]"]
    )  # fmt: skip


def _row(metric: str, value: float, **columns: Any) -> dict[str, Any]:
    shared = {
        "experiment": COT, "model": "gemma-2-2b", "dataset": "rte", "shots": "1_shot", "seed": 0, "method": "icl",
        "condition": "base", "n": 30, "provenance": "measured",
    }  # fmt: skip
    return {**shared, "metric": metric, "value": value, **columns}


def _scores(condition: str, accuracies: list[float], cobias: list[float], **columns: Any) -> list[dict[str, Any]]:
    rows = []
    for seed, (a, c) in enumerate(zip(accuracies, cobias, strict=True)):
        shared = {"condition": condition, "seed": seed, **columns}
        rows += [
            _row("accuracy", a, **shared),
            _row("cobias", c, low=c - 0.1, high=c + 0.1, **shared),
            _row("cobias_floor", 0.05, **shared),
        ]
        if condition != "base":
            rows += [
                _row("accuracy_difference", a - 0.7, **shared),
                _row("cobias_difference", c - 0.3, low=c - 0.4, high=c - 0.2, **shared),
            ]
        if condition.startswith(COT):
            rows.append(_row("label_match_rate", 0.25, **shared))
    return rows


def _thought(**columns: Any) -> list[dict[str, Any]]:
    return [
        *_scores("base", [0.7, 0.7], [0.3, 0.3], **columns),
        *_scores(COT, [0.4, 0.6], [0.2, 0.4], **columns),
        *_scores(OFF, [0.3, 0.3], [0.1, 0.1], **columns),
        _row("template_reasons", 1, n=1, condition=COT, seed=0, **columns),
        _row("template_reasons", 0, n=1, condition=COT, seed=1, **columns),
    ]


def _context(study: Study, rows: list[dict[str, Any]]) -> Context:
    return Context(study, tidy_frame(rows))


def test_both_readings_stand_beside_the_plain_prompt_and_the_papers_rows(study: Study) -> None:
    table = chain_of_thought.chain_of_thought(_context(study, _thought()))
    headings = [heading for heading, _ in table.sections]
    assert headings == [
        "Plain prompt",
        "Chain of thought, read where the last label starts",
        "The same texts, read one token too late, as the authors' code does",
        "COBias of each run, with 95 % bootstrap intervals",
        "Gemma-2-2B, 1-shot (paper)",
    ]
    sections = dict(table.sections)
    assert sections[headings[1]].iloc[0].to_dict() == {
        "Model": "Gemma-2-2B", "Demonstrations": "1-shot", "Data set": "RTE", "n": "30",
        "Accuracy": "50.0 ± 14.1", "Δ accuracy": "-20.0 ± 14.1", "COBias": "30.0 ± 14.1 (floor 5.0)",
        "Δ COBias": "0.0 ± 14.1", "Label-match rate": "25.0 ± 0.0",
    }  # fmt: skip
    assert sections[headings[2]].iloc[0]["Δ COBias"] == "-20.0 ± 0.0"
    assert list(sections[headings[0]].columns)[4:] == ["Accuracy", "COBias"]  # nothing to compare it with
    assert sections[headings[3]]["Δ, one too late"].tolist() == ["-20.0 [-30.0, -10.0]"] * 2
    assert sections[headings[4]].to_numpy().tolist() == [
        ["RTE", "48.5 ± 1.6", "-21.8", "36.4 ± 7.1", "+11.2"],
        ["All seven", "35.0", "-18.4", "30.3", "-8.2"],
    ]
    assert set(table.tidy["provenance"]) == {"measured", "paper"}
    assert "configured: 1 of 2." in table.markdown()
    assert "31 new tokens at most, sampled at temperature 1" in table.markdown()


def test_several_data_sets_have_a_mean_and_other_models_no_printed_row(study: Study) -> None:
    rows = [*_thought(model="llama-2-13b"), *_thought(model="llama-2-13b", dataset="r8")]
    table = chain_of_thought.chain_of_thought(_context(study, rows))
    section = dict(table.sections)["Chain of thought, read where the last label starts"]
    assert section["Data set"].tolist()[::2] == ["RTE", "All"]
    assert section["Accuracy"].tolist() == ["50.0 ± 14.1"] * 3
    assert set(table.tidy["provenance"]) == {"measured"}


def _counts(matrix: list[list[int]], names: list[str], **columns: Any) -> list[dict[str, Any]]:
    classes = ["negative", "positive"]
    shared = {"experiment": "answer_token", "condition": "answer_token", "dataset": "ddi", **columns}
    return [
        _row("count", n, **shared, **{"class": true, "pred_class": predicted})
        for true, row in zip(classes, matrix, strict=True)
        for predicted, n in zip(names, row, strict=True)
    ]


def _answers(model: str) -> list[dict[str, Any]]:
    shared = {"experiment": "answer_token", "model": model, "dataset": "ddi"}
    return [
        *_counts([[5, 1, 4], [0, 8, 2]], ["negative", "positive", "no label"], model=model),
        *_scores("answer_token", [0.65], [0.3], **shared),
        _row("parse_failure_rate", 0.3, condition="answer_token", **shared),
        *_scores("base", [0.7], [0.3], **shared),
    ]


def test_answers_without_a_label_are_a_column_of_their_own_and_wrong(study: Study) -> None:
    table = answer_token.local_answer_token(_context(study, _answers("llama-2-13b")))
    heading, matrix = table.sections[0]
    assert heading == "Llama-2-13B, DDI, 1-shot, seed 0"
    assert matrix.to_numpy().tolist() == [
        ["negative", "5", "1", "4", "10", "50.0"],
        ["positive", "0", "8", "2", "10", "80.0"],
        ["All", "5", "9", "6", "20", "65.0"],
        ["Prec.", "100.0", "88.9", "", "", ""],
    ]
    assert list(matrix.columns)[1:4] == ["negative", "positive", "no label"]
    assert table.sections[1][0] == "Llama-2-13B, DDI (paper)"
    assert table.sections[1][1].iloc[0, 1] == "1749"
    scores = dict(table.sections)["Written answers, all runs"].iloc[0]
    assert scores[["Accuracy", "Δ accuracy", "No label"]].tolist() == ["65.0", "-5.0", "30.0"]
    counts = table.tidy[(table.tidy["quantity"] == "count") & (table.tidy["provenance"] == "measured")]
    assert counts["value"].sum() == 20


def test_words_that_count_as_answers_are_told_where_they_are_not_the_classes_names(study: Study) -> None:
    def notes(dataset: str) -> list[str]:
        rows = [{**row, "dataset": dataset} for row in _answers("llama-2-13b")]
        found = answer_token.local_answer_token(_context(study, rows)).notes
        return [note for note in found if "labels of its prompt" in note]

    assert notes("ddi") == []
    title = study.datasets["rte"].title
    assert notes("rte") == [f"{title}: the labels of its prompt are, in class order, False, True."]


def test_api_models_are_in_table_7_and_local_ones_in_table_8(study: Study) -> None:
    both = _context(study, [*_answers("llama-2-13b"), *_answers("gpt-3.5-turbo-instruct")])
    chatgpt, local = answer_token.chatgpt_answer_token(both), answer_token.local_answer_token(both)
    assert chatgpt.sections[0][0].startswith("ChatGPT (gpt-3.5-turbo-instruct), DDI")
    assert chatgpt.sections[1][0] == "ChatGPT (gpt-3.5-turbo-instruct), DDI (paper)"
    assert [heading for heading, _ in local.sections if "ChatGPT" in heading] == []
    only_local = _context(study, _answers("llama-2-13b"))
    assert answer_token.chatgpt_answer_token(only_local).sections[0][0] == "Not measured"
    assert "not measured" not in answer_token.local_answer_token(only_local).markdown()


# --- nothing measured ---


@pytest.fixture(scope="module")
def plain_study() -> Study:
    return compose_study(
        ["study=demo", "name=p", "model=[llama-2-13b,gemma-2-2b]", "dataset=[rte,r8]", "experiment=[class_accuracy]",
         "experiment.class_accuracy.datasets=[rte,r8]"]
    )  # fmt: skip


def test_tables_of_nothing_say_what_would_measure_them(plain_study: Study) -> None:
    nothing = _context(plain_study, [])
    local = answer_token.local_answer_token(nothing)
    assert set(local.tidy["provenance"]) == {"not measured"}
    assert set(local.tidy["dataset"]) == {"rte", "r8"}
    assert "add answer_token to its experiments" in local.notes[0]
    thought = chain_of_thought.chain_of_thought(nothing)
    assert [heading for heading, _ in thought.sections] == ["Not measured", "Gemma-2-2B, 1-shot (paper)"]
    assert len(thought.sections[0][1]) == 4  # two models, two data sets
    assert "add chain_of_thought to its experiments" in thought.notes[0]
    paper = thought.tidy[(thought.tidy["provenance"] == "paper") & (thought.tidy["metric"] == "accuracy")]
    np.testing.assert_allclose(paper["mean"].astype(float), [0.485, 0.35])


def test_chatgpt_matrix_is_the_papers_where_it_is_not_asked(plain_study: Study) -> None:
    table = answer_token.chatgpt_answer_token(_context(plain_study, []))
    (_, missing), (heading, matrix) = table.sections
    assert missing["Confusion matrix"].tolist() == ["not measured"]
    assert "(paper)" in heading
    assert matrix.iloc[0].tolist()[:6] == ["negative", "809", "707", "1001", "217", "2003"]
    assert table.tidy["provenance"].value_counts().to_dict() == {"paper": 25, "not measured": 1}
    assert "gpt-3.5-turbo-instruct, the engine openai and the experiment answer_token" in table.notes[0]


def test_such_tables_are_made_where_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(["study=demo", "name=t", "experiment=[class_accuracy]", "method=[icl]"])
    monkeypatch.chdir(tmp_path)
    for name in ("dnip_table6", "dnip_table7", "dnip_table8"):
        _context(plan.study, []).require(name)
    with pytest.raises(PoiseError, match="dnip_table5: this study measures nothing"):
        _context(plan.study, []).require("dnip_table5")
    collect(plan, "written")
    stage.make_table(plan, "dnip_table7")
    assert "not measured" in (tmp_path / "results/t/tables/dnip_table7.csv").read_text(encoding="utf-8")
