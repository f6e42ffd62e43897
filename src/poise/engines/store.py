"""Answers on disk while a batch runs: one small Parquet part for each flush, merged at the end.

A part holds whole micro-batches, numbered by their place in the fixed list. After a kill the parts that are readable
are kept; the rest is asked again, in the same micro-batches, so the merged file has the same bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from poise.engines.base import LabelScores
from poise.errors import PoiseError
from poise.files import read_parquet, write_parquet


class PartStore:
    """Parts of one unfinished batch.

    Parameters
    ----------
    folder
        Where the parts lie; made when the first is written.
    fingerprint
        Digest of the list of micro-batches. Parts of another list are discarded.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder = folder / fingerprint
        for other in folder.glob("*"):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        self.scores: dict[int, list[LabelScores]] = {}
        self.n_damaged = 0
        for path in sorted(self.folder.glob("*.parquet")):
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            frame = read_parquet(path)
            groups = frame.groupby("micro_batch", sort=True)
            loaded = {
                int(number): [
                    LabelScores(np.array(logprobs), int(greedy))
                    for logprobs, greedy in zip(rows["logprobs"], rows["greedy"], strict=True)
                ]
                for number, rows in groups
            }
        except (PoiseError, KeyError, ValueError):
            self.n_damaged += 1
            path.unlink(missing_ok=True)
        else:
            self.scores.update(loaded)

    def write(self, pending: Mapping[int, Sequence[LabelScores]]) -> None:
        """Flush some whole micro-batches into a part of their own."""
        rows = [
            {"micro_batch": number, "logprobs": scores.logprobs, "greedy": scores.greedy}
            for number, answers in sorted(pending.items())
            for scores in answers
        ]
        write_parquet(self.folder / f"{min(pending):06d}.parquet", pd.DataFrame(rows))
        self.scores.update({number: list(answers) for number, answers in pending.items()})
