"""Writing text with a local model: one loop for greedy decoding and sampling, several prompts at a time.

Prompts of a group are padded on the left, so that every row ends where its text goes on, and a window of attention,
which counts places, sees what it would see without padding. What all rows share is computed once where every layer
attends to the whole context; equal prompts are computed once. Rows that are finished leave.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch

from poise.engines.base import GenerationQuery, TokenIds
from poise.engines.generation import choose_token


class Writer:
    """Continues prompts with a causal language model of transformers.

    Parameters
    ----------
    model
        The model, ready on its device.
    stop_ids
        Tokens that end a text.
    """

    def __init__(self, model: Any, stop_ids: Collection[int]) -> None:
        from transformers.cache_utils import DynamicLayer

        self.model = model
        self.stop_ids = frozenset(stop_ids)
        layers = self._new_cache().layers
        self.shares_prefixes = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
        # Recurrent layers cannot select rows: there each row is computed by itself, to the end of the slowest.
        self._selects_rows = all(hasattr(layer, "batch_select_indices") for layer in layers)
        self._prefix: tuple[TokenIds, Any] = ((), None)
        self.n_computed_tokens = 0  # of prompts

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def write(self, queries: Sequence[GenerationQuery], n_prefix: int) -> list[list[int]]:
        """New tokens of each query, without the one that ends its text.

        Parameters
        ----------
        queries
            Queries that run together.
        n_prefix
            Leading tokens that all of them share, to compute once.
        """
        suffixes = [query.prompt_ids[n_prefix:] for query in queries]
        distinct = list(dict.fromkeys(suffixes)) if self._selects_rows else suffixes
        cache = self._prefix_cache(queries[0].prompt_ids[:n_prefix], len(distinct))
        self.n_computed_tokens += sum(map(len, distinct))
        ids, mask, positions = _padded(distinct, n_prefix)
        logits = self._forward(ids, mask, positions, cache)
        if len(distinct) < len(suffixes):
            rows = np.array([distinct.index(suffix) for suffix in suffixes])
            logits, mask, positions = self._select(rows, logits, mask, positions, cache)

        written: list[list[int]] = [[] for _ in queries]
        streams = [np.random.default_rng(query.seed) for query in queries]
        running = list(range(len(queries)))  # the query of each row
        finished = np.zeros(len(queries), dtype=bool)
        while True:
            tokens = self._choose(logits, [queries[k] for k in running], [streams[k] for k in running])
            for k, token in zip(running, tokens, strict=True):
                if not finished[k] and token not in self.stop_ids:
                    written[k].append(token)
                finished[k] |= token in self.stop_ids or len(written[k]) == queries[k].generation.max_new_tokens
            if finished.all():
                return written
            last, positions = np.array(tokens)[:, None], positions[:, -1:] + 1
            if self._selects_rows and finished[running].any():
                rows = np.flatnonzero(~finished[running])
                running, last = [running[row] for row in rows], last[rows]
                logits, mask, positions = self._select(rows, logits, mask, positions, cache)
            mask = np.pad(mask, ((0, 0), (0, 1)), constant_values=1)
            logits = self._forward(last, mask, positions, cache)

    def _choose(
        self, logits: torch.Tensor, queries: Sequence[GenerationQuery], streams: Sequence[np.random.Generator]
    ) -> list[int]:
        if all(query.generation.temperature == 0 for query in queries):
            tokens: list[int] = logits.argmax(dim=-1).tolist()  # the first of equals, on the model's device
            return tokens
        rows = logits.double().cpu().numpy()
        return [
            choose_token(row, query.generation, stream)
            for row, query, stream in zip(rows, queries, streams, strict=True)
        ]

    def _forward(self, ids: np.ndarray, mask: np.ndarray, positions: np.ndarray, cache: Any) -> torch.Tensor:
        """Logits after the last token of each row: shape (n_rows, n_vocabulary)."""
        output = self.model(
            input_ids=self._tensor(ids),
            attention_mask=self._tensor(mask),
            position_ids=self._tensor(positions),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _select(
        self, rows: np.ndarray, logits: torch.Tensor, mask: np.ndarray, positions: np.ndarray, cache: Any
    ) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
        chosen = self._tensor(rows)
        cache.batch_select_indices(chosen)
        return logits[chosen], mask[rows], positions[rows]

    def _prefix_cache(self, prefix: TokenIds, n_rows: int) -> Any:
        """A new cache that holds a prefix in each row; the prefix of the group before is kept."""
        if not prefix:
            return self._new_cache()
        if self._prefix[0] != prefix:
            self.n_computed_tokens += len(prefix)
            cache = self._new_cache()
            self._forward(np.array([prefix]), np.ones((1, len(prefix)), dtype=int), np.arange(len(prefix))[None], cache)
            self._prefix = (prefix, cache)
        cache = copy.deepcopy(self._prefix[1])
        cache.batch_repeat_interleave(n_rows)
        return cache

    def _new_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config)

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.long, device=self.model.device)


def _padded(suffixes: Sequence[TokenIds], n_prefix: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids, attention mask (the prefix included) and positions of suffixes padded on the left, one row each."""
    width = max(map(len, suffixes))
    ids = np.zeros((len(suffixes), width), dtype=np.int64)
    mask = np.zeros((len(suffixes), n_prefix + width), dtype=np.int64)
    positions = np.zeros_like(ids)
    mask[:, :n_prefix] = 1
    for row, suffix in enumerate(suffixes):
        start = width - len(suffix)
        ids[row, start:] = suffix
        mask[row, n_prefix + start :] = 1
        positions[row, start:] = np.arange(n_prefix, n_prefix + len(suffix))
    return ids, mask, positions
