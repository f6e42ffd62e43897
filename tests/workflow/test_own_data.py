"""A user's own CSV through the whole workflow with the dummy engine: planted truths come out, marked synthetic."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from poise.artefacts.registry import ARTEFACTS, artefact_outputs
from tests.conftest import ROOT, Workplace

CLASSES = ["negative", "neutral", "positive"]
DATASET = """# @package dataset.mine
name: mine
title: My reviews
task: Sentiment Classification
domain: product reviews
ordered: true
source: {kind: files, folder: mine}
tables: {train: {path: [train.csv]}, test: {path: [test.csv]}}
columns: {text: text, label: label}
classes: [negative, neutral, positive]
prompt:
  kind: icl
  name: mine
  text_prefix: "Review: "
  label_prefix: "Sentiment:"
  label_words: [negative, neutral, positive]
merged: {two: {negative: [negative], positive: [positive]}}
"""
SHARED = [
    "study=demo", "name=mine", "engine=dummy", "dataset=[mine]", "experiment.class_accuracy.datasets=[mine]",
    "experiment.position.datasets=[mine]", "experiment.position.floor_rows=6",
]  # fmt: skip
STUDY = [
    *SHARED, "experiment=[class_accuracy,position]", "method=[icl,dnip]", "factor=[]",
    "experiment.position.methods=[]", "experiment.position.content_free=[]", "seeds=[0,1]",
]  # fmt: skip
# All that the default study asks, except that the merged scale is of two classes instead of three.
EVERYTHING = [
    *SHARED, "seeds=[0]", "experiment=[class_accuracy,more_shots,chain_of_thought,answer_token,position,stochastic,"
    "factors,cardinality]",
    "method=[icl,dnip,label_averaging,demonstration_averaging,pride,contextual_calibration]",
    "factor=[label_format,scale_cardinality,demo_count,inference_paradigm,configuration]",
    "experiment.position.methods=null", "experiment.factors.seeds=[0]", "experiment.cardinality.seeds=[0]",
    *(f"experiment.{name}.datasets=[mine]" for name in
      ("more_shots", "chain_of_thought", "answer_token", "stochastic", "factors", "cardinality")),
    "factor.scale_cardinality.min_classes=3",
    "+factor.scale_cardinality.levels.two={title: 2-way, cardinality: two}",
]  # fmt: skip


@pytest.fixture
def mine(workplace: Workplace) -> Workplace:
    """A workplace with a CSV data set and the one YAML that describes it."""
    shutil.copytree(ROOT / "conf", workplace.folder / "conf")
    (workplace.folder / "conf/dataset/mine.yaml").write_text(DATASET)
    (workplace.folder / "mine").mkdir()
    for table, n in (("train", 90), ("test", 30)):
        labels = [CLASSES[k % 3] for k in range(n)]
        texts = [f"{table} item {k}, rather {label} to me" for k, label in enumerate(labels)]
        pd.DataFrame({"text": texts, "label": labels}).to_csv(workplace.folder / f"mine/{table}.csv", index=False)
    return workplace


def _plan(place: Workplace, *overrides: str, study: Sequence[str] = STUDY) -> None:
    done = place.poise("plan", *study, *overrides, POISE_CONF=str(place.folder / "conf"))
    assert done.returncode == 0, done.stderr


def _snakemake(place: Workplace, *arguments: str) -> str:
    done = place.snakemake(*arguments, "--config", "study=mine", POISE_CONF=str(place.folder / "conf"))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _metric(place: Workplace, instrument: str, name: str) -> list[float]:
    rows = pd.read_parquet(place.folder / f"results/mine/metrics/{instrument}.parquet")
    return rows[rows["metric"] == name]["value"].tolist()


def test_all_artefacts_are_made_and_marked_synthetic(mine: Workplace) -> None:
    _plan(mine, study=EVERYTHING)
    _snakemake(mine)
    rows = pd.read_parquet(mine.folder / "results/mine/metrics/position.parquet")
    levels = rows.groupby("experiment")["level"].unique().map(set).to_dict()
    assert levels["position"] == levels["stochastic"] == {""}
    assert levels["cardinality"] == {"", "two"}
    assert {"letter", "0_shot", "pairwise", "listwise", "listwise_compare", "p1_optimal"} <= levels["factors"]
    assert "pfr_noise" in set(rows[rows["experiment"] == "stochastic"]["metric"])
    assert set(rows[rows["experiment"] == "position"]["method"]) >= {"dnip", "pride", "label_averaging"}
    for name in (name for name in ARTEFACTS if not name.startswith("joint_")):  # those are of study=joint
        for path in artefact_outputs("mine", name):
            assert (mine.folder / path).is_file(), path
    for table in (mine.folder / "results/mine/tables").glob("*.csv"):
        # An API model's matrix, printed only; the second paper's tables show its own figures beside the measured ones.
        beside = table.stem.startswith("position_") and ARTEFACTS[table.stem].reference
        papers = {"paper"} if beside or table.stem == "dnip_table7" else set()
        assert set(pd.read_csv(table)["provenance"]) <= {"synthetic", "not measured", *papers}, table


def test_a_stable_reader_has_no_flips_and_full_accuracy(mine: Workplace) -> None:
    _plan(mine, "engine.signal=9", "engine.noise=0")
    _snakemake(mine, "results/mine/metrics/position.parquet", "results/mine/metrics/class_accuracy.parquet")
    for contrast in ("p1", "p2", "p2a", "p2b", "p3", "p3a", "p3b"):
        assert _metric(mine, "position", f"pfr_{contrast}") == [0, 0]
    assert set(_metric(mine, "position", "accuracy")) == {1.0}
    assert set(_metric(mine, "class_accuracy", "cobias")) == {0.0}
    assert _metric(mine, "position", "flip_floor") == [0, 0]


def test_a_reader_of_labels_alone_always_flips_when_they_are_reversed(mine: Workplace) -> None:
    _plan(mine, "engine.signal=0", "engine.noise=0", "engine.class_bias=[5]")
    _snakemake(mine, "results/mine/metrics/position.parquet", "results/mine/metrics/class_accuracy.parquet")
    assert _metric(mine, "position", "pfr_p1") == [1, 1]
    assert _metric(mine, "position", "pfr_p2") == _metric(mine, "position", "pfr_p3") == [0, 0]
    rows = pd.read_parquet(mine.folder / "results/mine/metrics/class_accuracy.parquet")
    before = rows[(rows["method"] == "icl") & (rows["metric"] == "cobias")]["value"]
    assert before.tolist() == pytest.approx([2 / 3, 2 / 3])  # class accuracies 1, 0, 0


def test_dnip_corrects_a_planted_class_bias(mine: Workplace) -> None:
    _plan(mine, "engine.signal=2", "engine.noise=0.3", "engine.class_bias=[2.5]")
    _snakemake(mine, "results/mine/metrics/class_accuracy.parquet")
    rows = pd.read_parquet(mine.folder / "results/mine/metrics/class_accuracy.parquet")
    accuracy = rows[rows["metric"] == "accuracy"].groupby("method")["value"].mean()
    assert accuracy["dnip"] > 0.95 > 0.6 > accuracy["icl"]
    weights = rows[rows["metric"] == "weight"].groupby("class")["value"].mean()
    assert weights["negative"] < weights["positive"]


def test_bad_data_stops_with_one_line_and_leaves_nothing_half_made(mine: Workplace) -> None:
    path = mine.folder / "mine/train.csv"
    path.write_text(path.read_text().replace("neutral\n", "meh\n", 1))
    _plan(mine)
    done = mine.snakemake("--config", "study=mine", POISE_CONF=str(mine.folder / "conf"))
    assert done.returncode != 0
    output = done.stdout + done.stderr
    (line,) = {line for line in output.splitlines() if line.startswith("poise: error: ")}
    for word in ("mine/train.csv", "row 2", "'meh'", "negative"):
        assert word in line
    made = {path.relative_to(mine.folder / "results/mine") for path in (mine.folder / "results").rglob("*.parquet")}
    assert made <= {Path("metrics/written.parquet")}  # of an instrument without experiments: it has no rows


def test_a_missing_file_is_told_when_the_plan_is_made(mine: Workplace) -> None:
    (mine.folder / "mine/test.csv").unlink()
    done = mine.poise("plan", *STUDY, POISE_CONF=str(mine.folder / "conf"))
    assert done.returncode == 2
    assert done.stderr.strip() == "poise: error: dataset mine: file not found: mine/test.csv"


def test_too_few_demonstrations_of_a_class(mine: Workplace) -> None:
    _plan(mine, "experiment.position.shots=[31_per_class]", "--quiet")  # else the plan says it, where data are prepared
    done = mine.snakemake("--config", "study=mine", POISE_CONF=str(mine.folder / "conf"))
    (line,) = {text for text in (done.stdout + done.stderr).splitlines() if text.startswith("poise: error: ")}
    assert "31_per_class needs 31 training rows of class 0, found 30" in line


def test_dry_run_writes_no_results(mine: Workplace) -> None:
    _plan(mine)
    _snakemake(mine, "-n")
    assert not list(Path(mine.folder).rglob("*.parquet"))
