"""The typed shape of a study: what every key in ``conf/`` means and may hold.

Hydra composes the files; these models check the result. An unknown key, a wrong type or an impossible combination
is an error before anything runs. Only what affects output belongs into :func:`identity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from poise.config.base import Line, Seeds, Shots, Slug, Strict
from poise.config.data import Dataset
from poise.config.engines import EngineConfig, OpenAIConfig
from poise.config.factors import Factor, Level
from poise.config.methods import (
    POSITION_ONLY,
    DemonstrationAveragingMethod,
    DNIPMethod,
    LabelAveragingMethod,
    Method,
    PriDeMethod,
)
from poise.config.models import Model
from poise.config.prompts import ChainOfThoughtPrompt, ICLPrompt, OrdinalPrompt, Prompt


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


class Stochastic(Strict):
    """Phase 0b: text sampled twice in the natural and once in the reversed label order, and greedy text beside it."""

    temperature: float = Field(default=0.7, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)


class Reasoning(Strict):
    """Chain of thought: what demonstrations show before their labels, and how the model writes (DNIP paper, Table 6).

    ``sentences`` are reasons by data set and by the id of the demonstration's row.
    """

    instruction: str
    in_query: bool = False
    closing: str
    template: str
    sentences: dict[Slug, dict[str, str]] = {}
    max_new_tokens: int = Field(gt=0)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    reconstructed: bool = True

    @model_validator(mode="after")
    def _template_names_the_label(self) -> Reasoning:
        names = {name for _, name, _, _ in Formatter().parse(self.template) if name is not None}
        if names != {"label"}:
            raise ValueError(f"template must hold {{label}} and no other placeholder, found {self.template!r}")
        return self


class Experiment(Strict):
    """One instrument on a grid of models, data sets, shots and seeds.

    ``class_accuracy`` and ``position`` are the two papers' instruments; ``written`` is what a class-accuracy prompt
    gives when the model writes its answer: the label itself, or with ``reasoning`` a chain of thought.
    """

    name: Slug
    instrument: Literal["class_accuracy", "position", "written"]
    models: list[Slug] | None = None
    datasets: list[Slug] = Field(min_length=1)
    shots: list[Shots] = Field(min_length=1)
    seeds: Seeds
    rows: Rows = Rows()
    split: Literal["clean", "paper"] = "clean"
    prompt: Prompt | None = None
    probes: list[Slug] = []
    factors: list[Slug] | None = []
    merged_demonstrations: Literal["remap", "redraw"] = "remap"
    selection: Literal["paper", "measured"] = "paper"
    stochastic: Stochastic | None = None
    reasoning: Reasoning | None = None
    methods: list[Slug] | None = []
    content_free: list[str] = []
    round_decimals: int | None = Field(default=None, ge=1)
    floor_rows: int = Field(default=0, ge=0)


_TAKEN = ("predict", "responses")


class Study(Strict):
    """A whole composition: the root of the configuration."""

    name: Slug
    title: Line
    seeds: Seeds
    artefacts: list[Slug]
    model: dict[str, Model]
    dataset: dict[str, Dataset]
    engine: EngineConfig
    api: OpenAIConfig | None = None
    experiment: dict[str, Experiment]
    probe: dict[str, Probe] = {}
    factor: dict[str, Factor] = {}
    method: dict[str, Method] = {}

    @field_validator("name")
    @classmethod
    def _name_is_free(cls, name: str) -> str:
        if name in _TAKEN:
            raise ValueError(f"found {name!r}, which is a folder of results/ that all studies share; choose another")
        return name

    @model_validator(mode="after")
    def _names_are_keys(self) -> Study:
        for group in ("model", "dataset", "experiment", "probe", "factor", "method"):
            for key, config in getattr(self, group).items():
                if config.name.replace(".", "_") != key.replace(".", "_"):  # Hydra's keys hold no dots
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
                ("factors", experiment.factors or [], self.factors),
                ("methods", experiment.methods or [], self.methods),
            ):
                missing = sorted(set(wanted) - set(known))
                if missing:
                    raise ValueError(
                        f"experiment.{name}.{kind}: {missing} not in this study, which has {sorted(known)}"
                    )
            self._check_methods(experiment)
            if experiment.instrument == "position":
                self._check_position(experiment)
            elif experiment.factors or experiment.stochastic is not None:
                raise ValueError(f"experiment.{name}: factors and stochastic are for the position instrument")
            self._check_written(experiment)
        if selects(self):
            selecting_experiment(self)
        if self.api is not None and self.engine.kind == "dummy":
            raise ValueError("api: the dummy engine answers for all models, leave out api")
        return self

    def engine_of(self, model: Model) -> EngineConfig:
        """What asks a model: ``engine``, or ``api``, if the study has one, for models behind an API."""
        return self.api if self.api is not None and model.api else self.engine

    def methods_of(self, experiment: Experiment) -> list[str]:
        """Methods of an experiment; all that suit its instrument if it names none (null)."""
        if experiment.methods is not None:
            return experiment.methods
        return [name for name, method in self.methods.items() if suits(method, experiment.instrument)]

    def factors_of(self, experiment: Experiment) -> list[str]:
        """Factors of an experiment; all of the study if it names none (null)."""
        return list(self.factors) if experiment.factors is None else experiment.factors

    def _check_methods(self, experiment: Experiment) -> None:
        where = f"experiment.{experiment.name}"
        position = experiment.instrument == "position"
        for method in (self.methods[key] for key in self.methods_of(experiment)):
            if method.kind == "contextual_calibration" and method.n_inputs > len(experiment.content_free):
                raise ValueError(
                    f"{where}.content_free: method {method.name} needs {method.n_inputs} content-free inputs, "
                    f"found {len(experiment.content_free)}"
                )
            if not suits(method, experiment.instrument):
                reason = (
                    "written answers have no probabilities to correct"
                    if experiment.instrument == "written"
                    else "tuning: dev needs development rows"
                    if position
                    else "it compares label or demonstration orders"
                )
                raise ValueError(
                    f"{where}.methods: {method.name} is not for the {experiment.instrument} instrument: {reason}"
                )
            levels = {
                level
                for probe in map(self.probes.get, experiment.probes)
                if probe is not None
                for level in probe.levels
            }
            missing = sorted(levels_needed(method) - levels) if position else []
            if missing:
                raise ValueError(
                    f"{where}.probes: method {method.name} needs the levels {missing}, found {sorted(levels)}"
                )

    def _check_written(self, experiment: Experiment) -> None:
        where = f"experiment.{experiment.name}"
        used = {f"{where}.prompt": experiment.prompt} if experiment.prompt else {}
        if not used:
            used = {f"dataset.{name}.prompt": self.datasets[name].prompt for name in experiment.datasets}
        for key, prompt in used.items():
            if isinstance(prompt, ChainOfThoughtPrompt):
                raise ValueError(f"{key}: chain of thought is not a template; use an experiment with reasoning")
            if experiment.instrument == "written" and not isinstance(prompt, ICLPrompt):
                raise ValueError(f"{key}: the written instrument needs an icl prompt, found {prompt.kind}")
        if experiment.instrument != "written":
            if experiment.reasoning is not None:
                raise ValueError(f"{where}.reasoning: chain of thought is for the written instrument")
            return
        if isinstance(experiment.prompt, ICLPrompt):
            n_words = len(experiment.prompt.label_words)
            for name in experiment.datasets:
                n_classes = len(self.datasets[name].classes)
                if n_words != n_classes:
                    raise ValueError(
                        f"{where}.prompt: label_words must have {n_classes} words for {name}, found {n_words}"
                    )

    def _check_position(self, experiment: Experiment) -> None:
        where = f"experiment.{experiment.name}"
        if experiment.prompt is None or experiment.prompt.kind != "ordinal":
            raise ValueError(f"{where}.prompt: the position instrument needs an ordinal prompt")
        if self.factors_of(experiment) and len(experiment.shots) != 1:
            raise ValueError(f"{where}.shots: factors vary one baseline, found {experiment.shots}")
        averaged = [name for name in self.methods_of(experiment) if "ascending" in levels_needed(self.methods[name])]
        if averaged and "0_per_class" in experiment.shots:
            raise ValueError(f"{where}.methods: {averaged[0]} needs demonstrations to reorder, found shots 0_per_class")
        for dataset in experiment.datasets:
            if not self.datasets[dataset].ordered:
                raise ValueError(f"{where}.datasets: {dataset} is not ordered (dataset.{dataset}.ordered)")
        for factor in (self.factors[name] for name in self.factors_of(experiment)):
            for name, level in factor.changes.items():
                try:
                    level_prompt(experiment.prompt, level)
                except ValueError as error:
                    raise ValueError(f"factor.{factor.name}.levels.{name}.prompt: {_reason(error)}") from error

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
    def factors(self) -> dict[str, Factor]:
        """Factors by name."""
        return {factor.name: factor for factor in self.factor.values()}

    @property
    def methods(self) -> dict[str, Method]:
        """Methods by name."""
        return {method.name: method for method in self.method.values()}


def selects(study: Study) -> list[str]:
    """Experiments whose joint configurations are chosen from the study's own factors."""
    return [
        name
        for name, experiment in study.experiment.items()
        if experiment.selection == "measured" and "configuration" in study.factors_of(experiment)
    ]


def selecting_experiment(study: Study) -> tuple[str, str]:
    """Experiment and model that joint configurations are chosen from: the study's first model under prompt factors.

    Raises
    ------
    ValueError
        If no experiment varies a prompt factor on that model.
    """
    model = next(iter(study.models))
    for name, experiment in study.experiment.items():
        asked = experiment.instrument == "position" and model in (experiment.models or study.models)
        if asked and any(study.factors[factor].chooses_prompt for factor in study.factors_of(experiment)):
            return name, model
    raise ValueError(
        f"selection: measured needs an experiment that varies prompt factors (label_format …) on {model}, "
        f"the study's first model"
    )


def with_selection(study: Study, levels: Mapping[str, Level] | None) -> Study:
    """Put the chosen levels in place of the configured joint configurations; none before any is chosen."""
    configured = study.factor["configuration"]
    baseline = {configured.baseline: configured.levels[configured.baseline]}
    factor = configured.model_copy(update={"levels": {**baseline, **(levels or {})}})
    return study.model_copy(update={"factor": {**study.factor, "configuration": factor}})


def suits(method: Method, instrument: str) -> bool:
    """Whether an instrument can use a method.

    Only the position instrument has several label and demonstration orders; only the class-accuracy instrument has
    development rows. Written answers are shown as they are.
    """
    if instrument == "written":
        return method.kind == "icl"
    if instrument == "position":
        return not (isinstance(method, DNIPMethod) and method.tuning == "dev")
    by_order = isinstance(method, DNIPMethod) and (method.axis, method.fit_on) != ("class", "natural")
    return not (by_order or isinstance(method, POSITION_ONLY))


def levels_needed(method: Method) -> set[str]:
    """Probe levels whose answers a method reads besides those that it corrects."""
    if isinstance(method, DemonstrationAveragingMethod):
        return {"ascending", "descending"}
    compares = isinstance(method, LabelAveragingMethod | PriDeMethod)
    return {"reversed"} if compares or (isinstance(method, DNIPMethod) and method.fit_on != "natural") else set()


def level_prompt(base: OrdinalPrompt, level: Level) -> Prompt:
    """Build the prompt of a factor's level from that of its experiment."""
    if level.paradigm is not None:
        return level.paradigm
    return OrdinalPrompt.model_validate({**base.model_dump(), **level.prompt})


def chain_of_thought(answer: ICLPrompt, reasoning: Reasoning, dataset: str) -> ChainOfThoughtPrompt:
    """Build the chain-of-thought prompt of a data set from its own template."""
    return ChainOfThoughtPrompt(
        kind="chain_of_thought",
        name=answer.name,
        answer=answer,
        instruction=reasoning.instruction,
        in_query=reasoning.in_query,
        closing=reasoning.closing,
        template=reasoning.template,
        sentences=reasoning.sentences.get(dataset, {}),
        reconstructed=reasoning.reconstructed,
    )


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg'].removeprefix('Value error, ')}"
    return str(error)


# Keys that do not affect any number: titles, notes, execution knobs, and the place of local files, whose bytes count.
_COSMETIC = {
    "title", "licence", "precision_note", "assumed", "price",
    "tokens_per_second", "gated", "domain", "folder", "size_bytes",
    "flush_seconds", "batch_requests", "batch_minutes", "reconstructed",
    "pack_tokens", "tensor_parallel", "memory_share", "cpu_cache_gib", "max_sequences", "max_batched_tokens",
    "call_requests", "base_url", "key_variable", "concurrency", "requests_per_minute", "max_retries",
    "timeout_seconds",
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
