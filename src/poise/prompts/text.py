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
class Request:
    """One prompt with the label texts to score after it.

    ``labels[k]`` is the text that follows the prompt when the model answers with label k, leading white space
    included. Equal requests have equal ids and are asked once.
    """

    prompt: PromptText
    labels: tuple[str, ...]
    chat: bool = False
    replicate: int = 0

    @cached_property
    def id(self) -> str:
        """Digest of everything that is sent."""
        return digest([self.prompt.text, self.prompt.n_demonstrations, self.labels, self.chat, self.replicate], 16)
