"""What a study will take, before anything runs: requests, tokens, hours, dollars.

Tokens are counted in a few rendered prompts of each kind of cell and multiplied, with the model's own tokenizer where
it is prepared. Hours follow from a rate: measured in earlier batches of the same model and engine, or configured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from poise import paths
from poise.cells import Cell
from poise.config.schema import Model
from poise.engines.packing import common_prefix_length
from poise.files import read_parquet
from poise.plan import Plan
from poise.prompts.render import Renderer
from poise.prompts.requests import generation, renderer, select_rows

SAMPLE = 6
_CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True)
class Estimate:
    """What one model is asked.

    Attributes
    ----------
    model
        Its name.
    n_requests, n_left
        Requests in all, at most (equal ones are asked once), and those that no finished batch has answered.
    prompt_tokens, computed_tokens
        Tokens of the prompts that are left, and those to compute if what the prompts of a cell share is computed once;
        None if some data set is not prepared yet.
    new_tokens
        Tokens that the model writes for what is left, at most.
    own_tokenizer
        Whether tokens are the model's own; otherwise four characters count as one.
    rate, rate_source
        Tokens a second, read and written, and how that is known: measured or configured; None if it is not.
    """

    model: Model
    n_requests: int
    n_left: int
    prompt_tokens: float | None
    computed_tokens: float | None
    new_tokens: int
    own_tokenizer: bool
    rate: float | None
    rate_source: str

    @property
    def hours(self) -> float | None:
        """Hours of one device; None if tokens or rate are not known."""
        if self.computed_tokens is None or self.rate is None:
            return None
        return (self.computed_tokens + self.new_tokens) / self.rate / 3600

    @property
    def cost_usd(self) -> float | None:
        """US dollars at most; None if tokens or price are not known."""
        if self.prompt_tokens is None or self.model.price is None:
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
    n_requests = n_left = new_tokens = 0
    asked: float | None = 0.0
    computed: float | None = 0.0
    for members in _alike(cells).values():
        left = [cell for cell in members if not _answered(plan, cell)]
        n_rows = datasets.n_rows(members[0])
        n_requests += len(members) * (n_rows or 0)
        n_left += len(left) * (n_rows or 0)
        how = generation(plan, members[0])
        new_tokens += len(left) * (n_rows or 0) * (how.max_new_tokens if how else 0)
        sampled = [count(text) for text in datasets.prompts(members[0])] if left else []
        if not left:
            continue
        if n_rows is None or not sampled or asked is None or computed is None:
            asked = computed = None
            continue
        mean = sum(map(len, sampled)) / len(sampled)
        shared = 0 if len(sampled) == 1 else min(common_prefix_length(sampled[0], other) for other in sampled[1:])
        asked += len(left) * n_rows * mean
        computed += len(left) * (shared + n_rows * (mean - shared))
    rate, source = _rate(plan, model)
    return Estimate(model, n_requests, n_left, asked, computed, new_tokens, own, rate, source)


def _alike(cells: Sequence[Cell]) -> dict[tuple[object, ...], list[Cell]]:
    """Cells whose prompts are of about the same length: they differ in seed, order and replicate only."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        key = (cell.dataset, cell.split, cell.prompt, cell.shots, cell.cardinality, cell.rows, cell.decoding)
        groups.setdefault(key, []).append(cell)
    return groups


def _answered(plan: Plan, cell: Cell) -> bool:
    batch = plan.batch_of[cell.id]
    return (paths.batch_dir(batch.model, batch.id) / "responses.parquet").exists()


class _Rows:
    """Rows and prompts of cells, of the data sets that are prepared; read and drawn once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._prepared: dict[str, pd.DataFrame | None] = {}
        self._drawn: dict[tuple[object, ...], tuple[pd.DataFrame, pd.DataFrame]] = {}

    def n_rows(self, cell: Cell) -> int | None:
        """Requests of a cell; None if it asks all rows and the data set is not prepared."""
        drawn = self._draw(cell)
        rows = cell.rows if drawn is None else len(drawn[1])
        return None if rows is None else rows * cell.parts

    def prompts(self, cell: Cell) -> list[str]:
        """Texts of some of a cell's prompts; none if the data set is not prepared."""
        drawn = self._draw(cell)
        if drawn is None:
            return []
        demonstrations, rows = drawn
        render: Renderer = renderer(self.plan, cell, demonstrations)
        return [request.prompt.text for text in rows["text"].head(SAMPLE) for request in render.requests(text)]

    def _draw(self, cell: Cell) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        if cell.dataset not in self._prepared:
            path = paths.prepared_dataset(cell.dataset, self.plan.dataset_digests[cell.dataset])
            self._prepared[cell.dataset] = read_parquet(path) if path.exists() else None
        rows = self._prepared[cell.dataset]
        if rows is None:
            return None
        key = (cell.experiment, cell.dataset, cell.split, cell.shots, cell.seed, cell.cardinality, cell.rows,
               cell.demonstration_order)  # fmt: skip
        if key not in self._drawn:
            self._drawn[key] = select_rows(self.plan, cell, rows)
        return self._drawn[key]


def _counter(tokenizer: Path | None) -> Callable[[str], tuple[int, ...]]:
    """Tokens of a text: a model's own, or a stand-in of four characters each."""
    if tokenizer is None:
        return lambda text: tuple(
            hash(text[k : k + _CHARACTERS_A_TOKEN]) for k in range(0, len(text), _CHARACTERS_A_TOKEN)
        )
    from tokenizers import Tokenizer

    own = Tokenizer.from_file(str(tokenizer))
    return lambda text: tuple(own.encode(text).ids)


def _rate(plan: Plan, model: Model) -> tuple[float | None, str]:
    """Tokens a second and where the figure is from."""
    if plan.study.engine_of(model).kind == "openai":
        return None, "the server's own pace"
    tokens = seconds = 0.0
    for meta in _finished(model.name, plan.study.engine_of(model).kind):
        tokens += meta["computed_tokens"] + meta["generated_tokens"]
        seconds += meta["seconds"]
    if seconds > 0:
        return tokens / seconds, "measured in earlier batches"
    if model.tokens_per_second is not None:
        return model.tokens_per_second, "configured"
    return None, f"no rate yet: a first batch measures it, or set model.{model.name}.tokens_per_second"


def _finished(model: str, engine: str) -> Iterator[dict[str, float]]:
    """What earlier, uninterrupted batches of a model say of themselves."""
    for path in sorted(paths.RESPONSES.glob(f"{model}/*/meta.json")):
        try:
            meta = json.loads(path.read_text(encoding="utf-8"))
            if meta["engine"] == engine and meta["resumed_requests"] == 0 and meta["seconds"] > 0:
                yield meta
        except (KeyError, TypeError, ValueError):
            continue  # of an older version: it measures nothing here
