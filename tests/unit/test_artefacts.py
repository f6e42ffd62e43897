"""Tables from tidy metrics: values by hand, provenance kept apart, the papers' figures beside the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from poise import paths
from poise.artefacts.context import Context, p_value, percent, percent_sd
from poise.artefacts.figures import imbalance as imbalance_figures
from poise.artefacts.figures import position as position_figures
from poise.artefacts.index import artefact_page
from poise.artefacts.registry import ARTEFACTS
from poise.artefacts.tables import imbalance, position
from poise.errors import PoiseError
from poise.plan import Plan
from poise.planfile import make_plan
from poise.stages.measure import tidy_frame


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(["study=demo"])


def _row(metric: str, value: float, **columns: Any) -> dict[str, Any]:
    shared = {
        "experiment": "class_accuracy", "model": "m", "dataset": "d", "shots": "1_shot", "seed": 0, "method": "icl",
        "condition": "base", "n": 200, "provenance": "measured",
    }  # fmt: skip
    return {**shared, "metric": metric, "value": value, **columns}


def _context(plan: Plan, rows: list[dict[str, Any]]) -> Context:
    return Context(plan.study, tidy_frame(rows))


def _printed_counts(number: int) -> list[dict[str, Any]]:
    rows = pd.read_csv(paths.reference_dir() / f"dnip/table{number}.csv")
    counts = rows[rows["quantity"] == "count"]
    return [
        _row("count", value, **{"class": true, "pred_class": predicted}, provenance="synthetic")
        for true, predicted, value in zip(counts["true_class"], counts["pred_class"], counts["value"], strict=True)
    ]


def test_margins_of_the_printed_matrix_come_out_as_printed(plan: Plan) -> None:
    table = imbalance.confusion_before(_context(plan, _printed_counts(1)))
    ((_, wide),) = table.sections
    assert wide["Acc."].tolist() == ["85.0", "98.2", "96.9", "19.0", "74.8", ""]
    assert wide.iloc[-1].tolist()[1:5] == ["85.2", "92.9", "54.8", "95.5"]
    assert wide["All"].tolist()[:5] == ["1286", "1270", "1204", "1240", "5000"]
    assert set(table.tidy["provenance"]) == {"synthetic"}


def _main_rows(**columns: Any) -> list[dict[str, Any]]:
    rows = []
    for seed, (accuracy, cobias) in enumerate([(0.80, 0.30), (0.84, 0.20), (0.82, 0.22)]):
        for method, shift in (("icl", 0.0), ("dnip", -0.1)):
            shared = {"seed": seed, "method": method, **columns}
            rows.append(_row("accuracy", accuracy - shift, **shared))
            rows.append(_row("cobias", cobias + shift, low=cobias + shift - 0.05, high=cobias + shift + 0.05, **shared))
            rows.append(_row("cobias_floor", 0.04, **shared))
        rows.append(_row("cobias_difference", -0.1, low=-0.15, high=-0.02, seed=seed, method="dnip", **columns))
    return rows


def test_main_table_is_mean_and_sample_sd_over_seeds(plan: Plan) -> None:
    table = imbalance.main_table(_context(plan, _main_rows()))
    wide = table.sections[0][1]
    assert wide["Acc. d"].tolist() == ["82.0 ± 2.0", "92.0 ± 2.0"]
    assert wide["COBias d"].tolist() == ["24.0 ± 5.3 (floor 4.0)", "14.0 ± 5.3 (floor 4.0)"]
    assert table.sections[1][1]["Change, ICL+DNIP"].tolist() == ["-10.0 [-15.0, -2.0]"] * 3


def test_all_is_the_mean_over_data_sets_run_by_run(plan: Plan) -> None:
    rows = _main_rows() + [{**row, "dataset": "e", "value": row["value"] + 0.02} for row in _main_rows()]
    wide = imbalance.main_table(_context(plan, rows)).sections[0][1]
    assert wide["Acc. All"].tolist() == ["83.0 ± 2.0", "93.0 ± 2.0"]


def test_printed_figures_stand_beside_the_same_model_and_data_only(plan: Plan) -> None:
    same = imbalance.main_table(_context(plan, _main_rows(model="llama-2-13b", dataset="agnews")))
    paper = same.sections[0][1].set_index(["Method", "Model", "Demonstrations"])
    assert paper.loc[("ICL", "llama-2-13b (paper)", "1-shot"), "Acc. agnews"] == "79.9 ± 7.0"
    assert paper.loc[("ICL", "llama-2-13b", "1-shot"), "Acc. agnews"] == "82.0 ± 2.0"
    assert set(same.tidy["provenance"]) == {"measured", "paper"}
    measured = same.tidy[(same.tidy["provenance"] == "measured") & (same.tidy["metric"] == "accuracy")]
    np.testing.assert_allclose(measured[measured["dataset"] == "agnews"]["mean"], [0.82, 0.92])
    other = imbalance.main_table(_context(plan, _main_rows(model="llama-2-13b", dataset="r8")))
    assert "79.9" not in other.markdown()


def _position_rows() -> list[dict[str, Any]]:
    shared: dict[str, Any] = {
        "experiment": "position",
        "dataset": "tweets3",
        "shots": "1_per_class",
        "model": "m",
    }
    rows = []
    for contrast in ("p1", "p2", "p3", "p2a", "p2b", "p3a", "p3b"):
        rows.append(_row(f"pfr_{contrast}", 0.25, low=0.19, high=0.32, condition=contrast, **shared))
        rows.append(_row(f"pfr_{contrast}_worst", 0.30, condition=contrast, **shared))
    for metric in ("accuracy", "macro_f1", "spearman_rho", "mae", "parse_failure_rate", "label_mass"):
        rows.append(_row(metric, 0.5, **shared))
    rows.append(_row("flip_floor", 0.01, low=0.0, high=0.05, n=20, **shared))
    rows.append(_row("mcnemar_p", 0.0004, condition="label_order", **shared))
    return rows


def test_flip_rates_show_interval_worst_case_floor_and_what_was_not_measured(plan: Plan) -> None:
    table = position.flip_rates(_context(plan, _position_rows()))
    wide = table.sections[0][1].iloc[0]
    assert wide["P1 label order"] == "25.0 [19.0, 32.0]"
    assert wide["Worst case"] == "30.0 / 30.0 / 30.0"
    assert wide["Floor (n)"] == "1.0 (20)"
    missing = table.tidy[table.tidy["decoding"] == "stochastic"]
    assert set(missing["measure"]) == {"noise", "total"}
    assert set(missing["provenance"]) == {"not measured"}
    assert missing["pfr"].isna().all()
    assert missing["note"].str.len().gt(10).all()


def test_tests_table_names_the_direction_and_the_p_value(plan: Plan) -> None:
    table = position.accuracy_tests(_context(plan, _position_rows()))
    assert table.sections[1][1]["McNemar p, label order"].tolist() == ["< 0.001"]


def test_overview_counts_demonstrations(plan: Plan) -> None:
    wide = position.datasets_overview(_context(plan, _position_rows())).sections[0][1]
    assert wide.iloc[0][["m", "D"]].tolist() == ["3", "3"]


def test_markdown_and_html_carry_notes_and_provenance(plan: Plan) -> None:
    table = imbalance.main_table(_context(plan, _main_rows()))
    for page in (table.markdown(), table.html()):
        assert "Provenance of these numbers: measured." in page
    assert "<script" not in imbalance.main_table(_context(plan, _main_rows(dataset="<script>"))).html()


def test_nothing_measured_is_an_error_not_an_empty_table(plan: Plan) -> None:
    with pytest.raises(PoiseError, match="measures nothing"):
        Context(plan.study, tidy_frame([])).require("dnip_table3")


def test_figures_draw_for_many_classes_and_an_absent_one(plan: Plan) -> None:
    classes = [f"class {k}" for k in range(14)]
    rows = []
    for method in ("icl", "dnip"):
        for i, true in enumerate(classes):
            rows += [_row("count", float(i == j and i > 0), **{"class": true, "pred_class": p}, method=method)
                     for j, p in enumerate(classes)]  # fmt: skip
            rows.append(_row("class_accuracy", float("nan") if i == 0 else 0.5, **{"class": true}, method=method))
    context = _context(plan, rows)
    for draw in (imbalance_figures.confusion_matrices, imbalance_figures.pairwise_differences):
        figure = draw(context)
        assert len(figure.axes) >= 2


def test_figure_of_label_order_draws(plan: Plan) -> None:
    rows = [{**row, "model": "smollm2-135m-instruct"} for row in _position_rows()]
    assert position_figures.label_order(_context(plan, rows)).axes


def test_formats() -> None:
    assert (percent(float("nan")), percent(0.1234)) == ("–", "12.3")
    assert percent_sd(0.5, float("nan")) == "50.0"
    assert (p_value(0.0009), p_value(0.0224), p_value(float("nan"))) == ("< 0.001", "0.022", "–")


def test_the_committed_index_is_fresh() -> None:
    page = Path(__file__).parents[2] / "docs/artefacts.md"
    assert page.read_text(encoding="utf-8") == artefact_page(), (
        "docs/artefacts.md is not what the registry says: renew it with `make docs` (poise artefacts --output ...)"
    )


def test_every_artefact_has_a_maker_and_its_references() -> None:
    import importlib

    for artefact in ARTEFACTS.values():
        module, function = artefact.maker.split(":")
        assert callable(getattr(importlib.import_module(f"poise.artefacts.{module}"), function))
        assert all((paths.reference_dir() / name).is_file() for name in artefact.reference)
