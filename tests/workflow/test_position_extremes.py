"""Planted extremes of positional instability through every stage: what must come out is known exactly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from poise import paths
from poise.artefacts.registry import ARTEFACTS, artefact_outputs
from poise.plan import Plan
from poise.planfile import make_plan
from poise.stages import artefacts, correct, extract, fetch, measure, select
from tests.conftest import ROOT
from tests.workflow.test_own_data import CLASSES, DATASET

FLIPS = ["pfr_p1", "pfr_p2", "pfr_p2a", "pfr_p2b", "pfr_p3", "pfr_p3a", "pfr_p3b"]
RULES = {"majority_vote", "mean_score", "weighted_sum", "copeland", "bradley_terry"}
PARADIGMS = ["pairwise", "listwise", "listwise_compare"]
CONFIGURATIONS = {"accuracy_optimal", "p1_optimal", "p2a_optimal", "p2b_optimal"}
TEST_ROWS = 12
THIRD, TWO_THIRDS = round(1 / 3, 9), round(2 / 3, 9)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POISE_CONF", str(folder / "conf"))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _write_dataset(folder: Path, name: str, told: str | None = None) -> None:
    """A data set whose texts name their class, or whose test texts all name the class ``told``."""
    text = DATASET.replace("dataset.mine", f"dataset.{name}").replace("name: mine\ntitle", f"name: {name}\ntitle")
    (folder / f"conf/dataset/{name}.yaml").write_text(text.replace("folder: mine", f"folder: {name}"))
    (folder / name).mkdir()
    for table, n in (("train", 60), ("test", TEST_ROWS)):
        labels = [CLASSES[k % 3] for k in range(n)]
        named = [told if told and table == "test" else label for label in labels]
        texts = [f"{table} item {table[-1]}{k}, rather {word} to me" for k, word in enumerate(named)]
        pd.DataFrame({"text": texts, "label": labels}).to_csv(folder / f"{name}/{table}.csv", index=False)


def _run(folder: Path, *overrides: str) -> Plan:
    """Run every stage of a study here, as the workflow's rules do, up to its metrics."""
    with _inside(folder):
        plan = make_plan(overrides)
        for name in plan.study.datasets:
            if not paths.prepared_dataset(name, plan.dataset_digests[name]).exists():
                fetch.prepare_dataset(plan, name)
        for batch in plan.batches:
            extract.extract(plan, batch.id)
        for correction in plan.corrections:
            correct.correct(plan, *correction)
        for group in plan.groups:
            measure.measure(plan, *group)
        measure.collect(plan, "position")
    return plan


def _values(rows: pd.DataFrame, metric: str, **columns: str) -> list[float]:
    found = rows[rows["metric"] == metric]
    for name, value in columns.items():
        found = found[found[name] == value]
    assert len(found), f"no rows of {metric} with {columns}"
    return list(found["value"].round(9))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two data sets: `mine`, whose texts name their class, and `mute`, whose test texts all say negative."""
    place = tmp_path_factory.mktemp("extremes")
    shutil.copytree(ROOT / "conf", place / "conf")
    _write_dataset(place, "mine")
    _write_dataset(place, "mute", told="negative")
    return place


@pytest.fixture(scope="module")
def reader(folder: Path) -> Plan:
    """A reader who always names the class that a text names; run twice, as the first run chooses configurations."""
    experiments = [
        override
        for name in ("position", "factors")
        for override in (
            f"experiment.{name}.datasets=[mine,mute]",
            f"experiment.{name}.shots=[3_per_class]",
            f"experiment.{name}.rows.test={TEST_ROWS}",
        )
    ]
    overrides = [
        "study=demo", "name=reader", "engine=dummy", "engine.signal=60", "engine.noise=0", "seeds=[0]",
        "dataset=[mine,mute]", "method=[icl,label_averaging,demonstration_averaging,pride]",
        "experiment=[position,factors]", *experiments, "experiment.position.methods=null",
        "experiment.position.stochastic={temperature:0.7,top_p:1.0}",
        "experiment.factors.seeds=[0]", "experiment.factors.selection=measured", "factor.demo_count.baseline=3_shot",
    ]  # fmt: skip
    plan = _run(folder, *overrides)
    with _inside(folder):
        select.select(plan)
    return _run(folder, *overrides)


@pytest.fixture(scope="module")
def read(folder: Path, reader: Plan) -> pd.DataFrame:
    """The reader's metrics."""
    return pd.read_parquet(folder / paths.metrics(reader.study.name, "position"))


@pytest.fixture(scope="module")
def joint(folder: Path) -> Plan:
    """`study=joint` on someone who prefers the label 1, whatever it means, to what a text says."""
    return _run(
        folder, "study=joint", "name=first", "engine=dummy", "dataset=[mine]", "experiment.joint.datasets=[mine]",
        f"experiment.joint.rows={{optimisation: 24, test: {TEST_ROWS}}}", "seeds=[0]",
        "engine.signal=2", "engine.noise=0", "engine.class_bias=[3]",
    )  # fmt: skip


@pytest.fixture(scope="module")
def preferred(folder: Path, joint: Plan) -> pd.DataFrame:
    """Metrics of that study."""
    return pd.read_parquet(folder / paths.metrics(joint.study.name, "position"))


def test_a_stable_and_right_reader_is_always_right_and_never_flips(read: pd.DataFrame) -> None:
    mine = read[(read["dataset"] == "mine") & ~read["level"].isin(["natural_language", "minimal"])]
    assert set(_values(mine, "accuracy")) == set(_values(mine, "macro_f1")) == {1.0}
    assert set(_values(mine, "mae")) == set(_values(mine, "cobias")) == {0.0}
    for metric in (*FLIPS, *(f"{name}_worst" for name in FLIPS), "pfr_noise", "pfr_total", "flip_floor"):
        assert set(_values(mine, metric)) == {0.0}, metric
    assert _values(mine, "text_agreement") == [1.0]
    baseline = mine[(mine["factor"] == "") & (mine["experiment"] == "position")]
    assert set(baseline["method"]) == {"icl", "label_averaging", "demonstration_averaging", "pride"}


def test_every_setting_of_the_factors_is_read(read: pd.DataFrame) -> None:
    rows = read[(read["dataset"] == "mine") & (read["metric"] == "accuracy") & (read["condition"] == "base")]
    levels = rows[rows["factor"] != ""].groupby("factor")["level"].unique().map(set).to_dict()
    assert levels == {
        "label_format": {"letter", "natural_language", "neutral_id"},
        "demo_count": {"0_shot", "1_shot"},
        "prompt_clarity": {"minimal", "ordinal_explicit"},
        "separator": {"space", "tab"},
        "connector": {"space", "newline_tab"},
        "instruction_mood": {"interrogative", "indicative"},
        "inference_paradigm": set(PARADIGMS),
        "configuration": {"baseline", *CONFIGURATIONS},
    }
    methods = rows.groupby("level")["method"].unique().map(set)
    assert methods["pairwise"] == RULES
    assert methods["listwise"] == methods["listwise_compare"] == {"icl"}


@pytest.mark.parametrize("level", ["0_shot", *PARADIGMS])
def test_settings_without_ordered_demonstrations_have_the_label_order_only(read: pd.DataFrame, level: str) -> None:
    rows = read[(read["dataset"] == "mine") & (read["level"] == level)]
    orderless = rows[rows["metric"].isin(set(FLIPS) - {"pfr_p1"})]
    assert orderless.empty or (level == "pairwise" and orderless["value"].eq(0).all())  # pairs stand alone
    assert "pfr_p1" in set(rows["metric"])
    assert set(rows[rows["metric"] == "accuracy"]["condition"]) == {"base", "label_order=reversed"}


def test_configurations_are_reported_on_the_half_that_they_were_not_chosen_on(read: pd.DataFrame) -> None:
    rows = read[read["metric"].isin(["accuracy", *FLIPS])]
    assert set(rows[rows["factor"] == "configuration"]["n"]) == {TEST_ROWS // 2}
    assert set(rows[rows["factor"] != "configuration"]["n"]) == {TEST_ROWS}


def test_a_word_that_keeps_its_meaning_flips_under_the_papers_mapping_only(read: pd.DataFrame) -> None:
    words = read[(read["dataset"] == "mine") & (read["level"] == "natural_language")]
    # Of three balanced classes the middle one maps to itself.
    assert set(_values(words, "pfr_p1")) == {TWO_THIRDS}
    assert (
        set(_values(words, "pfr_p1_semantic")) == set(_values(words, "pfr_p2")) == set(_values(words, "pfr_p3")) == {0}
    )
    assert _values(words, "accuracy", condition="base") == [1.0]
    assert _values(words, "accuracy", condition="label_order=reversed") == [THIRD]


def test_a_mapping_that_the_prompt_does_not_show_is_not_followed(read: pd.DataFrame) -> None:
    minimal = read[read["level"] == "minimal"]
    assert set(_values(minimal, "pfr_p1")) == {1.0}  # all labels look alike: always the first
    assert set(_values(minimal, "pfr_p2")) == set(_values(minimal, "pfr_p3")) == {0.0}


def test_a_constant_prediction_never_flips(read: pd.DataFrame) -> None:
    mute = read[(read["dataset"] == "mute") & ~read["level"].isin(["natural_language", "minimal"])]
    for metric in FLIPS:
        assert set(_values(mute, metric)) == {0.0}, metric
    assert set(_values(mute, "accuracy")) == {THIRD}
    assert set(_values(mute, "class_accuracy", **{"class": "negative"})) == {1.0}
    assert set(_values(mute, "spearman_rho")) == {0.0}


def test_a_preferred_label_always_flips_when_labels_are_reversed_and_only_then(preferred: pd.DataFrame) -> None:
    icl = preferred[preferred["method"] == "icl"]
    assert _values(icl, "pfr_p1") == [1.0]
    assert {value for metric in FLIPS[1:] for value in _values(icl, metric)} == {0.0}
    assert set(_values(icl, "accuracy")) == {THIRD}
    for condition, name in (("base", "negative"), ("label_order=reversed", "positive")):
        assert _values(icl, "class_accuracy", condition=condition, **{"class": name}) == [1.0]


@pytest.mark.parametrize("method", ["pride", "contextual_calibration", "batch_calibration"])
def test_priors_of_each_order_undo_the_preference(preferred: pd.DataFrame, method: str) -> None:
    rows = preferred[preferred["method"] == method]
    assert set(_values(rows, "accuracy")) == {1.0}
    assert {value for metric in FLIPS for value in _values(rows, metric)} == {0.0}


def test_weights_by_label_carry_over_to_the_other_order_and_weights_by_class_do_not(preferred: pd.DataFrame) -> None:
    for method in ("dnip_label_token", "dnip_label_token_reversed", "dnip_label_token_pooled"):
        rows = preferred[preferred["method"] == method]
        assert set(_values(rows, "accuracy")) == {1.0}, method
        assert _values(rows, "pfr_p1") == [0.0], method
    for method, fitted, other in (
        ("dnip", "base", "label_order=reversed"),
        ("dnip_reversed", "label_order=reversed", "base"),
    ):
        rows = preferred[preferred["method"] == method]
        assert _values(rows, "accuracy", condition=fitted) == [1.0], method
        assert _values(rows, "accuracy", condition=other) == [THIRD], method
        assert _values(rows, "pfr_p1") == [TWO_THIRDS], method


def test_averaging_leaves_one_prediction(preferred: pd.DataFrame) -> None:
    for method, kept in (("label_averaging", "neutral"), ("demonstration_averaging", "negative")):
        rows = preferred[preferred["method"] == method]
        assert set(rows["condition"]) == {"base"}
        assert _values(rows, "class_accuracy", **{"class": kept}) == [1.0]
        assert not set(rows["metric"]) & set(FLIPS)


def test_the_joint_study_makes_its_artefacts_and_marks_them_synthetic(folder: Path, joint: Plan) -> None:
    with _inside(folder):
        for name in joint.study.artefacts:
            (artefacts.make_table if ARTEFACTS[name].kind == "table" else artefacts.make_figure)(joint, name)
            for path in artefact_outputs(joint.study.name, name):
                assert path.stat().st_size > 50, path
        tables = list((folder / "results/first/tables").glob("*.csv"))
    assert len(tables) == 5
    for path in tables:
        assert set(pd.read_csv(path)["provenance"]) <= {"synthetic", "not measured"}, path
        assert "synthetic" in set(pd.read_csv(path)["provenance"]) or path.stem == "position_table1", path
