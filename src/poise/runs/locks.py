"""Locks of runs that were killed: Snakemake leaves them behind, and nobody should have to type ``--unlock``. Light."""

from __future__ import annotations

import fcntl
import os
import platform
from contextlib import suppress
from pathlib import Path

from poise.errors import PoiseError

_STATE = Path(".snakemake")


def free_stale_locks(state: Path = _STATE) -> int:
    """Remove Snakemake's locks from a folder if the runs that made them are dead; tell how many there were.

    Each run holds a lock of the kernel's on one file for as long as it lives, shared with other runs. Whoever gets
    that lock alone knows that no other run is alive. Nothing is removed if the last run was on another machine, as
    some file systems do not tell of its locks, or where there are no such locks.

    Parameters
    ----------
    state
        Snakemake's folder of the working directory.

    Raises
    ------
    PoiseError
        If nothing can be written there.
    """
    here = platform.node().encode()
    n_freed = 0
    try:
        state.mkdir(exist_ok=True)
        runs = os.open(state / "poise.runs", os.O_RDWR | os.O_CREAT, 0o666)  # open until this process ends
    except OSError as error:
        raise PoiseError(
            f"{error.filename}: {error.strerror}; results, logs and .snakemake are written in the folder that "
            f"Snakemake runs in: use one that you may write to"
        ) from error
    with suppress(OSError):  # another run is alive, or this file system has no such locks
        fcntl.flock(runs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(runs, 1000) == here:
            for lock in state.glob("locks/*.lock"):
                lock.unlink(missing_ok=True)
                n_freed += 1
    with suppress(OSError):
        fcntl.flock(runs, fcntl.LOCK_SH)
        os.ftruncate(runs, 0)
        os.pwrite(runs, here, 0)
    return n_freed
