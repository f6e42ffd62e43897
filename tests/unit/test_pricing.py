"""What a plan says it will take, against what is asked in the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poise import paths
from poise.config.prices import Price
from poise.plan import Plan
from poise.planfile import make_plan
from poise.pricing import Estimate, estimate
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
    """With the model's own tokenizer: asked within 5 %, computed within 15 % (packs share more than cells do)."""
    plan = _plan("experiment.class_accuracy.rows={optimisation: 20, test: 20}", "experiment.position.rows.test=6")
    (found,) = estimate(plan)
    assert found.own_tokenizer
    assert found.hours is None
    metas = _asked(plan)
    assert found.n_requests == _sum(metas, "rows")
    assert found.prompt_tokens == pytest.approx(_sum(metas, "prompt_tokens"), rel=0.05)
    assert found.computed_tokens == pytest.approx(_sum(metas, "computed_tokens"), rel=0.15)
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
