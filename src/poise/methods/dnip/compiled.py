"""How the package's kernels are compiled."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def _keep_beside_the_source() -> None:
    """Keep machine code in a folder named by the source of all kernels.

    Numba notices an edit of a kernel's own file only, and not of the files whose kernels it calls.
    """
    folder = Path(__file__).parent
    if "NUMBA_CACHE_DIR" in os.environ or not os.access(folder, os.W_OK):
        return
    state = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.py"))))
    numba.config.CACHE_DIR = str(folder / "__pycache__" / f"numba-{state.hexdigest()[:12]}")


_keep_beside_the_source()


def compiled(function: F) -> F:
    """Compile at the first call, kept on disk; without the GIL, and with IEEE division instead of checks."""
    return cast(F, njit(cache=True, nogil=True, error_model="numpy")(function))
