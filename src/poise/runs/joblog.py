"""The log of one job: what was asked of it, where and with which versions, how it ended and after how long."""

from __future__ import annotations

import logging
import os
import platform
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from poise import __version__

_PACKAGES = ("numpy", "pandas", "scipy", "torch", "transformers", "vllm")
_LOGGER = logging.getLogger("poise")


@contextmanager
def job_log(path: Path, verb: str, options: Mapping[str, object]) -> Iterator[None]:
    """Write the whole story of a job into a file, warnings and tracebacks too.

    Parameters
    ----------
    path
        The log; an older one is replaced.
    verb, options
        What the job does, and on what.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=path, filemode="w", level=logging.INFO, format="%(asctime)s %(message)s")
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a log that cannot be written, on a full disk, must not hide what is wrong
    words = " ".join([verb, *(f"{name}={value}" for name, value in options.items() if value is not None)])
    _LOGGER.info("poise %s: %s", __version__, words)
    _LOGGER.info("process %d on %s, in %s", os.getpid(), platform.node(), Path.cwd())
    _LOGGER.info("Python %s, %s", platform.python_version(), ", ".join(_versions()))
    started = time.monotonic()
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception):
            _LOGGER.error(traceback.format_exc())
        _LOGGER.error("stopped after %.1f s, error: %s", time.monotonic() - started, _one_line(error))
        raise
    _LOGGER.info("done in %.1f s", time.monotonic() - started)


def _versions() -> Iterator[str]:
    for name in _PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue


def _one_line(error: BaseException) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__
