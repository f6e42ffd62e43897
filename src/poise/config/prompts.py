"""Prompt templates: the class-accuracy form and the position paper's family."""

from __future__ import annotations

from string import Formatter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from poise.config.base import Line, Slug, Strict

Answers = Literal["numeric", "letter", "natural_language", "neutral_id"]
Mood = Literal["imperative", "interrogative", "indicative"]

# What a template may ask for; poise.prompts.scale fills it.
PLACEHOLDERS = frozenset(
    {
        "task",
        "attribute",
        "classes",
        "space",
        "choices",
        "n",
        "first",
        "last",
        "first_class",
        "last_class",
        "low",
        "high",
        "more",
    }
)


def check_placeholders(texts: dict[str, str | None]) -> None:
    """Refuse a template text that is missing or asks for what there is not."""
    for key, text in texts.items():
        if text is None:
            raise ValueError(f"{key} is missing")
        unknown = sorted({name for _, name, _, _ in Formatter().parse(text) if name is not None} - PLACEHOLDERS)
        if unknown:
            raise ValueError(f"{key}: unknown placeholders {unknown}, expected some of {sorted(PLACEHOLDERS)}")


class ICLPrompt(Strict):
    """A class-accuracy template: instruction, demonstrations, query (the DNIP paper's form)."""

    kind: Literal["icl"]
    name: Slug
    instruction: str = ""
    text_prefix: str
    label_prefix: str
    joiner: str = "\n"
    separator: str = "\n\n"
    label_words: list[Line] = Field(min_length=2)
    reconstructed: bool = False


class ChainOfThoughtPrompt(Strict):
    """A class-accuracy template whose demonstrations show a reason before the label (DNIP paper, Table 6).

    Made from an experiment's ``reasoning`` and a data set's own template, never configured as a whole. ``sentences``
    are reasons by the id of the demonstration's row; where a row has none, ``template`` is its reason.
    """

    kind: Literal["chain_of_thought"]
    name: Slug
    answer: ICLPrompt
    instruction: str
    in_query: bool
    closing: str
    template: str
    sentences: dict[str, str]
    reconstructed: bool = True

    def reason(self, row: str, label: int) -> str:
        """Reason of one demonstration."""
        return self.sentences.get(row) or self.template.format(label=self.answer.label_words[label])


class OrdinalPrompt(Strict):
    """The position paper's pointwise prompt: header, ``Sentence:``/``Label:`` blocks, query. Reconstructed."""

    kind: Literal["ordinal"]
    name: Slug
    label_format: Answers
    clarity: Literal["minimal", "explicit", "ordinal_explicit"]
    separator: Literal["colon", "space", "tab"]
    connector: Literal["newline", "space", "newline_tab"]
    mood: Mood
    instruction: dict[Mood, str]
    minimal_instruction: dict[Mood, str]
    constraint: dict[Answers, str]
    order_statement: str
    after_cue: Literal["once", "repeat"] = "once"
    reconstructed: bool = True

    @model_validator(mode="after")
    def _texts_are_complete(self) -> OrdinalPrompt:
        check_placeholders(
            {
                f"instruction.{self.mood}": self.instruction.get(self.mood),
                f"constraint.{self.label_format}": self.constraint.get(self.label_format),
                f"minimal_instruction.{self.mood}": self.minimal_instruction.get(self.mood),
                "order_statement": self.order_statement,
            }
        )
        return self


class PairwisePrompt(Strict):
    """Compare the text with one demonstration, in both slots (G.1)."""

    kind: Literal["pairwise"]
    name: Slug
    instruction: str
    passage: str
    question: str
    answers: tuple[str, str]
    reconstructed: bool = True

    @model_validator(mode="before")
    @classmethod
    def _lists_to_tuples(cls, data: object) -> object:
        if isinstance(data, dict) and isinstance(data.get("answers"), list):
            return {**data, "answers": tuple(data["answers"])}
        return data

    @model_validator(mode="after")
    def _texts_are_complete(self) -> PairwisePrompt:
        check_placeholders({"instruction": self.instruction, "question": self.question})
        return self


class ListwisePrompt(Strict):
    """Insert the text into an ordered list of one demonstration a class; ``labelled`` shows their labels (G.1)."""

    kind: Literal["listwise"]
    name: Slug
    labelled: bool
    instruction: str
    item: str
    query: str
    reconstructed: bool = True

    @model_validator(mode="after")
    def _texts_are_complete(self) -> ListwisePrompt:
        check_placeholders({"instruction": self.instruction, "query": self.query.replace("{text}", "")})
        return self


Prompt = Annotated[
    ICLPrompt | ChainOfThoughtPrompt | OrdinalPrompt | PairwisePrompt | ListwisePrompt, Field(discriminator="kind")
]
