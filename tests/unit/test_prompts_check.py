"""Labels that cannot be told apart are found at plan time, at every level of every factor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poise.config.schema import Study
from poise.engines.check import check_labels
from poise.errors import PoiseError
from poise.plan import Plan
from poise.planfile import make_plan

ALIKE = "dataset.tweets3.classes=[fair,fair enough,good]"


def test_a_level_whose_labels_are_prefixes_of_each_other(demo_plan: Plan) -> None:
    assert check_labels(demo_plan) == []
    with pytest.raises(PoiseError, match=r"\(label_format=natural_language\): label ' fair' is a prefix"):
        check_labels(make_plan(["study=demo", "name=x", ALIKE]))
    level = "factor.label_format.levels.natural_language=null"
    joint = "factor.configuration.levels.p2a_optimal=null"
    assert check_labels(make_plan(["study=demo", "name=x", ALIKE, level, joint])) == []


def test_answers_of_a_paradigm(demo_plan: Plan) -> None:
    assert demo_plan.study.factors["inference_paradigm"].changes
    answers = "factor.inference_paradigm.levels.pairwise.paradigm.answers=[Passage,Passage B]"
    with pytest.raises(
        PoiseError, match=r"prompt pairwise on tweets3 \(inference_paradigm=pairwise\): label ' Passage'"
    ):
        check_labels(make_plan(["study=demo", "name=x", answers]))


def test_labels_of_a_merged_scale(demo_plan: Plan) -> None:
    raw = demo_plan.study.model_dump(mode="json")
    raw["dataset"]["movies5"]["merged"]["2_way"] = {"bad": ["very negative"], "bad luck": ["positive"]}
    raw["experiment"]["cardinality"]["prompt"]["label_format"] = "natural_language"
    changed = replace(demo_plan, study=Study.model_validate(raw))
    with pytest.raises(PoiseError, match=r"on movies5 \(scale_cardinality=2_way\): label ' bad' is a prefix"):
        check_labels(changed)


def test_prompts_that_a_model_is_never_asked_are_not_checked(demo_plan: Plan) -> None:
    assert demo_plan.study.factors["label_format"].changes
    model = "model=[smollm2-135m-instruct,gpt2-xl]"
    check_labels(make_plan(["study=demo", "name=x", ALIKE, model, "experiment.factors.models=[gpt2-xl]"]))
    with pytest.raises(PoiseError, match="model smollm2-135m-instruct, prompt ordinal on tweets3"):
        check_labels(make_plan(["study=demo", "name=x", ALIKE, model]))
