"""Prefix sharing: the cover is valid and saves what there is to save."""

from __future__ import annotations

import random

import pytest

from poise.engines.base import Query
from poise.engines.packing import common_prefix_length, pack_queries, shared_prefixes


def _cost(groups: list[tuple[int, int, int]], prompts: list[tuple[int, ...]]) -> int:
    return sum(n + sum(len(prompts[k]) - n for k in range(start, stop)) for start, stop, n in groups)


@pytest.mark.parametrize("seed", range(60))
def test_cover_is_valid_and_no_worse_than_one_group_or_none(seed: int) -> None:
    draw = random.Random(seed)
    end = 9  # closes every prompt, so that none is the beginning of another
    prompts = sorted(
        (*(draw.randrange(2) for _ in range(draw.randrange(1, 9))), end) for _ in range(draw.randrange(1, 9))
    )
    groups = shared_prefixes(prompts)
    assert [k for start, stop, _ in groups for k in range(start, stop)] == list(range(len(prompts)))
    for start, stop, n in groups:
        assert len({prompt[:n] for prompt in prompts[start:stop]}) == 1
        assert all(n < len(prompt) for prompt in prompts[start:stop])
    shared = common_prefix_length(prompts[0], prompts[-1])
    assert _cost(groups, prompts) <= min(
        _cost([(0, len(prompts), min(shared, min(map(len, prompts)) - 1))], prompts), sum(map(len, prompts))
    )


def test_two_sets_of_demonstrations_share_each_its_own_prefix() -> None:
    first, second = (7, *range(10, 40)), (7, *range(50, 80))
    prompts = sorted([(*first, 1, k) for k in range(5)] + [(*second, 2, k) for k in range(5)])
    assert shared_prefixes(prompts) == [(0, 5, 32), (5, 10, 32)]


def test_short_accidental_prefixes_do_not_split_a_group() -> None:
    demonstrations = tuple(range(100, 160))
    prompts = sorted((*demonstrations, a, b) for a in range(3) for b in range(2))
    assert shared_prefixes(prompts) == [(0, 6, 60)]


def test_a_prompt_that_begins_another_keeps_its_last_token() -> None:
    assert _cost(shared_prefixes([(1, 2), (1, 2, 3), (1, 2, 4)]), [(1, 2), (1, 2, 3), (1, 2, 4)]) <= 6
    for start, stop, n in shared_prefixes([(1, 2), (1, 2), (1, 2, 3)]):
        assert n < min(len(prompt) for prompt in [(1, 2), (1, 2), (1, 2, 3)][start:stop])


def test_packs_hold_every_query_once_and_respect_their_size() -> None:
    prefix = tuple(range(50))
    queries = [Query((*prefix, *range(100 + k, 110 + k)), ((1,), (2,))) for k in range(20)]
    packs = pack_queries(queries, [1] * 20, pack_tokens=44)
    assert sorted(k for pack in packs for k in pack.members) == list(range(20))
    assert all(pack.n_prefix >= 50 for pack in packs)
    assert max(len(pack.members) for pack in packs) == 4


def test_packs_depend_on_the_list_only() -> None:
    queries = [Query((1, 2, k), ((5,),)) for k in range(9)]
    assert pack_queries(queries, [0] * 9, 4) == pack_queries(list(queries), [0] * 9, 4)


def test_a_query_longer_than_a_pack_runs_alone() -> None:
    queries = [Query(tuple(range(k, k + 30)), ((1,),)) for k in (0, 100)]
    assert sorted(pack.members for pack in pack_queries(queries, [0, 0], 8)) == [(0,), (1,)]


def test_no_queries_no_packs() -> None:
    assert pack_queries([], [], 8) == []
