"""What every engine that loads weights must do, on the real model, against a full softmax by transformers in float32.

The truth is one plain forward pass for each prompt and label, by itself. Engines in float32 must be within 1e-4 nats of
it; in bfloat16 the weights themselves are rounded, and the tolerance is what rounding costs this model.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from poise.config.engines import TransformersConfig, VLLMConfig
from poise.config.models import Model
from poise.engines.ask import ask, tokenise
from poise.engines.base import Engine, GenerationQuery, LabelScores, Query, open_engine
from poise.prompts.text import Generation, PromptText, Request

pytestmark = pytest.mark.slow

NATS = {"float32": 1e-4, "bfloat16": 0.5}
SHOTS = 4 * "Review: A splendid, moving film.\nSentiment: great\n\nReview: Dull from start to end.\nSentiment: bad\n\n"
TEXTS = ["A joy.", "It drags on and on, and the jokes fall flat.", "Neither here nor there.", "A joy."]
LABELS = [" terrible", " bad", " okay", " good", " great", " so-so", " not bad at all", " not good"]
GREEDY = Generation(6)

_VLLM = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed here: make test-vllm runs this")
ENGINES = [
    pytest.param(("transformers", "float32"), id="transformers-float32"),
    pytest.param(("transformers", "bfloat16"), id="transformers-bfloat16"),
    pytest.param(("vllm", "float32"), id="vllm-float32", marks=_VLLM),
    pytest.param(("vllm", "bfloat16"), id="vllm-bfloat16", marks=_VLLM),
]


def _model() -> Model:
    source = {"kind": "files", "folder": "."}
    return Model.model_validate({"name": "m", "title": "M", "source": source, "context_length": 2048})


def _open(kind: str, dtype: str, model_dir: Path) -> Engine:
    config: Any
    if kind == "vllm":
        config = VLLMConfig(dtype=dtype, eager=True, cpu_cache_gib=1, call_requests=8)
    else:
        config = TransformersConfig(dtype=dtype, pack_tokens=24)
    return open_engine(config, _model(), model_dir)


@pytest.fixture(scope="module", params=ENGINES)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture(scope="module")
def engine(kind: tuple[str, str], model_dir: Path) -> Iterator[Engine]:
    engine = _open(*kind, model_dir)
    yield engine
    if kind[0] == "vllm":
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        del engine
        gc.collect()
        cleanup_dist_env_and_memory()


@pytest.fixture(scope="module")
def nats(kind: tuple[str, str]) -> float:
    return NATS[kind[1]]


@pytest.fixture(scope="module")
def plain(model_dir: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()


def _query(engine: Engine, prompt: str, labels: Sequence[str] = LABELS) -> Query:
    return Query(tuple(engine.encode(prompt)), tuple(tuple(engine.encode(label, False)) for label in labels))


@pytest.fixture(scope="module")
def queries(engine: Engine) -> list[Query]:
    """Prompts that share long, short and no prefixes; labels of one to five tokens, some the starts of others."""
    shared = [_query(engine, f"{SHOTS}Review: {text}\nSentiment:") for text in TEXTS]
    other = [_query(engine, f"{text} Overall:") for text in TEXTS]
    numeric = [_query(engine, f"{SHOTS}Rate it.\nLabel:", [" 1", " 2", " 3", " 45"])]
    many = Query(shared[1].prompt_ids, tuple((token,) for token in range(1000, 1150)))  # beyond one request of vLLM
    return [*shared, *other, *numeric, _query(engine, "Hello"), many]


@torch.inference_mode()
def _truth(model: Any, query: Query) -> np.ndarray:
    """Chain rule over full-vocabulary log-softmax: equal prompts of one-token labels share their pass."""
    found = []
    passes: dict[tuple[int, ...], torch.Tensor] = {}
    for label in query.label_ids:
        ids = (*query.prompt_ids, *label[:-1])
        if ids not in passes:
            passes[ids] = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
        start = len(query.prompt_ids) - 1
        found.append(sum(float(passes[ids][start + k, token]) for k, token in enumerate(label)))
    return np.array(found)


def _ask(engine: Engine, queries: Sequence[Query], regroup: bool = False) -> list[LabelScores]:
    answers: dict[int, LabelScores] = {}
    for batch in engine.micro_batches(queries, regroup):
        answers.update(zip(batch.members, engine.score(queries, batch), strict=True))
    return [answers[k] for k in range(len(queries))]


@pytest.fixture(scope="module")
def answers(engine: Engine, queries: list[Query]) -> list[LabelScores]:
    return _ask(engine, queries)


def _close(one: Sequence[LabelScores], other: Sequence[LabelScores], nats: float) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=nats, rtol=0)


def test_scores_equal_a_full_softmax(queries, answers, plain, nats) -> None:
    for query, answer in zip(queries, answers, strict=True):
        likely = _truth(plain, query)
        shown = likely > -12 if nats > 0.1 else slice(None)  # rounding grows where probabilities vanish
        np.testing.assert_allclose(answer.logprobs[shown], likely[shown], atol=nats, rtol=0)


def test_order_does_not_matter(engine, queries, answers, nats) -> None:
    _close(answers, _ask(engine, queries[::-1])[::-1], nats)


def test_one_by_one_equals_all_at_once(engine, queries, answers, nats) -> None:
    _close([_ask(engine, [query])[0] for query in queries], answers, nats)


def test_regrouping_changes_the_groups_not_the_answers(engine, queries, answers, nats) -> None:
    assert engine.micro_batches(queries, regroup=True) != engine.micro_batches(queries)
    _close(answers, _ask(engine, queries, regroup=True), nats)


def test_duplicates_get_equal_answers(answers, nats) -> None:
    _close([answers[0]], [answers[3]], nats)


def test_labels_may_be_permuted(engine, queries, answers, nats) -> None:
    order = np.random.default_rng(0).permutation(len(LABELS))
    permuted = Query(queries[1].prompt_ids, tuple(queries[1].label_ids[k] for k in order))
    np.testing.assert_allclose(_ask(engine, [permuted])[0].logprobs, answers[1].logprobs[order], atol=nats, rtol=0)


def test_the_chain_rule_adds_up(engine, queries) -> None:
    """A label's score is its start's plus that of the rest after the start."""
    query, label = queries[0], tuple(engine.encode(" not bad at all", False))
    whole = _ask(engine, [Query(query.prompt_ids, (label,))])[0].logprobs[0]
    start = _ask(engine, [Query(query.prompt_ids, (label[:1],))])[0].logprobs[0]
    rest = _ask(engine, [Query((*query.prompt_ids, label[0]), (label[1:],))])[0].logprobs[0]
    assert whole == pytest.approx(start + rest, abs=0.1)


def test_a_label_is_never_more_probable_than_its_start(engine, queries) -> None:
    query, label = queries[0], tuple(engine.encode(" not bad at all", False))
    prefixes = tuple(label[:k] for k in range(1, len(label) + 1))
    scores = _ask(engine, [Query(query.prompt_ids, prefixes)])[0].logprobs
    assert all(later <= earlier for earlier, later in pairwise(scores))


def test_the_same_micro_batch_gives_the_same_bits_whatever_ran_before(engine, queries) -> None:
    batches = engine.micro_batches(queries)
    first = [engine.score(queries, batch) for batch in batches]
    again = [engine.score(queries, batch) for batch in reversed(batches)][::-1]
    for one, other in zip(first, again, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.logprobs.tobytes() == b.logprobs.tobytes()


def test_what_prompts_share_is_computed_once(engine) -> None:
    queries = [_query(engine, f"{SHOTS}Review: film {k}\nSentiment:", LABELS[:3]) for k in range(8)]
    before = engine.n_computed_tokens
    _ask(engine, queries)
    asked = sum(len(query.prompt_ids) for query in queries)
    assert engine.n_computed_tokens - before < asked / 2


def test_greedy_texts_start_with_the_most_probable_token(engine, queries) -> None:
    written = [GenerationQuery(query.prompt_ids, GREEDY, 0) for query in queries]
    for batch in engine.generation_batches(written):
        for k, answer in zip(batch.members, engine.generate(written, batch), strict=True):
            first = answer.ids[0]
            found = _ask(engine, [Query(queries[k].prompt_ids, ((first,), ((first + 1) % 49152,)))])[0]
            assert found.greedy == 0


def test_greedy_texts_equal_transformers_own(engine, kind, queries, plain) -> None:
    if kind[1] != "float32":
        return
    written = [GenerationQuery(query.prompt_ids, GREEDY, 0) for query in queries[:6]]
    for batch in engine.generation_batches(written):
        for k, answer in zip(batch.members, engine.generate(written, batch), strict=True):
            ids = torch.tensor([queries[k].prompt_ids])
            theirs = plain.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False, pad_token_id=0
            )[0, ids.shape[1] :].tolist()  # fmt: skip
            assert list(answer.ids) == theirs[: len(answer.ids)]


def test_samples_depend_on_their_seed_alone(engine, queries) -> None:
    how = Generation(6, temperature=1.0)
    alike = [GenerationQuery(query.prompt_ids, how, seed) for query in queries[:3] for seed in (1, 2)]
    first, again = _write(engine, alike), _write(engine, alike[::-1])[::-1]
    assert first == again
    many = _write(engine, [GenerationQuery(queries[0].prompt_ids, how, seed) for seed in range(12)])
    assert len(set(many)) > 3


def _write(engine: Engine, queries: Sequence[GenerationQuery]) -> list[str]:
    texts: dict[int, str] = {}
    for batch in engine.generation_batches(queries):
        texts.update({k: answer.text for k, answer in zip(batch.members, engine.generate(queries, batch), strict=True)})
    return [texts[k] for k in range(len(queries))]


class _Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


def test_a_killed_batch_resumes_to_the_same_bytes(engine, tmp_path, monkeypatch) -> None:
    requests = [
        Request(PromptText(SHOTS, (), f"Review: film {k}\nSentiment:"), tuple(LABELS[:5]), generation=how)
        for k in range(12)
        for how in (None, GREEDY)
    ]
    tokenised = tokenise(engine, requests, "sequence", 2048, "model m")
    whole = ask(engine, requests, tokenised, tmp_path / "whole", 0.0, "whole").responses
    score, n = engine.score, 0

    def dies(queries: Sequence[Query], batch: Any) -> list[LabelScores]:
        nonlocal n
        n += 1
        if n > 1:
            raise _Killed
        return score(queries, batch)

    monkeypatch.setattr(engine, "score", dies)
    with pytest.raises(_Killed):
        ask(engine, requests, tokenised, tmp_path / "killed", 0.0, "killed")
    monkeypatch.setattr(engine, "score", score)
    resumed = ask(engine, requests, tokenised, tmp_path / "killed", 0.0, "resumed")
    assert resumed.n_resumed > 0
    found = [row.tobytes() if row is not None else None for row in resumed.responses["logprobs"]]
    assert found == [row.tobytes() if row is not None else None for row in whole["logprobs"]]
    assert resumed.responses["text"].tolist() == whole["text"].tolist()


def test_the_batch_says_what_made_it(engine, kind) -> None:
    told = engine.description()
    assert (told["engine"], told["dtype"]) == kind
    assert {"torch", "device", "chat_template_sha256"} <= told.keys()
    assert kind[0] != "vllm" or {"vllm", "batch_invariant", "cached_tokens"} <= told.keys()
