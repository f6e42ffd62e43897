"""vLLM: the engine for GPUs, and for CPUs with the CPU build of the same version.

Each inner node of a query's label trie is one request for one token, with the log-probabilities of the node's children
over the full vocabulary (``logprob_token_ids``). The prompts of a call are given together, sorted by their tokens, so
that vLLM's prefix cache computes once what they share. ``prompt_logprobs`` is never used: with the prefix cache its
rows are wrong. Neither are the most probable tokens: a label that is not among them would be missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from poise.config.engines import VLLMConfig
from poise.config.schema import Model
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
        """Score one call: every inner trie node of every member is a request."""
        from vllm import SamplingParams

        members = [queries[k] for k in batch.members]
        tries = [LabelTrie.build(query.label_ids) for query in members]
        places: list[tuple[int, int]] = []  # (member, inner node) of each request
        prompts: list[TokenIds] = []
        wanted: list[tuple[int, ...]] = []
        for place, (query, trie) in enumerate(zip(members, tries, strict=True)):
            for node, (path, children) in enumerate(zip(trie.paths, trie.children, strict=True)):
                for start in range(0, len(children), _MAX_TOKEN_IDS):
                    places.append((place, node))
                    prompts.append((*query.prompt_ids, *path))
                    wanted.append(children[start : start + _MAX_TOKEN_IDS])
        how = [
            SamplingParams(max_tokens=1, temperature=0.0, logprob_token_ids=list(tokens), detokenize=False)
            for tokens in wanted
        ]
        logprobs: list[dict[tuple[int, int], float]] = [{} for _ in members]
        tops: list[dict[int, int]] = [{} for _ in members]
        for (place, node), tokens, output in zip(places, wanted, self._run(prompts, how), strict=True):
            tops[place][node] = output.token_ids[0]
            found = output.logprobs[0]
            for token in tokens:
                if token not in found:
                    raise PoiseError(f"vLLM gave no log-probability for token {token}, which was asked for")
                logprobs[place][node, token] = found[token].logprob
        return [
            _read(query, trie, own, top) for query, trie, own, top in zip(members, tries, logprobs, tops, strict=True)
        ]

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
        """First output of each prompt, in the order given. The prefix cache starts empty, whatever ran before."""
        from vllm import TokensPrompt

        self.llm.reset_prefix_cache()
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


def _read(
    query: Query, trie: LabelTrie, logprobs: Mapping[tuple[int, int], float], tops: Mapping[int, int]
) -> LabelScores:
    return trie.read(query.label_ids, lambda node, token: logprobs[node, token], tops.__getitem__)
