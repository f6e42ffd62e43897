"""How new cells are cut into batches: by requests, and by minutes once a rate is measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poise import paths
from poise.cells import Cell
from poise.config.compose import compose_study
from poise.plan import Batch, Room, assign_batches, expand
from poise.planfile import measured_rates
from poise.rates import requests_per_second

MODEL = "smollm2-135m-instruct"


def _cells(rows: Sequence[int], model: str = "a", dataset: str = "x", **more: Any) -> list[Cell]:
    return [
        Cell(f"{model}{dataset}{k}", "e", model, dataset, "test", "1_shot", k, "p", rows=n, **more)
        for k, n in enumerate(rows)
    ]


def _sizes(cells: Sequence[Cell], room: Room, finished: Sequence[Batch] = ()) -> list[int]:
    """Cells of each batch."""
    models = {cell.model for cell in cells}
    return [len(batch.cells) for batch in assign_batches(cells, finished, [], dict.fromkeys(models, room))]


def test_without_a_rate_a_batch_ends_once_it_has_its_requests() -> None:
    assert _sizes(_cells([40] * 7), Room(about=100)) == [3, 3, 1]


def test_with_a_rate_a_batch_ends_before_its_time_is_over() -> None:
    assert _sizes(_cells([40] * 7), Room(about=100, most=100)) == [2, 2, 2, 1]
    assert _sizes(_cells([40] * 7), Room(about=100, most=130)) == [3, 3, 1]  # time for more: requests cut as before
    assert _sizes(_cells([20] * 3, parts=5), Room(about=1000, most=250)) == [2, 1]  # five requests a row


def test_a_cell_that_alone_takes_longer_has_a_batch_of_its_own() -> None:
    assert _sizes(_cells([10, 500, 10]), Room(about=1000, most=100)) == [1, 1, 1]


def test_a_new_data_set_starts_a_batch_once_one_is_half_full() -> None:
    cells = [*_cells([30] * 2), *_cells([30] * 2, dataset="y")]
    assert _sizes(cells, Room(about=1000)) == [4]
    assert _sizes(cells, Room(about=1000, most=120)) == [2, 2]


def test_each_model_has_its_own_pace() -> None:
    cells = [*_cells([40] * 4, "slow"), *_cells([40] * 4, "fast")]
    batches = assign_batches(cells, [], [], {"slow": Room(1000, most=50), "fast": Room(1000)})
    assert [(batch.model, len(batch.cells)) for batch in batches] == [("slow", 1)] * 4 + [("fast", 4)]


def test_a_rate_moves_no_cell_that_is_on_disk() -> None:
    cells = _cells([40] * 7)
    finished = assign_batches(cells[:6], [], [], {"a": Room(about=1000)})
    assert assign_batches(cells, finished, [], {"a": Room(about=1000, most=40)})[0] == finished[0]
    assert _sizes(cells, Room(about=1000, most=40), finished) == [6, 1]


def test_a_study_is_cut_to_its_minutes() -> None:
    study = compose_study(["study=demo", "engine.batch_minutes=2", "engine.batch_requests=100000"])
    at_once, cut = expand(study), expand(study, rates={MODEL: 5.0})  # 600 requests in two minutes
    assert len(cut.batches) > len(at_once.batches)
    assert {cell.id for cell in cut.cells} == {cell.id for cell in at_once.cells}
    for batch in cut.batches:
        cells = [cut.cell_by_id[name] for name in batch.cells]
        assert len(cells) == 1 or sum((cell.rows or 1000) * cell.parts for cell in cells) <= 600


def _finished(name: str, model: str = MODEL, **meta: object) -> None:
    folder = paths.batch_dir(model, name)
    folder.mkdir(parents=True)
    told = {"engine": "transformers", "requests": 100, "resumed_requests": 0, "seconds": 50.0, **meta}
    (folder / "meta.json").write_text(json.dumps(told))


def test_the_rate_is_of_whole_batches_of_the_same_model_and_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert requests_per_second(MODEL, "transformers") is None
    _finished("1")
    _finished("2", requests=500, seconds=100.0)
    _finished("3", requests=9000, resumed_requests=8999)  # its seconds are of one answer
    _finished("4", requests=9000, engine="vllm")
    _finished("5", model="another", requests=9000)
    _finished("6", seconds=0)
    assert requests_per_second(MODEL, "transformers") == 600 / 150
    monkeypatch.setenv("POISE_CONF", str(Path(__file__).parents[2] / "conf"))
    assert measured_rates(compose_study(["study=demo"])) == {MODEL: 4.0}
