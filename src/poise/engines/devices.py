"""GPUs and CPU cores of this machine, and whose turn it is to use them. Light: no engine is imported here."""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from poise.config.engines import EngineConfig
from poise.errors import PoiseError

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPU = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")
# A batch system gives a job devices of its own, and numbers them from 0 in every job.
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_SECONDS_BETWEEN_LOOKS = 0.5


def gpus_wanted(config: EngineConfig) -> int:
    """GPUs that one extraction takes where there are any; 0 for engines that load no weights."""
    if config.kind == "vllm":
        return config.tensor_parallel
    return int(config.kind == "transformers")


def visible_gpus(root: Path = Path("/")) -> list[str]:
    """GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them: indices or UUIDs.

    If that is not set, all of the machine; ``root`` is where its ``dev`` and ``proc`` lie.
    """
    if _VISIBLE in os.environ:
        names: list[str] = []
        for name in os.environ[_VISIBLE].split(","):
            if not _GPU.fullmatch(name.strip()):
                break  # CUDA too stops here: "-1" and what else is no GPU hide all that follow
            names.append(name.strip())
        return list(dict.fromkeys(names))
    nodes = [path for path in root.glob("dev/nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return [str(k) for k in range(len(nodes or list(root.glob("proc/driver/nvidia/gpus/*"))))]


def available_cores() -> int:
    """CPU cores that this process may use."""
    return len(_cores())


@contextmanager
def claim(n_gpus: int, say: Callable[[str], None]) -> Iterator[str]:
    """Take GPUs, or the CPU where none is visible, for one extraction; wait while others of this user have them.

    Locks of the operating system hold the devices, so a process that is killed leaves none behind. While they are held
    CUDA_VISIBLE_DEVICES names the GPUs that were taken. Claims within claims of one process get the same devices.

    Parameters
    ----------
    n_gpus
        GPUs to take; 0 takes nothing at all.
    say
        Is given one line if there is anything to wait for.

    Yields
    ------
    str
        What was taken, in words: "GPU 1", "the CPU"; "this machine" if nothing was.

    Raises
    ------
    PoiseError
        If fewer GPUs are visible than are asked for.
    """
    if n_gpus == 0:
        yield "this machine"
        return
    gpus = visible_gpus()
    if n_gpus > max(1, len(gpus)):
        shown = f" ({_VISIBLE}={os.environ[_VISIBLE]!r})" if _VISIBLE in os.environ else ""
        raise PoiseError(
            f"engine.tensor_parallel: {n_gpus} GPUs are asked for, found {len(gpus)} here{shown}; lower it, or make "
            f"more GPUs visible"
        )
    cpu = f"cpu-{sum(1 << core for core in _cores()):x}"
    with ExitStack() as held:
        taken = _wait([f"gpu-{gpu}" for gpu in gpus] or [cpu], n_gpus, held, say)
        names = [gpus[k] for k in taken] if gpus else []
        if names:
            held.enter_context(_environment(_VISIBLE, ",".join(names)))
        yield f"GPU{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else "the CPU"


def _wait(names: Sequence[str], n: int, held: ExitStack, say: Callable[[str], None]) -> list[int]:
    """Lock ``n`` of some devices, all at once; give their places in the list."""
    from filelock import FileLock, Timeout

    folder = _lock_folder()
    told = False
    while True:
        with FileLock(folder / "turn.lock"), ExitStack() as free:  # one looks at a time, so none takes a part
            taken: list[int] = []
            for k, name in enumerate(names):
                lock = FileLock(folder / f"{_job()}{re.sub('[^A-Za-z0-9-]', '_', name)}.lock", is_singleton=True)
                try:
                    free.enter_context(lock.acquire(blocking=False))
                except Timeout:
                    continue
                taken.append(k)
                if len(taken) == n:
                    held.push(free.pop_all())
                    return taken
        if not told:
            say(_waiting(names, n))
            told = True
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _waiting(names: Sequence[str], n: int) -> str:
    if names[0].startswith("cpu"):
        return "waiting for the CPU: another extraction uses all its cores"
    if len(names) == 1:
        return "waiting for the GPU: another extraction uses it"
    if n == 1:
        return f"waiting for a GPU: all {len(names)} are in use by other extractions"
    return f"waiting for {n} GPUs: other extractions leave fewer of the {len(names)} free"


def _lock_folder() -> Path:
    """Folder of this user's locks, for no one else to write to."""
    folder = Path(tempfile.gettempdir()) / f"poise-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PoiseError(
            f"{folder}: expected a folder that you alone can write to; remove it, or set TMPDIR to another"
        )
    return folder


def _job() -> str:
    """Prefix of the locks of one job of a batch system, which shares devices with no other job; "" outside of one."""
    name = next((name for name in _JOBS if os.environ.get(name)), None)
    return "" if name is None else f"job-{re.sub('[^A-Za-z0-9-]', '_', os.environ[name])}-"


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
