"""Any server that speaks OpenAI's protocol: a provider's, or one's own (``vllm serve``). It is sent texts.

What such servers tell is less than what an engine with the weights knows: a text, and at most the most probable tokens
of its first place. Where those tell all labels apart, label scores are first-token probabilities; otherwise the answer
is a hard prediction, the label that the text names (the DNIP paper's own limitation for such models).
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import zlib
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
from scipy.special import logsumexp

from poise.config.engines import OpenAIConfig
from poise.config.models import Model
from poise.config.sources import APISource
from poise.engines.base import Generated, GenerationQuery, LabelScores, MicroBatch, Query
from poise.engines.generation import split_thinking, thinking_is_open
from poise.errors import PoiseError
from poise.prompts.parsing import FAILURE, parse_label

# Requests between two flushes at most; not the concurrency, which must not decide what is asked again after a kill.
MICRO_BATCH = 32
_PIECE = re.compile(r"\s?\w+|\s|[^\w\s]")
_BYTES = 5  # of a word, for each token of it
_NEWER_LIMIT = "max_completion_tokens"
_SEEDS = 2**31  # some servers take no larger ones
Answer = TypeVar("Answer")


class OpenAIEngine:
    """Texts, and label scores where the server tells enough, through the official client.

    Parameters
    ----------
    config
        Where the server is and how hard it may be asked. The key is read from the environment and kept by the client
        alone.
    model
        The model: ``chat`` decides between the endpoints for chats (one user turn) and for plain completions.

    Raises
    ------
    PoiseError
        If the environment variable of the key is not set, or holds what cannot be a key.
    """

    synthetic = False

    def __init__(self, config: OpenAIConfig, model: Model) -> None:
        from aiolimiter import AsyncLimiter
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        assert isinstance(model.source, APISource)
        self.config, self.model, self.id = config, model, model.source.id
        self.n_computed_tokens = 0  # prompt tokens that the server counted
        self._key = _key(config)
        self._client = AsyncOpenAI(
            base_url=config.base_url,
            api_key=self._key or "none",
            max_retries=config.max_retries,
            timeout=config.timeout_seconds,
            http_client=DefaultAsyncHttpxClient(event_hooks={"request": [self._within_budget]}),
        )
        self._limit = "max_tokens"
        self._served: set[str] = set()
        self._runner = asyncio.Runner()
        self._places = asyncio.Semaphore(config.concurrency)
        minute = config.requests_per_minute
        # Spread over the minute: servers count in windows of their own.
        self._budget = AsyncLimiter(1, 60 / minute) if minute else None

    def encode(self, text: str, special_tokens: bool = True) -> list[int]:  # noqa: ARG002
        """Count tokens roughly, as the server does not tell its tokenizer and is sent the text.

        Other words have other tokens, so that no label begins with another one; nothing else can be read from them.
        """
        pieces = [(piece, math.ceil(len(piece.encode()) / _BYTES)) for piece in _PIECE.findall(text)]
        return [zlib.crc32(f"{k} {piece}".encode()) for piece, n in pieces for k in range(n)]

    def chat_text(self, text: str) -> str:
        """Give the text itself: the server wraps it."""
        return text

    def micro_batches(self, queries: Sequence[Query], regroup: bool = False) -> list[MicroBatch]:
        """Fixed runs of queries, in the order given."""
        return _runs(len(queries), regroup)

    def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:
        """Ask for one greedy answer each, with the most probable tokens of its first place."""
        return self._all([self._score(queries[k]) for k in batch.members])

    def generation_batches(self, queries: Sequence[GenerationQuery], regroup: bool = False) -> list[MicroBatch]:
        """Fixed runs of queries, in the order given."""
        return _runs(len(queries), regroup)

    def generate(self, queries: Sequence[GenerationQuery], batch: MicroBatch) -> list[Generated]:
        """Have the texts of one micro-batch written."""
        return self._all([self._generate(queries[k]) for k in batch.members])

    def description(self) -> dict[str, Any]:
        """Server, model and settings; never the key."""
        import openai

        n = self.config.top_logprobs
        return {
            "engine": "openai",
            "openai": openai.__version__,
            "device": _host(self.config),
            "model_id": self.id,
            "served": sorted(self._served),
            "endpoint": "chat/completions" if self.model.chat else "completions",
            "api_options": self.model.api_options,
            "label_scores": f"first token, from the {n} most probable" if n else "none, texts only",
            "seed": "sent with samples; many servers ignore it",
            "concurrency": self.config.concurrency,
            "requests_per_minute": self.config.requests_per_minute,
        }

    async def _score(self, query: Query) -> LabelScores:
        n = self.config.top_logprobs
        options: dict[str, Any] = {"temperature": 0.0}
        if n:
            options |= {"logprobs": True, "top_logprobs": n} if self.model.chat else {"logprobs": n}
        answer = await self._ask(query.text, self.model.max_new_tokens, options)
        choice = answer.choices[0]
        usage = _usage(answer)
        scores, greedy = label_scores(_top_tokens(choice, self.model.chat), query.labels)
        if scores is None:
            _, visible = split_thinking(_text(choice, self.model.chat), thinking_is_open(query.text))
            scores, greedy = np.full(len(query.labels), np.nan), parse_label(visible, query.labels)
        self.n_computed_tokens += usage["prompt"]
        # One score for each label; the sequences that are pooled into labels are these, one a label.
        return LabelScores(scores, greedy, usage["prompt"], usage["completion"])

    async def _generate(self, query: GenerationQuery) -> Generated:
        how = query.generation
        options: dict[str, Any] = {"temperature": how.temperature}
        if how.temperature > 0:
            options |= {"top_p": how.top_p, "seed": query.seed % _SEEDS}
        answer = await self._ask(query.text, how.max_new_tokens, options)
        usage = _usage(answer)
        choice = answer.choices[0]
        block, visible = split_thinking(_text(choice, self.model.chat), thinking_is_open(query.text))
        hidden = (_reasoning(choice) if self.model.chat else "") + block
        n_hidden = usage["reasoning"] or len(self.encode(hidden))
        n_tokens = usage["completion"] or len(self.encode(hidden + visible))
        if usage["reasoning"] > n_tokens:  # a server that counts hidden tokens apart
            n_tokens += usage["reasoning"]
        self.n_computed_tokens += usage["prompt"]
        return Generated(visible, n_tokens, min(n_hidden, n_tokens), usage["prompt"])

    async def _ask(self, text: str, max_tokens: int, options: Mapping[str, Any]) -> Any:
        """Ask until the reply holds an answer: where a gateway's provider fails, its status is 200 all the same."""
        from openai import OpenAIError

        async with self._places:
            for n in range(self.config.max_retries + 1):
                if n:
                    await asyncio.sleep(min(0.5 * 2 ** (n - 1), 8.0))
                reply = await self._send(text, max_tokens, options)
                if getattr(reply, "choices", None):
                    self._served.add(" ".join(filter(None, (reply.model, getattr(reply, "system_fingerprint", None)))))
                    return reply
        raise OpenAIError(f"a reply without an answer: {getattr(reply, 'error', None) or reply}")

    async def _send(self, text: str, max_tokens: int, options: Mapping[str, Any]) -> Any:
        """Send one request; the client sends it again after 429, 5xx or a lost connection.

        Every server knows ``max_tokens``, but OpenAI's newer models refuse it and name another key, which is sent from
        then on.
        """
        from openai import BadRequestError

        limit = self._limit
        sent: dict[str, Any] = {"model": self.id, limit: max_tokens, **options}
        if self.model.api_options:
            sent["extra_body"] = dict(self.model.api_options)
        try:
            if self.model.chat:
                turn: Any = [{"role": "user", "content": text}]
                return await self._client.chat.completions.create(messages=turn, **sent)
            return await self._client.completions.create(prompt=text, **sent)
        except BadRequestError as error:
            if not self.model.chat or limit == _NEWER_LIMIT or _NEWER_LIMIT not in str(error):
                raise
        self._limit = _NEWER_LIMIT
        return await self._send(text, max_tokens, options)

    async def _within_budget(self, request: object) -> None:  # noqa: ARG002
        """Wait until the budget allows one more request; those sent again count too."""
        if self._budget is not None:
            await self._budget.acquire()

    def _all(self, asked: Sequence[Coroutine[Any, Any, Answer]]) -> list[Answer]:
        """Await all of a micro-batch; the first failure stops the rest."""
        from openai import OpenAIError

        async def together() -> list[Answer]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(item) for item in asked]
            return [task.result() for task in tasks]

        try:
            return self._runner.run(together())
        except ExceptionGroup as group:
            found, _ = group.split(OpenAIError)
            if found is None:
                raise
            raise PoiseError(self._line(found.exceptions[0])) from None  # a traceback may hold the key

    def _line(self, error: BaseException) -> str:
        """One line for the user, without the key, whatever the server wrote."""
        status = getattr(error, "status_code", None)
        reason, cause = " ".join(str(error).split()), error.__cause__
        if status is None and cause is not None:
            reason = f"{reason} ({type(cause).__name__})"
        if self._key:  # before it is cut, which could leave a part of the key
            reason = reason.replace(self._key, "<key>")
        name = self.config.key_variable
        key = f"check the key in ${name}" if name else "it wants a key: set engine.key_variable"
        advice = {
            400: f"the request is refused: check the model's id ({self.id}), its api_options and engine.top_logprobs",
            401: key,
            403: f"{key}, and that it may use the model",
            404: f"check the model's id ({self.id}) and engine.base_url",
        }
        lasting = status is None or status in (408, 409, 429) or status >= 500
        otherwise = f"asked {self.config.max_retries + 1} times at most" if lasting else "the request is refused"
        return (
            f"{_host(self.config)}: {reason[:200]}; {advice.get(status or 0, otherwise)}; answers so far are kept, run "
            f"the same command again to go on"
        )


def label_scores(top: Mapping[str, float] | None, labels: Sequence[str]) -> tuple[np.ndarray | None, int]:
    """Label log-probabilities from the most probable first tokens, if they tell all labels.

    A token tells a label if, without white space around it and in any letter case (as texts are parsed), it is the
    label's text or a beginning that no other label has. Several tokens that tell one label add up.

    Parameters
    ----------
    top
        Log-probability of each of the most probable tokens; None if the server told none.
    labels
        Label texts.

    Returns
    -------
    tuple
        Log-probabilities, shape (n_labels,), and the label that the most probable token tells, or -1; None and -1 if a
        label is not told.
    """
    if not top:
        return None, FAILURE
    words = [label.strip().casefold() for label in labels]
    found: list[list[float]] = [[] for _ in words]
    greedy, best = FAILURE, max(top.values())
    for token, logprob in top.items():
        piece = token.strip().casefold()
        whole = [k for k, word in enumerate(words) if word == piece]
        told = whole or [k for k, word in enumerate(words) if piece and word.startswith(piece)]
        if len(told) == 1:
            found[told[0]].append(logprob)
            if logprob == best:
                greedy = told[0]
    if not all(found):
        return None, FAILURE
    return np.array([float(logsumexp(values)) for values in found]), greedy


def _key(config: OpenAIConfig) -> str | None:
    if config.key_variable is None:
        return None
    key = os.environ.get(config.key_variable, "").strip()
    where = f"engine.key_variable: the environment variable {config.key_variable}"
    if not key:
        raise PoiseError(
            f"{where} is not set; put the key of {_host(config)} there, or set engine.key_variable=null for a server "
            f"without keys"
        )
    if not re.fullmatch(r"[!-~]+", key):
        raise PoiseError(f"{where} holds white space or letters that no key has; put the key of {_host(config)} there")
    return key


def _host(config: OpenAIConfig) -> str:
    return urlsplit(config.base_url).netloc.rpartition("@")[2]


def _text(choice: Any, chat: bool) -> str:
    return (choice.message.content if chat else choice.text) or ""


def _reasoning(choice: Any) -> str:
    """Thinking that a server has taken out of the answer itself; servers differ in the key's name."""
    message = choice.message
    return getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or ""


def _top_tokens(choice: Any, chat: bool) -> dict[str, float] | None:
    """Log-probabilities of the most probable tokens at the answer's first place, in either endpoint's form."""
    told = choice.logprobs
    if told is None:
        return None
    if chat:
        return {item.token: item.logprob for item in told.content[0].top_logprobs} if told.content else None
    return dict(told.top_logprobs[0]) if told.top_logprobs else None


def _usage(answer: Any) -> dict[str, int]:
    """Tokens that the server counted; 0 where it told none."""
    usage = answer.usage
    details = getattr(usage, "completion_tokens_details", None)
    return {
        "prompt": getattr(usage, "prompt_tokens", None) or 0,
        "completion": getattr(usage, "completion_tokens", None) or 0,
        "reasoning": getattr(details, "reasoning_tokens", None) or 0,
    }


def _runs(n_queries: int, regroup: bool) -> list[MicroBatch]:
    size = MICRO_BATCH // 2 if regroup else MICRO_BATCH
    members = range(n_queries)
    return [MicroBatch(tuple(members[k : k + size])) for k in range(0, n_queries, size)]
