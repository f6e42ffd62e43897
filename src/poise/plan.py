"""A study becomes a plan: the cells to measure, the batches that answer them, the artefacts they fill.

Pure and light: the Snakefile imports this module (and no numerics) each time it is parsed. Reading and writing
plans is in :mod:`poise.planfile`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from poise.artefacts.registry import ARTEFACTS
from poise.cells import Cell, corrected, expand_cells, prompts
from poise.config.prompts import Prompt
from poise.config.schema import Experiment, Study, identity
from poise.errors import PoiseError
from poise.hashing import digest
from poise.versions import EXTRACTION_VERSION

# What is not the input of a prepared data set: how it is prompted and which rows are drawn from it.
_DRAWING = frozenset(
    {"prompt", "test_draw", "test_rows", "ordered", "task", "poles", "merged", "attribute", "comparatives"}
)


@dataclass(frozen=True)
class Batch:
    """An immutable set of cells of one model, named by the digest of its cells: one model load."""

    id: str
    model: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Everything a run needs, resolved. Written once, read by every job."""

    study: Study
    overrides: tuple[str, ...]
    cells: tuple[Cell, ...]
    batches: tuple[Batch, ...]
    dataset_digests: Mapping[str, str]
    model_digests: Mapping[str, str]
    prompts: Mapping[str, Prompt] = field(repr=False)

    @cached_property
    def batch_of(self) -> dict[str, Batch]:
        """Batch by cell id."""
        return {cell: batch for batch in self.batches for cell in batch.cells}

    @cached_property
    def batch_by_id(self) -> dict[str, Batch]:
        """Batch by its own id."""
        return {batch.id: batch for batch in self.batches}

    @cached_property
    def groups(self) -> dict[tuple[str, str, str], tuple[Cell, ...]]:
        """Cells by (experiment, model, data set), in plan order."""
        groups: dict[tuple[str, str, str], list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault((cell.experiment, cell.model, cell.dataset), []).append(cell)
        return {key: tuple(cells) for key, cells in groups.items()}

    @cached_property
    def cell_by_id(self) -> dict[str, Cell]:
        """One cell for each id: experiments that share it agree on all that matters to its requests."""
        return {cell.id: cell for cell in reversed(self.cells)}

    def batches_of(self, cells: Iterable[Cell]) -> list[Batch]:
        """Distinct batches that answer these cells, in plan order."""
        return list({batch.id: batch for batch in (self.batch_of[cell.id] for cell in cells)}.values())

    @cached_property
    def corrections(self) -> list[tuple[str, str, str, str]]:
        """All (experiment, model, data set, method) to correct, in plan order."""
        return [
            (*group, method)
            for group in self.groups
            for method in corrected(self.study, self.study.experiment[group[0]], group[1])
        ]

    def classes(self, cell: Cell) -> list[str]:
        """Names of the classes that a cell predicts."""
        return self.study.datasets[cell.dataset].scaled(cell.cardinality).classes

    def experiments(self, instrument: str) -> list[Experiment]:
        """Experiments of one instrument."""
        return [item for item in self.study.experiment.values() if item.instrument == instrument]

    def to_json(self) -> dict[str, Any]:
        """JSON-pure form, the inverse of :meth:`from_json`."""
        return {
            "study": self.study.model_dump(mode="json"),
            "overrides": list(self.overrides),
            "cells": [dict(vars(cell)) for cell in self.cells],  # asdict copies what needs no copy: seconds for many
            "batches": [{"id": b.id, "model": b.model, "cells": list(b.cells)} for b in self.batches],
            "dataset_digests": dict(self.dataset_digests),
            "model_digests": dict(self.model_digests),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """Rebuild a plan from its JSON form."""
        study = Study.model_validate(data["study"])
        return cls(
            study=study,
            overrides=tuple(data["overrides"]),
            cells=tuple(Cell(**cell) for cell in data["cells"]),
            batches=tuple(Batch(b["id"], b["model"], tuple(b["cells"])) for b in data["batches"]),
            dataset_digests=data["dataset_digests"],
            model_digests=data["model_digests"],
            prompts=prompts(study),
        )


def expand(
    study: Study,
    overrides: Sequence[str] = (),
    content: Mapping[str, str] | None = None,
    finished: Iterable[Batch] = (),
    pending: Iterable[Batch] = (),
    rates: Mapping[str, float] | None = None,
) -> Plan:
    """Expand a composition into a plan.

    Parameters
    ----------
    study
        The validated composition.
    overrides
        The overrides that made it, kept as a record.
    content
        Content digest of each local source by the name of its data set or model (files of the user's own: their
        bytes are their revision).
    finished, pending
        Batches on disk that are complete, and those planned before and not complete.
    rates
        Requests a second by the name of each model that answered before: its new batches fit into ``batch_minutes``.
    """
    unknown = [name for name in study.artefacts if name not in ARTEFACTS]
    if unknown:
        raise PoiseError(f"study {study.name}: artefacts: unknown {unknown}, expected some of {', '.join(ARTEFACTS)}")
    content = content or {}
    dataset_digests = {
        name: digest([EXTRACTION_VERSION, identity(dataset, _DRAWING), content.get(name)])
        for name, dataset in study.datasets.items()
    }
    model_digests = {
        name: digest([name, identity(model.source), model.gguf, content.get(name)])
        for name, model in study.models.items()
    }
    cells = tuple(expand_cells(study, dataset_digests, model_digests))
    if not cells:
        raise PoiseError(f"study {study.name}: no cells to measure; it needs a model, a data set and an experiment")
    return Plan(
        study=study,
        overrides=tuple(overrides),
        cells=cells,
        batches=tuple(assign_batches(cells, finished, pending, _room(study, rates or {}))),
        dataset_digests=dataset_digests,
        model_digests=model_digests,
        prompts=prompts(study),
    )


@dataclass(frozen=True)
class Room:
    """How many requests a new batch of a model takes: about so many, and never more than fit into its time."""

    about: int
    most: float = math.inf


def _room(study: Study, rates: Mapping[str, float]) -> dict[str, Room]:
    """Room in the new batches of each model."""
    found = {}
    for name, model in study.models.items():
        engine = study.engine_of(model)
        most = rates[name] * 60 * engine.batch_minutes if name in rates else math.inf
        found[name] = Room(engine.batch_requests, most)
    return found


def assign_batches(
    cells: Sequence[Cell], finished: Iterable[Batch], pending: Iterable[Batch], room: Mapping[str, Room]
) -> list[Batch]:
    """Gather cells into batches; cells that a batch on disk holds stay there.

    So adding cells runs only the new ones, undoing a change runs nothing, and a killed batch resumes: a pending batch
    is taken up again if the plan still wants all of it. New cells are cut model by model in plan order, where the data
    set changes once a batch has half of the requests it has room for, anywhere once it has about all, and always
    before it has more than fit into its time, unless one cell alone has more.
    """
    models = {cell.id: cell.model for cell in cells}
    home: dict[str, Batch] = {}
    for batch in finished:
        home.update({cell: batch for cell in batch.cells if models.get(cell) == batch.model and cell not in home})
    for batch in pending:
        if all(models.get(cell) == batch.model and cell not in home for cell in batch.cells):
            home.update(dict.fromkeys(batch.cells, batch))
    chunks: list[list[Cell]] = []
    size = 0
    new = {cell.id: cell for cell in cells if cell.id not in home}.values()
    order = {model: k for k, model in enumerate(dict.fromkeys(cell.model for cell in new))}
    for cell in sorted(new, key=lambda cell: order[cell.model]):
        previous = chunks[-1][-1] if chunks else None
        own = room[cell.model]
        about = min(own.about, own.most)
        n_requests = (cell.rows or 1000) * cell.parts
        if (
            previous is None
            or cell.model != previous.model
            or size >= about
            or size + n_requests > own.most
            or (cell.dataset != previous.dataset and 2 * size >= about)
        ):
            chunks.append([])
            size = 0
        chunks[-1].append(cell)
        size += n_requests
    for chunk in chunks:
        ids = tuple(sorted(cell.id for cell in chunk))
        home.update(dict.fromkeys(ids, Batch(digest(ids), chunk[0].model, ids)))
    return list({home[cell.id].id: home[cell.id] for cell in cells}.values())
