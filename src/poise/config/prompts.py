"""Prompt templates: the class-accuracy form and the position paper's family."""

from __future__ import annotations

from string import Formatter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from poise.config.base import Slug, Strict


class ICLPrompt(Strict):
    """A class-accuracy template: instruction, demonstrations, query (the DNIP paper's form)."""

    kind: Literal["icl"]
    name: Slug
    instruction: str = ""
    text_prefix: str
    label_prefix: str
    joiner: str = "\n"
    separator: str = "\n\n"
    label_words: list[str] = Field(min_length=2)
    reconstructed: bool = False


class OrdinalPrompt(Strict):
    """The position paper's prompt family: header, ``Sentence:``/``Label:`` blocks, query. Reconstructed."""

    kind: Literal["ordinal"]
    name: Slug
    label_format: Literal["numeric", "letter", "natural_language", "neutral_id"]
    clarity: Literal["minimal", "explicit", "ordinal_explicit"]
    separator: Literal["colon", "space", "tab"]
    connector: Literal["newline", "space", "newline_tab"]
    mood: Literal["imperative", "interrogative", "indicative"]
    instruction: dict[Literal["imperative", "interrogative", "indicative"], str]
    minimal_instruction: str
    constraint: dict[Literal["numeric", "letter", "natural_language", "neutral_id"], str]
    order_statement: str
    after_cue: Literal["once", "repeat"] = "once"
    reconstructed: bool = True

    @model_validator(mode="after")
    def _texts_are_complete(self) -> OrdinalPrompt:
        known = {"task", "space", "choices", "first", "last", "low", "high"}
        texts = {
            f"instruction.{self.mood}": self.instruction.get(self.mood),
            f"constraint.{self.label_format}": self.constraint.get(self.label_format),
            "minimal_instruction": self.minimal_instruction,
            "order_statement": self.order_statement,
        }
        for key, text in texts.items():
            if text is None:
                raise ValueError(f"{key} is missing")
            unknown = sorted({name for _, name, _, _ in Formatter().parse(text) if name is not None} - known)
            if unknown:
                raise ValueError(f"{key}: unknown placeholders {unknown}, expected some of {sorted(known)}")
        return self


Prompt = Annotated[ICLPrompt | OrdinalPrompt, Field(discriminator="kind")]
