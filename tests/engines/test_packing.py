"""Packs hold every query once, fit their size, and compute shared tokens few times."""

from __future__ import annotations

import random

import pytest

from poise.engines.base import MicroBatch, Query
from poise.engines.packing import common_prefix_length, computed_tokens, pack_queries, shared_prefixes


def _queries(prompts: list[tuple[int, ...]]) -> list[Query]:
    return [Query(prompt, ((1,), (2,))) for prompt in prompts]


def _check(queries: list[Query], packs: list[MicroBatch], extra: list[int], pack_tokens: int) -> None:
    assert sorted(k for pack in packs for k in pack.members) == list(range(len(queries)))
    for pack in packs:
        prompts = [queries[k].prompt_ids for k in pack.members]
        assert len({prompt[: pack.n_prefix] for prompt in prompts}) == 1
        assert all(pack.n_prefix < len(prompt) for prompt in prompts)
        alone = computed_tokens(queries, [pack]) - pack.n_prefix + sum(extra[k] for k in pack.members)
        assert alone <= pack_tokens or len(pack.members) == 1


@pytest.mark.parametrize("seed", range(80))
def test_packs_are_valid_for_any_prompts(seed: int) -> None:
    draw = random.Random(seed)
    prompts = [tuple(draw.randrange(2) for _ in range(draw.randrange(1, 12))) for _ in range(draw.randrange(1, 40))]
    queries = _queries(prompts)
    extra = [draw.randrange(3) for _ in prompts]
    pack_tokens = draw.randrange(2, 30)
    packs = pack_queries(queries, extra, pack_tokens)
    _check(queries, packs, extra, pack_tokens)
    assert packs == pack_queries(list(queries), list(extra), pack_tokens)


def test_long_demonstrations_are_computed_once() -> None:
    prefix = tuple(range(900))
    queries = _queries([(*prefix, 1000 + k, *range(20)) for k in range(100)])
    packs = pack_queries(queries, [0] * 100, 256)
    assert {pack.n_prefix for pack in packs} == {900}
    assert computed_tokens(queries, packs) == 900 + 100 * 21


def test_two_sets_of_demonstrations_have_a_prefix_each() -> None:
    first, second = (7, *range(10, 210)), (7, *range(250, 450))
    prompts = sorted([(*first, 1000 + k, 5) for k in range(90)] + [(*second, 2000 + k, 5) for k in range(90)])
    assert [(n, len(places)) for n, places in shared_prefixes(prompts, 64)] == [(201, 90), (201, 90)]


def test_what_neighbours_share_inside_a_pack_is_computed_once() -> None:
    query = tuple(range(50))
    queries = _queries([(*query, 100 + k, *range(10)) for k in range(3)])
    packs = pack_queries(queries, [0] * 3, 512)
    assert packs == [MicroBatch((0, 1, 2), 0)]
    assert computed_tokens(queries, packs) == 50 + 3 * 11


def test_a_query_longer_than_a_pack_runs_alone() -> None:
    queries = _queries([tuple(range(k, k + 30)) for k in (0, 100)])
    assert sorted(pack.members for pack in pack_queries(queries, [0, 0], 8)) == [(0,), (1,)]


def test_equal_prompts_with_other_labels_share_all_their_tokens() -> None:
    queries = [Query((1, 2, 3), ((k,),)) for k in range(4)]
    packs = pack_queries(queries, [0] * 4, 64)
    assert computed_tokens(queries, packs) == 3


def test_no_queries_no_packs() -> None:
    assert pack_queries([], [], 8) == []


def test_common_prefix_length() -> None:
    assert common_prefix_length((1, 2, 3), (1, 2, 4, 5)) == 2
    assert common_prefix_length((), (1,)) == 0
