"""Cells and data sets become requests, and an index: which request answers which row of which cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from poise.config.schema import Study
from poise.datasets.sampling import (
    development_rows,
    draw_demonstrations,
    draw_test_rows,
    optimisation_rows,
    order_demonstrations,
    training_pool,
)
from poise.errors import PoiseError
from poise.plan import Cell, Plan
from poise.prompts.render import Renderer
from poise.prompts.text import Request


@dataclass(frozen=True)
class RequestList:
    """What a batch asks.

    Attributes
    ----------
    requests
        Distinct requests by id, in the order of first use.
    index
        One row for each (cell, data-set row): ``cell``, ``row`` (id), ``label`` (true class index),
        ``request`` (id).
    regrouped
        Ids of the requests to ask once more in another grouping, for the numerical floor.
    demonstrations
        One row for each demonstration of a cell: ``cell``, ``rank``, ``row`` (id), ``label``.
    """

    requests: Mapping[str, Request]
    index: pd.DataFrame
    regrouped: Sequence[str]
    demonstrations: pd.DataFrame


def build_requests(plan: Plan, cells: Sequence[Cell], datasets: Mapping[str, pd.DataFrame]) -> RequestList:
    """Render every prompt of some cells; identical requests are kept once.

    Parameters
    ----------
    plan
        The plan the cells are of.
    cells
        Cells of one model.
    datasets
        Prepared rows by data-set name.
    """
    requests: dict[str, Request] = {}
    index: list[tuple[str, str, int, str]] = []
    shown: list[tuple[str, int, str, int]] = []
    regrouped: dict[str, None] = {}
    for cell in cells:
        demonstrations, rows = select_rows(plan.study, cell, datasets[cell.dataset])
        render = Renderer(
            prompt=plan.prompts[cell.prompt],
            dataset=plan.study.datasets[cell.dataset],
            demonstrations=list(zip(demonstrations["text"], demonstrations["label"], strict=True)),
            label_tokens=plan.study.models[cell.model].label_tokens,
            label_order=cell.label_order,
            placement=cell.placement,
            chat=plan.study.models[cell.model].chat,
        )
        shown += [
            (cell.id, rank, row, label)
            for rank, (row, label) in enumerate(zip(demonstrations["id"], demonstrations["label"], strict=True))
        ]
        for n, (row, text, label) in enumerate(zip(rows["id"], rows["text"], rows["label"], strict=True)):
            request = render.request(text)
            requests.setdefault(request.id, request)
            index.append((cell.id, row, label, request.id))
            if n < cell.regrouped_rows:
                regrouped[request.id] = None
    return RequestList(
        requests=requests,
        index=pd.DataFrame(index, columns=["cell", "row", "label", "request"]),
        regrouped=list(regrouped),
        demonstrations=pd.DataFrame(shown, columns=["cell", "rank", "row", "label"]),
    )


def select_rows(study: Study, cell: Cell, rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Demonstrations of a cell, in its order, and the rows it asks about."""
    dataset = study.datasets[cell.dataset]
    train, test = rows[rows["table"] == "train"], rows[rows["table"] == "test"]
    pool = training_pool(train, test, cell.split_mode)
    where = f"cell {cell.id} ({cell.dataset})"
    demonstrations = draw_demonstrations(pool, len(dataset.classes), cell.shots, cell.seed, where)
    if cell.split == "content_free":
        texts = study.experiment[cell.experiment].content_free
        ids = [f"content_free_{k}" for k in range(len(texts))]
        chosen = pd.DataFrame({"id": ids, "text": texts, "label": -1})
    elif cell.split == "test":
        chosen = draw_test_rows(test, dataset, cell.rows)
    else:
        draw = optimisation_rows if cell.split == "optimisation" else development_rows
        chosen = draw(pool, demonstrations, cell.rows, cell.split_mode)
    if chosen.empty:
        raise PoiseError(f"{where}: no {cell.split} rows are left")
    return order_demonstrations(demonstrations, cell.demonstration_order, cell.seed), chosen
