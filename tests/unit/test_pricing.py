"""What a plan says it will take, against what is asked in the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from poise import paths
from poise.config.prices import Price
from poise.engines.ask import tokenise
from poise.engines.base import Query
from poise.engines.labels import LabelTrie
from poise.engines.packing import common_prefix_length, pack_queries
from poise.engines.tokenizer import Tokenizer
from poise.files import read_parquet
from poise.plan import Plan
from poise.planfile import make_plan
from poise.pricing import Estimate, estimate
from poise.prompts.requests import build_requests
from poise.stages.extract import extract
from poise.summary import price_lines
from tests.conftest import ROOT

OVERRIDES = [
    "study=demo", "experiment=[class_accuracy,position]", "experiment.class_accuracy.datasets=[movies5]",
    "experiment.class_accuracy.rows={optimisation: 40, test: 30}", "experiment.position.rows.test=12", "seeds=[0,1]",
    "method=[icl]", "experiment.position.methods=[icl]", "factor=[]",
]  # fmt: skip


@pytest.fixture
def folder(demo_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    (tmp_path / "data").symlink_to(ROOT / "data")
    return tmp_path


def _plan(*more: str) -> Plan:
    return make_plan([*OVERRIDES, *more])


def _asked(plan: Plan) -> list[dict[str, Any]]:
    for batch in plan.batches:
        extract(plan, batch.id)
    return [json.loads(path.read_text()) for path in sorted(paths.RESPONSES.glob("*/*/meta.json"))]


def _sum(metas: Sequence[dict[str, Any]], key: str) -> float:
    return sum(meta[key] for meta in metas)


@pytest.mark.slow
def test_tokens_are_those_of_a_real_extraction(folder: Path) -> None:
    """With the model's own tokenizer: asked within 5 %, computed within 10 %."""
    plan = _plan("experiment.class_accuracy.rows={optimisation: 20, test: 20}", "experiment.position.rows.test=6")
    (found,) = estimate(plan)
    assert found.own_tokenizer
    assert found.hours is None
    metas = _asked(plan)
    assert found.n_requests == _sum(metas, "requests")
    assert found.prompt_tokens == pytest.approx(_sum(metas, "prompt_tokens"), rel=0.05)
    assert found.computed_tokens == pytest.approx(_sum(metas, "computed_tokens"), rel=0.1)
    (after,) = estimate(plan)
    assert (after.n_left, after.computed_tokens) == (0, 0)
    (more,) = estimate(_plan("seeds=[0,1,2]"))
    assert more.rate_source == "measured in earlier batches"
    assert more.rate == pytest.approx(_sum(metas, "computed_tokens") / _sum(metas, "seconds"), rel=0.01)
    assert more.hours == pytest.approx(more.computed_tokens / more.rate / 3600)


def test_asked_tokens_with_the_stand_in(folder: Path) -> None:
    """Four characters a token; the dummy engine's tokens are bytes."""
    plan = _plan("engine=dummy")
    (found,) = estimate(plan)
    assert not found.own_tokenizer
    assert found.prompt_tokens == pytest.approx(_sum(_asked(plan), "prompt_tokens") / 4, rel=0.1)


def test_cells_that_ask_the_same_count_once(folder: Path) -> None:
    """The baseline of factors is that of the position experiment, on fewer rows."""
    plan = _plan("experiment=[position,factors]", "experiment.factors.rows.test=6", "factor=[separator]",
                 "engine=dummy")  # fmt: skip
    (found,) = estimate(plan)
    metas = _asked(plan)
    assert _sum(metas, "rows") > _sum(metas, "requests") == found.n_requests


def test_tokens_to_compute_are_those_of_the_packs(folder: Path) -> None:
    """Counted from all prompts of all cells, as the transformers engine packs them; no weights are needed for that."""
    plan = _plan("experiment=[class_accuracy,position,factors]", "factor=[separator,label_format,inference_paradigm]",
                 "experiment.factors.rows.test=10")  # fmt: skip
    (found,) = estimate(plan)
    asked, computed = _of_all_prompts(plan)
    assert found.prompt_tokens == pytest.approx(asked, rel=0.05)
    assert found.computed_tokens == pytest.approx(computed, rel=0.15)  # levels of a factor share some text, too


def test_some_of_many_seeds_stand_for_all(folder: Path) -> None:
    """Prompts are rendered for a third of these seeds; all count."""
    plan = _plan(f"seeds={list(range(41))}", "experiment.class_accuracy.rows={optimisation: 6, test: 6}",
                 "experiment.position.rows.test=6")  # fmt: skip
    (found,) = estimate(plan)
    asked, computed = _of_all_prompts(plan)
    assert found.prompt_tokens == pytest.approx(asked, rel=0.03)
    assert found.computed_tokens == pytest.approx(computed, rel=0.15)


def _of_all_prompts(plan: Plan) -> tuple[int, int]:
    (model,) = plan.study.models.values()
    tokenizer: Any = Tokenizer(paths.model_dir(model.name, plan.model_digests[model.name]))
    asked = computed = 0
    for batch in plan.batches:
        cells = [plan.cell_by_id[cell] for cell in batch.cells]
        rows = {
            cell.dataset: read_parquet(paths.prepared_dataset(cell.dataset, plan.dataset_digests[cell.dataset]))
            for cell in cells
        }
        requests = list(build_requests(plan, cells, rows).requests.values())
        items = tokenise(tokenizer, requests, model.label_tokens.scoring, model.context_length, "a test")
        queries = [item.query for item in items if isinstance(item.query, Query)]
        extra = [len(LabelTrie.build(query.label_ids).paths) - 1 for query in queries]
        asked += sum(len(query.prompt_ids) for query in queries)
        last: tuple[int, ...] = ()
        for pack in pack_queries(queries, extra, 512):
            prompts = [queries[k].prompt_ids for k in pack.members]
            prefix = prompts[0][: pack.n_prefix]
            computed += len(prefix) * (prefix != last) + len(prompts[0]) - len(prefix)
            for one, other in pairwise(prompts):
                computed += len(other) - max(len(prefix), common_prefix_length(one, other))
            computed += sum(extra[k] for k in pack.members)
            last = prefix
    return asked, computed


def test_requests_are_not_known_where_a_cell_asks_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    plan = _plan("experiment.class_accuracy.rows.test=null")
    (found,) = estimate(plan)
    assert (found.n_requests, found.n_left, found.new_tokens, found.cost_usd) == (None, None, None, None)
    assert "? of ?" in "\n".join(price_lines(plan, [found]))


def test_notes_that_all_models_share_are_told_once(folder: Path) -> None:
    plan = _plan("model=[smollm2-135m-instruct,gemma-3-270m]", "engine=dummy")
    table = "\n".join(price_lines(plan, estimate(plan)))
    assert table.count("all models: no rate yet") == 1
    assert "measured" not in table.replace("a first batch measures it", "")


def test_without_data_tokens_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    plan = _plan()
    (found,) = estimate(plan)
    assert (found.prompt_tokens, found.hours) == (None, None)
    assert found.n_requests == 2 * (40 + 30 + 3) + 2 * 7 * (12 + 1)
    assert "snakemake --cores 1 sources" in "\n".join(price_lines(plan, [found]))


def test_a_configured_rate_gives_hours(folder: Path) -> None:
    plan = _plan("model.smollm2-135m-instruct.tokens_per_second=1000")
    (found,) = estimate(plan)
    assert found.rate_source == "configured"
    assert found.hours == pytest.approx((found.computed_tokens + found.new_tokens) / 1000 / 3600)
    assert _plan().cells[0].id == plan.cells[0].id  # it is in no digest


def test_dollars_by_hand() -> None:
    price = Price(input_usd_per_million=2.0, output_usd_per_million=10.0)
    assert price.cost_usd(500_000, 30_000) == pytest.approx(1.3)


def test_written_tokens_and_dollars_of_a_model_behind_an_api(folder: Path) -> None:
    name = "gpt-3.5-turbo-instruct"
    key = name.replace(".", "_")
    price = f"model.{key}.price={{input_usd_per_million: 1, output_usd_per_million: 2}}"
    plan = _plan(f"model=[{name}]", "engine=openai", price)
    (found,) = estimate(plan)
    assert found.new_tokens == 8 * found.n_left
    assert found.cost_usd == pytest.approx((found.prompt_tokens + 2 * found.new_tokens) / 1e6, rel=1e-4)
    assert isinstance(found, Estimate)
    table = "\n".join(price_lines(plan, [found]))
    assert f"{found.cost_usd:,.2f}" in table
    assert "the server's own pace" in table
