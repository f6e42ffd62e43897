"""Progress: estimates by hand, counts from what extractions leave on disk, lines only now and then, never an error."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from poise import paths
from poise.config.compose import compose_study
from poise.plan import Plan, expand
from poise.runs import progress
from poise.runs.progress import Watch, Work, duration, seconds_left

MODEL = "smollm2-135m-instruct"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """One cell of 200 prompts, in an empty folder."""
    found = expand(
        compose_study(
            ["study=demo", "name=p", "seeds=[0]", "dataset=[movies5]", "experiment=[class_accuracy]", "method=[icl]",
             "factor=[]", "artefacts=[]", "experiment.class_accuracy.datasets=[movies5]"]
        )
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    return found


def _watch(plan: Plan, clock: Clock, rules: list[str]) -> tuple[Watch, list[str]]:
    said: list[str] = []
    watch = Watch(plan, said.append, clock)
    watch.expect(rules, [batch.id for batch in plan.batches])
    return watch, said


def _folder(plan: Plan) -> Path:
    (batch,) = plan.batches
    return paths.batch_dir(MODEL, batch.id)


def _rows(path: Path, n: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({"x": range(n)}).to_parquet(path)


def _marker(plan: Plan, doing: str, answers: int) -> None:
    _folder(plan).mkdir(parents=True, exist_ok=True)
    (_folder(plan) / "running.json").write_text(json.dumps({"doing": doing, "answers": answers}))


def _job(watch: Watch, event: str, **told: Any) -> None:
    watch.handle(logging.makeLogRecord({"levelno": logging.INFO, "event": event, **told}))


@pytest.mark.parametrize(
    ("works", "expected"),
    [
        ([], 0),
        ([Work(100, 0.5)], 50),
        ([Work(100, 0.5, 2)], 25),  # two at a time
        ([Work(100, 0.5), Work(10, 3, 2)], 65),
        ([Work(0, None), Work(10, 3)], 30),  # nothing left of what is not known
        ([Work(1, None), Work(10, 3)], None),
        ([Work(-3, 2)], 0),
    ],
)
def test_seconds_left(works: list[Work], expected: float | None) -> None:
    assert seconds_left(works) == expected


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "?"), (0, "about 5 s"), (33, "about 35 s"), (59, "about 1 min"), (360, "about 6 min"),
        (3540, "about 59 min"), (3600, "about 1 h"), (7800, "about 2 h 10 min"), (50_000, "about 14 h"),
    ],
)  # fmt: skip
def test_duration(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_prompts_are_counted_from_parts_and_time_is_known_once_some_are_answered(plan: Plan, clock: Clock) -> None:
    planned = sum(cell.rows * cell.parts for cell in plan.cells if cell.rows)
    watch, _ = _watch(plan, clock, ["extract", "table", "table", "all"])
    watch.look()
    assert watch.line() == f"0 of about {planned:,} prompts asked, 0 of 4 steps done, time left: ?"

    _marker(plan, "loading", 1000)
    _rows(_folder(plan) / "parts/f/000000.parquet", 40)  # of a try that was stopped
    clock.now = 30
    watch.look()
    assert watch.line() == "40 of 1,000 prompts asked, 0 of 4 steps done, time left: ?"

    _marker(plan, "asking", 1000)
    clock.now = 40
    watch.look()
    _rows(_folder(plan) / "parts/f/000040.parquet", 40)
    _rows(_folder(plan) / "parts-text/f/000000.parquet", 20)
    _rows(_folder(plan) / "parts-text-located/f/000000.parquet", 40)  # two scores for each text: no prompts
    clock.now = 52
    watch.look()
    # 60 in 12 s; 900 are left: 180 s; two tables at 3 s each, a first guess: 186 s.
    assert watch.line() == "100 of 1,000 prompts asked, 0 of 4 steps done, about 3 min left"

    (_folder(plan) / "parts/f/000080.parquet").write_bytes(b"cut short")  # as a kill may leave it
    watch.look()
    assert watch.line().startswith("100 of 1,000 prompts")

    for name, n in (("responses", 950), ("regrouped", 50), ("index", 950)):
        _rows(_folder(plan) / f"{name}.parquet", n)
    watch.look()
    assert watch.line() == "1,000 of 1,000 prompts asked, 0 of 4 steps done, about 5 s left"


def test_a_pace_of_earlier_batches_is_the_first_guess(plan: Plan, clock: Clock) -> None:
    meta = {"engine": "transformers", "requests": 500, "resumed_requests": 0, "seconds": 1000.0}
    folder = paths.batch_dir(MODEL, "0123456789ab")
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps(meta))
    watch, _ = _watch(plan, clock, ["extract", "all"])
    _marker(plan, "loading", 600)
    watch.look()
    assert watch.line() == "0 of 600 prompts asked, 0 of 2 steps done, about 20 min left"


def test_steps_are_as_long_as_those_before_them(plan: Plan, clock: Clock) -> None:
    watch = Watch(plan, print, clock)
    watch.expect(["correct"] * 6 + ["table"] * 10 + ["all"], [])
    for jobid, rule in ((1, "correct"), (2, "correct")):  # side by side
        _job(watch, "job_info", jobid=jobid, rule_name=rule)
    clock.now = 20
    for jobid in (1, 2):
        _job(watch, "job_finished", job_id=jobid)
    # 4 fits and 10 tables, taken to be as long, two side by side: 140 s.
    assert watch.line() == "2 of 17 steps done, about 2 min left"
    _job(watch, "job_info", jobid=3, rule_name="table")
    clock.now = 22
    _job(watch, "job_finished", job_id=3)
    assert watch.line() == "3 of 17 steps done, about 50 s left"  # (4 * 20 + 9 * 2) / 2 = 49


def test_downloads_take_any_time(plan: Plan, clock: Clock) -> None:
    watch = Watch(plan, print, clock)
    watch.expect(["download_package", "table", "all"], [])
    assert watch.line() == "0 of 3 steps done, time left: ?"


def test_failed_steps_are_kept_unless_they_end_well_later(plan: Plan, clock: Clock) -> None:
    watch = Watch(plan, print, clock)
    watch.expect(["table", "table"], [])
    for jobid in (1, 2):
        _job(watch, "job_info", jobid=jobid, rule_name="table")
        _job(watch, "job_error", jobid=jobid, rule_name="table", log=["logs/t.log"])
    _job(watch, "job_info", jobid=1, rule_name="table")
    _job(watch, "job_finished", job_id=1)
    assert list(watch.failed.values()) == [("table", ["logs/t.log"])]


def test_no_record_can_stop_a_run(plan: Plan, clock: Clock) -> None:
    watch = Watch(plan, print, clock)
    for event in ("job_info", "job_finished", "job_error", None):
        _job(watch, event)  # type: ignore[arg-type]
    assert watch.line() == "0 of 0 steps done, about 5 s left"


def test_a_line_is_said_on_change_only(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN", 0.01)
    monkeypatch.setenv("TQDM_DISABLE", "0")  # restored afterwards
    said: list[str] = []
    watch = Watch(plan, said.append)
    jobs = [SimpleNamespace(rule=SimpleNamespace(name=name)) for name in ("table", "table", "all")]
    watch.start(jobs)
    for n in (1, 2):
        _job(watch, "job_info", jobid=n, rule_name="table")
        _job(watch, "job_finished", job_id=n)
        time.sleep(0.2)
    watch.stop()
    assert len(said) == len(set(said)) <= 3
    assert said[-1].startswith("poise: 2 of 3 steps done")
    n_said = len(said)
    _job(watch, "job_finished", job_id=3)
    time.sleep(0.05)
    assert len(said) == n_said
