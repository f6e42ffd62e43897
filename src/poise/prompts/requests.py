"""Cells and data sets become requests, and an index: which requests answer which row of which cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from poise.cells import Cell
from poise.config.prompts import ChainOfThoughtPrompt, Prompt
from poise.datasets.sampling import demonstration_places, select
from poise.datasets.tables import with_text_keys
from poise.errors import PoiseError
from poise.plan import Plan
from poise.prompts.render import Renderer
from poise.prompts.text import Generation, Request

Row = tuple[str, str, int]  # id, text, label


@dataclass(frozen=True)
class RequestList:
    """What a batch asks.

    Attributes
    ----------
    requests
        Distinct requests by id, in the order of first use.
    index
        One row for each (cell, data-set row, part): ``cell``, ``row`` (id), ``label`` (true class index), ``part``
        (place in ``Renderer.requests``), ``request`` (id).
    regrouped
        Ids of the requests to ask once more in another grouping, for the numerical floor.
    demonstrations
        One row for each demonstration of a cell: ``cell``, ``rank``, ``row`` (id), ``label``, ``reason`` (where its
        reason is from: ``sentence``, ``template``, or "" where prompts show none).
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
    index: list[tuple[str, str, int, int, str]] = []
    shown: list[tuple[str, int, str, int, str]] = []
    regrouped: dict[str, None] = {}
    keyed = {name: with_text_keys(rows) for name, rows in datasets.items()}
    drawn: dict[tuple[object, ...], tuple[list[Row], list[Row]]] = {}
    for cell in cells:
        if draw_key(cell) not in drawn:
            demonstrated, chosen = select_rows(plan, cell, keyed[cell.dataset])
            drawn[draw_key(cell)] = as_rows(demonstrated), as_rows(chosen)
        base, rows = drawn[draw_key(cell)]
        demonstrations = in_order(cell, base)
        render = renderer(plan, cell, demonstrations)
        shown += [
            (cell.id, rank, row, label, _source(plan.prompts[cell.prompt], row))
            for rank, (row, _, label) in enumerate(demonstrations)
        ]
        for n, (row, text, label) in enumerate(rows):
            try:
                asked = render.requests(text)
            except ValueError as error:
                raise PoiseError(f"cell {cell.id} ({cell.dataset}, {cell.factor}={cell.level}): {error}") from error
            for part, request in enumerate(asked):
                requests.setdefault(request.id, request)
                index.append((cell.id, row, label, part, request.id))
                if n < cell.regrouped_rows:
                    regrouped[request.id] = None
    return RequestList(
        requests=requests,
        index=pd.DataFrame(index, columns=["cell", "row", "label", "part", "request"]),
        regrouped=list(regrouped),
        demonstrations=pd.DataFrame(shown, columns=["cell", "rank", "row", "label", "reason"]),
    )


def as_rows(rows: pd.DataFrame) -> list[Row]:
    """Take from rows what prompts are made of: a loop over cells is much faster with it than with a table."""
    return list(zip(rows["id"], rows["text"], rows["label"], strict=True))


def in_order(cell: Cell, demonstrations: Sequence[Row]) -> list[Row]:
    """Rearrange demonstrations from their base order into that of a cell."""
    places = demonstration_places([label for _, _, label in demonstrations], cell.demonstration_order, cell.seed)
    return [demonstrations[place] for place in places]


def renderer(plan: Plan, cell: Cell, demonstrations: Sequence[Row]) -> Renderer:
    """Build what turns texts into the requests of a cell, given its demonstrations in their order."""
    model, prompt = plan.study.models[cell.model], plan.prompts[cell.prompt]
    reasons: list[str] = []
    if isinstance(prompt, ChainOfThoughtPrompt):
        reasons = [prompt.reason(row, label) for row, _, label in demonstrations]
    return Renderer(
        prompt=prompt,
        dataset=plan.study.datasets[cell.dataset].scaled(cell.cardinality),
        demonstrations=[(text, label) for _, text, label in demonstrations],
        label_tokens=model.label_tokens,
        label_order=cell.label_order,
        placement=cell.placement,
        chat=model.chat,
        generation=generation(plan, cell),
        replicate=cell.replicate,
        reasons=reasons,
    )


def generation(plan: Plan, cell: Cell) -> Generation | None:
    """How a cell's model writes its answers; None where their labels are scored."""
    if cell.decoding == "scores":
        return None
    if isinstance(plan.prompts[cell.prompt], ChainOfThoughtPrompt):
        thinking = plan.study.experiment[cell.experiment].reasoning
        assert thinking is not None
        return Generation(thinking.max_new_tokens, thinking.temperature, thinking.top_p)
    limit = plan.study.models[cell.model].max_new_tokens
    if cell.decoding == "greedy":
        return Generation(limit)
    sampling = plan.study.experiment[cell.experiment].stochastic
    assert sampling is not None
    return Generation(limit, sampling.temperature, sampling.top_p)


def _source(prompt: Prompt, row: str) -> str:
    """Where the reason of a demonstration is from."""
    if not isinstance(prompt, ChainOfThoughtPrompt):
        return ""
    return "sentence" if prompt.sentences.get(row) else "template"


def draw_key(cell: Cell) -> tuple[object, ...]:
    """What :func:`select_rows` looks at: cells of one plan that agree here draw the same rows."""
    return (cell.experiment, cell.dataset, cell.split, cell.shots, cell.seed, cell.cardinality, cell.rows,
            cell.split_mode)  # fmt: skip


def select_rows(plan: Plan, cell: Cell, rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Demonstrations of a cell, in their base order, and the rows it asks about."""
    experiment = plan.study.experiment[cell.experiment]
    content_free = cell.split == "content_free"
    demonstrations, chosen = select(
        rows,
        plan.study.datasets[cell.dataset],
        split="test" if content_free else cell.split,
        shots=cell.shots,
        seed=cell.seed,
        n_rows=cell.rows,
        n_test_rows=experiment.rows.test,
        split_mode=cell.split_mode,
        cardinality=cell.cardinality,
        redraw=experiment.merged_demonstrations == "redraw",
        where=f"cell {cell.id} ({cell.dataset})",
    )
    if content_free:
        texts = experiment.content_free
        chosen = pd.DataFrame({"id": [f"content_free_{k}" for k in range(len(texts))], "text": texts, "label": -1})
    return demonstrations, chosen
