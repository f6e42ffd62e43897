"""Sharing work between prompts: which prefixes to compute once, and which suffixes to put into one forward pass.

Prompts form a trie of tokens. Inside one forward pass (a pack) shared tokens are computed once. A prefix that many
packs share is computed once before them and cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from poise.engines.base import MicroBatch, Query, TokenIds

# What computing a prefix by itself costs besides its tokens, in tokens: a forward pass more, inefficient when short.
PREFIX_OVERHEAD = 64


def pack_queries(queries: Sequence[Query], n_extra_tokens: Sequence[int], pack_tokens: int) -> list[MicroBatch]:
    """Cut queries into packs; fixed by the list of queries and ``pack_tokens`` alone.

    Parameters
    ----------
    queries
        Tokenised prompts.
    n_extra_tokens
        Tokens that each query adds besides its prompt (inner nodes of its label trie).
    pack_tokens
        Tokens in a forward pass at most, besides the cached prefix, unless one query alone has more.

    Returns
    -------
    list of MicroBatch
        In the order to run: packs of one prefix stand together, members in the order of their tokens.
    """
    order = sorted(range(len(queries)), key=lambda k: (queries[k].prompt_ids, k))
    prompts = [queries[k].prompt_ids for k in order]
    packs: list[MicroBatch] = []
    for n_prefix, group in shared_prefixes(prompts, pack_tokens):
        members: list[int] = []
        used = 0
        previous: TokenIds = ()
        for place in group:
            prompt, k = prompts[place], order[place]
            n_shared = max(n_prefix, common_prefix_length(previous, prompt)) if members else n_prefix
            size = len(prompt) - n_shared + n_extra_tokens[k]
            if members and used + size > pack_tokens:
                packs.append(MicroBatch(tuple(members), n_prefix))
                members, used = [], 0
                size = len(prompt) - n_prefix + n_extra_tokens[k]
            members.append(k)
            used += size
            previous = prompt
        packs.append(MicroBatch(tuple(members), n_prefix))
    return packs


def shared_prefixes(prompts: Sequence[TokenIds], pack_tokens: int) -> list[tuple[int, list[int]]]:
    """Groups of sorted prompts with the prefix to cache for each: (prefix length, places in ``prompts``).

    A subtree of the prompts' trie gets a cached prefix of its own where that costs less than computing the same tokens
    again in each of its packs; otherwise it stays with the group above.
    """
    return _Cover(prompts, pack_tokens).groups()


class _Cover:
    def __init__(self, prompts: Sequence[TokenIds], pack_tokens: int) -> None:
        self.prompts = prompts
        self.pack_tokens = pack_tokens
        # shared[k]: tokens that prompt k shares with the one before it; new[k]: running total of the others.
        self.shared = [common_prefix_length(first, second) for first, second in pairwise([(), *prompts])]
        self.new = [0, *accumulate(len(prompt) - n for prompt, n in zip(prompts, self.shared, strict=True))]

    def groups(self) -> list[tuple[int, list[int]]]:
        return self._group(0, len(self.prompts), 0) if self.prompts else []

    def _group(self, start: int, stop: int, n_prefix: int) -> list[tuple[int, list[int]]]:
        own: list[int] = []
        below: list[tuple[int, list[int]]] = []
        pending = [(start, stop)]
        while pending:
            first, last = pending.pop()
            depth = self._depth(first, last)
            if last - first == 1:
                own.append(first)
            elif self._packs(first, last, depth) * (depth - n_prefix) > depth + PREFIX_OVERHEAD:
                below += self._group(first, last, depth)
            else:
                pending += reversed(self._branches(first, last, depth))
        return ([(n_prefix, own)] if own else []) + below

    def _depth(self, start: int, stop: int) -> int:
        """Tokens that all prompts of a range share; each keeps its last token for itself."""
        if stop - start == 1:
            return len(self.prompts[start]) - 1
        return min(min(self.shared[start + 1 : stop]), min(map(len, self.prompts[start:stop])) - 1)

    def _packs(self, start: int, stop: int, depth: int) -> int:
        """Forward passes that the tokens below ``depth`` take at least."""
        tokens = len(self.prompts[start]) + self.new[stop] - self.new[start + 1] - depth
        return -(-tokens // self.pack_tokens)

    def _branches(self, start: int, stop: int, depth: int) -> list[tuple[int, int]]:
        """Cut a range where prompts share no more than its own depth."""
        cuts = [start, *(k for k in range(start + 1, stop) if self.shared[k] <= depth), stop]
        branches = list(pairwise(cuts))
        # Equal prompts cannot be cut by what they share: one by one.
        return branches if len(branches) > 1 else [(k, k + 1) for k in range(start, stop)]


def computed_tokens(queries: Sequence[Query], batches: Sequence[MicroBatch]) -> int:
    """Prompt tokens that running these micro-batches in their order computes."""
    total = 0
    cached: TokenIds = ()
    for batch in batches:
        prompts = [queries[k].prompt_ids for k in batch.members]
        prefix = prompts[0][: batch.n_prefix]
        total += 0 if prefix == cached else len(prefix)
        total += len(prompts[0]) - batch.n_prefix
        total += sum(len(b) - max(batch.n_prefix, common_prefix_length(a, b)) for a, b in pairwise(prompts))
        cached = prefix
    return total


def common_prefix_length(first: TokenIds, second: TokenIds) -> int:
    """Number of leading tokens that two sequences share."""
    n = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        n += 1
    return n
