"""What only the vLLM engine has: its checks on what comes back, its errors, a study that uses it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from poise import paths
from poise.answers import read_answers
from poise.config.engines import VLLMConfig
from poise.config.models import Model
from poise.engines.base import Query
from poise.engines.vllm import VLLMEngine
from poise.errors import PoiseError
from poise.planfile import make_plan
from poise.stages.extract import extract
from tests.conftest import ROOT

QUERIES = [Query((5, 6, 7), ((1, 2), (1, 3), (4,))), Query((5, 6, 8), ((1, 2), (1, 3), (4,)))]


class _Llm:
    """Answers as vLLM does, from a table of log-probabilities; every token is its own id's tenth."""

    def __init__(self, forgets: int = -1, shuffles: bool = False) -> None:
        self.forgets, self.shuffles = forgets, shuffles
        self.asked: list[tuple[tuple[int, ...], list[int]]] = []

    def reset_prefix_cache(self) -> None:
        self.asked.append(((), []))

    def generate(self, prompts: list[Any], how: list[Any], use_tqdm: bool) -> list[Any]:
        assert not use_tqdm
        outputs = []
        for prompt, sampling in zip(prompts, how, strict=True):
            wanted = sampling.logprob_token_ids
            assert (sampling.max_tokens, sampling.temperature, sampling.prompt_logprobs) == (1, 0.0, None)
            self.asked.append((tuple(prompt["prompt_token_ids"]), wanted))
            logprobs = {token: SimpleNamespace(logprob=-token / 10) for token in wanted if token != self.forgets}
            answer = SimpleNamespace(token_ids=[min(wanted)], logprobs=[logprobs], finish_reason="length")
            outputs.append(
                SimpleNamespace(prompt_token_ids=prompt["prompt_token_ids"], outputs=[answer], num_cached_tokens=2)
            )
        return outputs[::-1] if self.shuffles else outputs


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> VLLMEngine:
    """The engine without a model; the package itself is replaced, so that this runs everywhere."""
    fields = {"max_tokens": None, "temperature": None, "logprob_token_ids": None, "prompt_logprobs": None}
    sampling = lambda **given: SimpleNamespace(**{**fields, **given})  # noqa: E731
    module = SimpleNamespace(SamplingParams=sampling, TokensPrompt=lambda prompt_token_ids: {
        "prompt_token_ids": prompt_token_ids})  # fmt: skip
    monkeypatch.setitem(sys.modules, "vllm", module)
    engine = VLLMEngine.__new__(VLLMEngine)
    engine.config = VLLMConfig(call_requests=8)
    engine.n_computed_tokens = engine.n_cached_tokens = 0
    return engine


def _score(engine: VLLMEngine, llm: _Llm) -> list[Any]:
    engine.llm = llm
    (batch,) = engine.micro_batches(QUERIES)
    return engine.score(QUERIES, batch)


def test_each_inner_node_is_one_request_and_the_chain_rule_adds_up(bare: VLLMEngine) -> None:
    llm = _Llm()
    first, second = _score(bare, llm)
    assert [prompt for prompt, _ in llm.asked[1:]] == [(5, 6, 7), (5, 6, 7, 1), (5, 6, 8), (5, 6, 8, 1)]
    np.testing.assert_allclose(first.logprobs, [-0.3, -0.4, -0.4])
    assert first.greedy == 0  # the least id at each node: 1, then 2
    assert second.logprobs.tolist() == first.logprobs.tolist()
    assert (bare.n_computed_tokens, bare.n_cached_tokens) == (3 + 4 + 3 + 4 - 8, 8)


@pytest.mark.parametrize(("first", "n_requests"), [(9, 1), (3, 2)])
def test_what_all_labels_share_is_written_along_where_the_model_writes_it(
    bare: VLLMEngine, first: int, n_requests: int
) -> None:
    """Labels 9 1 and 9 2: one request if the model itself writes 9, otherwise one more at the node behind it."""
    asked: list[tuple[tuple[int, ...], int]] = []

    def generate(prompts: list[Any], how: list[Any], use_tqdm: bool) -> list[Any]:
        outputs = []
        for prompt, sampling in zip(prompts, how, strict=True):
            ids = tuple(prompt["prompt_token_ids"])
            asked.append((ids, sampling.max_tokens))
            written = ([first, 2] if ids[-1] != 9 else [2])[: sampling.max_tokens]
            logprobs = [
                {token: SimpleNamespace(logprob=-token / 10 - step) for token in sampling.logprob_token_ids}
                for step in range(len(ids) - 2, len(ids) - 2 + len(written))
            ]
            answer = SimpleNamespace(token_ids=written, logprobs=logprobs, finish_reason="length")
            outputs.append(SimpleNamespace(prompt_token_ids=list(ids), outputs=[answer], num_cached_tokens=0))
        return outputs

    bare.llm = SimpleNamespace(generate=generate, reset_prefix_cache=lambda: None)
    query = Query((5, 6), ((9, 1), (9, 2)))
    (found,) = bare.score([query], bare.micro_batches([query])[0])
    np.testing.assert_allclose(found.logprobs, [-0.9 - 0.1 - 1, -0.9 - 0.2 - 1])  # by hand: 9 at step 0, then 1 or 2
    assert found.greedy == (1 if first == 9 else -1)
    assert [ids for ids, _ in asked] == [(5, 6), (5, 6, 9)][:n_requests]
    assert asked[0][1] == 2


def test_a_missing_label_is_an_error(bare: VLLMEngine) -> None:
    with pytest.raises(PoiseError, match="no log-probability for token 3"):
        _score(bare, _Llm(forgets=3))


def test_answers_in_another_order_are_an_error(bare: VLLMEngine) -> None:
    with pytest.raises(PoiseError, match="another order"):
        _score(bare, _Llm(shuffles=True))


def test_the_prefix_cache_starts_empty_at_each_call(bare: VLLMEngine) -> None:
    bare.config = VLLMConfig(call_requests=1)
    bare.llm = llm = _Llm()
    for batch in bare.micro_batches(QUERIES):
        bare.score(QUERIES, batch)
    assert [prompt for prompt, _ in llm.asked].count(()) == 2


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    source = {"kind": "files", "folder": "."}
    model = Model.model_validate({"name": "m", "title": "M", "source": source, "context_length": 64})
    with pytest.raises(PoiseError, match=r"pip install 'poise\[vllm\]'"):
        VLLMEngine(VLLMConfig(), model, tmp_path)


@pytest.mark.slow
def test_a_study_with_vllm(demo_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real answers, the floor by regrouping and the metadata; within 1e-4 nats of the transformers engine."""
    pytest.importorskip("vllm", reason="make test-vllm runs this")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    (tmp_path / "data").symlink_to(ROOT / "data")
    overrides = [
        "study=demo", "experiment=[position]", "experiment.position.rows.test=6", "experiment.position.seeds=[0]",
        "experiment.position.probes=[label_order]", "method=[icl]", "experiment.position.methods=[icl]", "factor=[]",
        "experiment.position.content_free=[]",
    ]  # fmt: skip
    vllm = ["engine=vllm", "engine.dtype=float32", "engine.cpu_cache_gib=1", "engine.max_length=2048"]
    plans = [make_plan([*overrides, *vllm]), make_plan(overrides)]
    assert not {cell.id for cell in plans[0].cells} & {cell.id for cell in plans[1].cells}
    answers = []
    for plan in plans:
        for batch in plan.batches:
            extract(plan, batch.id)
        answers.append(list(read_answers(plan, plan.cells).values()))
    for ours, theirs in zip(*answers, strict=True):
        np.testing.assert_allclose(ours.probabilities, theirs.probabilities, atol=1e-4)
        assert ours.greedy.tolist() == theirs.greedy.tolist()
    floor = answers[0][0]
    asked_again = ~np.isnan(floor.regrouped).any(axis=1)
    assert asked_again.all()
    np.testing.assert_allclose(floor.regrouped, floor.probabilities, atol=1e-4)
    batch = plans[0].batches[0]
    meta = json.loads((paths.batch_dir(batch.model, batch.id) / "meta.json").read_text())
    assert (meta["engine"], meta["vllm"], meta["device"], meta["dtype"]) == ("vllm", "0.32.0", "cpu", "float32")
    assert meta["batch_invariant"] is False
    assert 0 < meta["computed_tokens"] < meta["prompt_tokens"]
    assert meta["cached_tokens"] > 0
    assert meta["prompts_per_second"] > 0
