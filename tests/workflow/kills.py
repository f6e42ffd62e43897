"""A small study of the real model, killed at random moments, with an account of what was asked more than once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from pyarrow import parquet

from poise.stages.attempt import kept_answers
from tests.conftest import Workplace

FLUSH_SECONDS = 0.5
STUDY = [
    "study=demo", "name=faults", "seeds=[0]", "dataset=[movies5,tweets3]", "factor=[]",
    "experiment=[class_accuracy,position]", "method=[icl,dnip]", "experiment.class_accuracy.datasets=[movies5]",
    "experiment.class_accuracy.rows={optimisation:16,test:12}", "experiment.position.rows.test=4",
    "experiment.position.methods=[icl]", "experiment.position.content_free=[]", "experiment.position.floor_rows=4",
    "artefacts=[dnip_table3,dnip_figure8,position_table2,position_figure3]",
]  # fmt: skip
REAL = [*STUDY, "engine.pack_tokens=96", f"engine.flush_seconds={FLUSH_SECONDS}"]
DUMMY = [*STUDY, "engine=dummy"]
# In the processes of extractions alone: one line for each forward pass whose answers came back.
_SPY = """
import os, sys, time
if "extract" in sys.orig_argv:
    from poise.engines.transformers import TransformersEngine as Engine
    out = os.open(os.environ["POISE_TEST_ASKED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    score = Engine.score
    def told(self, queries, batch):
        found = score(self, queries, batch)
        os.write(out, f"{time.monotonic()} {len(found)}\\n".encode())
        return found
    Engine.score = told
"""


@dataclass(frozen=True)
class Kill:
    """One run that was killed.

    Attributes
    ----------
    seconds
        When, counted from its start.
    kept, answered
        Answers on disk before it, and those that it got.
    lost
        How many of them the next run asks again.
    lost_seconds
        From the first of the lost answers to the last but one: the last may have called for the flush.
    """

    seconds: float
    kept: int
    answered: int
    lost: int
    lost_seconds: float


class Killed:
    """A workplace whose runs are killed, and whose forward passes are counted."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self._asked = place.folder / "asked.txt"
        spy = place.folder / "spy"
        spy.mkdir()
        (spy / "sitecustomize.py").write_text(_SPY)
        self.environment = place.environment(PYTHONPATH=str(spy), POISE_TEST_ASKED=str(self._asked))
        assert place.poise("plan", *REAL).returncode == 0

    def run(self, kill_when: Callable[[float], bool] = lambda _: False) -> Kill | None:
        """Run the study as a user does; tell of the kill, or return None if the run came to its end before.

        Every process of the run is killed with SIGKILL: Snakemake, its jobs and theirs.

        Parameters
        ----------
        kill_when
            Whether to kill it now, given the seconds since its start.
        """
        kept, n_before = self.kept(), len(self.asked())
        output = self.place.folder / "output.txt"
        with output.open("w") as stream:
            running = subprocess.Popen(
                self.place.snakemake_command("--config", "study=faults"), cwd=self.place.folder, env=self.environment,
                stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            started = time.monotonic()
            while running.poll() is None and not kill_when(time.monotonic() - started):
                time.sleep(0.02)
            if running.poll() is not None:
                assert running.returncode == 0, output.read_text()
                return None
            _kill_session(running.pid)
            running.wait()
        new = self.asked()[n_before:]
        answered = sum(n for _, n in new)
        lost = kept + answered - self.kept()
        times: list[float] = []
        for moment, n in reversed(new):
            if lost <= sum(n for _, n in new[len(new) - len(times) :]):
                break
            times.append(moment)
            assert n > 0
        span = times[1] - times[-1] if len(times) > 1 else 0.0
        return Kill(time.monotonic() - started, kept, answered, lost, span)

    def asked(self) -> list[tuple[float, int]]:
        """Every forward pass so far: when its answers came, and how many."""
        if not self._asked.exists():
            return []
        rows = [line.split() for line in self._asked.read_text().splitlines()]
        return [(float(moment), int(n)) for moment, n in rows]

    def kept(self) -> int:
        """Answers on disk, in parts or whole."""
        n = 0
        for folder in (self.place.folder / "results/responses").glob("*/*"):
            whole = [folder / f"{name}.parquet" for name in ("responses", "regrouped")]
            if whole[0].exists():
                n += sum(parquet.read_metadata(path).num_rows for path in whole)
            else:
                n += kept_answers(folder)
        return n


def run_with_kills(killed: Killed, moments: random.Random, n_kills: int, longest: float) -> list[Kill]:
    """Kill run after run at random moments, then let the last one end.

    Parameters
    ----------
    moments
        Where the seconds of each kill are drawn from, up to ``longest``.

    Returns
    -------
    list of Kill
        Fewer than ``n_kills`` if the study was finished before.
    """
    kills: list[Kill] = []
    while len(kills) < n_kills:
        moment = moments.uniform(0.5, longest)
        kill = killed.run(lambda seconds, moment=moment: seconds >= moment)
        if kill is None:
            return kills
        kills.append(kill)
    killed.run()
    return kills


def results(folder: Path) -> dict[str, bytes]:
    """Bytes of everything that a study gives: tables, figures, metrics, predictions, answers; not the seconds taken."""
    found = [path for name in ("results", "figures") for path in (folder / name).rglob("*") if path.is_file()]
    kinds = (".csv", ".md", ".html", ".tex", ".png", ".pdf", ".parquet")
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(found) if path.suffix in kinds}


def _kill_session(leader: int) -> None:
    """Kill all processes of a session, also those that they start in the meantime."""
    while True:
        alive = [process.pid for process in psutil.process_iter(["status"]) if _in_session(process, leader)]
        if not alive:
            return
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _in_session(process: psutil.Process, leader: int) -> bool:
    try:
        return os.getsid(process.pid) == leader and process.info["status"] != psutil.STATUS_ZOMBIE
    except ProcessLookupError:
        return False
