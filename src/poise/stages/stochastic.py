"""Phase 0b: generated texts against scores, repeated-run noise against label-order flips (position paper, 4.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from poise import metrics as m
from poise.answers import CellChoices
from poise.cells import Cell
from poise.stages.conditions import BASE, REVERSED, classes_of
from poise.stages.tidy import Tidy, add_flips


def add_stochastic(
    tidy: Tidy, cells: Sequence[Cell], choices: Mapping[str, CellChoices], scored: np.ndarray, n_classes: int
) -> None:
    """Add what the texts of one setting show, if any were asked for.

    Parameters
    ----------
    tidy
        Where the rows go.
    cells
        Test cells of the setting, of every decoding.
    choices
        Their choices.
    scored
        Predictions of the base condition, to which greedy texts are compared.
    n_classes
        Number of classes.
    """
    texts = {
        (cell.decoding, cell.label_order, cell.replicate): choices[cell.id]
        for cell in cells
        if cell.decoding != "scores" and cell.condition in (BASE, REVERSED)
    }
    predicted = {key: classes_of(found.choices[:, 0], n_classes, key[1]) for key, found in texts.items()}
    for decoding in ("greedy", "sampled"):
        found = texts.get((decoding, "natural", 0))
        if found is not None:
            tidy.add("hidden_tokens", found.hidden_tokens.mean(), condition=decoding, n=len(found.rows))
            tidy.add("visible_tokens", found.visible_tokens.mean(), condition=decoding, n=len(found.rows))
            failures = m.parse_failure_rate(predicted[decoding, "natural", 0])
            tidy.add("text_parse_failure_rate", failures, condition=decoding, n=len(found.rows))
    _add_agreement(tidy, cells, choices, predicted, scored)
    first, again = predicted.get(("sampled", "natural", 0)), predicted.get(("sampled", "natural", 1))
    other_order = predicted.get(("sampled", "reversed", 0))
    if first is None or again is None or other_order is None:
        return
    add_flips(tidy, "noise", [first, again])
    add_flips(tidy, "total", [first, other_order])
    # Paired flip indicators, on the rows that all three runs could parse.
    parsed = (np.stack([first, again, other_order]) >= 0).all(axis=0)
    total, noise = first != other_order, first != again
    b, c = int((total & ~noise)[parsed].sum()), int((noise & ~total)[parsed].sum())
    tidy.add("mcnemar_p", m.mcnemar_one_sided(b, c), condition="noise_total", n=int(parsed.sum()),
             note=f"flipped by the label order only: {b}; by sampling only: {c}")  # fmt: skip


def _add_agreement(
    tidy: Tidy,
    cells: Sequence[Cell],
    choices: Mapping[str, CellChoices],
    predicted: Mapping[tuple[str, str, int], np.ndarray],
    scored: np.ndarray,
) -> None:
    """Share of rows whose greedy text names the most probable label, where its first token starts a label."""
    base = next((cell for cell in cells if cell.decoding == "scores" and cell.condition == BASE), None)
    text = predicted.get(("greedy", "natural", 0))
    if base is None or text is None:
        return
    starts = choices[base.id].greedy[:, 0] >= 0
    share = float((text[starts] == scored[starts]).mean()) if starts.any() else float("nan")
    note = "rows whose greedy answer starts with a label"
    tidy.add("text_agreement", share, condition=BASE, n=int(starts.sum()), note=note)
