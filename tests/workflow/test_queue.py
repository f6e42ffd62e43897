"""What Snakemake knows of GPUs, cores and servers: how many extractions it starts side by side."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from poise.config.compose import compose_study
from poise.plan import Plan, expand
from poise.workflow import Workflow
from tests.conftest import Workplace

LOCAL, API = "smollm2-135m-instruct", "gpt-5.4"
STUDY = [
    "study=demo", "name=queue", "seeds=[0]", "dataset=[movies5]", "experiment=[position]", "method=[icl]", "factor=[]",
    "experiment.position.datasets=[movies5]", "experiment.position.methods=[]", "experiment.position.content_free=[]",
    "experiment.position.stochastic=null",
]  # fmt: skip


def _plan(*overrides: str) -> Plan:
    return expand(compose_study([*STUDY, *overrides]))


@pytest.fixture(scope="module")
def local() -> Plan:
    return _plan()


@pytest.fixture(scope="module")
def mixed() -> Plan:
    return _plan("+engine@api=openai", f"model=[{LOCAL},{API}]")


def _asks(plan: Plan, model: str, cores: int, local: bool = True) -> tuple[int, int, int]:
    """Threads, GPUs and servers of one extraction of a model."""
    workflow = Workflow(plan, cores, local)
    (batch,) = (batch for batch in plan.batches if batch.model == model)
    wildcards: Any = SimpleNamespace(batch=batch.id, model=model)
    return workflow.extract_threads(wildcards), workflow.extract_gpus(wildcards), workflow.extract_servers(wildcards)


def test_on_a_cpu_an_extraction_takes_all_cores(local: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert _asks(local, LOCAL, 8) == (8, 0, 0)
    assert Workflow(local, 8).totals() == {}


def test_gpus_share_the_cores(local: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert _asks(local, LOCAL, 8) == (2, 1, 0)
    assert _asks(local, LOCAL, 2) == (1, 1, 0)
    assert Workflow(local, 8).totals() == {"gpu": 3}
    assert Workflow(local, 8, local=False).totals() == {}  # another machine's scheduler counts its own


def test_a_model_on_several_gpus_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert _asks(_plan("engine=vllm", "engine.tensor_parallel=2"), LOCAL, 8) == (4, 2, 0)


def test_a_server_is_asked_beside_a_local_model(mixed: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert _asks(mixed, API, 8) == (1, 0, 1)
    assert _asks(mixed, LOCAL, 8) == (7, 0, 0)
    assert _asks(mixed, LOCAL, 1) == (1, 0, 0)
    assert Workflow(mixed, 8, local=False).totals() == {"server": 1}  # one batch at a time, wherever it runs
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert _asks(mixed, API, 8) == (1, 0, 1)
    assert _asks(mixed, LOCAL, 8) == (3, 1, 0)


@pytest.mark.parametrize("visible", ["", "0,1,2"])
def test_where_a_batch_system_places_jobs_the_devices_here_do_not_matter(
    mixed: Plan, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _asks(mixed, LOCAL, 64, local=False) == (4, 1, 0)
    assert _asks(mixed, API, 64, local=False) == (1, 0, 1)
    assert _asks(_plan("engine=vllm", "engine.tensor_parallel=2"), LOCAL, 64, local=False) == (4, 2, 0)
    assert _asks(_plan("engine=dummy"), LOCAL, 64, local=False) == (4, 0, 0)


def test_weights_are_named_where_they_are_loaded(mixed: Plan) -> None:
    workflow = Workflow(mixed)
    for batch in mixed.batches:
        wildcards: Any = SimpleNamespace(batch=batch.id, model=batch.model)
        assert set(workflow.batch_inputs(wildcards)) == {"weights" if batch.model == LOCAL else "model", "datasets"}


def test_minutes_grow_with_each_attempt() -> None:
    plan = _plan("engine.batch_minutes=30")
    wildcards: Any = SimpleNamespace(batch=plan.batches[0].id, model=LOCAL)
    minutes = [Workflow(plan).extract_minutes(wildcards, attempt) for attempt in (1, 2, 3)]
    assert minutes == [45, 90, 135]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "gpus", "n_provided"),
    [([], "0,1", ["2"]), (["--resources", "gpu=1"], "0,1", ["1"]), ([], "", [])],
)
def test_snakemake_counts_the_visible_gpus(
    workplace: Workplace, arguments: list[str], gpus: str, n_provided: list[str]
) -> None:
    printed = ["study=demo", "name=printed", "experiment=[class_accuracy]", "artefacts=[dnip_table7]"]  # no extraction
    assert workplace.poise("plan", *printed).returncode == 0
    done = workplace.snakemake("--config", "study=printed", *arguments, CUDA_VISIBLE_DEVICES=gpus)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"Provided resources:.*gpu\D+(\d+)", done.stdout + done.stderr) == n_provided


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "words"), [("0,1", "gpu=1"), ("", "threads: 2")])
def test_an_extraction_asks_for_its_device(workplace: Workplace, gpus: str, words: str) -> None:
    done = workplace.snakemake("-n", CUDA_VISIBLE_DEVICES=gpus)
    assert done.returncode == 0, done.stderr
    job = (done.stdout + done.stderr).split("rule extract:")[1].split("\n\n")[0].split("rule ")[0]
    assert words in job
    assert ("threads: 2" in job) == (gpus == "")  # two GPUs share two cores
