"""Writing files whole or not at all: to a temporary name beside the target, then renamed."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poise.errors import PoiseError

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to ``path`` on success, remove it on any error.

    The temporary name keeps the suffix, so that writers which choose a format by it work unchanged.

    Raises
    ------
    PoiseError
        If the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    _remove(temporary)  # a killed process of the same number may have left it
    try:
        yield temporary
        temporary.replace(path)
    except Exception as error:
        if _is_full(error):
            raise PoiseError(
                f"{path}: no space left on the disk; make room, then run the same command again (what is done is kept)"
            ) from error
        raise
    finally:
        _remove(temporary)


def _is_full(error: BaseException | None) -> bool:
    """Whether the disk was full: writers fail in their own ways after it, and some keep the number only as words."""
    while error is not None:
        if isinstance(error, OSError) and (error.errno == errno.ENOSPC or os.strerror(errno.ENOSPC) in str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON (sorted keys, indented) atomically."""
    write_text(path, json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n")


def write_parquet(path: Path, frame: pd.DataFrame) -> None:
    """Write a Parquet file atomically, with the same bytes for the same frame."""
    with replacing(path) as temporary:
        frame.to_parquet(temporary, index=False, compression="zstd", write_page_checksum=True)


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file; one clear line when it is missing or damaged."""
    import pandas as pd
    import pyarrow as pa

    try:
        return pd.read_parquet(path, page_checksum_verification=True)
    except FileNotFoundError:
        raise PoiseError(f"{path}: file not found") from None
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise PoiseError(f"{path}: not a readable Parquet file ({reason}); delete it and run again") from error
