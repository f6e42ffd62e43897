"""The command line: one clear line for a user's mistake, the traceback in the log only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from poise import paths
from poise.config.compose import expand_sweeps
from poise.engines.check import check_labels
from poise.errors import PoiseError
from poise.hashing import canonical_json, digest
from poise.plan import Plan
from poise.planfile import load, make_plan
from tests.conftest import Workplace


def _one_line(text: str) -> str:
    (line,) = text.strip().splitlines()
    assert line.startswith("poise: error: ")
    return line


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["study=nope"], ["conf/study/nope.yaml", "not found", "demo"]),
        (["study=demo", "bogus=1"], ["override bogus", "no such key"]),
        (["study=demo", "name=x", "seeds=abc"], ["override seeds=abc", "list"]),
        (["study=demo", "name=x", "engine.dtype=float8"], ["engine.dtype", "'float8'", "float32"]),
        (
            ["study=demo", "name=x", "dataset.r8.max_words=-3"],
            ["dataset.r8.max_words", "-3", "greater than 0"],
        ),
        (
            ["study=demo", "name=x", "model=[nope]"],
            ["conf/model/nope.yaml", "not found", "smollm2-135m-instruct"],
        ),
        (["study=demo", "name=../up"], ["name", "../up"]),
        (["study=demo", "seeds=[0"], ["'seeds=[0'", "key=value"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(workplace: Workplace, overrides: list[str], words: list[str]) -> None:
    done = workplace.poise("plan", *overrides)
    assert done.returncode == 2
    line = _one_line(done.stderr)
    for word in words:
        assert word in line
    assert not (workplace.folder / "results").exists()


def test_the_traceback_goes_to_the_log(workplace: Workplace) -> None:
    assert workplace.poise("plan", "study=demo").returncode == 0
    plan = "results/demo/plan.json"
    done = workplace.poise("extract", "--plan", plan, "--batch", "000000000000", "--log", "logs/x.log")
    assert done.returncode == 2
    assert "000000000000" in _one_line(done.stderr)
    assert "Traceback" in (workplace.folder / "logs/x.log").read_text()


def test_a_missing_plan_says_how_to_make_one(workplace: Workplace) -> None:
    done = workplace.poise("collect", "--plan", "none.json", "--instrument", "position")
    assert "none.json: no plan here; make one with: poise plan" in _one_line(done.stderr)


def test_plan_says_what_it_would_ask(workplace: Workplace) -> None:
    done = workplace.poise("plan", "study=demo", "name=more", "seeds=[0,1,2,3]")
    assert done.returncode == 0, done.stderr
    assert "--config study=more" in done.stdout
    plan = json.loads((workplace.folder / "results/more/plan.json").read_text())
    assert {cell["seed"] for cell in plan["cells"]} == {0, 1, 2, 3}
    frozen = list((workplace.folder / "results/more/plans").iterdir())
    assert [path.stem for path in frozen] == [digest(plan)]


def test_sweeps_make_one_plan_each(workplace: Workplace) -> None:
    done = workplace.poise("plan", "--quiet", "study=demo", "name=cut", "dataset.movies5.max_words=5,10")
    assert done.returncode == 0, done.stderr
    first, second = (load(workplace.folder / line) for line in done.stdout.split())
    assert (first.study.name, second.study.name) == ("cut-0", "cut-1")
    assert (first.study.datasets["movies5"].max_words, second.study.datasets["movies5"].max_words) == (5, 10)


def test_sweep_grammar_is_hydras() -> None:
    assert expand_sweeps(["a=1,2", "b=[3,4]", "c='x,y'"]) == [
        ["a=1", "b=[3,4]", "c='x,y'"],
        ["a=2", "b=[3,4]", "c='x,y'"],
    ]


def test_unknown_study_in_the_workflow_is_one_line(workplace: Workplace) -> None:
    done = workplace.snakemake("-n", "--config", "study=nope")
    assert done.returncode != 0
    assert "study 'nope': neither a configuration (demo" in done.stdout + done.stderr


def test_labels_are_checked_when_the_plan_is_made(demo_plan: Plan) -> None:
    assert check_labels(demo_plan) == []
    overrides = [
        "study=demo",
        "name=x",
        "dataset.movies5.prompt.label_words=[good,bad,good enough,okay,great]",
    ]
    with pytest.raises(PoiseError, match=r"prompt movies5 on movies5: label ' good' is a prefix"):
        check_labels(make_plan(overrides))
    shared = ["study=demo", "name=x", "model.smollm2-135m-instruct.label_tokens.scoring=first",
              "dataset.movies5.prompt.label_words=[not good,not bad,okay,great,fine]"]  # fmt: skip
    with pytest.raises(PoiseError, match="share their first token"):
        check_labels(make_plan(shared))


def test_canonical_json_does_not_depend_on_key_order() -> None:
    assert canonical_json({"b": 1, "a": [1, {"d": 2, "c": "é"}]}) == '{"a":[1,{"c":"é","d":2}],"b":1}'
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


def test_paths_of_different_artefacts_differ() -> None:
    assert paths.table("a", "x") != paths.table("b", "x")
    assert Path("results") in paths.table("a", "x").parents
