"""Residual tables of the position paper (4, 5, 6): pairs, means and printed figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from poise.artefacts.tables import position_factors, position_pipelines, position_transfer
from poise.artefacts.tables.position_cells import signed
from poise.artefacts.tables.position_common import at_baseline, factor_residuals, over_seeds, per_seed_means, settings
from poise.artefacts.tables.table import Table
from tests.unit.position_frames import FLIPS, PERFORMANCE, RULES, context, floor, full_rows, run, study

EVERYTHING = (*PERFORMANCE, *FLIPS)
LETTER = {"factor": "label_format", "level": "letter"}


def _lines(table: Table, section: int = 0) -> pd.DataFrame:
    frame = table.sections[section][1]
    return frame.set_index(list(frame.columns[:2]))


def _uneven() -> list[dict[str, Any]]:
    rows = []
    for dataset, seed, base in (("five", 0, 0.5), ("five", 1, 0.6), ("three", 0, 0.4), ("three", 1, 0.9)):
        rows += run({"accuracy": base}, dataset=dataset, seed=seed)
    for dataset, seed, value in (("five", 0, 0.6), ("five", 1, 0.5), ("three", 0, 0.7)):
        rows += run({"accuracy": value}, dataset=dataset, seed=seed, **LETTER)
    return rows


def test_only_runs_that_both_have_are_compared_and_averaged_seed_by_seed() -> None:
    rows = factor_residuals(settings(context(_uneven())))
    assert rows["value"].round(12).tolist() == [0.1, -0.1, 0.3]
    by = ["factor", "level"]
    assert per_seed_means(rows, by)["value"].round(12).tolist() == [0.2, -0.1]  # 0.1 and 0.3; -0.1 alone
    found = over_seeds(rows, by).iloc[0]
    # Over seeds: 0.05, not the 0.1 of all pairs; the baseline of the same runs: (0.45 + 0.6) / 2.
    assert (found["mean"], found["baseline"]) == (pytest.approx(0.05), pytest.approx(0.525))
    assert found["sd"] == pytest.approx(0.3 / 2**0.5)
    assert (found["datasets"], found["seeds"], found["runs"], found["n"]) == ("five|three", "0|1", 3, 600)
    line = _lines(position_factors.residual_table(context(_uneven()))).loc[("Label format", "Letter")]
    assert (line["Acc.↑"], line["F1↑"], line["Data sets (seeds)"]) == ("+5.00", "–", "FIVE, THREE (3 of 4 runs)")


def test_each_experiment_has_its_own_baseline() -> None:
    rows = run({"accuracy": 0.5}) + run({"accuracy": 0.6}, **LETTER)
    rows += run({"accuracy": 0.7}, experiment="again") + run({"accuracy": 0.6}, experiment="again", **LETTER)
    frame = position_factors.residual_table(context(rows)).sections[0][1]
    assert frame[["Experiment", "Acc.↑"]].to_numpy().tolist() == [["position", "+10.00"], ["again", "-10.00"]]


def test_zero_shot_compares_with_the_baselines_demonstrations_and_has_no_order_to_change() -> None:
    rows = run(dict.fromkeys(EVERYTHING, 0.5))
    values = dict.fromkeys((*PERFORMANCE, "p1"), 0.25)
    rows += run(values, factor="demo_count", level="0_shot", shots="0_per_class")
    line = _lines(position_factors.residual_table(context(rows))).loc[("Demo count", "0-shot")]
    assert line.tolist() == [*["-25.00"] * 5, *["–"] * 4, "FIVE (1)"]


def test_semantic_mapping_is_a_second_line_against_the_baselines_label_order() -> None:
    rows = run({"accuracy": 0.5, "p1": 0.2})
    rows += run({"accuracy": 0.6, "p1": 0.9, "p1_semantic": 0.3}, factor="label_format", level="natural_language")
    lines = _lines(position_factors.residual_table(context(rows)))
    assert lines.loc[("Label format", "Natural language"), ["Acc.↑", "P1↓"]].tolist() == ["+10.00", "+70.00"]
    semantic = lines.loc[("Label format", "Natural language, semantic mapping")]
    assert semantic[["Acc.↑", "P1↓"]].tolist() == ["–", "+10.00"]


def test_models_compare_within_the_experiment_that_has_most_of_them() -> None:
    rows = run({"accuracy": 0.9}, experiment="alone")
    for model, value in (("first", 0.5), ("second", 0.4), ("gemma3-12b", 0.8)):
        rows += run({"accuracy": value}, model=model)
    of = study(["first", "second", "gemma3-12b"])
    table = position_factors.residual_table(context(rows, of))
    assert _lines(table)["Acc.↑"].tolist() == ["-10.00", "+30.00"]
    printed = _lines(table, 1)
    assert printed.index.tolist() == [("Model", "Model gemma3-12b")]
    assert printed["Acc.↑"].tolist() == ["+11.46"]


def test_printed_residuals_stand_beside_the_same_levels_only() -> None:
    table = position_factors.residual_table(context(full_rows(["first"])))
    heading, printed = table.sections[-1]
    assert "paper" in heading
    assert printed["P1↓"].tolist() == ["+3.27", "+59.54", "+6.87"]  # letter, natural language, zero-shot
    assert printed["P2a↓"].tolist() == ["+1.18", "-13.18", "–"]
    paper = table.tidy[table.tidy["provenance"] == "paper"]
    assert set(paper["level"]) == {"letter", "natural_language", "0_shot"}
    assert paper[(paper["level"] == "letter") & (paper["measure"] == "mae")]["residual_x100"].tolist() == [-1.53]
    missing = table.tidy[table.tidy["provenance"] == "not measured"]
    assert ("label_format", "neutral_id") in set(zip(missing["factor"], missing["level"], strict=True))
    assert missing["residual_x100"].isna().all()
    assert any("Neutral ID" in note for note in table.notes)


def test_printing_rounds_once_from_unrounded_values() -> None:
    rows = []
    for seed, value in enumerate((2 / 3, 2 / 3, 1 / 3 + 0.0001)):
        rows += run({"accuracy": 1 / 3}, seed=seed) + run({"accuracy": value}, seed=seed, **LETTER)
    table = position_factors.residual_table(context(rows))
    assert _lines(table)["Acc.↑"].tolist() == ["+22.23"]  # (1/3 + 1/3 + 0.0001) / 3
    tidy = table.tidy[table.tidy["provenance"] == "measured"]
    assert tidy["residual_x100"].tolist() == [pytest.approx(100 * (2 / 3 + 0.0001) / 3)]


@pytest.mark.parametrize(
    ("x100", "text"),
    [(2.2, "+2.20"), (-1.534, "-1.53"), (0.0, "0.00"), (-0.004, "0.00"), (float("nan"), "–"), (-13.156, "-13.16")],
)
def test_residuals_have_two_decimals_and_a_sign(x100: float, text: str) -> None:
    assert signed(x100) == text


def test_floor_of_the_baseline_is_pooled_over_its_runs() -> None:
    rows = run({"accuracy": 0.5, "p1": 0.5}) + run({"accuracy": 0.5, "p1": 0.5}, seed=1)
    rows += run({"accuracy": 0.5, "p1": 0.6}, **LETTER) + run({"accuracy": 0.5, "p1": 0.6}, seed=1, **LETTER)
    rows += [floor(0.05, 20), floor(0.0, 60, seed=1), floor(1.0, 60, dataset="two")]
    notes = " ".join(position_factors.residual_table(context(rows)).notes)
    assert "1.2 % of 80 rows" in notes  # 1 of 20 and 0 of 60; the data set without levels does not count
    assert "95 % interval to 6.7 %" in notes  # Wilson's upper bound of 1 of 80


def _configured(models: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = []
    for k, model in enumerate(models):
        rows += run(dict.fromkeys(EVERYTHING, 0.5 + k / 10), model=model)
        at = {"model": model, "factor": "configuration", "shots": "0_per_class"}
        rows += run(dict.fromkeys((*PERFORMANCE, "p1"), 0.6 - k / 5), **at, level="accuracy_optimal")
    return rows


def test_models_are_compared_under_the_same_configuration() -> None:
    of = study(["first", "second", "third"])
    table = position_transfer.residual_table(context(_configured(("first", "second", "third")), of))
    lines = _lines(table)
    assert lines["Acc.↑"].tolist() == ["+10.00", "-20.00", "+20.00", "-40.00"]
    assert lines.index.tolist() == [(f"Model {m}", c) for m in ("second", "third") for c in ("Baseline", "A")]
    assert lines["P3b↓"].tolist() == ["+10.00", "–", "+20.00", "–"]
    assert _lines(table, 1).loc[("Ministral-3-8B", "A"), "P1↓"] == "+17.10"


def test_baseline_of_selected_configurations_is_that_of_the_other_half() -> None:
    rows = _configured(("first", "second"))
    rows += run({"accuracy": 0.3}, factor="configuration", level="baseline")
    rows += run({"accuracy": 0.7}, model="second", factor="configuration", level="baseline")
    of = study(["first", "second"])
    table = position_transfer.residual_table(context(rows, of))
    assert _lines(table)["Acc.↑"].tolist() == ["+40.00", "-20.00"]
    assert any("other half" in note for note in table.notes)
    means = position_transfer.full_means(context(rows, of)).sections[0][1]
    assert means["Acc.↑"].tolist() == ["30.0 ± –", "60.0 ± –", "70.0 ± –", "40.0 ± –"]


def test_a_configuration_in_words_compares_each_mapping_with_the_same_mapping() -> None:
    rows = _configured(("first", "second"))
    at = {"factor": "configuration", "level": "p1_optimal"}
    rows += run({"p1": 0.9, "p1_semantic": 0.2}, **at) + run({"p1": 0.8, "p1_semantic": 0.5}, **at, model="second")
    lines = _lines(position_transfer.residual_table(context(rows, study(["first", "second"]))))
    assert lines.loc[("Model second", "P1"), "P1↓"] == "-10.00"
    assert lines.loc[("Model second", "P1, semantic mapping"), "P1↓"] == "+30.00"


def test_one_model_says_why_it_has_no_cross_model_residuals() -> None:
    table = position_transfer.residual_table(context(_configured(("first",))))
    measured = table.sections[0][1]
    assert measured["Configuration"].tolist() == ["Baseline", "A"]
    assert set(measured["Acc.↑"]) == {"not measured"}
    assert set(table.tidy["provenance"]) == {"not measured", "paper"}
    assert any("second model is needed" in note for note in table.notes)
    assert "+17.10" in table.markdown()


def _pipelines() -> list[dict[str, Any]]:
    rows = []
    for dataset, base in (("five", 0.5), ("three", 0.3), ("two", 0.9)):
        at = {"dataset": dataset}
        rows += run(dict.fromkeys(EVERYTHING, base), **at)
        rows += run(dict.fromkeys(PERFORMANCE, base - 0.1), **at, method="label_averaging")
        if dataset != "two":
            for k, rule in enumerate(RULES):
                values = dict.fromkeys((*PERFORMANCE, "p1"), base + k / 100) | dict.fromkeys(FLIPS[1:], 0.0)
                rows += run(values, **at, factor="inference_paradigm", level="pairwise", method=rule)
    return rows


def test_pipelines_compare_with_the_pointwise_baseline_of_the_same_data_sets() -> None:
    table = position_pipelines.residual_table(context(_pipelines()))
    lines = _lines(table)
    pairwise, weighted = (
        lines.loc[("Inference paradigm", "Pairwise")],
        lines.loc[("Aggregation method", "Weighted sum")],
    )
    assert (pairwise["Acc.↑"], weighted["Acc.↑"]) == ("+2.00", "+2.00")  # weighted sum is the third rule
    assert pairwise[["P2a↓", "P3b↓"]].tolist() == ["–", "–"]
    assert weighted[["P2a↓", "P3b↓"]].tolist() == ["-40.00", "-40.00"]  # minus (0.5 + 0.3) / 2, without the binary one
    assert pairwise["Data sets (seeds)"] == "FIVE, THREE (1)"
    averaged = lines.loc[("Debiasing strategy", "Label averaging")]
    assert averaged[["Acc.↑", "P1↓", "Data sets (seeds)"]].tolist() == ["-10.00", "–", "FIVE, THREE, TWO (1)"]
    assert _lines(table, 1).loc[("Aggregation method", "Copeland"), "P1↓"] == "+24.50"
    assert any("by construction" in note for note in table.notes)


def test_absolute_pipeline_means_show_the_baseline_of_each_family() -> None:
    lines = _lines(position_pipelines.full_means(context(_pipelines())))
    assert lines.loc[("Inference paradigm", "Pointwise*"), "Acc.↑"] == "40.0 ± –"
    assert lines.loc[("Debiasing strategy", "None*"), "Acc.↑"] == "56.7 ± –"


def test_corrections_are_no_baseline() -> None:
    rows = settings(context(_pipelines()))
    assert set(at_baseline(rows)["method"]) == {"icl"}
    assert len(at_baseline(rows)) == 3 * len(EVERYTHING)
