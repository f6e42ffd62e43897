"""Batches on disk whose answers are given by hand, as the extraction stage writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from poise import paths
from poise.cells import Cell
from poise.files import write_parquet
from poise.plan import Plan

# One label position for each part of each row of a cell, -1 where a text holds no label.
Choose = Callable[[Cell], Sequence[Sequence[int]]]


def plant(
    plan: Plan,
    labels: Sequence[int],
    choose: Choose,
    n_positions: int = 3,
    greedy: dict[int, int] | None = None,
    label_mass: Sequence[float] | None = None,
    regrouped: dict[int, int] | None = None,
    tokens: dict[str, tuple[int, int]] | None = None,
    demonstrations: Sequence[int] = (),
) -> None:
    """Write every batch of a plan.

    Parameters
    ----------
    plan
        The plan; its numeric labels are written as texts.
    labels
        True class of each row.
    choose
        What was chosen.
    n_positions
        Labels that a scored prompt offers.
    greedy
        Rows whose greedy label is another than the chosen one.
    label_mass
        One a row; 0.5 without it.
    regrouped
        Rows asked again, with the label chosen then, in the cells that ask again.
    tokens
        New and hidden tokens of a text, by decoding.
    demonstrations
        Class of each demonstration, in prompt order.
    """
    for batch in plan.batches:
        index: list[tuple[Any, ...]] = []
        responses: list[dict[str, Any]] = []
        again: list[dict[str, Any]] = []
        for cell in (plan.cell_by_id[name] for name in batch.cells):
            for row, (label, parts) in enumerate(zip(labels, choose(cell), strict=True)):
                for part, chosen in enumerate(parts):
                    request = f"{cell.id}-{row}-{part}"
                    index.append((cell.id, f"row{row}", label, part, request))
                    answer = _blank(request)
                    if cell.decoding == "scores":
                        answer["logprobs"] = _peak(chosen, n_positions)
                        answer["greedy"] = (greedy or {}).get(row, chosen)
                        answer["label_mass"] = 0.5 if label_mass is None else label_mass[row]
                    else:
                        answer["text"] = f"It is {chosen + 1}." if chosen >= 0 else "No idea"
                        answer["n_tokens"], answer["n_hidden_tokens"] = (tokens or {}).get(cell.decoding, (1, 0))
                    responses.append(answer)
                    if cell.regrouped_rows and regrouped and row in regrouped:
                        again.append({**answer, "logprobs": _peak(regrouped[row], n_positions)})
        folder = paths.batch_dir(batch.model, batch.id)
        shown = [(cell, rank, f"d{rank}", label) for cell in batch.cells for rank, label in enumerate(demonstrations)]
        write_parquet(
            folder / "index.parquet", pd.DataFrame(index, columns=["cell", "row", "label", "part", "request"])
        )
        write_parquet(
            folder / "demonstrations.parquet", pd.DataFrame(shown, columns=["cell", "rank", "row", "label"])
        )  # fmt: skip
        write_parquet(folder / "regrouped.parquet", _frame(again))
        write_parquet(folder / "responses.parquet", _frame(responses))


def _peak(chosen: int, n_positions: int) -> np.ndarray:
    """Log-probabilities of a label mass of 0.5: the chosen label has 0.4 of it, the others share the rest."""
    rest = np.full(n_positions, 0.1 / (n_positions - 1), dtype=np.float32)
    rest[chosen] = 0.4
    return np.log(rest)


def _blank(request: str) -> dict[str, Any]:
    return {
        "request": request, "logprobs": None, "label_mass": np.nan, "greedy": -1, "text": None, "n_tokens": None,
        "n_hidden_tokens": None,
    }  # fmt: skip


def _frame(answers: Sequence[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(list(answers), columns=list(_blank("")))
    types = {"text": "string", "n_tokens": "Int32", "n_hidden_tokens": "Int32", "greedy": "int16"}
    return frame.astype(types).assign(logprobs=frame["logprobs"].astype(object))
