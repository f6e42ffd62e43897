"""Locks that a killed run left are freed; those of a live run, or of another machine, stay."""

from __future__ import annotations

import platform
import stat
from pathlib import Path

import pytest

from poise.errors import PoiseError
from poise.runs.locks import free_stale_locks


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Snakemake's folder, with the two locks of a run."""
    state = tmp_path / ".snakemake"
    (state / "locks").mkdir(parents=True)
    for name in ("0.input.lock", "0.output.lock"):
        (state / "locks" / name).write_text("results/x\n")
    return state


def locks(state: Path) -> int:
    return len(list((state / "locks").glob("*.lock")))


def test_locks_of_a_dead_run_are_freed(state: Path) -> None:
    (state / "poise.runs").write_text(platform.node())
    assert free_stale_locks(state) == 2
    assert locks(state) == 0


def test_locks_of_a_live_run_stay(state: Path) -> None:
    (state / "poise.runs").write_text(platform.node())
    free_stale_locks(state)  # the run that lives as long as this process
    (state / "locks" / "0.input.lock").write_text("results/x\n")
    assert free_stale_locks(state) == 0
    assert locks(state) == 1


@pytest.mark.parametrize("last", ["", "another-machine"])
def test_locks_of_another_machine_or_of_nobody_known_stay(state: Path, last: str) -> None:
    (state / "poise.runs").write_text(last)
    assert free_stale_locks(state) == 0
    assert locks(state) == 2
    assert (state / "poise.runs").read_text() == platform.node()  # for the next one


def test_the_first_run_of_a_folder(tmp_path: Path) -> None:
    assert free_stale_locks(tmp_path / ".snakemake") == 0
    assert stat.S_ISREG((tmp_path / ".snakemake/poise.runs").stat().st_mode)


def test_a_place_that_cannot_hold_it_is_one_line(tmp_path: Path) -> None:
    (tmp_path / ".snakemake").write_text("a file")
    with pytest.raises(PoiseError, match=r"\.snakemake.*: use one that you may write to"):
        free_stale_locks(tmp_path / ".snakemake")
