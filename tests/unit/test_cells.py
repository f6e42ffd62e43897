"""A study's grid: which conditions, splits and decodings each setting is asked in, and what tells cells apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from poise.cells import Cell, settings
from poise.config.compose import compose_study
from poise.config.schema import Study
from poise.plan import Plan, expand

BASE = "base"
REVERSED = "label_order=reversed"
ORDERS = [f"demonstration_order={order}" for order in ("ascending", "descending", "random")]
PLACES = ["placement=after", "placement=split"]
EVERY_CONDITION = {BASE, REVERSED, *ORDERS, *PLACES}
PARADIGMS = {"pairwise", "listwise", "listwise_compare"}
TEXT_MODEL = "qwen3-8b-thinking"


@pytest.fixture(scope="module")
def compose() -> Callable[..., Study]:
    """Compose a position study on five and three classes, without any correction."""

    def composed(*overrides: str) -> Study:
        fixed = [
            "study=demo", "name=grid", "dataset=[movies5,tweets3]", "method=[icl]", "seeds=[0]",
            "experiment=[position,factors]", "experiment.position.datasets=[tweets3]", "experiment.position.methods=[]",
            "experiment.position.stochastic=null", "experiment.position.content_free=[]",
            "experiment.factors.datasets=[movies5,tweets3]", "experiment.factors.seeds=[0]",
        ]  # fmt: skip
        return compose_study([*fixed, *overrides])

    return composed


@pytest.fixture(scope="module")
def grid(compose: Callable[..., Study]) -> Plan:
    return expand(compose())


def _where(plan: Plan, **columns: object) -> list[Cell]:
    return [cell for cell in plan.cells if all(getattr(cell, key) == value for key, value in columns.items())]


def _conditions(cells: Sequence[Cell]) -> set[str]:
    found = [cell.condition for cell in cells]
    assert len(found) == len(set(found))
    return set(found)


def _ids(cells: Sequence[Cell]) -> set[str]:
    return {cell.id for cell in cells}


# --- conditions of a setting ---


@pytest.mark.parametrize("dataset", ["movies5", "tweets3"])
def test_a_baseline_and_a_prompt_level_have_every_condition(grid: Plan, dataset: str) -> None:
    for factor, level in (
        ("", ""),
        ("label_format", "letter"),
        ("connector", "space"),
        ("configuration", "p1_optimal"),
    ):
        cells = _where(grid, experiment="factors", dataset=dataset, factor=factor, level=level)
        assert _conditions(cells) == EVERY_CONDITION, level
        assert {cell.parts for cell in cells} == {1}


def test_without_demonstrations_only_the_label_order_varies(grid: Plan) -> None:
    zero = _where(grid, dataset="tweets3", shots="0_per_class")
    assert {(cell.factor, cell.level) for cell in zero} == {
        ("demo_count", "0_shot"),
        ("configuration", "accuracy_optimal"),
    }
    for level in ("0_shot", "accuracy_optimal"):
        assert _conditions([cell for cell in zero if cell.level == level]) == {BASE, REVERSED}


def test_a_paradigm_has_the_label_order_only_and_several_requests_a_row(compose: Callable[..., Study]) -> None:
    plan = expand(compose("experiment.factors.shots=[3_per_class]", "factor.demo_count.baseline=3_shot"))
    parts = {"pairwise": 2 * 3 * 3, "listwise": 3, "listwise_compare": 3}
    for level, n in parts.items():
        cells = _where(plan, dataset="tweets3", factor="inference_paradigm", level=level)
        assert _conditions(cells) == {BASE, REVERSED}
        assert {cell.parts for cell in cells} == {n}
    assert {cell.parts for cell in _where(plan, dataset="movies5", level="pairwise")} == {2 * 3 * 5}


def test_paradigms_are_for_three_classes_or_more(compose: Callable[..., Study]) -> None:
    study = compose()
    experiment = study.experiment["factors"]
    tweets = study.datasets["tweets3"]
    two = tweets.model_copy(update={"classes": ["negative", "positive"]})
    assert {setting.level for setting in settings(study, experiment, tweets)} >= PARADIGMS
    found = settings(study, experiment, two)
    assert not PARADIGMS & {setting.level for setting in found}
    assert "letter" in {setting.level for setting in found}


def test_merged_scales_are_asked_only_where_the_data_set_has_them(grid: Plan, compose: Callable[..., Study]) -> None:
    coarse = _where(grid, factor="scale_cardinality")
    assert {cell.dataset for cell in coarse} == {"movies5"}
    for scale, classes in (("3_way", ["negative", "neutral", "positive"]), ("2_way", ["negative", "positive"])):
        cells = [cell for cell in coarse if cell.level == scale]
        assert _conditions(cells) == EVERY_CONDITION
        assert {cell.cardinality for cell in cells} == {scale}
        assert grid.classes(cells[0]) == classes
    assert all(not cell.cardinality for cell in grid.cells if cell.factor != "scale_cardinality")

    study = compose()
    movies = study.datasets["movies5"]
    one = movies.model_copy(update={"merged": {"2_way": movies.merged["2_way"]}})
    scales = [setting.level for setting in settings(study, study.experiment["factors"], one) if setting.cardinality]
    assert scales == ["2_way"]


def test_without_probes_there_is_the_base_alone(compose: Callable[..., Study]) -> None:
    plan = expand(compose("experiment.position.probes=[]", "experiment.factors.probes=[placement]"))
    assert _conditions(_where(plan, experiment="position")) == {BASE}
    assert _conditions(_where(plan, experiment="factors", dataset="tweets3", factor="")) == {BASE, *PLACES}


# --- splits and decoding ---


def test_content_free_inputs_are_asked_under_every_condition_of_the_baseline(compose: Callable[..., Study]) -> None:
    inputs = 'content_free=["N/A",""]'
    plan = expand(compose(f"experiment.position.{inputs}", f"experiment.factors.{inputs}"))
    for experiment in ("position", "factors"):
        cells = _where(plan, experiment=experiment, dataset="tweets3", split="content_free")
        assert _conditions(cells) == EVERY_CONDITION
        assert {(cell.factor, cell.rows) for cell in cells} == {("", 2)}


@pytest.mark.parametrize(
    ("methods", "orders"),
    [
        ("icl,batch_calibration,pride,label_averaging", []),
        ("dnip,dnip_label_token", ["natural"]),
        ("dnip_reversed", ["reversed"]),
        ("dnip_label_token_reversed,prior_matching", ["natural", "reversed"]),
        ("dnip_pooled", ["natural", "reversed"]),
        ("linear_adapter", ["natural"]),
    ],
)
def test_labelled_rows_are_asked_in_the_orders_that_methods_are_fitted_on(
    compose: Callable[..., Study], methods: str, orders: list[str]
) -> None:
    rows = "experiment.position.rows={optimisation:9,test:5}"
    plan = expand(compose(f"method=[{methods}]", "experiment.position.methods=null", rows))
    cells = _where(plan, split="optimisation")
    assert sorted(cell.label_order for cell in cells) == orders
    assert {(cell.experiment, cell.rows, cell.demonstration_order, cell.placement) for cell in cells} <= {
        ("position", 9, "base", "before")
    }


def test_phase_0b_samples_the_natural_order_twice_and_the_reversed_one_once(compose: Callable[..., Study]) -> None:
    plan = expand(compose("experiment.factors.stochastic={temperature:0.7,top_p:1.0}"))
    texts = [cell for cell in _where(plan, dataset="tweets3") if cell.decoding != "scores"]
    assert Counter((cell.decoding, cell.label_order, cell.replicate) for cell in texts) == {
        ("greedy", "natural", 0): 1,
        ("sampled", "natural", 0): 1,
        ("sampled", "natural", 1): 1,
        ("sampled", "reversed", 0): 1,
    }
    assert {(cell.experiment, cell.factor, cell.split) for cell in texts} == {("factors", "", "test")}
    assert len(_ids(texts)) == 4


def test_a_model_that_answers_in_text_gets_greedy_cells_and_averages(compose: Callable[..., Study]) -> None:
    plan = expand(
        compose(
            f"model=[{TEXT_MODEL}]",
            "method=[icl,dnip_pooled,pride,contextual_calibration,label_averaging,demonstration_averaging]",
            "experiment.position.methods=null",
            'experiment.position.content_free=["N/A"]',
        )
    )
    assert {(cell.decoding, cell.split, cell.regrouped_rows) for cell in plan.cells} == {("greedy", "test", 0)}
    assert _conditions(_where(plan, experiment="position")) == EVERY_CONDITION
    assert _conditions(_where(plan, dataset="tweets3", level="pairwise")) == {BASE, REVERSED}
    averages = {"label_averaging", "demonstration_averaging"}
    assert {method for *_, method in plan.corrections} == averages
    assert {experiment for experiment, *_ in plan.corrections} == {"position"}


def test_phase_0b_of_a_text_model_adds_the_samples_only(compose: Callable[..., Study]) -> None:
    plan = expand(compose(f"model=[{TEXT_MODEL}]", "experiment.position.stochastic={temperature:0.7,top_p:1.0}"))
    kinds = Counter(cell.decoding for cell in _where(plan, experiment="position"))
    assert kinds == {"greedy": len(EVERY_CONDITION), "sampled": 3}


def test_a_scored_position_model_is_corrected_by_all_but_icl(compose: Callable[..., Study]) -> None:
    plan = expand(compose("method=[icl,dnip,pride,label_averaging]", "experiment.position.methods=null"))
    assert [method for *_, method in plan.corrections] == ["dnip", "pride", "label_averaging"]


def test_models_behind_an_api_wait_for_an_engine_that_reaches_them(compose: Callable[..., Study]) -> None:
    models = "model=[smollm2-135m-instruct,gpt-5.4]"
    assert {cell.model for cell in expand(compose(models)).cells} == {"smollm2-135m-instruct"}
    assert {cell.model for cell in expand(compose(models, "engine=dummy")).cells} == {
        "smollm2-135m-instruct",
        "gpt-5.4",
    }


def test_the_numerical_floor_is_of_the_scored_baseline(compose: Callable[..., Study]) -> None:
    plan = expand(compose("experiment.factors.floor_rows=4", "experiment.position.floor_rows=4"))
    asked_again = [cell for cell in plan.cells if cell.regrouped_rows]
    assert {(cell.condition, cell.factor, cell.regrouped_rows) for cell in asked_again} == {(BASE, "", 4)}
    assert len(asked_again) == 3  # position on one data set, factors on two


# --- identities ---


def test_equal_cells_of_two_experiments_are_one_and_others_are_not(compose: Callable[..., Study]) -> None:
    same = ["experiment.position.rows.test=8", "experiment.factors.rows.test=8", "experiment.position.floor_rows=0"]
    plan = expand(compose(*same))
    position = {cell.condition: cell.id for cell in _where(plan, experiment="position")}
    factors = {cell.condition: cell.id for cell in _where(plan, experiment="factors", dataset="tweets3", factor="")}
    assert position == factors
    assert len(_ids(plan.cells)) < len(plan.cells)
    # Another number of rows is another cell.
    other = expand(compose(*same, "experiment.position.rows.test=9"))
    assert not _ids(_where(other, experiment="position")) & set(factors.values())


def test_a_level_that_changes_nothing_is_the_baseline(compose: Callable[..., Study]) -> None:
    plan = expand(compose("factor.separator.levels.tab.prompt={separator: colon}"))
    for dataset in ("movies5", "tweets3"):
        baseline = _where(plan, experiment="factors", dataset=dataset, factor="")
        level = _where(plan, experiment="factors", dataset=dataset, factor="separator", level="tab")
        assert {cell.condition: cell.id for cell in level} == {cell.condition: cell.id for cell in baseline}


def test_settings_conditions_and_replicates_are_told_apart(compose: Callable[..., Study]) -> None:
    plan = expand(
        compose("experiment.factors.stochastic={temperature:0.7,top_p:1.0}", 'experiment.factors.content_free=["N/A"]')
    )
    cells = _where(plan, experiment="factors", dataset="tweets3")
    assert len(_ids(cells)) == len(cells)


def _changed(
    compose: Callable[..., Study], before: Sequence[str], after: Sequence[str]
) -> tuple[list[Cell], list[Cell]]:
    """Cells whose ids a change of the study replaces, and those that stay."""
    old, new = expand(compose(*before)), expand(compose(*after))
    assert len(old.cells) == len(new.cells)
    kept = _ids(old.cells) & _ids(new.cells)
    return [cell for cell in new.cells if cell.id not in kept], [cell for cell in new.cells if cell.id in kept]


def test_the_cue_after_the_query_is_part_of_the_experiments_own_prompt_only(compose: Callable[..., Study]) -> None:
    changed, kept = _changed(compose, [], ["experiment.factors.prompt.after_cue=once"])
    assert {cell.experiment for cell in changed} == {"factors"}
    assert {cell.level for cell in kept if cell.experiment == "factors"} == PARADIGMS
    assert not PARADIGMS & {cell.level for cell in changed}


def test_redrawing_demonstrations_concerns_merged_scales_only(compose: Callable[..., Study]) -> None:
    changed, _ = _changed(compose, [], ["experiment.factors.merged_demonstrations=redraw"])
    assert {cell.factor for cell in changed} == {"scale_cardinality"}
    assert len(changed) == 2 * len(EVERY_CONDITION)


@pytest.mark.parametrize("change", ["temperature=0.8", "top_p=0.9"])
def test_the_temperature_concerns_sampled_texts_only(compose: Callable[..., Study], change: str) -> None:
    before = ["experiment.position.stochastic={temperature:0.7,top_p:1.0}"]
    changed, _ = _changed(compose, before, [*before, f"experiment.position.stochastic.{change}"])
    assert Counter((cell.experiment, cell.decoding) for cell in changed) == {("position", "sampled"): 3}


def test_the_length_of_answers_concerns_texts_only(compose: Callable[..., Study]) -> None:
    before = ["experiment.position.stochastic={temperature:0.7,top_p:1.0}"]
    changed, _ = _changed(compose, before, [*before, "model.smollm2-135m-instruct.max_new_tokens=9"])
    assert Counter(cell.decoding for cell in changed) == {"sampled": 3, "greedy": 1}


def test_other_content_free_inputs_concern_their_cells_only(compose: Callable[..., Study]) -> None:
    before, after = (f"experiment.position.content_free=[{text}]" for text in ('"N/A"', '"?"'))
    changed, _ = _changed(compose, [before], [after])
    assert {cell.split for cell in changed} == {"content_free"}
    assert _conditions(changed) == EVERY_CONDITION
