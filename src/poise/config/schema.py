"""The typed shape of a study: what every key in ``conf/`` means and may hold.

Hydra composes the files; these models check the result. An unknown key, a wrong type or an impossible combination
is an error before anything runs. Only what affects output belongs into :func:`identity`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from poise.config.base import Shots, Slug, Strict
from poise.config.data import Dataset
from poise.config.methods import Method
from poise.config.prompts import Prompt
from poise.config.sources import Source


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
