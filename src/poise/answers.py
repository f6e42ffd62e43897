"""Answers of a batch, cut back into cells: class probabilities, or what was chosen in each part of a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import softmax

from poise import paths
from poise.cells import Cell
from poise.errors import PoiseError
from poise.files import read_parquet
from poise.plan import Batch, Plan
from poise.prompts.parsing import parse_label
from poise.prompts.render import prompt_labels
from poise.prompts.scale import label_position


@dataclass(frozen=True)
class CellAnswers:
    """Scores that a model gave in one cell of one request a row; rows in the data set's order.

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
        Class probabilities of the rows that were asked again in another grouping, NaN elsewhere and where ``hard``;
        same shape as ``probabilities``.
    hard
        Whether some row has a label only and no probabilities, so that all are read as labels: probability 1 for the
        label, equal ones where none was found.
    """

    rows: np.ndarray
    labels: np.ndarray
    probabilities: np.ndarray
    greedy: np.ndarray
    label_mass: np.ndarray
    regrouped: np.ndarray
    hard: bool = False

    def rounded(self, decimals: int | None) -> CellAnswers:
        """Round probabilities as the DNIP authors' text files do (``%.6f``); None leaves them as they are."""
        if decimals is None:
            return self
        return replace(self, probabilities=np.round(self.probabilities.astype(np.float64), decimals).astype(np.float32))

    @property
    def predictions(self) -> np.ndarray:
        """Most probable class; ties go to the lowest index. Hard predictions are -1 where no label was found."""
        return self.greedy if self.hard else self.probabilities.argmax(axis=1)


@dataclass(frozen=True)
class CellChoices:
    """What a model chose in one cell, in each part of each row; rows in the data set's order.

    Attributes
    ----------
    rows
        Row ids, shape (n,).
    labels
        True class indices, shape (n,).
    choices
        Label chosen, as its position in the prompt: the most probable one, or the one parsed from a text; -1 where a
        text holds no label. Shape (n, n_parts).
    greedy
        Label that greedy decoding would write, or -1; that of the choice for a text. Same shape.
    hidden_tokens, visible_tokens
        Mean tokens of an answer, inside a thinking block and outside; NaN where labels are scored. Shape (n,).
    """

    rows: np.ndarray
    labels: np.ndarray
    choices: np.ndarray
    greedy: np.ndarray
    hidden_tokens: np.ndarray
    visible_tokens: np.ndarray


@dataclass(frozen=True)
class CellReadings:
    """Chains of thought of one cell, read at two places; rows in the data set's order.

    Attributes
    ----------
    rows
        Row ids, shape (n,).
    labels
        True class indices, shape (n,).
    at_label
        Most probable class where the last label of the text starts, shape (n,).
    after_label
        Most probable class one token too late, after that label (the DNIP authors' reading), shape (n,).
    matched
        Whether the text holds a label, shape (n,).
    text_only
        Whether a server told no tokens: then both are the last label of the text, -1 where there is none.
    """

    rows: np.ndarray
    labels: np.ndarray
    at_label: np.ndarray
    after_label: np.ndarray
    matched: np.ndarray
    text_only: bool


def read_answers(plan: Plan, cells: Iterable[Cell]) -> dict[str, CellAnswers]:
    """Scores by cell id, from the batches that hold them; texts are read as hard predictions."""
    return {
        cell.id: batch.answers(cell, prompt_labels(plan.prompts[cell.prompt], plan.classes(cell)))
        for batch, cell in _opened(plan, cells)
    }


def read_choices(plan: Plan, cells: Iterable[Cell]) -> dict[str, CellChoices]:
    """Choices by cell id, from the batches that hold them."""
    return {
        cell.id: batch.choices(cell, prompt_labels(plan.prompts[cell.prompt], plan.classes(cell)))
        for batch, cell in _opened(plan, cells)
    }


def read_readings(plan: Plan, cells: Iterable[Cell]) -> dict[str, CellReadings]:
    """Chains of thought by cell id, from the batches that hold them."""
    return {
        cell.id: batch.readings(cell, prompt_labels(plan.prompts[cell.prompt], plan.classes(cell)))
        for batch, cell in _opened(plan, cells)
    }


def read_reasons(plan: Plan, cells: Iterable[Cell]) -> dict[str, list[str]]:
    """Where the reasons of each cell's demonstrations are from, in prompt order: ``sentence`` or ``template``."""
    return {cell.id: batch.reasons(cell) for batch, cell in _opened(plan, cells)}


def read_demonstrations(plan: Plan, cells: Iterable[Cell]) -> dict[str, list[int]]:
    """Class indices of each cell's demonstrations, in prompt order."""
    return {cell.id: batch.demonstration_labels(cell) for batch, cell in _opened(plan, cells)}


def _opened(plan: Plan, cells: Iterable[Cell]) -> Iterator[tuple[_BatchFiles, Cell]]:
    files: dict[str, _BatchFiles] = {}
    for cell in cells:
        batch = plan.batch_of[cell.id]
        if batch.id not in files:
            files[batch.id] = _BatchFiles.read(batch)
        yield files[batch.id], cell


@dataclass(frozen=True)
class _BatchFiles:
    name: str
    index: Mapping[str, pd.DataFrame]
    responses: pd.DataFrame
    regrouped: pd.DataFrame
    demonstrations: Mapping[str, pd.DataFrame]

    @classmethod
    def read(cls, batch: Batch) -> _BatchFiles:
        folder = paths.batch_dir(batch.model, batch.id)
        index = read_parquet(folder / "index.parquet")
        responses = read_parquet(folder / "responses.parquet").set_index("request")
        missing = set(index["request"]) - set(responses.index)
        if missing:
            raise PoiseError(f"{folder}: {len(missing)} requests have no response; delete the folder and run again")
        regrouped = read_parquet(folder / "regrouped.parquet").set_index("request")
        demonstrations = read_parquet(folder / "demonstrations.parquet")
        return cls(batch.id, _by_cell(index), responses, regrouped, _by_cell(demonstrations))

    def answers(self, cell: Cell, labels: Sequence[str]) -> CellAnswers:
        index = self._index(cell)
        answers = self.responses.loc[index["request"]]
        n_classes = len(labels)
        # Stored in prompt-label order; column c of the result is the label that means class c.
        columns = [label_position(c, n_classes, cell.label_order) for c in range(n_classes)]
        greedy = np.array([-1 if k < 0 else columns.index(k) for k in _labels_written(cell, answers, labels)])
        blank = np.full(n_classes, np.nan)
        hard = bool(answers["logprobs"].isna().any())
        again = self.regrouped.reindex(index["request"])["logprobs"]
        # A label is not compared with probabilities, so what was asked again says nothing of hard predictions.
        known = [value if isinstance(value, np.ndarray) and not hard else blank for value in again]
        return CellAnswers(
            rows=index["row"].to_numpy(),
            labels=index["label"].to_numpy(dtype=int),
            probabilities=hard_probabilities(greedy, n_classes)
            if hard
            else class_probabilities(np.stack(answers["logprobs"].tolist()), columns),
            greedy=greedy,
            label_mass=answers["label_mass"].to_numpy(dtype=float),
            regrouped=class_probabilities(np.stack(known), columns),
            hard=hard,
        )

    def choices(self, cell: Cell, labels: Sequence[str]) -> CellChoices:
        index = self._index(cell)
        answers = self.responses.loc[index["request"]]
        greedy = _labels_written(cell, answers, labels)
        told = cell.decoding == "scores" and not answers["logprobs"].isna().any()
        chosen = np.stack(answers["logprobs"].tolist()).argmax(axis=1) if told else greedy
        n_parts = int(index["part"].max()) + 1
        first = index[index["part"] == 0]
        hidden = answers["n_hidden_tokens"].to_numpy(dtype=float, na_value=np.nan)
        tokens = answers["n_tokens"].to_numpy(dtype=float, na_value=np.nan)
        return CellChoices(
            rows=first["row"].to_numpy(),
            labels=first["label"].to_numpy(dtype=int),
            choices=chosen.reshape(-1, n_parts),
            greedy=greedy.reshape(-1, n_parts),
            hidden_tokens=hidden.reshape(-1, n_parts).mean(axis=1),
            visible_tokens=(tokens - hidden).reshape(-1, n_parts).mean(axis=1),
        )

    def readings(self, cell: Cell, labels: Sequence[str]) -> CellReadings:
        index = self._index(cell)
        answers = self.responses.loc[index["request"]]
        text_only = bool(answers["logprobs"].isna().any())
        if text_only:
            named = np.array([parse_label(text, labels, last=True) for text in answers["text"]])
            at_label, after_label, matched = named, named, named >= 0
        else:
            at_label = np.stack(answers["logprobs"].tolist()).argmax(axis=1)
            after_label = np.stack(answers["logprobs_after"].tolist()).argmax(axis=1)
            matched = answers["matched"].to_numpy(dtype=bool)
        true = index["label"].to_numpy(dtype=int)
        return CellReadings(index["row"].to_numpy(), true, at_label, after_label, matched, text_only)

    def reasons(self, cell: Cell) -> list[str]:
        rows = self.demonstrations.get(cell.id)
        return [] if rows is None else rows.sort_values("rank")["reason"].tolist()

    def demonstration_labels(self, cell: Cell) -> list[int]:
        rows = self.demonstrations.get(cell.id)
        return [] if rows is None else [int(label) for label in rows.sort_values("rank")["label"]]

    def _index(self, cell: Cell) -> pd.DataFrame:
        index = self.index.get(cell.id)
        if index is None:
            raise PoiseError(f"batch {self.name}: no rows of cell {cell.id}; delete its folder and run again")
        return index


def _by_cell(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(cell): group for cell, group in rows.groupby("cell", sort=False)}


def class_probabilities(logprobs: np.ndarray, columns: list[int]) -> np.ndarray:
    """Normalise label log-probabilities over the labels and put them in class order (float32)."""
    return softmax(logprobs.astype(np.float64), axis=1)[:, columns].astype(np.float32)


def hard_probabilities(greedy: np.ndarray, n_classes: int) -> np.ndarray:
    """Probability 1 for the class of each row; equal ones for a row without (-1): float32, shape (n, n_classes)."""
    found = np.full((len(greedy), n_classes), 1 / n_classes, dtype=np.float32)
    found[greedy >= 0] = np.eye(n_classes, dtype=np.float32)[greedy[greedy >= 0]]
    return found


def _labels_written(cell: Cell, answers: pd.DataFrame, labels: Sequence[str]) -> np.ndarray:
    """Position of the label that greedy decoding writes, or that a text names; -1 if there is none."""
    if cell.decoding == "scores":
        return answers["greedy"].to_numpy(dtype=int)
    parsed = {text: parse_label(text, labels) for text in answers["text"].unique()}
    return answers["text"].map(parsed).to_numpy(dtype=int)
