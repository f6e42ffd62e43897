"""Data sets: which files hold their rows, what their classes are, how they are prompted."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from poise.config.base import Line, Seeds, Slug, Strict
from poise.config.prompts import ICLPrompt, Prompt
from poise.config.sources import Source
from poise.errors import PoiseError


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


class DemonstrationFiles(TableFile):
    """Demonstrations that come in files of their own: one for each number of shots per class and each seed.

    ``{shots}`` and ``{seed}`` stand for the two in any element of ``path``; all else is read as in other tables.
    """

    shots: list[Annotated[int, Field(gt=0)]] = Field(min_length=1)
    seeds: Seeds

    @model_validator(mode="after")
    def _one_file_each(self) -> DemonstrationFiles:
        for key, placeholder, values in (("shots", "{shots}", self.shots), ("seeds", "{seed}", self.seeds)):
            if len(set(values)) != len(values):
                raise ValueError(f"{key} must be distinct, found {values}")
            if len(values) > 1 and not any(placeholder in item for item in self.path):
                raise ValueError(f"path must hold {placeholder}, which tells the files of {key} {values} apart")
        if self.ids_of is not None:
            raise ValueError("ids_of is for the table test, not for demonstrations")
        return self

    def files(self) -> dict[str, TableFile]:
        """Give each file under the name that its rows have in the prepared data set."""
        shared = self.model_dump(include=set(TableFile.model_fields))
        return {
            self.table(shots, seed): TableFile.model_validate({**shared, "path": self._path(shots, seed)})
            for shots in self.shots
            for seed in self.seeds
        }

    def _path(self, shots: int, seed: int) -> list[str]:
        return [item.replace("{shots}", str(shots)).replace("{seed}", str(seed)) for item in self.path]

    @staticmethod
    def table(shots: int, seed: int) -> str:
        """Name of a file's rows, whatever the file is called."""
        return f"shot_{shots}/seed_{seed}"


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
    title: Line
    task: str
    domain: str
    ordered: bool
    source: Source
    tables: dict[Literal["train", "test", "all"], TableFile]
    demonstrations: DemonstrationFiles | None = None
    holdout: Holdout | None = None
    columns: Columns
    classes: list[Line] = Field(min_length=2)
    label_values: list[list[str]] | None = None
    label_thresholds: list[float] | None = None
    merged: dict[Slug, dict[str, list[str]]] = Field(default_factory=dict)
    attribute: str = "label"
    poles: tuple[str, str] | None = None
    comparatives: tuple[str, str] | None = None
    replacements: list[tuple[str, str]] = Field(default_factory=list)
    tokens: str | None = None
    lower_case: bool = False
    max_words: int | None = Field(default=None, gt=0)
    on_empty_text: Literal["error", "keep"] = "error"
    on_duplicate_text: Literal["keep", "drop"] = "drop"
    train_rows: int | None = Field(default=None, gt=0)
    test_draw: Literal["all", "first", "random", "stratified", "balanced"] = "all"
    test_rows: int | None = Field(default=None, gt=0)
    prompt: Prompt

    @field_validator("poles", "comparatives", "replacements", mode="before")
    @classmethod
    def _lists_to_tuples(cls, value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], list):
            return [tuple(item) for item in value]
        return tuple(value) if isinstance(value, list) and value else value

    @field_validator("merged", mode="before")
    @classmethod
    def _null_is_no_scale(cls, value: Any) -> Any:
        return {} if value is None else value

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
        alone = {"test"} if self.demonstrations is not None else None
        if set(self.tables) not in ({"train", "test"}, {"all"}, alone):
            expected = "'train' and 'test', or 'all', or 'test' beside demonstrations"
            raise ValueError(f"tables must be {expected}, found {sorted(self.tables)}")
        if self.train_rows is not None and not self.has_training_rows:
            raise ValueError("train_rows is for data sets with a training table")
        if (self.holdout is not None) != ("all" in self.tables):
            raise ValueError("holdout goes with the single table 'all', and only with it")
        listed = {f"tables.{name}.label_values": table.label_values for name, table in self.tables.items()}
        if self.demonstrations is not None:
            listed["demonstrations.label_values"] = self.demonstrations.label_values
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
            if table.ids_of is None:
                continue
            if name != "test" or self.own(table).columns.id is None:
                raise ValueError(f"tables.{name}.ids_of: only the table test may have it, and it needs columns.id")
            if table.ids_of not in self.tables:
                raise ValueError(f"tables.{name}.ids_of: there is no table {table.ids_of}")
        if isinstance(self.prompt, ICLPrompt) and len(self.prompt.label_words) != n:
            raise ValueError(f"prompt.label_words must have {n} words, found {len(self.prompt.label_words)}")
        return self

    @model_validator(mode="after")
    def _scales_are_coarser(self) -> Dataset:
        for scale, groups in self.merged.items():
            where = f"merged.{scale}"
            members = [name for group in groups.values() for name in group]
            unknown = sorted(set(members) - set(self.classes))
            if unknown:
                raise ValueError(f"{where}: {unknown} not among the classes {self.classes}")
            if len(set(members)) != len(members):
                raise ValueError(f"{where}: each class may be in one new class only, found {members}")
            if len(groups) < 2 or not all(groups.values()):
                raise ValueError(f"{where}: expected two or more new classes with a class or more in each")
            ranges = self.scale(scale).values()
            if self.ordered and any(max(low) > min(high) for low, high in zip(ranges, list(ranges)[1:], strict=False)):
                raise ValueError(f"{where}: the new classes must keep the order of {self.classes}, found {groups}")
        return self

    @property
    def has_training_rows(self) -> bool:
        """Whether rows beside the test rows and the demonstration files exist."""
        return set(self.tables) != {"test"}

    def files(self) -> dict[str, TableFile]:
        """Give every file of rows by the name of its table: the tables, then the demonstration files."""
        own = {str(name): table for name, table in self.tables.items()}
        return own if self.demonstrations is None else {**own, **self.demonstrations.files()}

    def scale(self, cardinality: str) -> dict[str, list[int]]:
        """Give the classes of a scale, lowest first, each with the indices of the data set's own classes in it.

        ``""`` is the data set's own scale. The order is that of the lowest class in each, whatever the order of the
        keys in ``merged``: a mapping loses its order in the plan's file.

        Raises
        ------
        PoiseError
            If ``merged`` has no such scale.
        """
        if not cardinality:
            return {name: [k] for k, name in enumerate(self.classes)}
        if cardinality not in self.merged:
            raise PoiseError(
                f"dataset {self.name}: no scale {cardinality!r} in merged, which has {sorted(self.merged) or 'none'}"
            )
        groups = {
            name: sorted(self.classes.index(member) for member in members)
            for name, members in self.merged[cardinality].items()
        }
        return dict(sorted(groups.items(), key=lambda item: item[1]))

    def scaled(self, cardinality: str) -> Dataset:
        """Give the data set with the classes of a coarser scale, for prompts and metrics; ``""`` gives itself.

        How its files are read no longer fits then: rows are prepared and drawn with the data set itself.
        """
        if not cardinality:
            return self
        changes = {"classes": list(self.scale(cardinality)), "merged": {}}
        return self.model_copy(update={**changes, "label_values": None, "label_thresholds": None})

    def own(self, table: TableFile) -> Dataset:
        """Give the data set as one of its tables is laid out."""
        own = {"columns": table.columns, "label_values": table.label_values}
        return self.model_copy(update={key: value for key, value in own.items() if value is not None})
