"""``poise clean``: it finds what no plan uses, asks, and removes nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from filelock import FileLock

from poise import paths
from poise.cli import main
from poise.plan import Plan
from poise.planfile import freeze, make_plan

STUDY = ["study=demo", "name=small", "experiment=[class_accuracy]", "engine=dummy", "method=[icl]", "factor=[]"]
STALE = paths.batch_dir("smollm2-135m-instruct", "0123456789ab")
DATA = paths.PREPARED / "movies5.0123456789ab.parquet"
MODEL = paths.MODELS / "smollm2-135m-instruct.0123456789ab"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plan]:
    """A folder with a plan, everything that it uses, and one batch, data set and model that it does not."""
    from tests.conftest import ROOT

    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    monkeypatch.chdir(tmp_path)
    plan = make_plan(STUDY)
    freeze(plan)
    for batch in plan.batches:
        _fill(paths.batch_dir(batch.model, batch.id) / "responses.parquet")
    for name, digest in plan.dataset_digests.items():
        _fill(paths.prepared_dataset(name, digest))
    for name, digest in plan.model_digests.items():
        _fill(paths.model_manifest(name, digest))
    for path in (STALE / "responses.parquet", STALE / "parts/x/000000.parquet", DATA, MODEL / "poise.json"):
        _fill(path)
    return plan


def _fill(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 1_000_000)


def _clean(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["clean", *arguments], input=answer)


def _files() -> set[Path]:
    return {path for path in Path().rglob("*") if path.is_file()}


def _stale(path: Path) -> bool:
    return any(path.is_relative_to(root) for root in (STALE, DATA, MODEL))


def test_only_what_no_plan_uses_is_removed(plan: Plan) -> None:
    before = _files()
    done = _clean("--yes")
    assert done.exit_code == 0, done.output
    assert _files() == {path for path in before if not _stale(path)}
    assert "Removed 3 of 3" in done.output
    assert "4.0 MB can be freed" in done.output
    assert _clean().output.startswith("Nothing to clean")


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_no_means_no(plan: Plan, answer: str) -> None:
    before = _files()
    done = _clean(answer=answer)
    assert done.exit_code == 0
    assert "Nothing was removed" in done.output
    assert _files() == before


def test_yes_is_taken_from_the_terminal(plan: Plan) -> None:
    assert "Removed 3" in _clean(answer="y\n").output


def test_a_dry_run_lists_only(plan: Plan) -> None:
    before = _files()
    done = _clean("--dry-run", "--yes")
    assert _files() == before
    for word in (str(STALE), str(DATA), str(MODEL), "2.0 MB", "0 days old", "no readable manifest"):
        assert word in done.output
    assert str(paths.batch_dir(plan.batches[0].model, plan.batches[0].id)) not in done.output


def test_any_studys_plan_counts(plan: Plan) -> None:
    freeze(make_plan([*STUDY, "seeds=[7]", "name=other"]))
    shutil.rmtree(paths.RESULTS / "small")
    listed = _clean("-n").output
    assert all(batch.id in listed for batch in plan.batches)  # now of no plan, with the cells its manifest tells
    assert f"{len(plan.batches[0].cells)} cells, not finished" in listed  # it has no index


def test_a_batch_that_is_asked_right_now_stays(plan: Plan) -> None:
    with FileLock(STALE / ".lock"):
        done = _clean("--yes")
        assert "a process uses it right now" in done.output
        assert (STALE / "responses.parquet").exists()
        assert DATA.exists()  # it may read these
        assert MODEL.exists()
    assert "Removed 3 of 3" in _clean("--yes").output


def test_it_waits_for_snakemake(plan: Plan) -> None:
    _fill(Path(".snakemake/locks/0.input.lock"))
    done = _clean("--yes")
    assert done.exit_code == 2
    assert "Snakemake is running here" in done.output
    assert STALE.exists()


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"study": 1}'])
def test_a_damaged_plan_stops_it(plan: Plan, text: str) -> None:
    paths.plan_file("small").write_text(text)
    done = _clean("--yes")
    assert done.exit_code == 2
    (line,) = done.output.strip().splitlines()
    assert "results/small/plan.json" in line
    assert "nothing is removed" in line
    assert STALE.exists()


def test_without_any_plan_nothing_is_known(plan: Plan) -> None:
    shutil.rmtree(paths.RESULTS / "small")
    assert _clean("--yes").exit_code == 2
    assert STALE.exists()


def test_links_are_not_followed(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    _fill(outside / "keep/responses.parquet")
    _fill(outside / "shared/movies5.0123456789ab.parquet")
    (STALE.parent / "ba9876543210").symlink_to(outside / "keep")
    (STALE / "parts/link").symlink_to(outside / "keep")
    shutil.rmtree(paths.PREPARED)
    paths.PREPARED.symlink_to(outside / "shared")
    done = _clean("--yes")
    assert "ba9876543210" not in done.output
    assert "Not looked at, as it is a link to elsewhere: data/prepared" in done.output
    assert not STALE.exists()
    assert (outside / "keep/responses.parquet").exists()
    assert (outside / "shared/movies5.0123456789ab.parquet").exists()


def test_files_of_other_names_stay(plan: Plan) -> None:
    others = [paths.RESPONSES / "notes.txt", STALE.parent / "mine", paths.MODELS / "my-model", paths.PREPARED / "a.csv"]
    for path in others:
        _fill(path)
    _clean("--yes")
    assert all(path.exists() for path in others)
