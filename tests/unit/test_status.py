"""``poise status`` in plain words: what would run, why, and what a stopped batch has kept."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from poise import paths
from poise.config.compose import compose_study
from poise.files import write_parquet
from poise.plan import Plan, expand
from poise.runs.status import Job, describe_status
from tests.conftest import Workplace

STUDY = [
    "study=demo", "name=small", "engine=dummy", "dataset=[movies5]", "experiment=[class_accuracy]", "method=[icl,dnip]",
    "factor=[]", "experiment.class_accuracy.datasets=[movies5]", "seeds=[0,1]", "artefacts=[dnip_table3,dnip_figure8]",
]  # fmt: skip
GROUP = {"experiment": "class_accuracy", "model": "smollm2-135m-instruct", "dataset": "movies5"}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    plan = expand(compose_study(STUDY))
    monkeypatch.chdir(tmp_path)
    return plan


def _extract(plan: Plan) -> Job:
    (batch,) = plan.batches
    return Job("extract", {"model": batch.model, "batch": batch.id}, "Missing output files: a, b")


def test_nothing_to_do_is_one_line_with_where_the_tables_are(plan: Plan) -> None:
    (line,) = describe_status(plan, []).splitlines()
    assert line == "Study small: nothing to do; tables: results/small/tables/*.md, figures: figures/small/*.png"
    assert describe_status(plan, [], ["tables"]) == "Study small (tables): nothing to do"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Missing output files: x; Input files updated by another job: y", "not made yet"),
        ("Input files updated by another job: y", "what it is made from is made anew"),
        ("Updated input files: data/a.csv, data/b.csv", "changed: data/a.csv, data/b.csv"),
        ("Params have changed since last execution: x", "its settings, or the code that makes it, changed"),
        ("Code has changed since last execution", "its command changed"),
        ("Set of input files has changed since last execution", "it is made from other files than before"),
        ("Something new in Snakemake", "Something new in Snakemake"),
    ],
)  # fmt: skip
def test_reasons_in_plain_words(plan: Plan, reason: str, words: str) -> None:
    text = describe_status(plan, [Job("correct", {**GROUP, "method": "dnip"}, reason)])
    assert text.splitlines() == [
        "Study small: 1 step would run.",
        f"  correct             1  {words}: dnip on smollm2-135m-instruct movies5 (class_accuracy)",
        "Nothing else.",
        "Run it:  snakemake --cores all --config study=small",
    ]


def test_long_lists_are_cut_and_rules_stand_in_the_order_of_the_data(plan: Plan) -> None:
    jobs = [Job("table", {"artefact": f"t{k}"}, "Missing output files: x") for k in range(9)]
    lines = describe_status(plan, [*jobs, Job("measure", GROUP, "Code has changed"), _extract(plan)]).splitlines()
    assert lines[0] == "Study small: 11 steps would run."
    assert [line.split()[0] for line in lines[1:4]] == ["extract", "measure", "table"]
    assert lines[3].endswith("not made yet: t0, t1, t2, t3 and 5 more")


def test_a_new_batch_and_a_stopped_one(plan: Plan) -> None:
    (batch,) = plan.batches
    (line,) = (line for line in describe_status(plan, [_extract(plan)]).splitlines() if "extract" in line)
    # 200 optimisation and 160 test rows for two seeds, and three inputs without content
    assert f"batch {batch.id} of smollm2-135m-instruct" in line
    assert f"{len(batch.cells)} cells without answers (movies5; seeds 0, 1; " in line
    assert "kept" not in line
    folder = paths.batch_dir(batch.model, batch.id)
    for k, n in ((0, 64), (64, 36)):
        write_parquet(folder / f"parts/abc/{k:06d}.parquet", pd.DataFrame({"micro_batch": [k] * n}))
    (folder / "parts/abc/000128.parquet").write_bytes(b"torn")
    assert "stopped before: 100 answers are kept" in describe_status(plan, [_extract(plan)])


@pytest.mark.slow
def test_snakemake_decides(workplace: Workplace) -> None:
    study = [word for word in STUDY if not word.startswith("name=")]
    done = workplace.poise("status", *study, "name=small")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    counts = {line.split()[0]: int(line.split()[1]) for line in lines[1:] if line.startswith("  ") and line[2] != " "}
    assert {rule: counts[rule] for rule in ("extract", "correct", "measure", "table", "figure")} == {
        "extract": 1, "correct": 2, "measure": 1, "table": 1, "figure": 1,
    }  # fmt: skip
    assert lines[-1] == "Run it:  snakemake --cores all --config study=small"
    assert not list(workplace.folder.rglob("*.parquet"))  # nothing ran
    one = workplace.poise("status", "study=small", "results/small/tables/dnip_table3.csv")
    assert "figure" not in one.stdout
    assert "results/small/tables/dnip_table3.csv --config" in one.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [(["study=nope"], "study 'nope'"), (["nope.csv"], "target nope.csv: nothing makes it"), (["bogus=1"], "bogus")],
)
def test_a_mistake_is_one_line(workplace: Workplace, words: list[str], said: str) -> None:
    done = workplace.poise("status", *words)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("poise: error: ")
    assert said in line
    assert not done.stdout
