"""Data sets: which files hold their rows, what their classes are, how they are prompted."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from poise.config.base import Slug, Strict
from poise.config.prompts import ICLPrompt, Prompt
from poise.config.sources import Source


class Columns(Strict):
    """Which columns of the source mean what. ``text`` is a template over column names."""

    text: str
    label: str
    id: str | None = None


class TableFile(Strict):
    """One file of rows. ``path`` may name members of archives: outermost first, the table last.

    ``columns`` and ``label_values`` are for a table that is laid out unlike the rest of its data set. With ``ids_of``
    the file only names rows of another table, by the column ``columns.id``.
    """

    path: list[str] = Field(min_length=1)
    header: list[str] | None = None
    skip_lines: int = Field(default=0, ge=0)
    line_ending: Literal["any", "crlf"] = "any"
    pattern: str | None = None
    list_separator: str | None = None
    columns: Columns | None = None
    label_values: list[list[str]] | None = None
    ids_of: Literal["train"] | None = None

    @field_validator("pattern")
    @classmethod
    def _pattern_names_columns(cls, pattern: str | None) -> str | None:
        if pattern is not None and not _compiled(pattern).groupindex:
            raise ValueError(f"{pattern!r} has no named group (?P<column>…), so it makes no column")
        return pattern

    @model_validator(mode="after")
    def _one_way_to_read(self) -> TableFile:
        if self.pattern is not None and (self.header or self.skip_lines or self.line_ending != "any"):
            raise ValueError("pattern reads every line by itself: give no header, skip_lines or line_ending beside it")
        if self.ids_of is not None and self.label_values is not None:
            raise ValueError(f"ids_of takes the labels of the table {self.ids_of}: give no label_values beside it")
        return self


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error


class Holdout(Strict):
    """How to set test rows aside when a source has one table only."""

    test: int = Field(gt=0)
    seed: int = 0


class Dataset(Strict):
    """A data set: where its rows come from, what its classes are, how it is prompted."""

    name: Slug
    title: str
    task: str
    domain: str
    ordered: bool
    source: Source
    tables: dict[Literal["train", "test", "all"], TableFile]
    holdout: Holdout | None = None
    columns: Columns
    classes: list[str] = Field(min_length=2)
    label_values: list[list[str]] | None = None
    label_thresholds: list[float] | None = None
    poles: tuple[str, str] | None = None
    replacements: list[tuple[str, str]] = Field(default_factory=list)
    tokens: str | None = None
    lower_case: bool = False
    max_words: int | None = Field(default=None, gt=0)
    on_duplicate_text: Literal["keep", "drop"] = "drop"
    train_rows: int | None = Field(default=None, gt=0)
    test_draw: Literal["all", "first", "random", "stratified"] = "all"
    test_rows: int | None = Field(default=None, gt=0)
    prompt: Prompt

    @field_validator("poles", "replacements", mode="before")
    @classmethod
    def _lists_to_tuples(cls, value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], list):
            return [tuple(item) for item in value]
        return tuple(value) if isinstance(value, list) and value else value

    @field_validator("tokens")
    @classmethod
    def _tokens_are_whole_matches(cls, tokens: str | None) -> str | None:
        if tokens is not None and _compiled(tokens).groups:
            raise ValueError(f"{tokens!r} has a group: a token is the whole match, write (?:…)")
        return tokens

    @model_validator(mode="after")
    def _consistent(self) -> Dataset:
        n = len(self.classes)
        if len(set(self.classes)) != n:
            raise ValueError(f"classes must be distinct, found {self.classes}")
        if set(self.tables) not in ({"train", "test"}, {"all"}):
            raise ValueError(f"tables must be 'train' and 'test', or 'all', found {sorted(self.tables)}")
        if (self.holdout is not None) != ("all" in self.tables):
            raise ValueError("holdout goes with the single table 'all', and only with it")
        listed = {f"tables.{name}.label_values": table.label_values for name, table in self.tables.items()}
        for key, values in {"label_values": self.label_values, **listed}.items():
            if values is not None and self.label_thresholds is not None:
                raise ValueError(f"give {key} or label_thresholds, not both")
            if values is not None and len(values) != n:
                raise ValueError(f"{key} must list {n} classes, found {len(values)}")
        if self.label_thresholds is not None and (
            len(self.label_thresholds) != n - 1 or sorted(self.label_thresholds) != self.label_thresholds
        ):
            raise ValueError(f"label_thresholds must be {n - 1} rising numbers, found {self.label_thresholds}")
        for name, table in self.tables.items():
            if table.ids_of is not None and (name != "test" or self.own(table).columns.id is None):
                raise ValueError(f"tables.{name}.ids_of: only the table test may have it, and it needs columns.id")
        if isinstance(self.prompt, ICLPrompt) and len(self.prompt.label_words) != n:
            raise ValueError(f"prompt.label_words must have {n} words, found {len(self.prompt.label_words)}")
        return self

    def own(self, table: TableFile) -> Dataset:
        """Give the data set as one of its tables is laid out."""
        own = {"columns": table.columns, "label_values": table.label_values}
        return self.model_copy(update={key: value for key, value in own.items() if value is not None})
