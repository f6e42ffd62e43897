"""The parts of a prompt, and a request made of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from poise.hashing import digest


@dataclass(frozen=True)
class PromptText:
    """A prompt in parts, so that whole demonstrations can be dropped when it is longer than the context.

    ``head`` + all of ``before`` + ``query`` + all of ``after`` + ``cue`` is the exact text sent; separators
    belong to the parts.
    """

    head: str
    before: tuple[str, ...]
    query: str
    after: tuple[str, ...] = ()
    cue: str = ""

    @cached_property
    def text(self) -> str:
        """The whole prompt."""
        return "".join((self.head, *self.before, self.query, *self.after, self.cue))

    @property
    def n_demonstrations(self) -> int:
        """How many demonstrations are in the prompt."""
        return len(self.before) + len(self.after)

    def drop_demonstration(self) -> PromptText:
        """Leave out the demonstration farthest from the query, the one before it if two are as far.

        The cue repeats the query's label for demonstrations after it: it goes with the last of them.
        """
        if len(self.before) >= len(self.after):
            return replace(self, before=self.before[1:])
        return replace(self, after=self.after[:-1], cue=self.cue if len(self.after) > 1 else "")


@dataclass(frozen=True)
class Generation:
    """How a model writes text.

    Attributes
    ----------
    max_new_tokens
        Tokens written at most.
    temperature
        0 is greedy decoding.
    top_p
        Sample from the most probable tokens that together have this probability.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ValueError(f"max_new_tokens must be 1 or more, temperature 0 or more, 0 < top_p <= 1: found {self}")


@dataclass(frozen=True)
class Request:
    """One prompt, and what is wanted: the labels' scores after it, or a text (``generation``).

    ``labels[k]`` is the text that follows the prompt when the model answers with label k, leading white space
    included; a generated text is parsed for them by its reader, or with ``located`` they are looked for in it and
    scored there. Equal requests have equal ids and are asked once; another ``replicate`` is asked again.
    """

    prompt: PromptText
    labels: tuple[str, ...]
    chat: bool = False
    replicate: int = 0
    generation: Generation | None = None
    located: bool = False

    @cached_property
    def id(self) -> str:
        """Digest of everything that is sent."""
        sent = [self.prompt.text, self.prompt.n_demonstrations, self.labels, self.chat, self.replicate]
        if self.generation is not None:
            how = self.generation
            sent.append([how.max_new_tokens, float(how.temperature), float(how.top_p)])
        if self.located:
            sent.append("labels located in the text")
        return digest(sent, 16)
