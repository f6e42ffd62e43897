"""How the package's kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile at the first call, kept on disk; without the GIL, and with IEEE division instead of checks."""
    return cast(F, njit(cache=True, nogil=True, error_model="numpy")(function))
