"""What all engines that write text share: one token's choice, thinking blocks, which queries run together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from scipy.special import softmax

from poise.engines.base import Generated, GenerationQuery, MicroBatch
from poise.engines.packing import shared_prefixes
from poise.prompts.text import Generation

ROWS = 16
_THINK, _END_THINK = "<think>", "</think>"
# Suffix tokens that cost about as much as one more pass over their prefix, for the choice of prefixes to cache.
_PREFIX_UNIT = 16


def choose_token(logits: np.ndarray, generation: Generation, stream: np.random.Generator) -> int:
    """Choose the next token.

    Parameters
    ----------
    logits
        Logits (or log-probabilities) over the vocabulary, shape (n,).
    generation
        Greedy decoding takes the highest logit, the lowest id among equals. Sampling inverts the cumulative
        distribution, in the order of ids, at one uniform draw; ``top_p`` below 1 keeps the smallest set of most
        probable tokens that has this probability.
    stream
        Where the draw comes from; unused by greedy decoding.
    """
    if generation.temperature == 0:
        return int(np.argmax(logits))
    probabilities = softmax(np.asarray(logits, dtype=np.float64) / generation.temperature)
    if generation.top_p < 1:
        order = np.argsort(-probabilities, kind="stable")
        n_kept = int(np.searchsorted(np.cumsum(probabilities[order]), generation.top_p)) + 1
        probabilities[order[n_kept:]] = 0.0
    cumulative = np.cumsum(probabilities)
    draw = min(stream.random() * cumulative[-1], np.nextafter(cumulative[-1], 0.0))
    return int(np.searchsorted(cumulative, draw, side="right"))


def thinking_is_open(prompt: str) -> bool:
    """Whether a prompt ends inside a thinking block that its chat template has opened."""
    return prompt.rstrip().endswith(_THINK)


def split_thinking(text: str, opened: bool = False) -> tuple[str, str]:
    """Cut a text into its leading thinking block, marks included, and the visible answer after it.

    Parameters
    ----------
    text
        What the model wrote.
    opened
        Whether the prompt has opened the block already.

    Returns
    -------
    tuple of str
        Hidden and visible part. A block that never ends hides everything; blank space between the block and the answer
        belongs to the block.
    """
    if _END_THINK in text:
        answer = text.partition(_END_THINK)[2].lstrip()
        return text[: len(text) - len(answer)], answer
    return (text, "") if opened or text.lstrip().startswith(_THINK) else ("", text)


def read_generated(ids: Sequence[int], decode: Callable[[Sequence[int], bool], str], opened: bool = False) -> Generated:
    """Turn new tokens into an answer.

    Parameters
    ----------
    ids
        New tokens, without the one that ends the text.
    decode
        ``decode(ids, skip_special_tokens)`` gives their text.
    opened
        Whether the prompt has opened a thinking block.
    """
    hidden, _ = split_thinking(decode(ids, False), opened)
    if not hidden:
        return Generated(decode(ids, True), len(ids), ids=tuple(ids))

    def answers(n: int) -> bool:
        return bool(decode(ids[: n + 1], False).partition(_END_THINK)[2].strip())

    n_hidden = bisect_left(range(len(ids)), True, key=answers)  # place of the answer's first token
    return Generated(decode(ids[n_hidden:], True).lstrip(), len(ids), n_hidden, ids=tuple(ids))


def group_queries(queries: Sequence[GenerationQuery], rows: int, share_prefixes: bool) -> list[MicroBatch]:
    """Cut queries into groups of ``rows`` at most, of similar length; fixed by the list of queries alone.

    ``share_prefixes`` puts queries that begin alike together, after a prefix to compute once.
    """
    order = sorted(range(len(queries)), key=lambda k: (queries[k].prompt_ids, k))
    prompts = [queries[k].prompt_ids for k in order]
    groups = shared_prefixes(prompts, _PREFIX_UNIT) if share_prefixes else [(0, list(range(len(order))))]
    batches = []
    for n_prefix, places in groups:
        members = [order[place] for place in places]  # equal prompts stay neighbours
        members.sort(key=lambda k: (queries[k].generation.max_new_tokens, len(queries[k].prompt_ids)))
        batches += [MicroBatch(tuple(members[k : k + rows]), n_prefix) for k in range(0, len(members), rows)]
    return batches


def prefilled_tokens(queries: Sequence[GenerationQuery], batches: Sequence[MicroBatch]) -> int:
    """Prompt tokens that running these micro-batches in their order computes: equal prompts of a group once."""
    prefixes = [(), *(queries[batch.members[0]].prompt_ids[: batch.n_prefix] for batch in batches)]
    total = sum(len(prefix) for before, prefix in pairwise(prefixes) if prefix != before)
    for batch in batches:
        total += sum(len(prompt) - batch.n_prefix for prompt in {queries[k].prompt_ids for k in batch.members})
    return total
