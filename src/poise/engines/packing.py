"""Sharing work between prompts: which prefixes to compute once, and how many suffixes fit one forward pass."""

from __future__ import annotations

from collections.abc import Sequence

from poise.engines.base import MicroBatch, Query, TokenIds


def pack_queries(queries: Sequence[Query], n_extra_tokens: Sequence[int], pack_tokens: int) -> list[MicroBatch]:
    """Cut queries into packs; fixed by the list of queries and ``pack_tokens`` alone.

    Parameters
    ----------
    queries
        Tokenised prompts.
    n_extra_tokens
        Tokens that each query adds besides its prompt (inner nodes of its label trie).
    pack_tokens
        Suffix tokens in a forward pass at most, unless one query alone has more.

    Returns
    -------
    list of MicroBatch
        In the order to run: packs of one prefix stand together.
    """
    order = sorted(range(len(queries)), key=lambda k: (queries[k].prompt_ids, k))
    prompts = [queries[k].prompt_ids for k in order]
    packs: list[MicroBatch] = []
    for start, stop, n_prefix in shared_prefixes(prompts):
        members: list[int] = []
        used = 0
        for k in order[start:stop]:
            size = len(queries[k].prompt_ids) - n_prefix + n_extra_tokens[k]
            if members and used + size > pack_tokens:
                packs.append(MicroBatch(tuple(members), n_prefix))
                members, used = [], 0
            members.append(k)
            used += size
        packs.append(MicroBatch(tuple(members), n_prefix))
    return packs


def shared_prefixes(prompts: Sequence[TokenIds]) -> list[tuple[int, int, int]]:
    """Cover sorted prompts by groups (start, stop, prefix length) so that few tokens are computed.

    A group costs its prefix once and each of its suffixes. For every node of the prompts' trie, one group of all
    prompts below it competes with the covers of its branches, and the cheaper wins; a prompt keeps at least its last
    token.
    """
    return _cover(prompts, 0, len(prompts))[1] if prompts else []


def _cover(prompts: Sequence[TokenIds], start: int, stop: int) -> tuple[int, list[tuple[int, int, int]]]:
    first, last = prompts[start], prompts[stop - 1]
    depth = common_prefix_length(first, last)
    n_prefix = min(depth, min(len(first), len(last)) - 1)
    lengths = sum(len(prompts[k]) for k in range(start, stop))
    together = lengths - (stop - start - 1) * n_prefix
    if depth == len(last):  # all equal
        return together, [(start, stop, n_prefix)]
    apart: list[tuple[int, int, int]] = []
    cost = 0
    k = start
    while k < stop:
        end = k + 1
        while end < stop and prompts[end][: depth + 1] == prompts[k][: depth + 1]:
            end += 1
        branch_cost, groups = _cover(prompts, k, end)
        cost += branch_cost
        apart += groups
        k = end
    return (together, [(start, stop, n_prefix)]) if together <= cost else (cost, apart)


def common_prefix_length(first: TokenIds, second: TokenIds) -> int:
    """Number of leading tokens that two sequences share."""
    n = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        n += 1
    return n
