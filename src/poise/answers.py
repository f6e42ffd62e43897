"""Answers of a batch, cut back into cells: class probabilities in class order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import softmax

from poise import paths
from poise.errors import PoiseError
from poise.files import read_parquet
from poise.plan import Batch, Cell, Plan
from poise.prompts.render import label_position


@dataclass(frozen=True)
class CellAnswers:
    """What a model answered in one cell; rows in the data set's order.

    Attributes
    ----------
    rows
        Row ids, shape (n,).
    labels
        True class indices, shape (n,).
    probabilities
        Class probabilities normalised over the classes, float32, shape (n, n_classes), columns in class order.
    greedy
        Class that greedy decoding would write, or -1 where it would write no label, shape (n,).
    label_mass
        Probability that the model writes any label at all, shape (n,).
    regrouped
        Class probabilities of the rows that were asked again in another grouping, NaN elsewhere; same shape as
        ``probabilities``.
    """

    rows: np.ndarray
    labels: np.ndarray
    probabilities: np.ndarray
    greedy: np.ndarray
    label_mass: np.ndarray
    regrouped: np.ndarray

    def rounded(self, decimals: int | None) -> CellAnswers:
        """Round probabilities as the DNIP authors' text files do (``%.6f``); None leaves them as they are."""
        if decimals is None:
            return self
        return replace(self, probabilities=np.round(self.probabilities.astype(np.float64), decimals).astype(np.float32))

    @property
    def predictions(self) -> np.ndarray:
        """Most probable class; ties go to the lowest index."""
        return self.probabilities.argmax(axis=1)


def read_answers(plan: Plan, cells: Iterable[Cell]) -> dict[str, CellAnswers]:
    """Answers by cell id, from the batches that hold them."""
    by_batch: dict[str, list[Cell]] = {}
    for cell in cells:
        by_batch.setdefault(plan.batch_of[cell.id].id, []).append(cell)
    found: dict[str, CellAnswers] = {}
    for batch_id, members in by_batch.items():
        batch = _BatchFiles.read(plan.batch_by_id[batch_id])
        for cell in members:
            n_classes = len(plan.study.datasets[cell.dataset].classes)
            found[cell.id] = batch.cell(cell, n_classes)
    return found


def read_demonstrations(plan: Plan, cells: Iterable[Cell]) -> dict[str, list[int]]:
    """Class indices of each cell's demonstrations, in prompt order."""
    found: dict[str, list[int]] = {}
    files: dict[str, pd.DataFrame] = {}
    for cell in cells:
        batch = plan.batch_of[cell.id]
        if batch.id not in files:
            files[batch.id] = read_parquet(paths.batch_dir(batch.model, batch.id) / "demonstrations.parquet")
        rows = files[batch.id]
        found[cell.id] = rows[rows["cell"] == cell.id].sort_values("rank")["label"].tolist()
    return found


@dataclass(frozen=True)
class _BatchFiles:
    name: str
    index: Mapping[str, pd.DataFrame]
    responses: pd.DataFrame
    regrouped: pd.DataFrame

    @classmethod
    def read(cls, batch: Batch) -> _BatchFiles:
        folder = paths.batch_dir(batch.model, batch.id)
        index = read_parquet(folder / "index.parquet")
        responses = read_parquet(folder / "responses.parquet").set_index("request")
        missing = set(index["request"]) - set(responses.index)
        if missing:
            raise PoiseError(f"{folder}: {len(missing)} requests have no response; delete the folder and run again")
        regrouped = read_parquet(folder / "regrouped.parquet").set_index("request")
        return cls(batch.id, dict(list(index.groupby("cell", sort=False))), responses, regrouped)

    def cell(self, cell: Cell, n_classes: int) -> CellAnswers:
        index = self.index.get(cell.id)
        if index is None:
            raise PoiseError(f"batch {self.name}: no rows of cell {cell.id}; delete its folder and run again")
        answers = self.responses.loc[index["request"]]
        # Stored in prompt-label order; column c of the result is the label that means class c.
        columns = [label_position(c, n_classes, cell.label_order) for c in range(n_classes)]
        greedy = answers["greedy"].to_numpy(dtype=int)
        again = self.regrouped.reindex(index["request"])["logprobs"]
        blank = np.full(n_classes, np.nan)
        return CellAnswers(
            rows=index["row"].to_numpy(),
            labels=index["label"].to_numpy(dtype=int),
            probabilities=class_probabilities(np.stack(answers["logprobs"].tolist()), columns),
            greedy=np.array([-1 if k < 0 else columns.index(k) for k in greedy]),
            label_mass=answers["label_mass"].to_numpy(dtype=float),
            regrouped=class_probabilities(
                np.stack([value if isinstance(value, np.ndarray) else blank for value in again]), columns
            ),
        )


def class_probabilities(logprobs: np.ndarray, columns: list[int]) -> np.ndarray:
    """Normalise label log-probabilities over the labels and put them in class order (float32)."""
    return softmax(logprobs.astype(np.float64), axis=1)[:, columns].astype(np.float32)
