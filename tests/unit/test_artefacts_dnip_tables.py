"""Tables 3 to 16 of the class-accuracy paper and the comparison of methods, from small metric frames made by hand."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from poise.artefacts.context import Context
from poise.artefacts.registry import ARTEFACTS
from poise.artefacts.tables import demonstrations, imbalance, methods, objectives, sizes, solver
from poise.artefacts.tables.table import Table
from poise.config.compose import compose_study
from poise.config.schema import Study
from poise.plan import Plan
from poise.planfile import make_plan
from poise.stages.measure import tidy_frame

METHODS = [
    "icl", "dnip", "dnip_cobias_single", "dnip_odd_rate", "dnip_error", "dnip_metropolis", "dnip_exact",
    "dnip_rows_10", "dnip_rows_100", "batch_calibration", "prior_matching", "contextual_calibration",
]  # fmt: skip


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(["study=demo", "name=t", f"method=[{','.join(METHODS)}]", "experiment.position.methods=[]"])


@pytest.fixture(scope="module")
def papers_study() -> Study:
    """A study that has a model and a data set of the paper, and a data set that is not."""
    return compose_study(
        ["study=demo", "name=p", "model=[llama-2-13b,gemma-2-2b]", "dataset=[rte,r8]", "experiment=[class_accuracy]",
         "experiment.class_accuracy.datasets=[rte,r8]"]
    )  # fmt: skip


def _row(metric: str, value: float, **columns: Any) -> dict[str, Any]:
    shared = {
        "experiment": "class_accuracy", "model": "m", "dataset": "r8", "shots": "1_shot", "seed": 0, "method": "icl",
        "condition": "base", "n": 200, "provenance": "measured",
    }  # fmt: skip
    return {**shared, "metric": metric, "value": value, **columns}


def _scores(method: str, values: list[tuple[float, float]], **columns: Any) -> list[dict[str, Any]]:
    """Accuracy and COBias of one method, a pair a seed; the floor is 4 %."""
    rows = []
    for seed, (accuracy, cobias) in enumerate(values):
        shared = {"method": method, "seed": seed, **columns}
        rows += [_row("accuracy", accuracy, **shared), _row("cobias_floor", 0.04, **shared)]
        rows += [_row("cobias", cobias, low=cobias - 0.05, high=cobias + 0.05, **shared)]
    return rows


def _context(plan: Plan | Study, rows: list[dict[str, Any]]) -> Context:
    return Context(plan.study if isinstance(plan, Plan) else plan, tidy_frame(rows))


def _is_unmeasured(table: Table, reason: str) -> bool:
    return set(table.tidy["provenance"]) == {"not measured"} and reason in table.markdown()


# Table 3 ------------------------------------------------------------------------------------------------------------


def test_main_table_shows_icl_and_dnip_only_a_row_for_each_setting(plan: Plan) -> None:
    rows = [row for name in ("icl", "dnip", "dnip_error") for row in _scores(name, [(0.5, 0.3)])]
    rows += _scores("icl", [(0.7, 0.1)], shots="5_shot", experiment="more_shots")
    wide = imbalance.main_table(_context(plan, rows)).sections[0][1]
    assert wide[["Method", "Demonstrations", "Acc. r8"]].to_numpy().tolist() == [
        ["ICL", "1-shot", "50.0"],
        ["ICL", "5-shot", "70.0"],
        ["ICL+DNIP", "1-shot", "50.0"],
    ]


def test_main_table_names_the_models_that_gave_labels_only(plan: Plan) -> None:
    rows = [row for model in ("m", "other") for row in _scores("icl", [(0.5, 0.3)], model=model)]
    hard = [_row("hard_predictions", 1, model="other", seed=seed, note="labels only") for seed in (0, 1)]
    assert "labels only" not in imbalance.main_table(_context(plan, rows)).markdown()
    assert imbalance.main_table(_context(plan, rows + hard)).markdown().count("other: labels only.") == 1


def test_experiments_that_share_a_setting_are_kept_apart(plan: Plan) -> None:
    rows = _scores("icl", [(0.5, 0.3)]) + _scores("icl", [(0.9, 0.1)], experiment="other")
    table = imbalance.main_table(_context(plan, rows))
    assert table.sections[0][1]["Acc. r8"].tolist() == ["50.0", "90.0"]
    assert table.sections[0][1]["Demonstrations"].tolist() == ["1-shot, class_accuracy", "1-shot, other"]
    assert table.sections[1][1]["ICL"].tolist() == ["30.0 [25.0, 35.0]", "10.0 [5.0, 15.0]"]


def test_a_change_is_shown_against_icl_only(plan: Plan) -> None:
    rows = _scores("dnip", [(0.5, 0.2)]) + _scores("icl", [(0.5, 0.3)])
    change = {"low": -0.2, "high": -0.05, "method": "dnip"}
    against = imbalance.main_table(_context(plan, [*rows, _row("cobias_difference", -0.1, note="minus icl", **change)]))
    assert against.sections[1][1]["Change, ICL+DNIP"].tolist() == ["-10.0 [-20.0, -5.0]"]
    other = imbalance.main_table(_context(plan, [*rows, _row("cobias_difference", -0.1, note="minus dnip", **change)]))
    assert other.sections[1][1].columns.tolist()[5:] == ["ICL", "ICL floor", "ICL+DNIP", "ICL+DNIP floor"]


def test_all_averages_the_data_sets_of_its_own_setting(plan: Plan) -> None:
    rows = _scores("icl", [(0.5, 0.3), (0.7, 0.3)]) + _scores("icl", [(0.3, 0.3), (0.3, 0.3)], dataset="movies5")
    rows += _scores("icl", [(0.9, 0.1)], shots="5_shot", dataset="movies5")
    wide = imbalance.main_table(_context(plan, rows)).sections[0][1]
    assert wide["Acc. All"].tolist() == ["45.0 ± 7.1", "90.0"]


def test_papers_figures_need_the_pair_of_model_and_data_set(papers_study: Study) -> None:
    apart = _scores("icl", [(0.5, 0.3)], model="llama-2-13b") + _scores("icl", [(0.5, 0.3)], model="m", dataset="rte")
    assert set(imbalance.main_table(_context(papers_study, apart)).tidy["provenance"]) == {"measured"}
    same = imbalance.main_table(
        _context(papers_study, _scores("icl", [(0.5, 0.3)], model="llama-2-13b", dataset="rte"))
    )
    printed = same.sections[0][1].set_index(["Method", "Model", "Demonstrations"])
    assert printed.loc[("ICL+DNIP", "Llama-2-13B (paper)", "1-shot"), "Acc. rte"] == "74.3 ± 0.8"
    assert printed.loc[("ICL", "Llama-2-13B", "1-shot"), "Acc. rte"] == "50.0"


def test_a_confusion_matrix_is_of_one_experiment_and_says_if_there_is_none(plan: Plan) -> None:
    def counts(right: float, **columns: Any) -> list[dict[str, Any]]:
        return [_row("count", right if t == p else 0, **{"class": t, "pred_class": p}, **columns)
                for t in "ab" for p in "ab"]  # fmt: skip

    table = imbalance.confusion_before(_context(plan, counts(10) + counts(30, experiment="other")))
    assert table.sections[0][1]["All"].tolist()[:3] == ["10", "10", "20"]
    assert _is_unmeasured(imbalance.confusion_after(_context(plan, counts(10))), "method dnip")


# Table 4 ------------------------------------------------------------------------------------------------------------


def _fit(method: str, seconds: float, objective: float, certified: bool, bound: float | None = None, **columns: Any):
    shared = {"method": method, "n": 180, **columns}
    rows = [
        _row("fit_seconds", seconds, **{**shared, "n": None}),
        _row("objective", objective, note="certified" if certified else "not certified", **shared),
        _row("evaluations", 1234, **shared),
    ]
    return rows + ([] if bound is None else [_row("objective_lower_bound", bound, **shared)])


def test_solvers_have_seconds_gap_and_certificate(plan: Plan) -> None:
    rows = [
        row for seed, seconds in enumerate((0.02, 0.04, 9.0)) for row in _fit("dnip", seconds, 0.25, False, seed=seed)
    ]
    rows += [row for seed in range(3) for row in _fit("dnip_metropolis", 8.0, 0.28, False, seed=seed)]
    rows += [
        row
        for seed in range(3)
        for row in _fit("dnip_exact", 1.0, 0.25, seed < 2, 0.25 - 0.01 * (seed == 2), seed=seed)
    ]
    rows += _fit("dnip_rows_10", 0.01, 0.1, False) + _fit("dnip_error", 0.01, 0.1, False)
    table = solver.optimisation_seconds(_context(plan, rows))
    wide = table.sections[0][1].set_index("Solver")
    assert wide.index.tolist() == [
        "ICL+DNIP (heat bath)", "DNIP, paper's annealing (Metropolis)", "DNIP, certified (branch and bound)"
    ]  # fmt: skip
    assert wide["Seconds"].tolist() == ["0.040", "8.00", "1.00"]  # medians: the first fit may load compiled code
    assert wide["Speed-up"].tolist() == ["200", "1.00", "8.00"]
    assert wide["Certified"].tolist() == ["0 of 3", "0 of 3", "2 of 3"]
    assert wide["Gap"].tolist() == ["0.01", "0.04", "0.01"]  # 0.25 - 0.24 and 0.28 - 0.24, of the third seed
    assert wide.loc["ICL+DNIP (heat bath)", ["Variable space N·K", "Rows M", "Evaluations"]].tolist() == [
        "240",
        "180",
        "1,234",
    ]
    assert table.tidy["seconds"].tolist()[:3] == [0.02, 0.04, 9.0]
    assert set(table.tidy["provenance"]) == {"measured"}


def test_without_a_bound_or_seconds_there_is_a_dash(plan: Plan) -> None:
    rows = [row for row in _fit("dnip", 1.0, 0.25, False) if row["metric"] != "fit_seconds"]
    wide = solver.optimisation_seconds(_context(plan, rows)).sections[0][1]
    assert wide.loc[0, ["Seconds", "Speed-up", "Gap"]].tolist() == ["–", "–", "–"]


def test_a_proven_optimum_has_no_gap_whoever_found_it(plan: Plan) -> None:
    rows = _fit("dnip", 0.1, 0.25 + 1e-13, False) + _fit("dnip_exact", 1.0, 0.25, True, 0.25)
    assert solver.optimisation_seconds(_context(plan, rows)).sections[0][1]["Gap"].tolist() == ["0", "0"]


def test_papers_seconds_stand_beside_the_same_data_set(papers_study: Study) -> None:
    study = Context(
        papers_study, tidy_frame(_fit("dnip", 0.1, 0.2, False, dataset="rte") + _fit("dnip", 0.1, 0.2, False))
    )
    table = solver.optimisation_seconds(study)
    wide = table.sections[0][1]
    assert wide[["Data set", "Seconds"]].to_numpy().tolist() == [
        ["RTE", "0.100"], ["RTE", "518"], [papers_study.datasets["r8"].title, "0.100"]
    ]  # fmt: skip
    assert wide.loc[1, "Solver"].endswith("(paper)")
    assert _is_unmeasured(
        solver.optimisation_seconds(_context(papers_study, _scores("icl", [(0.5, 0.5)]))), "fits DNIP"
    )


# Table 5 ------------------------------------------------------------------------------------------------------------


def _seed_of_three(seed: int, order: str, accuracies: tuple[float, ...], **columns: Any) -> list[dict[str, Any]]:
    shared = {"seed": seed, "shots": "5_shot", **columns}
    rows = [_row("demonstration", place, **{"class": name}, **{**shared, "n": len(order)})
            for place, name in reversed(list(enumerate(order, start=1)))]  # fmt: skip
    for method, shift in (("icl", 0.0), ("dnip", 0.1)):
        rows += [
            {**row, "seed": seed}
            for row in _scores(method, [(0.5 + shift, 0.3 - shift)], **{"shots": "5_shot", **columns})
        ]
        rows += [_row("class_accuracy", value, **{"class": name}, **{**shared, "method": method})
                 for name, value in zip("abc", accuracies, strict=True)]  # fmt: skip
    return rows


def test_label_order_of_each_seed_stands_beside_its_scores(plan: Plan) -> None:
    rows = _seed_of_three(0, "caacc", (0.9, 0.5, 0.1)) + _seed_of_three(1, "babac", (0.9, 0.9, 0.95))
    table = demonstrations.label_order(_context(plan, rows))
    ((heading, wide),) = table.sections
    assert heading.endswith("5-shot")
    assert wide["Method"].tolist() == ["ICL", "ICL", "+DNIP", "+DNIP"]
    assert wide["Label order"].tolist() == ["2, 0, 0, 2, 2", "1, 0, 1, 0, 2"] * 2
    assert wide["COBias"].tolist()[0] == "30.0 [25.0, 35.0] (floor 4.0)"
    assert wide["Class 1 (b)"].tolist() == ["50.0", "90.0"] * 2
    assert "highest class accuracy in 1 of 2 seeds" in table.notes[2]  # c in seed 1
    assert table.notes[2].endswith("with most demonstrations in 0.")


def test_five_shots_come_first_then_any_setting_with_several_demonstrations(plan: Plan) -> None:
    k_shot = _seed_of_three(0, "abc", (0.9, 0.5, 0.1), shots="k_shot")
    both = k_shot + _seed_of_three(0, "abcab", (0.9, 0.5, 0.1), dataset="movies5")
    assert "5-shot" in demonstrations.label_order(_context(plan, both)).caption
    assert "k-shot" in demonstrations.label_order(_context(plan, k_shot)).caption


def test_one_demonstration_has_no_order(plan: Plan) -> None:
    rows = [
        row | {"n": 1} if row["metric"] == "demonstration" else row for row in _seed_of_three(0, "a", (0.1, 0.2, 0.3))
    ]
    assert _is_unmeasured(demonstrations.label_order(_context(plan, rows)), "more than one demonstration")


def test_papers_label_orders_need_its_model_and_data_set(plan: Plan) -> None:
    rows = _seed_of_three(0, "abcab", (0.9, 0.5, 0.1), model="llama-2-13b", dataset="agnews")
    (_, measured), (heading, printed) = demonstrations.label_order(_context(plan, rows)).sections
    assert "(paper)" in heading
    assert printed.iloc[0][["Label order", "Acc.", "COBias", "Class 3 (tech)"]].tolist() == [
        "3, 0, 0, 3, 3", "84.6", "20.5", "58.5"
    ]  # fmt: skip
    assert printed["Label order"].tolist()[3:] == ["–"] * 3
    assert measured["Acc."].tolist() == ["50.0", "60.0"]


# Tables 9 to 15 -----------------------------------------------------------------------------------------------------


def test_slots_take_the_papers_data_set_or_else_the_next_unused_one() -> None:
    assert objectives.slots(["r8", "movies5"]) == ["r8", "movies5", None, None, None, None, None]
    assert objectives.slots(["r8", "rte", "dbpedia", "movies5"]) == [
        "dbpedia", "r8", "movies5", None, "rte", None, None
    ]  # fmt: skip
    nine = [*objectives.PAPER_DATASETS, "r8", "movies5"]
    assert objectives.slots(nine) == list(objectives.PAPER_DATASETS)


def _objective_rows(names: tuple[str, ...], **columns: Any) -> list[dict[str, Any]]:
    rows = []
    for k, method in enumerate(names):
        rows += _scores(method, [(0.5 + k / 10, 0.3), (0.6 + k / 10, 0.2)], **columns)
        for seed in (0, 1):
            shared = {"seed": seed, "method": method, **columns}
            rows += [_row("cobias_single", 0.2, **shared), _row("odd_rate", 0.1, **shared)]
            rows += [_row("class_accuracy", value, **{"class": name}, **shared)
                     for name, value in (("a", 0.4 + seed / 10), ("b", float("nan")))]  # fmt: skip
    return rows


def test_objectives_are_means_over_seeds_with_class_accuracies(plan: Plan) -> None:
    rows = _objective_rows(("icl", "dnip", "dnip_cobias_single", "dnip_odd_rate"))
    rows += _objective_rows(("icl", "dnip"), experiment="more_shots", shots="5_shot")  # no other objective: left out
    table = objectives.slot_1(_context(plan, rows))
    ((_, wide),) = table.sections
    assert wide["Objective"].tolist() == ["Z_CB", "Z_CBs", "Z_H", "ICL"]
    assert wide["Overall acc."].tolist() == ["65.0", "75.0", "85.0", "55.0"]
    assert wide.iloc[0].tolist()[1:4] == ["25.0 (floor 4.0)", "20.0", "10.0"]
    assert wide["a"].tolist() == ["45.0"] * 4
    assert wide["b"].tolist() == ["–"] * 4
    assert plan.study.datasets["r8"].title in table.caption
    assert "paper shows DBpedia" in table.caption
    assert _is_unmeasured(objectives.slot_2(_context(plan, rows)), "no data set for this table; the paper shows AGNews")


def test_an_objective_that_the_study_lacks_is_not_measured(plan: Plan) -> None:
    table = objectives.slot_1(_context(plan, _objective_rows(("icl", "dnip", "dnip_odd_rate"))))
    assert table.sections[0][1].iloc[1].tolist() == ["Z_CBs", *["not measured"] * 6]
    assert any("dnip_cobias_single" in note for note in table.notes)
    missing = table.tidy[table.tidy["provenance"] == "not measured"]
    assert missing["objective"].tolist() == ["z_cbs"]


def test_papers_objectives_stand_beside_its_model_and_data_set(papers_study: Study) -> None:
    names = ("icl", "dnip", "dnip_cobias_single", "dnip_odd_rate")
    rows = _objective_rows(names, model="llama-2-13b", dataset="rte") + _objective_rows(names)
    table = objectives.slot_5(_context(papers_study, rows))
    (_, measured), (heading, printed) = table.sections
    assert heading == "Llama-2-13B, 1-shot (paper)"
    assert printed.iloc[0].tolist() == ["Z_CB", "4.5", "4.5", "26.0", "74.1", "71.8", "76.3"]
    assert measured["Overall acc."].tolist()[0] == "65.0"
    assert "the paper shows" not in table.caption
    other = objectives.slot_1(_context(papers_study, rows))
    assert set(other.tidy["provenance"]) == {"measured"}


# Table 16 -----------------------------------------------------------------------------------------------------------


def _size_rows(full: int, **columns: Any) -> list[dict[str, Any]]:
    rows = _scores("icl", [(0.4, 0.4), (0.6, 0.4)], **columns)
    for method, used in (("dnip", full), ("dnip_rows_10", 15), ("dnip_rows_100", min(100, full)),
                         ("dnip_rows_500", min(500, full))):  # fmt: skip
        rows += _scores(method, [(0.7, 0.1), (0.9, 0.1)], **columns)
        rows += [_row("objective", 0.2, seed=seed, **{"method": method, **columns, "n": used}) for seed in (0, 1)]
    return rows


def test_sizes_larger_than_the_set_are_not_measured(plan: Plan) -> None:
    table = sizes.optimisation_sizes(_context(plan, _size_rows(200) + _size_rows(500, dataset="movies5")))
    wide = table.sections[0][1]
    assert wide["Rows"].tolist()[::2] == ["0", "10", "100", "500", "1,000", "full"]
    r8, movies = (wide[plan.study.datasets[name].title].tolist() for name in ("r8", "movies5"))
    assert r8[:2] == ["50.0 ± 14.1", "40.0 ± 0.0 (floor 4.0)"]
    assert r8[4] == r8[10] == "80.0 ± 14.1"
    assert r8[6] == "not measured (200 rows only)"
    assert movies[6] == "80.0 ± 14.1"  # 500 of 500 rows
    assert r8[8] == movies[8] == "not measured"
    assert any("200" in note and "500" in note and note.startswith("Rows of the full set") for note in table.notes)
    assert any("15 for 10" in note for note in table.notes)
    assert any("dnip_rows_1000" in note for note in table.notes)
    large = table.tidy[(table.tidy["opt_set"] == "500") & (table.tidy["dataset"] == "r8")]
    assert set(large["provenance"]) == {"not measured"}
    assert large["mean"].isna().all()


def test_papers_sizes_stand_beside_its_model_and_data_set(papers_study: Study) -> None:
    rows = _size_rows(200, model="llama-2-13b", dataset="rte") + _size_rows(200, model="llama-2-13b")
    (_, measured), (heading, printed) = sizes.optimisation_sizes(_context(papers_study, rows)).sections
    assert heading == "Llama-2-13B, 1-shot (paper)"
    assert printed.columns.tolist() == ["Rows", "Metric", "RTE"]
    assert printed["RTE"].tolist()[:4] == ["71.5 ± 2.2", "43.4 ± 7.0", "74.8 ± 2.3", "12.2 ± 5.7"]
    assert measured["RTE"].tolist()[0] == "50.0 ± 14.1"
    assert sizes.size_methods(["dnip_rows_50", "icl"])["dnip_rows_50"] == "50"


# Comparison of methods ----------------------------------------------------------------------------------------------


def test_methods_are_ranked_with_ties_and_ablations_left_out(plan: Plan) -> None:
    rows = _scores("icl", [(0.5, 0.4)]) + _scores("dnip", [(0.7, 0.2)]) + _scores("dnip_exact", [(0.7, 0.1)])
    rows += _scores("batch_calibration", [(0.6, 0.4)]) + _scores("dnip_error", [(0.9, 0.0)])
    rows += _scores("dnip_rows_10", [(0.9, 0.0)])
    rows += [_row("cobias_difference", -0.2, low=-0.3, high=-0.1, method="dnip", note="minus icl")]
    rows += [_row("cobias_difference", 0.0, low=-0.1, high=0.1, method="batch_calibration", note="minus icl")]
    table = methods.comparison(_context(plan, rows))
    ((_, wide),) = table.sections
    assert wide[["Correction", "Accuracy rank", "COBias rank", "Reduced"]].to_numpy().tolist() == [
        ["DNIP, certified", "1=", "1", "–"],
        ["ICL+DNIP", "1=", "2", "1 of 1 runs"],
        ["Batch calibration", "3", "3=", "0 of 1 runs"],
        ["ICL", "4", "3=", "–"],
    ]
    learns = wide.set_index("Correction")["Learns from"]
    assert "transductive" in learns["Batch calibration"]
    assert "labelled optimisation rows" in learns["ICL+DNIP"]
    assert set(table.tidy["method"]) == {"icl", "dnip", "dnip_exact", "batch_calibration"}
    changes = table.tidy[table.tidy["metric"] == "cobias_difference"]
    assert changes[["mean", "low", "high"]].to_numpy().tolist() == [[-0.2, -0.3, -0.1], [0.0, -0.1, 0.1]]


def test_over_all_data_sets_the_mean_is_ranked(plan: Plan) -> None:
    rows = _scores("icl", [(0.5, 0.4), (0.6, 0.4)]) + _scores("dnip", [(0.6, 0.2), (0.6, 0.2)])
    rows += _scores("icl", [(0.8, 0.1), (0.9, 0.1)], dataset="movies5")
    rows += _scores("dnip", [(0.5, 0.2), (0.5, 0.2)], dataset="movies5")
    table = methods.comparison(_context(plan, rows))
    headings = [heading.split(": ")[1] for heading, _ in table.sections]
    assert headings == ["all data sets", *(plan.study.datasets[name].title for name in ("r8", "movies5"))]
    over_all = table.sections[0][1].set_index("Correction")
    assert over_all["Accuracy"].to_dict() == {"ICL": "70.0 ± 7.1", "ICL+DNIP": "55.0 ± 0.0"}
    assert over_all["COBias rank"].to_dict() == {"ICL": "2", "ICL+DNIP": "1"}
    first = table.sections[1][1].set_index("Correction")["Accuracy rank"]
    assert first.to_dict() == {"ICL+DNIP": "1", "ICL": "2"}


def test_ties_survive_rounding_noise(plan: Plan) -> None:
    rows = _scores("icl", [(0.1 + 0.2, 0.4)]) + _scores("dnip", [(0.3, 0.2)])
    assert methods.comparison(_context(plan, rows)).sections[0][1]["Accuracy rank"].tolist() == ["1=", "1="]


def test_what_each_method_looks_at_is_said(plan: Plan) -> None:
    said = {name: methods.learns_from(plan.study.methods[name]) for name in METHODS}
    assert said["icl"] == "nothing"
    assert "label-free" in said["contextual_calibration"]
    assert said["prior_matching"] == "labelled optimisation rows"
    uniform = plan.study.methods["prior_matching"].model_copy(update={"prior": "uniform"})
    assert "label-free" in methods.learns_from(uniform)


def test_all_tables_of_the_paper_are_registered_and_render_for_a_study_of_icl_alone(plan: Plan) -> None:
    ids = [f"dnip_table{k}" for k in range(4, 17)] + ["dnip_methods"]
    context = _context(plan, _scores("icl", [(0.5, 0.3)]))
    for name in ids:
        module, function = ARTEFACTS[name].maker.split(":")
        table = getattr(importlib.import_module(f"poise.artefacts.{module}"), function)(context)
        assert table.caption in table.markdown()
        assert "Provenance of these numbers" in table.html()
