"""A small study through a real SLURM: where its jobs run, what a cancelled batch keeps, the same bytes in the end."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from poise.plan import Plan
from tests.conftest import ROOT, Workplace
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.slow
TITLE = """It's “quoted”, späced & $HOME"""
PREFIX = """Say 'x' & "y" {2 ü}: """
SMALL = [
    "study=demo", "name=small", "seeds=[0]", "dataset=[movies5,tweets3]", "experiment=[class_accuracy]", "factor=[]",
    "method=[icl,dnip]", "experiment.class_accuracy.datasets=[movies5,tweets3]",
    "experiment.class_accuracy.rows={optimisation:8,test:8}", "experiment.class_accuracy.floor_rows=0",
    "artefacts=[dnip_table3]", "engine.flush_seconds=0.1", "engine.pack_tokens=64",
    "dataset.movies5.title=" + json.dumps(TITLE, ensure_ascii=False),
    "dataset.movies5.prompt.text_prefix=" + json.dumps(PREFIX, ensure_ascii=False),
]  # fmt: skip
# Looks as often as can be: the profile's waits are for clusters of many users.
OFTEN = ["--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1"]


@dataclass(frozen=True)
class Ran:
    """The study after its run on SLURM, and what was seen on the way."""

    place: Workplace
    jobs: list[dict[str, str]]  # of the run that ended well
    devices: str  # CUDA_VISIBLE_DEVICES of the extraction that was cancelled
    cancelled: subprocess.CompletedProcess[str]
    log: str  # of its extraction, as it was then
    n_kept: int


@pytest.fixture(scope="module")
def local(demo_plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """The study, run on this machine."""
    place = Workplace(tmp_path_factory.mktemp("local") / "work")
    assert place.poise("plan", *SMALL).returncode == 0
    done = place.snakemake("--config", "study=small")
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.fixture(scope="module")
def ran(cluster: Cluster, demo_plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The study, run through SLURM: its extraction is cancelled once, then the same command runs again."""
    place = Workplace(tmp_path_factory.mktemp("remote") / "work")
    planned = place.poise("plan", *SMALL)
    assert planned.returncode == 0, planned.stderr
    command = [*_command(place), "--retries", "0"]
    first = subprocess.Popen(
        command, cwd=place.folder, env=place.environment(**cluster.environment),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        parts = place.folder / "results/responses"
        _wait(lambda: len(list(parts.rglob("parts/*/[0-9]*.parquet"))) >= 2, first)
        devices = _environment_of("poise extract", str(place.folder))["CUDA_VISIBLE_DEVICES"]
        (extraction,) = cluster.jobs()
        cluster.ask("scancel", extraction["JobId"])
        output, _ = first.communicate(timeout=240)
    finally:
        first.kill()
    cancelled = subprocess.CompletedProcess(command, first.returncode, output, "")
    log = next(place.folder.glob("logs/extract/*/*.log")).read_text()
    n_kept = len(list(parts.rglob("parts/*/[0-9]*.parquet")))
    known = cluster.jobs()
    done = place.run(*command, **cluster.environment)
    assert done.returncode == 0, done.stdout + done.stderr + cluster.why()
    return Ran(place, _new_jobs(cluster, known), devices, cancelled, log, n_kept)


def _command(place: Workplace, *more: str) -> list[str]:
    command = place.snakemake_command("--profile", str(ROOT / "workflow/profiles/slurm"), *OFTEN, *more)
    at = command.index("--cores")
    return [*command[:at], *command[at + 2 :], "--config", "study=small"]


def test_extraction_gets_one_gpu_and_all_else_stays_on_cpus(ran: Ran) -> None:
    where = {(job["Comment"].split("_")[1], job["Partition"]) for job in ran.jobs}
    assert where == {("extract", "gpu"), ("correct", "cpu"), ("measure", "cpu"), ("collect", "cpu"), ("table", "cpu")}
    with_gpus = {job["Comment"][:12]: job["TresPerJob"] for job in ran.jobs if "TresPerJob" in job}
    assert with_gpus == {"rule_extract": "gres:gpu:1"}
    assert re.fullmatch(r"[01]", ran.devices)


def test_jobs_ask_for_time_memory_and_cores(ran: Ran) -> None:
    asked = {job["Comment"].split("_")[1]: (job["TimeLimit"], job["MinMemoryNode"], job["NumCPUs"]) for job in ran.jobs}
    assert asked["extract"] == ("02:15:00", "32000M", "8")  # engine.batch_minutes and loading
    assert asked["table"] == ("01:00:00", "1500M", "1")


def test_corrections_of_one_extraction_are_one_array(ran: Ran) -> None:
    assert _array_sizes(ran.jobs, "correct") == [4]  # measurements may start apart: each waits for its own corrections


def test_tables_are_those_of_a_local_run(ran: Ran, local: Workplace) -> None:
    tables = {path.name: path.read_bytes() for path in (local.folder / "results/small/tables").iterdir()}
    assert {"dnip_table3.csv", "dnip_table3.md"} <= set(tables)
    assert {path.name: path.read_bytes() for path in (ran.place.folder / "results/small/tables").iterdir()} == tables


def test_a_cancelled_batch_is_told_to_stop_and_keeps_its_answers(ran: Ran) -> None:
    assert ran.cancelled.returncode != 0
    assert "CANCELLED" in ran.cancelled.stdout
    assert ran.n_kept >= 2
    assert "stopped by a signal" in ran.log


def test_it_goes_on_from_them_and_gives_the_same_answers(ran: Ran, local: Workplace) -> None:
    (meta,) = (json.loads(path.read_text()) for path in ran.place.folder.rglob("meta.json"))
    assert 0 < meta["resumed_requests"] < meta["requests"]
    assert meta["device"] == "cpu"  # the GPU is none
    for name in ("responses", "index", "demonstrations"):
        (mine,), (theirs,) = (list(place.folder.rglob(f"{name}.parquet")) for place in (ran.place, local))
        assert mine.read_bytes() == theirs.read_bytes(), name


def test_quotes_spaces_and_unicode_of_an_override_reach_jobs_and_tables(ran: Ran) -> None:
    plan = json.loads((ran.place.folder / "results/small/plan.json").read_text(encoding="utf-8"))
    assert plan["study"]["dataset"]["movies5"]["title"] == TITLE
    assert plan["study"]["dataset"]["movies5"]["prompt"]["text_prefix"] == PREFIX
    assert TITLE in (ran.place.folder / "results/small/tables/dnip_table3.md").read_text(encoding="utf-8")


def test_nothing_is_left_to_do(ran: Ran, cluster: Cluster) -> None:
    done = ran.place.run(*_command(ran.place), **cluster.environment)
    assert "Nothing to be done" in done.stdout + done.stderr


def test_measurements_that_are_ready_together_are_one_array(ran: Ran, cluster: Cluster) -> None:
    known = cluster.jobs()
    done = ran.place.run(*_command(ran.place, "--forcerun", "measure", "--until", "measure"), **cluster.environment)
    assert done.returncode == 0, done.stdout + done.stderr + cluster.why()
    again = _new_jobs(cluster, known)
    assert len(again) == 2
    assert _array_sizes(again, "measure") == [2]


def _new_jobs(cluster: Cluster, known: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    ids = {job["JobId"] for job in known}
    return [job for job in cluster.jobs() if job["JobId"] not in ids]


def _array_sizes(jobs: Sequence[dict[str, str]], rule: str) -> list[int]:
    """Tasks of each job array of a rule."""
    tasks = [job for job in jobs if job["Comment"].startswith(f"rule_{rule}") and "ArrayJobId" in job]
    return list(Counter(job["ArrayJobId"] for job in tasks).values())


def _wait(is_there: Callable[[], bool], running: subprocess.Popen[str], limit_s: float = 180) -> None:
    started = time.monotonic()
    while not is_there():
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() - started < limit_s, "no answer was flushed"
        time.sleep(0.05)


def _environment_of(words: str, folder: str) -> dict[str, str]:
    """Environment that a command was started with; it runs in this folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if words in line and "snakemake" not in line and str((process / "cwd").readlink()) == folder:
                found = (process / "environ").read_bytes().decode().split("\0")
                return dict(pair.split("=", 1) for pair in found if "=" in pair)
        except OSError:
            continue  # it ended meanwhile
    raise AssertionError(f"no process runs {words!r} in {folder}")
