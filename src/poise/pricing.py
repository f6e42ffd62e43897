"""What a study will take, before anything runs: requests, tokens, hours, dollars.

Tokens are counted in a few rendered prompts of each kind of cell and multiplied, with the model's own tokenizer where
it is prepared. Hours follow from a rate: measured in earlier batches of the same model and engine, or configured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import pandas as pd

from poise import paths
from poise.cells import Cell
from poise.config.models import Model
from poise.datasets.tables import with_text_keys
from poise.engines.packing import common_prefix_length
from poise.files import read_parquet
from poise.plan import Plan
from poise.planfile import is_answered
from poise.prompts.requests import Row, as_rows, draw_key, generation, in_order, renderer, select_rows
from poise.prompts.text import Request
from poise.rates import finished_batches

SAMPLE = 6  # rows
_SAMPLED_SEEDS = 20
_CHARACTERS_A_TOKEN = 4

_Counter = Callable[[str, bool], tuple[int, ...]]
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Estimate:
    """What one model is asked; None where some data set is not prepared yet.

    Attributes
    ----------
    model
        The model.
    n_requests, n_left
        Requests in all, and those that no finished batch has answered. Cells of a batch that ask the same count once.
    prompt_tokens, computed_tokens
        Tokens of the prompts that are left, and those to compute if what the prompts of a cell share is computed once.
        What a chat template adds is not counted.
    new_tokens
        Tokens that the model writes for what is left, at most.
    own_tokenizer
        Whether tokens are the model's own; otherwise four characters count as one.
    rate, rate_source
        Tokens a second, read and written, and how that is known: measured or configured; None if it is not.
    """

    model: Model
    n_requests: int | None
    n_left: int | None
    prompt_tokens: float | None
    computed_tokens: float | None
    new_tokens: int | None
    own_tokenizer: bool
    rate: float | None
    rate_source: str

    @property
    def hours(self) -> float | None:
        """Hours of one device; None if tokens or rate are not known."""
        if self.computed_tokens is None or self.new_tokens is None or self.rate is None:
            return None
        return (self.computed_tokens + self.new_tokens) / self.rate / 3600

    @property
    def cost_usd(self) -> float | None:
        """US dollars at most; None if tokens or price are not known."""
        if self.prompt_tokens is None or self.new_tokens is None or self.model.price is None:
            return None
        return self.model.price.cost_usd(round(self.prompt_tokens), self.new_tokens)


def estimate(plan: Plan) -> list[Estimate]:
    """Estimate every model that the study asks, in its order."""
    datasets = _Rows(plan)
    found = []
    for name, model in plan.study.models.items():
        cells = list({cell.id: cell for cell in plan.cells if cell.model == name}.values())
        if cells:
            found.append(_of_model(plan, model, cells, datasets))
    return found


def _of_model(plan: Plan, model: Model, cells: Sequence[Cell], datasets: _Rows) -> Estimate:
    tokenizer = paths.model_dir(model.name, plan.model_digests[model.name]) / "tokenizer.json"
    own = tokenizer.is_file() and plan.study.engine_of(model).kind not in ("dummy", "openai")
    count = _counter(tokenizer if own else None)
    known: set[tuple[object, ...]] = set()
    kinds = [_count(plan, members, datasets, count, known) for members in _alike(datasets.distinct(cells)).values()]
    rate, source = _rate(plan, model)
    return Estimate(
        model=model,
        n_requests=_sum(kind.n_requests for kind in kinds),
        n_left=_sum(kind.n_left for kind in kinds),
        prompt_tokens=_sum(kind.prompt_tokens for kind in kinds),
        computed_tokens=_sum(kind.computed_tokens for kind in kinds),
        new_tokens=_sum(kind.new_tokens for kind in kinds),
        own_tokenizer=own,
        rate=rate,
        rate_source=source,
    )


@dataclass(frozen=True)
class _Counts:
    """The same of cells of one kind."""

    n_requests: int | None
    n_left: int | None
    prompt_tokens: float | None
    computed_tokens: float | None
    new_tokens: int | None


def _count(
    plan: Plan, members: Sequence[Cell], datasets: _Rows, count: _Counter, known: set[tuple[object, ...]]
) -> _Counts:
    """Count the requests and tokens of cells of one kind, by some prompts of one cell of each of some seeds.

    ``known`` are the prompts, up to the row's text, that other kinds have: splits of one condition. Ours are added.
    """
    n_rows = datasets.n_rows(members[0])
    if n_rows is None:
        return _Counts(None, None, None, None, None)
    left = datasets.left(members)
    how = generation(plan, members[0])
    n_new = how.max_new_tokens if how else 0
    n_requests, n_left = len(members) * n_rows, len(left) * n_rows
    if not left:
        return _Counts(n_requests, 0, 0, 0, 0)
    of_seed = list({cell.seed: cell for cell in left}.values())
    sampled = [datasets.requests(cell) for cell in of_seed[:: -(-len(of_seed) // _SAMPLED_SEEDS)]]
    if not all(sampled):
        return _Counts(n_requests, n_left, None, None, n_left * n_new)
    prompts = [[count(request.prompt.text, True) for request in requests] for requests in sampled]
    mean = fmean(len(prompt) for of_cell in prompts for prompt in of_cell)
    counts = [_to_compute(of_cell, members[0].parts) for of_cell in prompts]
    once, each = fmean(count[0] for count in counts), fmean(count[1] for count in counts)
    request = sampled[0][0]
    if how is None:  # labels of several tokens are read at inner nodes of their trie
        labels = [count(label, False) for label in request.labels]
        each += len({ids[:k] for ids in labels for k in range(1, len(ids))})
    elif request.located:  # a label inside a text is scored in a second pass over prompt and text
        once, each = 2 * once, 2 * each + n_new
    beginnings = {_beginning(plan, cell) for cell in left} - known
    known |= beginnings
    computed = len(beginnings) * once + n_left * each
    return _Counts(n_requests, n_left, n_left * mean, computed, n_left * n_new)


def _beginning(plan: Plan, cell: Cell) -> tuple[object, ...]:
    """What decides how the prompts of a cell begin, within one batch, which computes it once."""
    return (plan.batch_of[cell.id].id, cell.prompt, cell.shots, cell.seed, cell.cardinality, cell.label_order,
            cell.demonstration_order, cell.placement)  # fmt: skip


def _to_compute(prompts: Sequence[tuple[int, ...]], n_parts: int) -> tuple[float, float]:
    """Tokens that the requests of a cell share, all or those of one part, and mean of the others in a request."""
    shared = _n_shared(prompts)
    by_part = [prompts[part::n_parts] for part in range(n_parts)]
    once = shared + sum(_n_shared(own) - shared for own in by_part)
    return once, fmean(fmean(map(len, own)) - _n_shared(own) for own in by_part)


def _n_shared(prompts: Sequence[tuple[int, ...]]) -> int:
    """Leading tokens that all prompts share."""
    return min(common_prefix_length(prompts[0], other) for other in prompts)


def _sum(values: Iterable[_Number | None]) -> _Number | None:
    """Sum of all; None if one is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known[1:], known[0]) if found and len(known) == len(found) else None


def _alike(cells: Sequence[Cell]) -> dict[tuple[object, ...], list[Cell]]:
    """Cells whose prompts are of about the same length, and share about as much: seed, order, replicate differ."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        key = (cell.dataset, cell.split, cell.prompt, cell.shots, cell.cardinality, cell.rows, cell.decoding,
               cell.placement)  # fmt: skip
        groups.setdefault(key, []).append(cell)
    return groups


class _Rows:
    """Rows and prompts of cells, of the data sets that are prepared; read and drawn once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._prepared: dict[str, pd.DataFrame | None] = {}
        self._drawn: dict[tuple[object, ...], _Drawn] = {}
        self._answered = {batch.id for batch in plan.batches if is_answered(batch)}

    def left(self, cells: Sequence[Cell]) -> list[Cell]:
        """Cells that no finished batch has answered."""
        return [cell for cell in cells if self.plan.batch_of[cell.id].id not in self._answered]

    def n_rows(self, cell: Cell) -> int | None:
        """Requests of a cell; None if it asks all rows and the data set is not prepared."""
        drawn = self._draw(cell)
        rows = cell.rows if drawn is None else drawn.n_rows
        return None if rows is None else rows * cell.parts

    def distinct(self, cells: Sequence[Cell]) -> list[Cell]:
        """Cells without those whose first prompts a larger cell of their batch has: a batch asks equal prompts once."""
        found: dict[tuple[str, ...], Cell] = {}
        for cell in sorted(cells, key=lambda cell: -(self.n_rows(cell) or 0)):
            first = tuple(request.id for request in self.requests(cell, 1)) or (cell.id,)
            found.setdefault((self.plan.batch_of[cell.id].id, *first), cell)
        return list(found.values())

    def requests(self, cell: Cell, n_rows: int = SAMPLE) -> list[Request]:
        """What a cell asks about its first rows; nothing if the data set is not prepared."""
        drawn = self._draw(cell)
        if drawn is None:
            return []
        render = renderer(self.plan, cell, in_order(cell, drawn.demonstrations))
        return [request for text in drawn.texts[:n_rows] for request in render.requests(text)]

    def _draw(self, cell: Cell) -> _Drawn | None:
        if cell.dataset not in self._prepared:
            path = paths.prepared_dataset(cell.dataset, self.plan.dataset_digests[cell.dataset])
            self._prepared[cell.dataset] = with_text_keys(read_parquet(path)) if path.exists() else None
        rows = self._prepared[cell.dataset]
        if rows is None:
            return None
        key = draw_key(cell)
        if key not in self._drawn:
            demonstrations, chosen = select_rows(self.plan, cell, rows)
            self._drawn[key] = _Drawn(as_rows(demonstrations), len(chosen), list(chosen["text"].head(SAMPLE)))
        return self._drawn[key]


@dataclass(frozen=True)
class _Drawn:
    """Demonstrations of cells that draw alike, in their base order, their number of rows, and the first texts."""

    demonstrations: list[Row]
    n_rows: int
    texts: list[str]


def _counter(tokenizer: Path | None) -> _Counter:
    """Tokens of a text, with what a prompt starts with or without: a model's own, or every fourth character."""
    if tokenizer is None:
        return lambda text, _start: tuple(map(ord, text[::_CHARACTERS_A_TOKEN]))
    from tokenizers import Tokenizer

    own = Tokenizer.from_file(str(tokenizer))
    return lambda text, start: tuple(own.encode(text, add_special_tokens=start).ids)


def _rate(plan: Plan, model: Model) -> tuple[float | None, str]:
    """Tokens a second and where the figure is from."""
    if plan.study.engine_of(model).kind == "openai":
        return None, "hours are the server's own pace"
    tokens = seconds = 0.0
    for meta in finished_batches(model.name, plan.study.engine_of(model).kind):
        tokens += meta["computed_tokens"] + meta["generated_tokens"]
        seconds += meta["seconds"]
    if seconds > 0:
        return tokens / seconds, "measured in earlier batches"
    if model.tokens_per_second is not None:
        return model.tokens_per_second, "configured"
    return None, "no rate yet: a first batch measures it, or set model.NAME.tokens_per_second"
