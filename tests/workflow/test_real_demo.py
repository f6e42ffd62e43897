"""The real demo in small: real model, real data, real Snakemake; killed and resumed."""

from __future__ import annotations

import pandas as pd
import pytest

from poise.artefacts.registry import ARTEFACTS, artefact_outputs
from poise.plan import Plan
from tests.conftest import Workplace

pytestmark = pytest.mark.slow
SMALL = [
    "study=demo", "name=small", "seeds=[0,1]", "dataset=[movies5,tweets3]",
    "experiment.class_accuracy.datasets=[movies5]", "experiment.class_accuracy.rows.optimisation=24",
    "experiment.class_accuracy.rows.test=24", "experiment.position.rows.test=8", "experiment.position.floor_rows=4",
    "engine.flush_seconds=0.2", "experiment.more_shots.rows={optimisation:12,test:10}",
    "method=[icl,dnip,dnip_metropolis,dnip_rows_10,contextual_calibration,label_averaging,demonstration_averaging,pride]",
    "factor=[label_format,scale_cardinality,inference_paradigm,configuration]", "experiment.factors.seeds=[0]",
    "experiment.factors.rows.test=3", "experiment.cardinality.seeds=[0]", "experiment.cardinality.rows.test=3",
    "experiment.stochastic.rows.test=8", "experiment.stochastic.floor_rows=4",
    "experiment.chain_of_thought.rows.test=4", "experiment.answer_token.rows.test=6",
]  # fmt: skip

WANTED = [name for name in ARTEFACTS if not name.startswith("joint")]  # those are the joint study's


@pytest.fixture(scope="module")
def finished(demo_plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace where the small study ran undisturbed."""
    place = Workplace(tmp_path_factory.mktemp("undisturbed") / "work")
    assert place.poise("plan", *SMALL).returncode == 0
    done = place.snakemake("--config", "study=small")
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_every_artefact_is_there_and_measured(finished: Workplace) -> None:
    for name in WANTED:
        for path in artefact_outputs("small", name):
            assert (finished.folder / path).stat().st_size > 50, path
    # An API model's matrix, and residuals beside which the paper's stand in a section of their own.
    printed = {"dnip_table7", "position_table4", "position_table5", "position_table6"}
    for table in (finished.folder / "results/small/tables").glob("*.csv"):
        papers = {"paper"} if table.stem in printed else set()
        assert set(pd.read_csv(table)["provenance"]) <= {"measured", "not measured", *papers}, table


def test_measured_numbers_are_plausible(finished: Workplace) -> None:
    rows = pd.read_parquet(finished.folder / "results/small/metrics/position.parquet")
    metrics = rows[rows["factor"] == ""].set_index("metric")["value"]
    assert metrics["label_mass"].between(0.05, 1.0).all()
    assert (metrics["flip_floor"] == 0).all()
    assert metrics["regrouping_gap"].between(0, 1e-3).all()
    assert metrics["greedy_agreement"].dropna().eq(1).all()
    assert metrics["text_agreement"] == 1  # the written answer names the most probable label


def test_nothing_is_left_to_do(finished: Workplace) -> None:
    done = finished.snakemake("--config", "study=small")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_deleted_table_is_made_again_alone_with_the_same_bytes(finished: Workplace) -> None:
    tables = finished.folder / "results/small/tables"
    before = {path.name: path.read_bytes() for path in tables.iterdir()}
    (tables / "dnip_table3.csv").unlink()
    done = finished.snakemake("--config", "study=small")
    assert done.returncode == 0
    assert "2 of 2 steps" in done.stdout + done.stderr
    assert {path.name: path.read_bytes() for path in tables.iterdir()} == before


def test_report_is_one_page_with_everything(finished: Workplace) -> None:
    done = finished.snakemake("--config", "study=small", "--report", "report.html")
    assert done.returncode == 0, done.stderr
    page = (finished.folder / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in WANTED)
