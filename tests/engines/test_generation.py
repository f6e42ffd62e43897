"""Text generation: one token's choice, thinking blocks, and the real model against transformers' own generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import chisquare

from poise.engines.base import Generated, GenerationQuery, Query
from poise.engines.generation import (
    choose_token,
    group_queries,
    prefilled_tokens,
    read_generated,
    split_thinking,
    thinking_is_open,
)
from poise.engines.transformers import TransformersEngine
from poise.prompts.text import Generation, PromptText, Request

GREEDY = Generation(8)
SHOTS = 4 * "Review: A splendid, moving film.\nSentiment: great\n\nReview: Dull from start to end.\nSentiment: bad\n\n"
PROMPTS = [
    *(f"{SHOTS}Review: {text}\nSentiment:" for text in ("A joy.", "It drags on, and the jokes fall flat.", "So-so.")),
    "Hello",
    "The capital of France is",
    "def add(a, b):\n    return",
    "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen,",
]


# Choosing one token


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    assert choose_token(np.array([0.0, 2.0, 2.0]), GREEDY, np.random.default_rng(0)) == 1


def test_sampling_follows_the_tempered_softmax() -> None:
    logits = np.array([1.0, 0.0, -1.0, 2.0])
    stream = np.random.default_rng(0)
    drawn = [choose_token(logits, Generation(1, temperature=0.7), stream) for _ in range(4000)]
    assert chisquare(np.bincount(drawn, minlength=4), 4000 * softmax(logits / 0.7)).pvalue > 0.001


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = np.log([0.1, 0.5, 0.3, 0.1])
    stream = np.random.default_rng(0)
    drawn = [choose_token(logits, Generation(1, temperature=1.0, top_p=0.7), stream) for _ in range(4000)]
    counts = np.bincount(drawn, minlength=4)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert chisquare(counts[[1, 2]], [2500, 1500]).pvalue > 0.001
    drawn = [choose_token(logits, Generation(1, temperature=1.0, top_p=0.85), stream) for _ in range(500)]
    assert set(drawn) == {0, 1, 2}  # of equals the lower id


def test_a_draw_at_the_very_end_takes_a_possible_token() -> None:
    class Last(np.random.Generator):
        def random(self) -> float:  # type: ignore[override]
            return 1.0

    stream = Last(np.random.PCG64(0))
    assert choose_token(np.array([0.0, 0.0, -1e9]), Generation(1, temperature=1.0), stream) == 1


@pytest.mark.parametrize("wrong", [{"max_new_tokens": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_impossible_decoding_is_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="found Generation"):
        replace(GREEDY, **wrong)


# Requests


def test_generation_is_part_of_a_requests_identity_and_scores_keep_theirs() -> None:
    request = Request(PromptText("head ", (), "query"), (" 1", " 2"))
    assert request.id == "34ec5eee18fdfe31"  # sha256 of ["head query",0,[" 1"," 2"],false,0]
    others = [
        replace(request, generation=how, replicate=k)
        for k in range(2)
        for how in (GREEDY, Generation(9), Generation(8, 0.7), Generation(8, 0.7, 0.9))
    ]
    assert len({request.id, *(other.id for other in others)}) == 9
    assert replace(request, generation=Generation(8, 1)).id == replace(request, generation=Generation(8, 1.0)).id


# Thinking blocks


@pytest.mark.parametrize(
    ("text", "opened", "hidden", "visible"),
    [
        ("1", False, "", "1"),
        ("<think>so</think>\n\n1", False, "<think>so</think>\n\n", "1"),
        ("\n<think>so</think>1", False, "\n<think>so</think>", "1"),
        ("so</think>\n1", True, "so</think>\n", "1"),
        ("so</think>\n1", False, "so</think>\n", "1"),
        ("<think>so it is 1", False, "<think>so it is 1", ""),
        ("so it is 1", True, "so it is 1", ""),
        ("<think></think>", False, "<think></think>", ""),
        ("<think>a</think> 1 <think>b</think> 2", False, "<think>a</think> ", "1 <think>b</think> 2"),
        ("1 <think>", False, "", "1 <think>"),
        ("", False, "", ""),
    ],
)
def test_a_thinking_block_is_cut_off(text: str, opened: bool, hidden: str, visible: str) -> None:
    assert split_thinking(text, opened) == (hidden, visible)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("<assistant>\n<think>\n", True), ("<think>\n\n</think>\n\n", False), ("Label:", False), ("", False)],
)
def test_a_template_may_open_the_block(prompt: str, expected: bool) -> None:
    assert thinking_is_open(prompt) == expected


VOCABULARY = ["<think>", "</think>", "\n\n", "yes", " no", "<end>", "</", "think>"]


def _decode(ids: Sequence[int], skip_special_tokens: bool) -> str:
    return "".join(VOCABULARY[k] for k in ids if not (skip_special_tokens and VOCABULARY[k] in ("<end>", "</think>")))


@pytest.mark.parametrize(
    ("ids", "opened", "expected"),
    [
        ([3, 4], False, Generated("yes no", 2, 0)),
        ([3, 5, 4], False, Generated("yes no", 3, 0)),
        ([0, 4, 4, 1, 2, 3, 5], False, Generated("yes", 7, 5)),
        ([4, 1, 3], True, Generated("yes", 3, 2)),
        ([0, 4, 6, 7, 3, 4], False, Generated("yes no", 6, 4)),
        ([0, 4, 4], False, Generated("", 3, 3)),
        ([4, 4], True, Generated("", 2, 2)),
        ([0, 4, 1, 2], False, Generated("", 4, 4)),
        ([], False, Generated("", 0, 0)),
    ],
)
def test_hidden_tokens_are_counted(ids: list[int], opened: bool, expected: Generated) -> None:
    assert read_generated(ids, _decode, opened) == expected


# Groups


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_groups_hold_each_query_once_behind_what_they_share(seed: int, share: bool) -> None:
    draw = np.random.default_rng(seed)
    heads = [tuple(draw.integers(0, 9, 200).tolist()) for _ in range(2)]
    prompts = [
        (*heads[draw.integers(2)][: draw.integers(1, 200)], *draw.integers(0, 3, draw.integers(1, 9)).tolist())
        for _ in range(draw.integers(1, 80))
    ]
    queries = [GenerationQuery(prompt, GREEDY, k) for k, prompt in enumerate(prompts)]
    batches = group_queries(queries, 16, share)
    assert sorted(k for batch in batches for k in batch.members) == list(range(len(queries)))
    for batch in batches:
        assert len(batch.members) <= 16
        assert len({prompts[k][: batch.n_prefix] for k in batch.members}) == 1
        assert all(batch.n_prefix < len(prompts[k]) for k in batch.members)
        assert share or batch.n_prefix == 0


def test_long_demonstrations_and_equal_prompts_are_computed_once() -> None:
    prefix = tuple(range(900))
    prompts = [(*prefix, 1000 + k // 2, 1, 2, 3) for k in range(20)]  # each text twice, as for two replicates
    queries = [GenerationQuery(prompt, GREEDY, k) for k, prompt in enumerate(prompts)]
    batches = group_queries(queries, 16, True)
    assert prefilled_tokens(queries, batches) == 900 + 10 * 4


# The real model


@pytest.fixture(scope="module")
def engine(model_dir: Path) -> TransformersEngine:
    return TransformersEngine(model_dir)


def _queries(engine: TransformersEngine, prompts: Sequence[str], how: Generation = GREEDY) -> list[GenerationQuery]:
    return [GenerationQuery(tuple(engine.encode(prompt)), how, seed) for seed, prompt in enumerate(prompts)]


def _write(engine: TransformersEngine, queries: Sequence[GenerationQuery], regroup: bool = False) -> list[Generated]:
    found: dict[int, Generated] = {}
    for batch in engine.generation_batches(queries, regroup):
        found.update(zip(batch.members, engine.generate(queries, batch), strict=True))
    return [found[k] for k in range(len(queries))]


@torch.inference_mode()
def _theirs(engine: TransformersEngine, query: GenerationQuery) -> tuple[str, int]:
    """Text and number of tokens from transformers' own greedy generation, one prompt at a time."""
    ids = torch.tensor([query.prompt_ids])
    new = engine.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=query.generation.max_new_tokens,
        do_sample=False,
        pad_token_id=0,
    )[0, len(query.prompt_ids) :].tolist()
    end = engine.tokenizer.tokenizer.eos_token_id
    n = new.index(end) if end in new else len(new)
    return engine.tokenizer.decode(new[:n], True), n


@pytest.mark.slow
def test_greedy_texts_equal_transformers_own(engine: TransformersEngine) -> None:
    queries = _queries(engine, PROMPTS)
    assert {batch.n_prefix > 50 for batch in engine.generation_batches(queries)} == {True, False}
    answers = _write(engine, queries)
    assert [(answer.text, answer.n_tokens) for answer in answers] == [_theirs(engine, query) for query in queries]
    assert {answer.n_hidden_tokens for answer in answers} == {0}


@pytest.mark.slow
def test_texts_end_where_the_model_ends_them(engine: TransformersEngine) -> None:
    """Chat turns of different lengths: rows leave the group one after the other."""
    turns = ["Say hello.", "Name one colour.", "Answer with one word: is water wet?", "What is 2 + 2?"]
    prompts = [engine.encode(engine.chat_text(turn), special_tokens=False) for turn in turns]
    queries = [GenerationQuery(tuple(ids), Generation(6 + 6 * k), 0) for k, ids in enumerate(prompts)]
    answers = _write(engine, queries)
    assert [(answer.text, answer.n_tokens) for answer in answers] == [_theirs(engine, query) for query in queries]
    assert any(
        answer.n_tokens < query.generation.max_new_tokens for answer, query in zip(answers, queries, strict=True)
    )


@pytest.mark.slow
def test_the_first_token_is_what_scoring_finds_most_probable(engine: TransformersEngine) -> None:
    queries = _queries(engine, PROMPTS, Generation(1))
    for query, answer in zip(queries, _write(engine, queries), strict=True):
        token = engine.encode(answer.text)
        scores = engine.score(
            [Query(query.prompt_ids, (tuple(token), (0,)))], engine.micro_batches([_as_score(query)])[0]
        )
        assert scores[0].greedy == 0


def _as_score(query: GenerationQuery) -> Query:
    return Query(query.prompt_ids, ((0,),))


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_one_against_many(engine: TransformersEngine, temperature: float) -> None:
    queries = _queries(engine, PROMPTS[1:], Generation(5, temperature))
    together = _write(engine, queries)
    assert [_write(engine, [query])[0] for query in queries] == together
    assert _write(engine, queries[::-1])[::-1] == together
    assert _write(engine, queries * 2, regroup=True) == together * 2


@pytest.mark.slow
def test_sampling_is_seeded_by_the_request_alone(engine: TransformersEngine) -> None:
    first = _queries(engine, PROMPTS, Generation(8, 0.7))
    second = [replace(query, seed=query.seed + 1000) for query in first]
    answers = _write(engine, [*first, *second])
    assert answers == _write(engine, [*first, *second])
    differ = [a.text != b.text for a, b in zip(answers[: len(first)], answers[len(first) :], strict=True)]
    assert sum(differ) >= len(first) // 2


@pytest.mark.slow
def test_samples_follow_the_models_probabilities(engine: TransformersEngine) -> None:
    n = 400
    (one,) = _queries(engine, ["Hello"], Generation(1, 0.7))
    logits = engine.model(torch.tensor([one.prompt_ids])).logits[0, -1].double().detach().numpy()
    probabilities = softmax(logits / 0.7)
    texts = [answer.text for answer in _write(engine, [replace(one, seed=seed) for seed in range(n)])]
    likely = [k for k in np.argsort(-probabilities) if n * probabilities[k] >= 5]
    assert len(likely) >= 5
    expected = n * probabilities[likely]
    found = np.array([texts.count(engine.tokenizer.decode([k], False)) for k in likely])
    statistic = chisquare([*found, n - found.sum()], [*expected, n - expected.sum()])
    assert statistic.pvalue > 0.001
