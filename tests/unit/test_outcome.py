"""The last words of a run: what was asked, what is missing and why, which step failed and how to go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from poise import paths
from poise.artefacts.registry import ARTEFACTS, location
from poise.config.compose import compose_study
from poise.plan import Plan, expand
from poise.runs.outcome import describe_failure, describe_outcome, provenance
from poise.runs.report import Report, rst

MODEL = "smollm2-135m-instruct"
TABLES = "artefacts=[dnip_table1,dnip_table3,dnip_table7,dnip_figure8]"


def _plan(*overrides: str) -> Plan:
    return expand(
        compose_study(
            ["study=demo", "name=o", "seeds=[0]", "dataset=[movies5]", "experiment=[class_accuracy]", "method=[icl]",
             "factor=[]", "experiment.class_accuracy.datasets=[movies5]", TABLES, *overrides]
        )
    )  # fmt: skip


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A study of one batch, in an empty folder."""
    made = _plan()
    monkeypatch.chdir(tmp_path)
    return made


def _write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _answer(plan: Plan, **meta: object) -> None:
    folder = paths.batch_dir(MODEL, plan.batches[0].id)
    _write(folder / "meta.json", json.dumps({"requests": 1200, "resumed_requests": 0, "seconds": 61.4, **meta}))
    for name in ("responses", "index"):
        _write(folder / f"{name}.parquet")


def test_nothing_is_measured_yet(plan: Plan) -> None:
    words = describe_outcome(plan)
    assert f"Study o: 1 model, 1 data set, 0 of {len(plan.cell_by_id)} cells answered" in words
    assert f"{MODEL}: 0 prompts asked in less than a second (0 of 1 batches)" in words
    assert "0 of 3 made: results/o/tables/*.md" in words
    assert "make report STUDY=o" in words


def test_what_was_asked_and_made_is_told(plan: Plan) -> None:
    _answer(plan, resumed_requests=200)
    for name in ("dnip_table1", "dnip_table3"):
        for suffix in (".csv", ".md", ".html", ".tex"):
            _write(paths.table("o", name, suffix), "metric,provenance\nacc,measured\n")
    words = describe_outcome(plan)
    n_cells = len(plan.cell_by_id)
    assert f"{n_cells} of {n_cells} cells answered" in words
    assert f"{MODEL}: 1,200 prompts asked in 61 s, 200 kept from a stopped try\n" in words
    assert "2 of 3 made: results/o/tables/*.md" in words
    assert "0 of 1 made: figures/o/*.png" in words
    assert "synthetic" not in words
    assert "missing" not in words


def test_synthetic_numbers_are_called_so(plan: Plan) -> None:
    _answer(plan, synthetic=True)
    assert "61 s: synthetic, of the test engine" in describe_outcome(plan)


def test_what_is_missing_is_told_with_its_reason(plan: Plan) -> None:
    _write(paths.table("o", "dnip_table1"), "note,provenance\n,measured\nno such method,not measured\n")
    _write(paths.table("o", "dnip_table7"), "note,provenance\n,paper\nno model behind an API,not measured\n")
    words = describe_outcome(plan)
    assert "  missing  dnip_table7: no model behind an API\n" in words
    assert "  in part  dnip_table1: " in words
    assert provenance("o", "dnip_table7") == ["not measured", "paper"]
    assert provenance("o", "dnip_table3") == []


def test_a_model_out_of_reach_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan(f"model=[{MODEL},gpt-5.4]")
    monkeypatch.chdir(tmp_path)
    words = describe_outcome(plan)
    assert "no cells gpt-5.4 (" in words
    assert "the transformers engine does not reach it: no cells" in words


def test_a_failure_names_step_reason_log_and_what_to_do(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("… poise: table\nTraceback\n… stopped after 1.0 s, error: mine.csv: row 2: unknown label 'meh'\n")
    killed = tmp_path / "b.log"
    killed.write_text("… poise: extract\n")
    failed = [("table", [str(log)]), ("extract", [str(killed)]), ("measure", [str(tmp_path / "none.log")])]
    words = describe_failure(failed, ["--cores", "all", "--config", "study=my own"])
    assert f"  table: mine.csv: row 2: unknown label 'meh'\n    log: {log}" in words
    assert "  extract: its log ends without an error (killed? out of memory or time?)" in words
    assert "  measure: it wrote no log" in words
    assert words.endswith("snakemake --cores all --config 'study=my own' --rerun-incomplete")


def test_text_of_users_is_literal_in_the_report() -> None:
    assert rst("a_b *c*\n`d` |e| <f>_") == r"a\_b \*c\* \`d\` \|e\| \<f\>\_"


def test_every_artefact_says_how_to_read_it_and_where_the_paper_has_it() -> None:
    assert [name for name, artefact in ARTEFACTS.items() if not artefact.reading.endswith((".", "?"))] == []
    assert location("dnip_table3") == "DNIP paper, Table 3"
    assert location("position_figure2") == "position paper, Figure 2"
    assert location("dnip_methods") == "beside the DNIP paper"
    assert location("position_phase0_tests") == "beside the position paper"
    assert location("joint_table1") == "of Poise's own: in neither paper"


def test_the_reports_list_is_in_the_papers_order(plan: Plan) -> None:
    report = Report(plan)
    places = [report.labels(Named(name))["paper"] for name in ("dnip_table2", "dnip_table10", "joint_table1")]
    assert places == ["Table\u00a0\u20072", "Table\u00a010", "–"]
    assert report.category(Named("joint_table1")) == "Both instruments together"
    assert report.caption("dnip_table3")["location"] == "DNIP paper, Table 3"
    assert report.missing == []


class Named:
    """Wildcards of an artefact's job."""

    def __init__(self, artefact: str) -> None:
        self.artefact = artefact
