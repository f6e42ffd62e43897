"""Every model of both papers has a configuration, and says what it is."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from poise.config.compose import compose_study
from poise.config.models import Model
from tests.conftest import ROOT

OTHER_NAMES = {"chatgpt": "gpt-3.5-turbo-instruct", "qwen3-8b-instruct": "qwen3-8b"}
BASE = {"gpt2-xl", "gemma-2-2b", "llama-2-7b", "llama-2-13b", "llama-2-70b", "qwen3-8b-base", "gpt-3.5-turbo-instruct"}
GATED = {"gemma-2-2b", "gemma3-12b", "llama-2-7b", "llama-2-13b", "llama-2-70b"}


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        names = ",".join(sorted(path.stem for path in Path("conf/model").glob("*.yaml")))
        return compose_study(["study=dnip", f"model=[{names}]"]).models


def _printed() -> set[str]:
    """Models in the papers' tables."""
    found: set[str] = set()
    for path in sorted((ROOT / "data" / "reference").glob("*/*.csv")):
        table = pd.read_csv(path, comment="#", dtype=str)
        if "model" in table:
            found |= set(table["model"].dropna())
        if "factor" in table:
            found |= set(table.loc[table["factor"] == "model", "level"])
    return {OTHER_NAMES.get(name, name) for name in found}


def test_every_model_of_the_papers_has_a_configuration(models: dict[str, Model]) -> None:
    printed = _printed()
    assert len(printed) == 5 + 1 + 10 + 8  # DNIP's open ones and ChatGPT; Phase 0; Phase 1
    assert printed <= set(models)


def test_base_models_get_raw_text_and_the_others_a_chat_turn(models: dict[str, Model]) -> None:
    assert {name for name in _printed() if not models[name].chat} == BASE


def test_gated_models_say_so(models: dict[str, Model]) -> None:
    assert {name for name, model in models.items() if model.source.kind == "hub" and model.source.gated} == GATED


def test_checkpoints_are_pinned_or_assumed(models: dict[str, Model]) -> None:
    for name, model in models.items():
        if model.source.kind == "hub":
            assert model.assumed or len(model.source.revision) == 40, name
