"""Answers on disk while a batch runs: one small Parquet part for each flush, merged at the end.

A part holds whole micro-batches, numbered by their place in the fixed list. After a kill the parts that are readable
are kept; the rest is asked again, in the same micro-batches, so the merged file has the same bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Generic, TypeVar

import pandas as pd

from poise.engines.base import Generated, LabelScores
from poise.errors import PoiseError
from poise.files import read_parquet, write_parquet

Answer = TypeVar("Answer", LabelScores, Generated)


class PartStore(Generic[Answer]):
    """Parts of one unfinished batch.

    Parameters
    ----------
    folder
        Where the parts lie; made when the first is written.
    fingerprint
        Digest of the list of micro-batches. Parts of another list are discarded.
    kind
        What a part holds: a column for each field.
    """

    def __init__(self, folder: Path, fingerprint: str, kind: type[Answer]) -> None:
        self.folder = folder / fingerprint
        self.columns = [field.name for field in fields(kind)]
        for other in folder.glob("*"):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        self.answers: dict[int, list[Answer]] = {}
        self.n_damaged = 0
        for path in sorted(self.folder.glob("*.parquet")):
            self._load(path, kind)

    def _load(self, path: Path, kind: type[Answer]) -> None:
        try:
            loaded = {
                int(number): [kind(**row) for row in rows[self.columns].to_dict("records")]
                for number, rows in read_parquet(path).groupby("micro_batch", sort=True)
            }
        except (PoiseError, KeyError, ValueError):
            self.n_damaged += 1
            path.unlink(missing_ok=True)
        else:
            self.answers.update(loaded)

    def write(self, pending: Mapping[int, Sequence[Answer]]) -> None:
        """Flush some whole micro-batches into a part of their own."""
        rows = [
            {"micro_batch": number} | {name: getattr(answer, name) for name in self.columns}
            for number, answers in sorted(pending.items())
            for answer in answers
        ]
        write_parquet(self.folder / f"{min(pending):06d}.parquet", pd.DataFrame(rows))
        self.answers.update({number: list(answers) for number, answers in pending.items()})
