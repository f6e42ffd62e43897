"""Progress over a whole run, in one line now and then: prompts asked, steps done, about how long it will take still.

The main process watches: Snakemake's log says which jobs start and end, and the parts that extractions flush, on other
nodes too, say how many prompts are answered. Light; nothing here can stop a run.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from threading import Event, Thread
from typing import Any

from poise import paths
from poise.plan import Batch, Plan
from poise.planfile import is_answered
from poise.rates import requests_per_second

SECONDS_BETWEEN = 15.0
# First guess of the seconds of a step that only reads and writes tables. Downloads and weights can take any time.
_LIGHT_SECONDS = 3.0
_ANY_TIME = frozenset({"download_package", "prepare_model"})


@dataclass(frozen=True)
class Work:
    """What is left of one kind of work.

    Attributes
    ----------
    left
        Prompts or steps.
    seconds
        Seconds of each; None if not known yet.
    lanes
        How many are done side by side.
    """

    left: float
    seconds: float | None
    lanes: int = 1


def seconds_left(works: Iterable[Work]) -> float | None:
    """Seconds until all is done, one kind of work after the other; None if one is not known yet."""
    total = 0.0
    for work in works:
        if work.left <= 0:
            continue
        if work.seconds is None:
            return None
        total += work.left * work.seconds / max(1, work.lanes)
    return total


def duration(seconds: float | None) -> str:
    """Seconds as people say them: ``about 40 s``, ``about 6 min``, ``about 2 h 10 min``; ``?`` if not known."""
    if seconds is None:
        return "?"
    if seconds < 55:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"about {max(1, minutes)} min"
    hours, minutes = divmod(10 * round(seconds / 600), 60)
    return f"about {hours} h {minutes} min" if minutes and hours < 10 else f"about {round(seconds / 3600)} h"


@dataclass
class _Extraction:
    """Prompts of one batch, as its folder tells; ``n_prompts`` is None where the plan leaves it to the data."""

    batch: Batch
    n_prompts: int | None
    told: bool = False  # by the extraction itself: the plan counts equal prompts of its cells more than once
    n_answered: int = 0
    since: tuple[float, int] | None = None  # when it was first seen asking, and what was answered then
    seconds: float = 0.0
    parts: dict[Path, int] = field(default_factory=dict)

    @property
    def n_left(self) -> int | None:
        """Prompts to ask still; None if not known yet."""
        return None if self.n_prompts is None else max(0, self.n_prompts - self.n_answered)

    @property
    def n_new(self) -> int:
        """Prompts answered in ``seconds``."""
        return self.n_answered - self.since[1] if self.since else 0

    def look(self, now: float) -> None:
        """Read how far the batch is."""
        folder = paths.batch_dir(self.batch.model, self.batch.id)
        if is_answered(self.batch):
            self.n_answered = sum(_rows(folder / f"{name}.parquet") for name in ("responses", "regrouped"))
            self.n_prompts, self.told, self.since = self.n_answered, True, None
            return
        for part in folder.glob("parts*/*/[0-9]*.parquet"):
            if part not in self.parts and not part.parts[-3].endswith("-located"):  # those belong to texts
                self.parts[part] = _rows(part)
        self.n_answered = max(self.n_answered, sum(self.parts.values()))
        with suppress(OSError, ValueError, KeyError, TypeError):  # not there yet, or not any more
            marker = json.loads((folder / "running.json").read_text(encoding="utf-8"))
            self.n_prompts, self.told = int(marker["answers"]), True
            if marker["doing"] == "asking" and self.since is None:
                self.since = now, self.n_answered
        if self.since is not None:
            self.seconds = now - self.since[0]


class Watch(logging.Handler):
    """Hears of a run's jobs as a handler of Snakemake's logger, looks at its batches, and says a line now and then.

    Parameters
    ----------
    plan
        The plan of this run.
    say
        Where a line goes.
    clock
        Seconds, monotonic.
    """

    def __init__(self, plan: Plan, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.INFO)
        self.plan, self.say, self.clock = plan, say, clock
        self.failed: dict[int, tuple[str, list[str]]] = {}  # rule and logs by job; one that is tried again may end well
        self._left: Counter[str] = Counter()
        self._n_steps = 0
        self._running: dict[int, tuple[str, float]] = {}
        self._seconds: dict[str, list[float]] = {}
        self._busy: Counter[str] = Counter()  # by kind of work, now and at most
        self._lanes: Counter[str] = Counter()
        self._extractions: list[_Extraction] = []
        self._last = ""
        self._over = Event()

    def expect(self, rules: Iterable[str], batches: Collection[str]) -> None:
        """Take note of the steps of this run, one rule each, and of the batches that they ask."""
        self._left = Counter(rules)
        self._n_steps = self._left.total()
        self._extractions = [_Extraction(self.plan.batch_by_id[name], _planned(self.plan, name)) for name in batches]

    # Hearing --------------------------------------------------------------------------------------------------------

    def emit(self, record: logging.LogRecord) -> None:
        """Take up what Snakemake says of a job."""
        with suppress(Exception):
            self._hear(vars(record))

    def _hear(self, told: dict[str, Any]) -> None:
        event = str(told.get("event", ""))
        if event == "job_info":
            rule = told["rule_name"]
            self._running[told["jobid"]] = (rule, self.clock())
            self._busy[_kind(rule)] += 1
            self._lanes[_kind(rule)] = max(self._lanes[_kind(rule)], self._busy[_kind(rule)])
        elif event == "job_finished":
            self.failed.pop(told["job_id"], None)
            rule, started = self._running.pop(told["job_id"])
            self._busy[_kind(rule)] -= 1
            self._seconds.setdefault(rule, []).append(self.clock() - started)
            self._left[rule] -= 1
        elif event == "job_error":
            self.failed[told["jobid"]] = (told["rule_name"], [str(path) for path in told.get("log") or []])
            rule, _ = self._running.pop(told["jobid"])
            self._busy[_kind(rule)] -= 1

    # Saying ---------------------------------------------------------------------------------------------------------

    def start(self, jobs: Iterable[Any]) -> None:
        """Say a line every quarter of a minute, where something changed, until :meth:`stop`.

        Parameters
        ----------
        jobs
            Snakemake's jobs of this run. Their own progress bars are off: several would write over each other.
        """
        with suppress(Exception):  # no mistake here is worth a run
            known = list(jobs)
            batches = sorted({job.wildcards.batch for job in known if job.rule.name == "extract"})
            self.expect((job.rule.name for job in known), batches)
        os.environ.setdefault("TQDM_DISABLE", "1")
        Thread(target=self._watch, name="poise-progress", daemon=True).start()

    def stop(self) -> None:
        """Say no more."""
        self._over.set()

    def _watch(self) -> None:
        with suppress(Exception):
            self.look()
        while not self._over.wait(SECONDS_BETWEEN):
            with suppress(Exception):
                self.look()
                line = self.line()
                if line != self._last and not self._over.is_set():
                    self._last = line
                    self.say(f"poise: {line}")

    def look(self) -> None:
        """Read from the batches' folders how far they are."""
        for extraction in self._extractions:
            if not extraction.told or extraction.n_left:
                extraction.look(self.clock())

    def line(self) -> str:
        """How far the run is: ``2,410 of 6,171 prompts asked, 37 of 118 steps done, about 6 min left``."""
        n_done = self._n_steps - sum(self._left.values())
        parts = [f"{n_done:,} of {self._n_steps:,} steps done", self._time_left()]
        if self._extractions:
            n_answered = sum(extraction.n_answered for extraction in self._extractions)
            sizes = [extraction.n_prompts for extraction in self._extractions]
            about = "" if all(extraction.told for extraction in self._extractions) else "about "
            of = "" if None in sizes else f" of {about}{sum(n or 0 for n in sizes):,}"
            parts.insert(0, f"{n_answered:,}{of} prompts asked")
        return ", ".join(parts)

    def _time_left(self) -> str:
        left = seconds_left([*self._asking(), *self._steps()])
        return "time left: ?" if left is None else f"{duration(left)} left"

    def _asking(self) -> list[Work]:
        """Prompts left of each model, at the pace of those being asked, or else of finished batches."""
        works = []
        for model in dict.fromkeys(extraction.batch.model for extraction in self._extractions):
            own = [extraction for extraction in self._extractions if extraction.batch.model == model]
            left = [extraction.n_left for extraction in own]
            n_new = sum(extraction.n_new for extraction in own)
            seconds = sum(extraction.seconds for extraction in own if extraction.n_new)
            pace = seconds / n_new if n_new else self._earlier_pace(model)
            known = None not in left
            works.append(
                Work(sum(n or 0 for n in left) if known else 1, pace if known else None, self._lanes["asking"])
            )
        return works

    def _earlier_pace(self, model: str) -> float | None:
        rate = requests_per_second(model, self.plan.study.engine_of(self.plan.study.models[model]).kind)
        return 1 / rate if rate else None

    def _steps(self) -> list[Work]:
        """Steps left by rule, as long as those of their kind took."""
        light = [s for rule, seconds in self._seconds.items() if _kind(rule) == "light" for s in seconds]
        guess = fmean(light) if light else _LIGHT_SECONDS
        works = []
        for rule, left in self._left.items():
            if rule in ("extract", "all"):
                continue
            seconds = self._seconds.get(rule)
            mean = fmean(seconds) if seconds else None if rule in _ANY_TIME else guess
            works.append(Work(left, mean, self._lanes[_kind(rule)]))
        return works


def _kind(rule: str) -> str:
    return "asking" if rule == "extract" else "fetching" if rule in _ANY_TIME else "light"


def _planned(plan: Plan, batch: str) -> int | None:
    """Prompts of a batch before it says so itself: those of its cells, some of which may be the same."""
    cells = [plan.cell_by_id[cell] for cell in plan.batch_by_id[batch].cells if cell in plan.cell_by_id]
    known = [cell.rows * cell.parts for cell in cells if cell.rows is not None]
    return sum(known) if len(known) == len(cells) else None


def _rows(path: Path) -> int:
    """Rows of a Parquet file; none if it cannot be read now."""
    from pyarrow import parquet

    try:
        return int(parquet.read_metadata(path).num_rows)
    except (OSError, ValueError):  # pyarrow's own errors are among these
        return 0
