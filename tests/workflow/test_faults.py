"""What may happen to a run: kills, a full disk, damaged files, a second run, a folder that cannot be written."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from poise.plan import Plan
from tests.conftest import ROOT, Workplace
from tests.workflow.kills import DUMMY, FLUSH_SECONDS, Killed, results, run_with_kills

pytestmark = pytest.mark.slow
N_KILLS = 5
RUN = ("--config", "study=faults")


def test_killed_at_random_moments_it_gives_the_same_bytes(
    demo_plan: Plan, workplace: Workplace, tmp_path: Path
) -> None:
    started = time.monotonic()
    undisturbed = Killed(workplace)
    assert undisturbed.run() is None
    seconds = time.monotonic() - started
    expected, n_asked = results(workplace.folder), sum(n for _, n in undisturbed.asked())
    assert len(expected) > 20
    moments, n_kills = random.Random(3), 0
    for number in range(N_KILLS):  # a study that ends before all kills is begun again elsewhere
        killed = Killed(Workplace(tmp_path / f"killed-{number}"))
        kills = []
        if n_kills == 0:  # the first is no chance: in the middle of a batch
            kill = killed.run(lambda _, place=killed: place.kept() > 0)
            assert kill is not None
            assert 0 < killed.kept() < n_asked
            kills.append(kill)
        kills += run_with_kills(killed, moments, N_KILLS - n_kills - len(kills), 0.6 * seconds)
        if n_kills == 0:
            metas = (json.loads(path.read_text()) for path in killed.place.folder.rglob("meta.json"))
            assert any(0 < meta["resumed_requests"] < meta["requests"] for meta in metas)
        n_kills += len(kills)
        assert results(killed.place.folder) == expected
        assert sum(n for _, n in killed.asked()) == n_asked + sum(kill.lost for kill in kills)
        assert all(kill.lost_seconds < FLUSH_SECONDS for kill in kills), kills
        if n_kills == N_KILLS:
            break
    assert n_kills == N_KILLS


# --- with the test engine: the disk, damaged files, other runs -------------------------------------------------------


@pytest.fixture(scope="module")
def finished(demo_plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """The study, run to its end without disturbance."""
    place = planned(tmp_path_factory.mktemp("finished") / "work")
    done = place.snakemake(*RUN)
    assert done.returncode == 0, done.stderr
    return place


def planned(folder: Path) -> Workplace:
    place = Workplace(folder)
    done = place.poise("plan", *DUMMY)
    assert done.returncode == 0, done.stderr
    return place


def copy(place: Workplace, folder: Path) -> Workplace:
    """A copy of a workplace to damage, its prepared data too."""
    shutil.copytree(place.folder, folder, symlinks=True)
    (folder / "data/prepared").unlink()
    shutil.copytree(ROOT / "data/prepared", folder / "data/prepared")
    return Workplace(folder)


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A file system mounted on a folder for a while; skips where that is not allowed."""
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"not run: only root can mount a small or read-only disk ({done.stderr.strip()})")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    lines = {line for line in (done.stdout + done.stderr).splitlines() if line.startswith("poise: error: ")}
    return sorted(lines)


def test_a_full_disk(finished: Workplace, tmp_path: Path) -> None:
    """Stopped at several places by a full disk, it says so; with room again it gives the same bytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    with mounted(folder, "-t", "tmpfs", "-o", "size=24m", "tmpfs"):
        place = planned(folder)
        filler = folder / "filler"
        told = []
        for left_kb in (40, 300):
            disk = os.statvfs(folder)
            filler.write_bytes(bytes(disk.f_bavail * disk.f_frsize - left_kb * 1024))
            done = place.snakemake(*RUN)
            assert done.returncode != 0
            assert "a mistake of ours" not in done.stderr
            assert "No space left" in done.stderr or errors(done)
            told += errors(done)
            filler.unlink()
        assert told
        assert all("no space left on the disk; make room, then run the same command again" in line for line in told)
        done = place.snakemake(*RUN)
        assert done.returncode == 0, done.stderr
        assert results(folder) == results(finished.folder)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x55
    path.write_bytes(bytes(content))


DAMAGE = {
    "answers cut in half": ("results/responses/*/*/responses.parquet", truncate, ""),
    "a changed byte in a page of the index": ("results/responses/*/*/index.parquet", lambda path: flip(path, 60), ""),
    "a corrupt footer of predictions": (
        "results/faults/predictions/class_accuracy/*/*/dnip.parquet", lambda path: flip(path, -10), ""),
    "a prepared data set cut in half": ("data/prepared/movies5.*.parquet", truncate, "results/responses"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_file_is_named_and_made_anew(finished: Workplace, tmp_path: Path, what: str) -> None:
    pattern, damage, lost = DAMAGE[what]
    place = copy(finished, tmp_path / "work")
    for path in place.folder.glob(pattern):
        damage(path)
    if lost:
        shutil.rmtree(place.folder / lost)
    done = place.poise("plan", *DUMMY) if lost else place.snakemake(*RUN)
    assert done.returncode != 0
    (line,) = {line.split(": ", 3)[2] for line in errors(done)}
    damaged = place.folder / line
    assert damaged in set(place.folder.glob(pattern))
    assert all(line.endswith("; delete it and run again") for line in errors(done))
    for path in place.folder.glob(pattern):
        path.unlink()
    done = place.snakemake(*RUN)
    assert done.returncode == 0, done.stderr
    assert shown(place) == shown(finished)


def shown(place: Workplace) -> dict[str, bytes]:
    """Bytes of tables and figures: what they are made from is not made again where nothing needs it."""
    return {name: content for name, content in results(place.folder).items() if "/tables/" in name or "figures" in name}


def test_a_second_run_in_the_same_folder_is_refused(finished: Workplace, tmp_path: Path) -> None:
    place = planned(tmp_path / "work")
    first = subprocess.Popen(
        place.snakemake_command(*RUN), cwd=place.folder, env=place.environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    locks = place.folder / ".snakemake/locks"
    while not list(locks.glob("*.lock")):
        assert first.poll() is None
        time.sleep(0.05)
    second = place.snakemake(*RUN)
    assert second.returncode != 0
    assert "make sure that no other Snakemake process" in second.stderr
    _, told = first.communicate(timeout=120)
    assert first.returncode == 0, told
    assert results(place.folder) == results(finished.folder)


def test_a_read_only_folder_is_told(finished: Workplace, tmp_path: Path) -> None:
    place = copy(finished, tmp_path / "work")
    folder = place.folder
    with mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        planning = place.poise("plan", *DUMMY, "seeds=[0,1]")
        assert planning.returncode == 2
        (line,) = planning.stderr.splitlines()
        assert line.startswith("poise: error: results/faults/plans/")
        assert line.endswith("Read-only file system")
        run = place.snakemake(*RUN)
        assert run.returncode != 0
        assert "Read-only file system; results, logs and .snakemake are written in the folder" in run.stderr
        assert "Traceback" not in run.stderr
        weights = place.poise("fit", "p.csv", "l.csv", "-o", "w.json")
        assert weights.returncode == 2
    (folder / "results/faults/tables/dnip_table3.md").unlink()
    done = place.snakemake(*RUN)
    assert done.returncode == 0, done.stderr
    assert results(folder) == results(finished.folder)
