"""The other position tables: flip rates and noise, the design, hidden tokens, full means; studies that lack things."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from poise.artefacts.tables import position, position_design, position_factors, position_pipelines, position_tokens
from poise.artefacts.tables import position_transfer as transfer
from tests.unit.position_frames import FLIPS, PERFORMANCE, context, floor, full_rows, run, study

EVERYTHING = (*PERFORMANCE, *FLIPS)
LETTER = {"factor": "label_format", "level": "letter"}


def _stochastic(**columns: Any) -> list[dict[str, Any]]:
    rows = run({"noise": 0.05, "total": 0.20}, **columns)
    (shared,) = run({"accuracy": 0.003}, **columns)
    rows.append({**shared, "metric": "mcnemar_p", "condition": "noise_total", "note": "b 35, c 5"})
    for condition, hidden, visible in (("greedy", 0.0, 2.0), ("sampled", 12.0, 3.0)):
        rows.append({**shared, "metric": "hidden_tokens", "condition": condition, "value": hidden})
        rows.append({**shared, "metric": "visible_tokens", "condition": condition, "value": visible})
        rows.append({**shared, "metric": "text_parse_failure_rate", "condition": condition, "value": 0.1})
    return rows


def test_noise_and_total_are_shown_where_text_was_sampled() -> None:
    rows = run(dict.fromkeys(EVERYTHING, 0.3)) + _stochastic() + run(dict.fromkeys(EVERYTHING, 0.3), dataset="two")
    table = position.flip_rates(context(rows))
    wide = table.sections[0][1]
    assert wide["Noise"].tolist() == ["5.0 [2.5, 15.0]", "not measured"]
    assert wide["Total"].tolist() == ["20.0 [10.0, 30.0]", "not measured"]
    assert wide["McNemar p"].tolist() == ["0.003 ✓", "–"]
    assert wide["Worst case"].tolist() == ["31.0 / 31.0 / 31.0 / 6.0 / 21.0", "31.0 / 31.0 / 31.0"]
    missing = table.tidy[table.tidy["provenance"] == "not measured"]
    assert missing[["dataset", "measure"]].to_numpy().tolist() == [["two", "noise"], ["two", "total"]]
    assert missing["note"].str.contains("stochastic").all()


def test_flip_rates_are_those_of_the_baseline_and_each_series_stands_once() -> None:
    rows = run(dict.fromkeys(EVERYTHING, 0.3)) + run(dict.fromkeys(EVERYTHING, 0.3), experiment="again")
    rows += run(dict.fromkeys(EVERYTHING, 0.6), **LETTER) + run(dict.fromkeys(EVERYTHING, 0.7), method="pride")
    wide = position.flip_rates(context(rows)).sections[0][1]
    assert wide["P1 label order"].tolist() == ["30.0 [15.0, 40.0]"]
    rows += run(dict.fromkeys(EVERYTHING, 0.4), experiment="again", seed=1)
    rows += run(dict.fromkeys(EVERYTHING, 0.5), experiment="other", seed=1)
    wide = position.flip_rates(context(rows)).sections[0][1]
    assert wide["P1 label order"].str[:4].tolist() == ["30.0", "40.0", "50.0"]
    assert not wide[["Demonstrations", "Seed"]].duplicated().any()  # the experiment says which is which
    performance = position.accuracy_tests(context(rows)).sections[0][1]
    assert performance["Accuracy (%)"].tolist() == ["35.0 ± 7.1", "50.0"]  # all seeds of a series together


def test_models_behind_an_api_stand_with_the_papers_figures() -> None:
    of = study(api=["gpt-5.4"])
    table = position.flip_rates(context(run(dict.fromkeys(EVERYTHING, 0.3)), of))
    lines = table.sections[0][1].set_index("Model")
    assert lines.loc["Model gpt-5.4", "P1 label order"] == "not measured"
    printed = lines.loc["Model gpt-5.4 (paper)"]
    assert printed["P1 label order"] == "8.5 [5.4, 13.2]"
    assert (printed["Total"], printed["McNemar p"]) == ("10.0 [6.6, 14.9]", "0.022 ✓")
    paper = table.tidy[table.tidy["provenance"] == "paper"]
    assert set(paper["model"]) == {"gpt-5.4"}
    tokens = position_tokens.hidden_tokens(context(_stochastic(), of)).sections[0][1]
    assert tokens["PFR total (%)"].tolist() == ["–", "20.0", "10.0"]


def test_tokens_stand_beside_the_flip_rates_of_the_same_decoding() -> None:
    rows = _stochastic() + [{**row, "seed": 1, "value": row["value"] + 0.02} for row in _stochastic()]
    wide = position_tokens.hidden_tokens(context(rows)).sections[0][1]
    assert wide["Decoding"].tolist() == ["greedy", "sampled"]
    assert wide["Hidden tokens"].tolist() == ["0.0 ± 0.0", "12.0 ± 0.0"]
    assert wide["PFR noise (%)"].tolist() == ["–", "6.0 ± 1.4"]  # 5 and 7
    assert wide["Unparsed (%)"].tolist() == ["11.0 ± 1.4"] * 2
    assert wide["Seeds"].tolist() == ["2", "2"]


def test_design_shows_what_was_measured_and_what_the_paper_has_besides() -> None:
    table = position_design.factor_families(context(full_rows(), study(["first", "second"])))
    lines = table.sections[0][1].set_index("Factor")
    ours, others = lines["Levels in this study"], lines["Levels of the paper not in this study"]
    assert ours["Label format"] == "Letter, Numeric*, Natural language"
    assert others["Label format"] == "Neutral ID"
    assert ours["Model"] == "Model first*, Model second"
    assert ours["Separator"] == "not in this study"
    assert others["Separator"] == "Colon + space*, Space, Tab"
    assert ours["Debiasing strategy"] == "None*, Label averaging, PriDe"
    assert others["Aggregation method"] == "–"
    assert lines["Phase"].tolist() == ["1"] * 8 + ["2"] * 4
    assert set(table.tidy["provenance"]) == {"measured", "not measured"}


def test_full_means_are_over_data_sets_then_seeds_beside_the_same_runs_of_the_baseline() -> None:
    rows = []
    for dataset, seed, base in (("five", 0, 0.5), ("five", 1, 0.7), ("two", 0, 0.9), ("two", 1, 0.9)):
        rows += run({**dict.fromkeys(EVERYTHING, base), "mae": 1.5}, dataset=dataset, seed=seed)
    for seed, value in ((0, 0.2), (1, 0.4)):  # not on the binary data set
        rows += run({**dict.fromkeys(EVERYTHING, value), "mae": 1.25}, seed=seed, **LETTER)
    lines = position_factors.performance_means(context(rows)).sections[0][1].set_index("Level")
    assert lines["Acc.↑"].to_dict() == {"Letter": "30.0 ± 14.1", "Numeric*": "60.0 ± 14.1"}
    assert lines["MAE↓"].to_dict() == {"Letter": "1.250 ± 0.000", "Numeric*": "1.500 ± 0.000"}
    assert "P1↓" not in lines
    table = position_factors.flip_means(context([*rows, floor(0.0, 20)]))
    assert table.sections[0][1].set_index("Level")["P2b↓"].to_dict() == {
        "Letter": "30.0 ± 14.1",
        "Numeric*": "60.0 ± 14.1",
    }
    letter = table.tidy[(table.tidy["level"] == "letter") & (table.tidy["measure"] == "p2b")].iloc[0]
    assert (letter["worst_case"], letter["n"], letter["runs"]) == (pytest.approx(0.31), 400, 2)
    assert any("0.0 % of 20 rows" in note for note in table.notes)


def test_one_seed_has_no_sd() -> None:
    rows = run({"accuracy": 0.5, "mae": 1.0}) + run({"accuracy": 0.6, "mae": 1.0}, **LETTER)
    lines = position_factors.performance_means(context(rows)).sections[0][1]
    assert lines[["Acc.↑", "MAE↓"]].to_numpy().tolist() == [["60.0 ± –", "1.000 ± –"], ["50.0 ± –", "1.000 ± –"]]


@pytest.mark.parametrize(
    "make",
    [
        position_factors.residual_table, position_factors.performance_means, position_factors.flip_means,
        transfer.residual_table, transfer.full_means, position_pipelines.residual_table, position_pipelines.full_means,
        position_tokens.hidden_tokens,
    ],
)  # fmt: skip
def test_without_factors_a_table_says_that_it_is_not_measured(make: Any) -> None:
    table = make(context(run(dict.fromkeys(EVERYTHING, 0.3)), study(factors=[])))
    assert table.tidy["provenance"].tolist() == ["not measured"]
    assert len(table.sections[0][1]["Reason"].iloc[0]) > 20


def test_levels_of_ones_own_come_after_the_papers() -> None:
    rows = run({"accuracy": 0.5}) + run({"accuracy": 0.4}, factor="font", level="large_caps")
    rows += run({"accuracy": 0.6}, **LETTER) + run({"accuracy": 0.7}, factor="label_format", level="roman")
    frame = position_factors.residual_table(context(rows)).sections[0][1]
    assert frame["Level"].tolist() == ["Letter", "Roman", "Large caps"]
    assert frame["Factor"].tolist() == ["Label format", "Label format", "Font"]


def test_overview_has_one_line_a_data_set_however_many_levels() -> None:
    frame = position.datasets_overview(context(full_rows(["first"]))).sections[0][1]
    assert frame["Data set"].tolist() == ["FIVE", "THREE", "TWO"]
    assert isinstance(frame, pd.DataFrame)
    assert frame["D"].tolist() == ["25", "15", "10"]
