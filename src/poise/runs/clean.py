"""What lies in ``results/responses``, ``data/prepared`` and ``data/models`` and no study's latest plan uses."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from poise import paths, planfile
from poise.errors import PoiseError
from poise.plan import Batch, Plan

_LOCKS = Path(".snakemake/locks")
_SOURCE = re.compile(r".+\.[0-9a-f]{12}(\.parquet)?")
_BATCH = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class Unused:
    """One batch, prepared data set or model that no plan uses.

    Attributes
    ----------
    kind
        ``batch``, ``data set`` or ``model``.
    size
        Bytes on disk.
    days
        Since it last changed.
    note
        For a batch its cells, and whether it has all of its answers.
    held
        Whether a process uses it, or may use it, right now.
    """

    kind: str
    path: Path
    size: int
    days: float
    note: str = ""
    held: bool = False


def find_unused() -> list[Unused]:
    """Everything that may be removed, batches first.

    Raises
    ------
    PoiseError
        If what is used cannot be known: a plan is damaged, there is none at all, or Snakemake is running here.
    """
    if _LOCKS.is_dir() and any(_LOCKS.iterdir()):
        raise PoiseError(
            f"{_LOCKS}: Snakemake is running here, or was killed; wait for its end, or run: snakemake --unlock"
        )
    plans = _latest_plans()
    batches = {paths.batch_dir(batch.model, batch.id) for plan in plans for batch in plan.batches}
    known = {batch.id: (batch, answered) for batch, answered in planfile.batches_on_disk()}
    found = [_batch(path, known.get(path.name)) for path in _folders(paths.RESPONSES, 2, _BATCH) if path not in batches]
    used = {paths.prepared_dataset(*item) for plan in plans for item in plan.dataset_digests.items()}
    used |= {paths.model_dir(*item) for plan in plans for item in plan.model_digests.items()}
    asking = any(_held(path) for path in _folders(paths.RESPONSES, 2, _BATCH))  # it reads data sets and a model
    for kind, folder in (("data set", paths.PREPARED), ("model", paths.MODELS)):
        found += [
            Unused(kind, path, *_size_and_age(path), held=asking)
            for path in _folders(folder, 1, _SOURCE)
            if path not in used
        ]
    return found


def describe(unused: list[Unused]) -> str:
    """List what is unused, a line each, and its size in all."""
    links = [str(folder) for folder in (paths.RESPONSES, paths.PREPARED, paths.MODELS) if _leads_outside(folder)]
    notes = [f"Not looked at, as it is a link to elsewhere: {link}" for link in links]
    if not unused:
        return "\n".join(["Nothing to clean: the latest plans use everything.", *notes])
    lines = ["No study's latest plan uses:"]
    for item in unused:
        details = [f"{item.days:.0f} days old", *filter(None, [item.note])]
        if item.held:
            details.append("kept: a process uses it right now")
        lines.append(f"  {item.kind:<9} {_megabytes(item.size):>12}  {item.path}  ({', '.join(details)})")
    lines.append(f"{_megabytes(sum(item.size for item in unused if not item.held)).strip()} can be freed.")
    return "\n".join([*lines, *notes])


def remove(item: Unused) -> bool:
    """Remove one; False if a process took it meanwhile, or it is gone or leads elsewhere."""
    from filelock import FileLock, Timeout

    if not item.path.exists() or _leads_outside(item.path):
        return False
    if item.kind != "batch":
        _remove_tree(item.path, "poise.json")
        return True
    lock = FileLock(item.path / ".lock")
    try:
        with lock.acquire(blocking=False):
            _remove_tree(item.path, "responses.parquet")
    except Timeout:
        return False
    if not any(item.path.parent.iterdir()):
        item.path.parent.rmdir()
    return True


def _remove_tree(path: Path, seal: str) -> None:
    """Remove a file or folder; first the file that says a folder is complete, as a kill may come in between."""
    if path.is_dir():
        (path / seal).unlink(missing_ok=True)
        shutil.rmtree(path)
    else:
        path.unlink()


def _latest_plans() -> list[Plan]:
    files = sorted(paths.RESULTS.glob("*/plan.json"))
    if not files:
        raise PoiseError(f"{paths.RESULTS}/*/plan.json: no plan here, so what is used cannot be known")
    try:
        return [planfile.load(path) for path in files]
    except PoiseError as error:
        raise PoiseError(f"{error}; until then what is used cannot be known, and nothing is removed") from error


def _folders(root: Path, depth: int, name: re.Pattern[str]) -> Iterator[Path]:
    """Entries of a certain depth and kind of name, none of them reached through a link."""
    for path in sorted(root.glob("/".join(["*"] * depth))):
        if name.fullmatch(path.name) and not _leads_outside(path):
            yield path


def _leads_outside(path: Path) -> bool:
    """Whether a path, or a folder above it up to the working directory, is a link."""
    return path.resolve() != Path.cwd().resolve() / path


def _batch(path: Path, known: tuple[Batch, bool] | None) -> Unused:
    note = "no readable manifest"
    if known is not None:
        batch, answered = known
        note = f"{len(batch.cells)} cells, {'answered' if answered else 'not finished'}"
    return Unused("batch", path, *_size_and_age(path), note, _held(path))


def _held(folder: Path) -> bool:
    """Whether a process asks this batch right now."""
    from filelock import FileLock, Timeout

    if not (folder / ".lock").exists():
        return False
    try:
        FileLock(folder / ".lock").acquire(blocking=False).lock.release()
    except Timeout:
        return True
    return False


def _size_and_age(path: Path) -> tuple[int, float]:
    """Bytes, and days since the last change, of a file or of all in a folder."""
    files = [file for file in (path, *path.rglob("*")) if file.is_file() and not file.is_symlink()]
    states = [file.stat() for file in files] or [path.stat()]
    newest = max(state.st_mtime for state in states)
    return sum(state.st_size for state in states), max(0.0, time.time() - newest) / 86_400


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
