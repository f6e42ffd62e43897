"""vLLM: the engine for GPUs, and for CPUs with the CPU build of the same version.

Each inner node of a query's label trie is one request for one token, with the log-probabilities of the node's children
over the full vocabulary (``logprob_token_ids``). The prompts of a call are given together, sorted by their tokens, so
that vLLM's prefix cache computes once what they share. ``prompt_logprobs`` is never used: with the prefix cache its
rows are wrong. Neither are the most probable tokens: a label that is not among them would be missing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poise.config.engines import VLLMConfig
from poise.config.models import Model
from poise.engines.base import Generated, GenerationQuery, LabelScores, MicroBatch, Query, TokenIds
from poise.engines.generation import read_generated, thinking_is_open
from poise.engines.labels import LabelTrie
from poise.engines.tokenizer import Tokenizer
from poise.errors import PoiseError

# vLLM's limit for one request.
_MAX_TOKEN_IDS = 128
# Tokens of a cached block on a CPU, the fewest possible: what prompts share beyond whole blocks is computed again.
_CPU_BLOCK = 32


class VLLMEngine:
    """Exact label log-probabilities and texts from a local model through vLLM.

    Parameters
    ----------
    config
        Engine settings.
    model
        The model and its conventions.
    model_dir
        Local folder with safetensors weights, configuration and tokenizer.
    threads
        CPU threads, where there is no GPU; all cores if not given.
    """

    synthetic = False

    def __init__(self, config: VLLMConfig, model: Model, model_dir: Path, threads: int | None = None) -> None:
        _set_environment(config, threads)
        try:
            import torch
            import vllm
        except ImportError as error:
            raise PoiseError(
                f"engine.kind: vllm cannot be imported here ({error}); install it with: pip install 'poise[vllm]', or "
                f"take engine=transformers"
            ) from error
        self.config = config
        self.tokenizer = Tokenizer(model_dir, model.chat_options)
        self.encode, self.chat_text = self.tokenizer.encode, self.tokenizer.chat_text
        self.device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        self.n_computed_tokens = 0
        self.n_cached_tokens = 0
        on_cpu = self.device == "cpu"
        optional = {
            "max_num_batched_tokens": config.max_batched_tokens,
            "quantization": config.quantization,
            "block_size": _CPU_BLOCK if on_cpu else None,
        }
        try:
            self.llm = vllm.LLM(
                model=str(model_dir),
                dtype=config.dtype,
                tensor_parallel_size=config.tensor_parallel,
                gpu_memory_utilization=config.memory_share,
                max_model_len=config.context_length(model.context_length),
                max_num_seqs=config.max_sequences,
                max_logprobs=_MAX_TOKEN_IDS,
                enforce_eager=config.eager or on_cpu,  # on a CPU compiling takes a minute and gains nothing
                enable_prefix_caching=True,
                trust_remote_code=False,
                load_format="safetensors",
                seed=0,
                disable_log_stats=True,
                use_tqdm_on_load=False,
                **{key: value for key, value in optional.items() if value is not None},
            )
        except (OSError, ValueError) as error:
            raise PoiseError(
                f"{model_dir}: vLLM cannot load the model: {' '.join(str(error).split())[:300]}"
            ) from error

    def micro_batches(self, queries: Sequence[Query], regroup: bool = False) -> list[MicroBatch]:
        """Cut queries, sorted by their tokens, into calls; calls of another size to regroup."""
        return self._calls([query.prompt_ids for query in queries], regroup)

    def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:
        """Score one call: every inner trie node of every member is a request.

        Where all labels begin with the same token (a space before digits), the model most often writes it too: the
        request of the root then asks for the tokens after it as well, and nodes that it reaches need no other request.
        """
        members = [queries[k] for k in batch.members]
        tries = [LabelTrie.build(query.label_ids) for query in members]
        found = [_Nodes() for _ in members]
        self.llm.reset_prefix_cache()  # whatever ran before
        asked = [
            _Asked(place, query, trie, node, 1 + (len(chain) if node == 0 else 0))
            for place, (query, trie) in enumerate(zip(members, tries, strict=True))
            for chain in [_chain(trie)]
            for node in range(len(trie.paths))
            if node not in chain
        ]
        self._read_nodes(asked, found)
        missed = [
            _Asked(place, query, trie, node, 1)
            for place, (query, trie) in enumerate(zip(members, tries, strict=True))
            for node in _chain(trie)
            if node not in found[place].tops
        ]
        if missed:
            self._read_nodes(missed, found)
        return [
            trie.read(query.label_ids, nodes.logprob, nodes.tops.__getitem__)
            for query, trie, nodes in zip(members, tries, found, strict=True)
        ]

    def _read_nodes(self, asked: Sequence[_Asked], found: Sequence[_Nodes]) -> None:
        """Ask for trie nodes, and those that greedy decoding reaches from them."""
        from vllm import SamplingParams

        requests = [
            (item, wanted[k : k + _MAX_TOKEN_IDS])
            for item in asked
            for wanted in [item.wanted]
            for k in range(0, len(wanted), _MAX_TOKEN_IDS)
        ]
        how = [
            SamplingParams(max_tokens=item.n_tokens, temperature=0.0, logprob_token_ids=list(tokens), detokenize=False)
            for item, tokens in requests
        ]
        outputs = self._run([item.prompt for item, _ in requests], how)
        for (item, tokens), output in zip(requests, outputs, strict=True):
            node: int | None = item.node
            for top, logprobs in zip(output.token_ids, output.logprobs, strict=True):
                assert node is not None
                nodes = found[item.place]
                nodes.tops[node] = top
                for token in tokens:
                    if token in item.trie.children[node]:
                        if token not in logprobs:
                            raise PoiseError(f"vLLM gave no log-probability for token {token}, which was asked for")
                        nodes.logprobs[node, token] = logprobs[token].logprob
                node = item.trie.node_of.get((*item.trie.paths[node], top))
                if node is None:
                    break

    def generation_batches(self, queries: Sequence[GenerationQuery], regroup: bool = False) -> list[MicroBatch]:
        """Cut queries, sorted by their tokens, into calls; calls of another size to regroup."""
        return self._calls([query.prompt_ids for query in queries], regroup)

    def generate(self, queries: Sequence[GenerationQuery], batch: MicroBatch) -> list[Generated]:
        """Write the texts of one call. Each query samples from the stream of its own seed."""
        from vllm import SamplingParams

        members = [queries[k] for k in batch.members]
        how = [
            SamplingParams(
                max_tokens=query.generation.max_new_tokens,
                temperature=query.generation.temperature,
                top_p=query.generation.top_p,
                seed=query.seed if query.generation.temperature > 0 else None,
                detokenize=False,
            )
            for query in members
        ]
        self.llm.reset_prefix_cache()  # whatever ran before
        answers = []
        for query, output in zip(members, self._run([query.prompt_ids for query in members], how), strict=True):
            # A text that the model ended itself holds the token that ended it.
            ids = output.token_ids[:-1] if output.finish_reason == "stop" else output.token_ids
            opened = thinking_is_open(self.tokenizer.decode(query.prompt_ids[-8:], False))
            answers.append(read_generated(list(ids), self.tokenizer.decode, opened))
        return answers

    def description(self) -> dict[str, Any]:
        """Versions, device and settings."""
        import torch
        import transformers
        import vllm

        return {
            "engine": "vllm",
            "vllm": vllm.__version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "device": self.device,
            "dtype": self.config.dtype,
            "quantization": self.config.quantization,
            "batch_invariant": self.config.batch_invariant,
            "eager": self.config.eager,
            "tensor_parallel": self.config.tensor_parallel,
            "max_sequences": self.config.max_sequences,
            "call_requests": self.config.call_requests,
            "cached_tokens": self.n_cached_tokens,
            "chat_template_sha256": self.tokenizer.template_sha256,
        }

    def _calls(self, prompts: Sequence[TokenIds], regroup: bool) -> list[MicroBatch]:
        order = sorted(range(len(prompts)), key=lambda k: (prompts[k], k))
        size = min(self.config.call_requests, len(prompts))
        if regroup:  # other prompts meet in one step, as the cache is emptied between calls
            size = max(1, size // 3)
        return [MicroBatch(tuple(order[k : k + size])) for k in range(0, len(order), size)]

    def _run(self, prompts: Sequence[TokenIds], how: Sequence[Any]) -> list[Any]:
        """First output of each prompt, in the order given."""
        from vllm import TokensPrompt

        asked = [TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts]
        outputs = self.llm.generate(asked, list(how), use_tqdm=False)
        if [tuple(output.prompt_token_ids) for output in outputs] != list(prompts):
            raise PoiseError("vLLM returned answers in another order than the prompts that were given")
        cached = sum(output.num_cached_tokens or 0 for output in outputs)
        self.n_cached_tokens += cached
        self.n_computed_tokens += sum(map(len, prompts)) - cached
        return [output.outputs[0] for output in outputs]


def _set_environment(config: VLLMConfig, threads: int | None) -> None:
    """What vLLM reads from the environment, before it is imported; what the user has set stays."""
    defaults = {
        "HF_HUB_OFFLINE": "1",
        # One process: prompts are all there before the first step, so steps do not depend on timing.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(config.cpu_cache_gib),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_BATCH_INVARIANT": str(int(config.batch_invariant)),
    }
    if threads is not None:
        defaults["OMP_NUM_THREADS"] = str(threads)
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    if config.batch_invariant:
        os.environ["VLLM_BATCH_INVARIANT"] = "1"


@dataclass
class _Nodes:
    """What is known of the nodes of one query's trie."""

    logprobs: dict[tuple[int, int], float] = field(default_factory=dict)
    tops: dict[int, int] = field(default_factory=dict)

    def logprob(self, node: int, token: int) -> float:
        return self.logprobs[node, token]


@dataclass(frozen=True)
class _Asked:
    """One node of one query's trie, and how many tokens to write from it."""

    place: int
    query: Query
    trie: LabelTrie
    node: int
    n_tokens: int

    @property
    def prompt(self) -> TokenIds:
        return (*self.query.prompt_ids, *self.trie.paths[self.node])

    @property
    def wanted(self) -> tuple[int, ...]:
        """Tokens to tell: the node's children, and those of the nodes that the other tokens may reach."""
        nodes = [self.node, *(_chain(self.trie) if self.n_tokens > 1 else [])]
        return tuple(dict.fromkeys(token for node in nodes for token in self.trie.children[node]))


def _chain(trie: LabelTrie) -> list[int]:
    """Nodes that all labels lead through, but the root; none if they offer more tokens than one request may name."""
    chain: list[int] = []
    node = 0
    while len(trie.children[node]) == 1:
        below = trie.node_of.get((*trie.paths[node], *trie.children[node]))
        if below is None:
            break
        chain.append(below)
        node = below
    named = {token for node in [0, *chain] for token in trie.children[node]}
    return chain if len(named) <= _MAX_TOKEN_IDS else []
