"""Metrics of very many models and data sets are gathered in two levels, and the same rows come out."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from poise import gathering, paths
from poise.config.compose import compose_study
from poise.files import read_parquet, write_json, write_parquet
from poise.plan import Plan, expand
from poise.stages.measure import collect
from poise.stages.tidy import tidy_frame


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The default study, each file of whose metrics holds one row that names it."""
    plan = expand(compose_study([]))
    monkeypatch.chdir(tmp_path)
    for k, group in enumerate(plan.groups):
        rows = [{"experiment": group[0], "dataset": group[2], "metric": "accuracy", "value": k}]
        write_parquet(paths.cell_metrics(plan.study.name, *group), tidy_frame(rows))
    for k, correction in enumerate(plan.corrections):
        write_json(paths.timings(plan.study.name, *correction), [{"shots": "1_shot", "seed": 0, "seconds": k}])
    return plan


@pytest.mark.parametrize("instrument", ["class_accuracy", "position", "timing"])
def test_parts_give_what_one_job_gives(plan: Plan, instrument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n_sources = len(gathering.sources(plan, instrument))
    assert gathering.inputs(plan, instrument) == gathering.sources(plan, instrument)
    collect(plan, instrument)
    direct = read_parquet(paths.metrics(plan.study.name, instrument))
    assert len(direct) == n_sources > 2
    monkeypatch.setattr(gathering, "MOST", 2)
    parts = gathering.inputs(plan, instrument)
    assert len(parts) == (n_sources + 1) // 2
    for part in range(len(parts)):
        assert 0 < len(gathering.part_sources(plan, instrument, part)) <= 2
        collect(plan, instrument, part)
    collect(plan, instrument)
    pd.testing.assert_frame_equal(read_parquet(paths.metrics(plan.study.name, instrument)), direct)


def test_nothing_to_gather_is_an_empty_table(plan: Plan) -> None:
    assert gathering.sources(plan, "none of them") == []
    collect(plan, "none of them")
    assert read_parquet(paths.metrics(plan.study.name, "none of them")).empty


def test_seconds_name_their_correction(plan: Plan) -> None:
    collect(plan, "timing")
    rows = read_parquet(paths.metrics(plan.study.name, "timing"))
    found = list(zip(rows["experiment"], rows["model"], rows["dataset"], rows["method"], strict=True))
    assert found == plan.corrections
    assert list(rows["value"]) == list(range(len(found)))
    assert json.loads(paths.timings(plan.study.name, *plan.corrections[-1]).read_text())[0]["seconds"] == len(found) - 1
