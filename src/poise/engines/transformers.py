"""The reference engine: a local model through transformers, on CPU or GPU.

Many suffixes run in one forward pass against the cached keys and values of one shared prefix. The packed sequence is a
tree: a token attends to the prefix and to its own ancestors only, so every query sees exactly its own prompt, what
neighbours share is computed once, and the inner nodes of the label trie ride along as further branches.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poise.engines.attention import attention_masks, layer_windows
from poise.engines.base import Generated, GenerationQuery, LabelScores, MicroBatch, Query, TokenIds
from poise.engines.decode import Writer
from poise.engines.generation import ROWS, group_queries, read_generated, thinking_is_open
from poise.engines.labels import LabelTrie
from poise.engines.packing import common_prefix_length, pack_queries
from poise.engines.tokenizer import Tokenizer
from poise.errors import PoiseError

os.environ.setdefault("HF_HUB_OFFLINE", "1")


class TransformersEngine:
    """Exact label log-probabilities from a causal language model on this machine.

    Parameters
    ----------
    model_dir
        Local folder with safetensors weights, configuration and tokenizer.
    dtype
        Precision of weights and activations.
    pack_tokens
        Suffix tokens in one forward pass at most.
    threads
        CPU threads; all cores if not given.
    chat_options
        Arguments of the model's chat template.
    """

    synthetic = False

    def __init__(
        self,
        model_dir: Path,
        dtype: str = "float32",
        pack_tokens: int = 512,
        threads: int | None = None,
        chat_options: Mapping[str, bool | int | str] | None = None,
    ) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.pack_tokens = pack_tokens
        self.dtype = getattr(torch, dtype)
        self.tokenizer = Tokenizer(model_dir, chat_options)
        self.encode, self.chat_text = self.tokenizer.encode, self.tokenizer.chat_text
        try:
            config = AutoConfig.from_pretrained(model_dir, trust_remote_code=False)
            # The fused kernel silently leaves out the soft cap on attention scores (Gemma 2).
            capped = getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None
            self.model = AutoModelForCausalLM.from_pretrained(
                model_dir,
                dtype=self.dtype,
                attn_implementation="eager" if capped else "sdpa",
                trust_remote_code=False,
                use_safetensors=True,
            )
        except (OSError, ValueError) as error:
            raise PoiseError(f"{model_dir}: cannot load the model: {' '.join(str(error).split())[:200]}") from error
        self.model.to(self.device).eval()
        self._windows = layer_windows(self.model.config)
        self._packable = bool(self._windows)
        self._prefix: tuple[TokenIds, Any] | None = None
        self._n_scored_tokens = 0
        self._writer = Writer(self.model, self.tokenizer.stop_ids(self.model.generation_config))

    @property
    def n_computed_tokens(self) -> int:
        """Prompt tokens computed so far, in both kinds of work."""
        return self._n_scored_tokens + self._writer.n_computed_tokens

    def micro_batches(self, queries: Sequence[Query], regroup: bool = False) -> list[MicroBatch]:
        """Cut queries into packs, prefix by prefix; packs of half the size to regroup."""
        extra = [len(LabelTrie.build(query.label_ids).paths) - 1 for query in queries]
        return pack_queries(queries, extra, self.pack_tokens // 2 if regroup else self.pack_tokens)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:
        """Score one micro-batch in one forward pass."""
        members = [queries[k] for k in batch.members]
        tries = [LabelTrie.build(query.label_ids) for query in members]
        if self._packable:
            return self._score_packed(members, tries, batch.n_prefix)
        return [self._score_plain(query, trie) for query, trie in zip(members, tries, strict=True)]

    def generation_batches(self, queries: Sequence[GenerationQuery], regroup: bool = False) -> list[MicroBatch]:
        """Cut queries into groups of similar length, prefix by prefix; groups of half the size to regroup."""
        return group_queries(queries, ROWS // 2 if regroup else ROWS, self._writer.shares_prefixes)

    def generate(self, queries: Sequence[GenerationQuery], batch: MicroBatch) -> list[Generated]:
        """Write the texts of one micro-batch."""
        members = [queries[k] for k in batch.members]
        written = self._writer.write(members, batch.n_prefix)
        decode = self.tokenizer.decode
        opened = [thinking_is_open(decode(query.prompt_ids[-8:], False)) for query in members]
        return [read_generated(ids, decode, is_open) for ids, is_open in zip(written, opened, strict=True)]

    def description(self) -> dict[str, Any]:
        """Versions, device and settings."""
        import transformers

        return {
            "engine": "transformers",
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            "threads": torch.get_num_threads(),
            "dtype": str(self.dtype).removeprefix("torch."),
            "pack_tokens": self.pack_tokens,
            "packed": self._packable,
            "generation_rows": ROWS,
            "chat_template_sha256": self.tokenizer.template_sha256,
        }

    def _score_packed(self, queries: Sequence[Query], tries: Sequence[LabelTrie], n_prefix: int) -> list[LabelScores]:
        prefix = queries[0].prompt_ids[:n_prefix]
        packed = _Packed.build(queries, tries, n_prefix)
        cache = self._prefix_cache(prefix)
        self._n_scored_tokens += len(packed.ids)
        masks = attention_masks(self._windows, packed.attends, packed.positions, n_prefix, self.dtype, self.device)
        output = self.model(
            input_ids=self._tensor(packed.ids)[None],
            attention_mask=masks,
            position_ids=self._tensor(packed.positions)[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=self._tensor(packed.read_at),
        )
        cache.crop(-len(packed.ids))
        logprobs = torch.log_softmax(output.logits[0].double(), dim=-1)
        top = logprobs.argmax(dim=-1).tolist()
        scores = []
        first = 0
        for query, trie in zip(queries, tries, strict=True):
            rows = logprobs[first : first + len(trie.paths)]
            tops = top[first : first + len(trie.paths)]
            scores.append(_read(query, trie, rows, tops))
            first += len(trie.paths)
        return scores

    def _score_plain(self, query: Query, trie: LabelTrie) -> LabelScores:
        """One forward pass for each trie node: for models with layers that no mask describes."""
        rows = []
        for path in trie.paths:
            ids = self._tensor([*query.prompt_ids, *path])[None]
            self._n_scored_tokens += ids.numel()
            rows.append(torch.log_softmax(self.model(input_ids=ids, logits_to_keep=1).logits[0, -1].double(), dim=-1))
        logprobs = torch.stack(rows)
        return _read(query, trie, logprobs, logprobs.argmax(dim=-1).tolist())

    def _prefix_cache(self, prefix: TokenIds) -> Any:
        """Keys and values of a prefix, computed in one pass of its own: the same whatever ran before.

        All layers keep the whole prefix: a cache made for sliding layers forgets what a shorter prompt still sees.
        """
        from transformers import DynamicCache

        if self._prefix is None or self._prefix[0] != prefix:
            self._prefix = None
            self._n_scored_tokens += len(prefix)
            cache = DynamicCache()
            if prefix:
                self.model(
                    input_ids=self._tensor(prefix)[None],
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
            self._prefix = (prefix, cache)
        return self._prefix[1]

    def _tensor(self, values: Sequence[int] | np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values, dtype=np.int64), device=self.device)


class _Packed:
    """One packed sequence: token ids, positions, which packed tokens each one attends to, where logits are read."""

    def __init__(self, ids: np.ndarray, positions: np.ndarray, attends: np.ndarray, read_at: list[int]) -> None:
        self.ids, self.positions, self.attends, self.read_at = ids, positions, attends, read_at

    @classmethod
    def build(cls, queries: Sequence[Query], tries: Sequence[LabelTrie], n_prefix: int) -> _Packed:
        """Lay out suffixes, sharing what one has in common with the one before it, each followed by its trie nodes.

        ``read_at`` lists, query by query, one packed index for each inner trie node, in the trie's order.
        """
        prompts = [query.prompt_ids for query in queries]
        n_known = [n_prefix, *(max(n_prefix, common_prefix_length(a, b)) for a, b in pairwise(prompts))]
        size = sum(len(prompt) - n for prompt, n in zip(prompts, n_known, strict=True))
        size += sum(len(trie.paths) - 1 for trie in tries)
        ids, positions = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        attends = np.zeros((size, size), dtype=bool)
        read_at: list[int] = []
        ancestors: list[int] = []  # packed index of each token of the current prompt after the prefix
        start = 0
        for prompt, known, trie in zip(prompts, n_known, tries, strict=True):
            del ancestors[known - n_prefix :]
            stop = start + len(prompt) - known
            ids[start:stop] = prompt[known:]
            positions[start:stop] = np.arange(known, len(prompt))
            attends[start:stop, ancestors] = True
            attends[start:stop, start:stop] = np.tri(stop - start, dtype=bool)
            ancestors += range(start, stop)
            place: dict[TokenIds, int] = {(): ancestors[-1]}
            for path in trie.paths[1:]:
                place[path] = stop
                ids[stop] = path[-1]
                positions[stop] = len(prompt) + len(path) - 1
                attends[stop] = attends[place[path[:-1]]]
                attends[stop, stop] = True
                stop += 1
            read_at += [place[path] for path in trie.paths]
            start = stop
        return cls(ids, positions, attends, read_at)


def _read(query: Query, trie: LabelTrie, logprobs: torch.Tensor, top: Sequence[int]) -> LabelScores:
    return trie.read(query.label_ids, lambda node, token: float(logprobs[node, token]), lambda node: top[node])
