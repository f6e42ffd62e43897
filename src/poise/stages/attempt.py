"""One try at a batch: if it ends early, one line says why, what is kept and what to do."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from poise.config.engines import EngineConfig
from poise.engines.memory import Doing, grouping, memory_advice, memory_error
from poise.errors import PoiseError
from poise.files import write_json

AGAIN = "run the same command again"


class Stopped(SystemExit):
    """A signal asked to stop: the exit status is 128 and the signal's number, 143 for SIGTERM."""


class Attempt:
    """Context of one try at a batch.

    A small file in the batch's folder says what is being done. It is removed at every end that this process can see,
    so one that is found at the start tells of a kill. SIGTERM and SIGINT raise :class:`Stopped`; errors about memory
    become a :class:`PoiseError` that names the setting to change.

    Parameters
    ----------
    folder
        Folder of the batch.
    model, config
        Name of the model, and the engine that asks it.
    n_answers
        Answers that the batch needs.
    """

    def __init__(self, folder: Path, model: str, config: EngineConfig, n_answers: int) -> None:
        self.folder, self.model, self.config, self.n_answers = folder, model, config, n_answers
        self.marker = folder / "running.json"
        self.device = "this machine"
        self.now: Doing | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    def doing(self, what: Doing) -> None:
        """Note what is being done; the first time, tell of a last try that ended without a word."""
        if self.now is None and self.marker.exists():
            self._tell_of_the_last()
        self.now = what
        write_json(self.marker, {"doing": what, "answers": self.n_answers, **grouping(self.config)})

    def __enter__(self) -> Attempt:
        """Keep others from this batch, and listen to signals."""
        from filelock import FileLock, Timeout

        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / ".lock")
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise PoiseError(
                f"{self.folder}: another process asks this batch right now; wait for its end, then {AGAIN}"
            ) from None
        if threading.current_thread() is threading.main_thread():  # elsewhere Python forbids it
            for number in (signal.SIGTERM, signal.SIGINT):
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Say why it ended, if it ended early."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        (self.folder / ".lock").unlink(missing_ok=True)  # while it is held: whoever comes next makes a new one
        self._lock.release()
        if self.now is not None:
            self.marker.unlink(missing_ok=True)
        if isinstance(error, Stopped):
            say(f"stopped by a signal; {self._kept()}; {AGAIN}")
        elif self.now is not None and isinstance(error, Exception) and (what := memory_error(error)):
            lasting = self.now == "asking" and "pack_tokens" not in grouping(self.config)
            kept = f" ({self._kept()})" if lasting else ""
            raise PoiseError(
                f"model {self.model}: {what} on {self.device} while {self.now}; "
                f"{memory_advice(self.config, self.now, error)}, then {AGAIN}{kept}"
            ) from error

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        for handled in self._handlers:
            signal.signal(handled, signal.SIG_IGN)  # what is left to do is short: nothing may cut it
        raise Stopped(128 + number)

    def _tell_of_the_last(self) -> None:
        try:
            left = json.loads(self.marker.read_text(encoding="utf-8"))
            left.pop("answers", None)  # for who watches
            was: Doing = "loading" if left.pop("doing") == "loading" else "asking"
        except (AttributeError, KeyError, ValueError):
            left, was = {}, "asking"
        changed = [f"engine.{key} was {left[key]}" for key in left if left[key] != grouping(self.config).get(key)]
        kept = f"its answers are asked anew, as {', '.join(changed)}" if changed else self._kept()
        say(
            f"the last run of this batch ended without a word while {was} (killed? out of memory?): {kept}; if memory "
            f"ran out, {memory_advice(self.config, was)}"
        )

    def _kept(self) -> str:
        """How many answers are on disk, in words."""
        n_kept = kept_answers(self.folder)
        return f"{min(n_kept, self.n_answers):,} of {self.n_answers:,} answers are kept"


def kept_answers(folder: Path) -> int:
    """Answers that a stopped batch has on disk."""
    parts = folder.glob("parts*/*/[0-9]*.parquet")
    return sum(_rows(part) for part in parts if not part.parts[-3].endswith("-located"))  # those belong to texts


def say(line: str) -> None:
    """Tell the user one line, and the job's log too."""
    print(f"poise: {line}", file=sys.stderr, flush=True)
    logging.getLogger("poise").info(line)


def _rows(part: Path) -> int:
    """Answers in one part; none if a kill damaged it."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return int(parquet.read_metadata(part).num_rows)
    except (pa.ArrowException, OSError, ValueError):
        return 0
