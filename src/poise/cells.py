"""A study's grid becomes cells: models × data sets × settings × shots × seeds × conditions. Pure and light."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from poise.config.data import Dataset
from poise.config.engines import EngineConfig
from poise.config.methods import DNIPMethod, Method
from poise.config.models import Model
from poise.config.prompts import ChainOfThoughtPrompt, ICLPrompt, ListwisePrompt, OrdinalPrompt, PairwisePrompt, Prompt
from poise.config.schema import Experiment, Study, chain_of_thought, identity, level_prompt
from poise.hashing import digest
from poise.versions import EXTRACTION_VERSION

BASE_CONDITION = {"label_order": "natural", "demonstration_order": "base", "placement": "before"}


@dataclass(frozen=True)
class Cell:
    """One unit of measurement: which prompts are asked of which model.

    ``id`` is the digest of the output-affecting configuration. ``experiment``, ``factor`` and ``level`` only say who
    asked: experiments with equal cells share the answers. ``prompt`` is a key of the plan's prompts, whose kind is the
    paradigm; ``parts`` is how many requests it takes for a row.
    """

    id: str
    experiment: str
    model: str
    dataset: str
    split: str
    shots: str
    seed: int
    prompt: str
    factor: str = ""
    level: str = ""
    cardinality: str = ""
    label_order: str = "natural"
    demonstration_order: str = "base"
    placement: str = "before"
    decoding: str = "scores"
    replicate: int = 0
    rows: int | None = None
    parts: int = 1
    split_mode: str = "clean"
    regrouped_rows: int = 0

    @property
    def condition(self) -> str:
        """Short name of the probe condition: the one field that differs from the base, or ``base``."""
        changed = [f"{key}={getattr(self, key)}" for key, base in BASE_CONDITION.items() if getattr(self, key) != base]
        return ",".join(changed) or "base"


@dataclass(frozen=True)
class Setting:
    """How an experiment prompts: its baseline (no factor, no level), or one level of one factor."""

    prompt_name: str
    prompt: Prompt
    factor: str = ""
    level: str = ""
    shots: str | None = None
    cardinality: str = ""


def settings(study: Study, experiment: Experiment, dataset: Dataset) -> list[Setting]:
    """Settings of an experiment that apply to a data set, the baseline first.

    A factor is left out where the data set has too few classes for it, or not the coarser scale that a level asks for.
    """
    if not isinstance(experiment.prompt, OrdinalPrompt):
        prompt = experiment.prompt or dataset.prompt
        plain = Setting(prompt_name(experiment, dataset.name), prompt)
        if experiment.reasoning is None or not isinstance(prompt, ICLPrompt):
            return [plain]
        thinking = chain_of_thought(prompt, experiment.reasoning, dataset.name)
        return [plain, Setting(prompt_name(experiment, dataset.name, "reasoning"), thinking)]
    found = [Setting(prompt_name(experiment, dataset.name), experiment.prompt)]
    for name in study.factors_of(experiment):
        factor = study.factors[name]
        if len(dataset.classes) < factor.min_classes:
            continue
        found += [
            Setting(
                prompt_name(experiment, dataset.name, f"{name}={key}"),
                level_prompt(experiment.prompt, level),
                factor=name,
                level=key,
                shots=level.shots,
                cardinality=level.cardinality or "",
            )
            for key, level in factor.changes.items()
            if not level.cardinality or level.cardinality in dataset.merged
        ]
    return found


def prompt_name(experiment: Experiment, dataset: str, level: str = "") -> str:
    """Key of the prompt that an experiment uses on a data set, at a level: ``factor=level``, or ``reasoning``."""
    return "/".join(filter(None, (experiment.name, dataset, level)))


def prompts(study: Study) -> dict[str, Prompt]:
    """All prompts of a study by their keys."""
    return {
        setting.prompt_name: setting.prompt
        for experiment in study.experiment.values()
        for dataset in experiment.datasets
        for setting in settings(study, experiment, study.datasets[dataset])
    }


def conditions(study: Study, experiment: Experiment, prompt: Prompt, shots: str) -> list[dict[str, str]]:
    """Probe conditions of a setting, one dimension varied at a time; the base comes first, once.

    Without demonstrations there is nothing to reorder or to place, and the other paradigms fix both (position paper,
    E.2, 5.2.1): there only the label order varies.
    """
    everything = isinstance(prompt, OrdinalPrompt) and n_shots(shots) > 0
    found = [dict(BASE_CONDITION)]
    for name in experiment.probes:
        probe = study.probes[name]
        if everything or probe.field == "label_order":
            found += [{**BASE_CONDITION, probe.field: level} for level in probe.levels]
    return list({digest(item): item for item in found}.values())


def n_shots(shots: str) -> int:
    """Number in ``5_per_class`` or ``5_shot``; 1 for ``k_shot``."""
    return int(re.sub(r"\D", "", shots) or 1)


def corrected(study: Study, experiment: Experiment, model: str) -> list[str]:
    """Methods that are fitted and applied in jobs of their own.

    In the position instrument uncorrected predictions are measured as they are, and a model that answers in text has
    no probabilities to correct, only predictions to average. Written answers are not corrected.
    """
    names = study.methods_of(experiment)
    if experiment.instrument == "written":
        return []
    if experiment.instrument != "position":
        return names
    kinds = {name: study.methods[name].kind for name in names}
    if study.models[model].answers == "text":
        return [name for name, kind in kinds.items() if kind in ("label_averaging", "demonstration_averaging")]
    return [name for name, kind in kinds.items() if kind != "icl"]


def reachable(engine: EngineConfig, model: Model) -> bool:
    """Whether an engine can ask a model at all: servers are asked for models behind an API, engines load weights."""
    return engine.kind == "dummy" or model.api == (engine.kind == "openai")


def expand_cells(study: Study, dataset_digests: Mapping[str, str], model_digests: Mapping[str, str]) -> Iterator[Cell]:
    """Yield all cells of a study; a model that the engine cannot reach has none."""
    for experiment in study.experiment.values():
        for model in experiment.models or list(study.models):
            config = study.models[model]
            if not reachable(study.engine_of(config), config):
                continue
            engine = identity(study.engine_of(config))
            model_identity = [
                model_digests[model],
                config.chat,
                config.chat_options,
                config.context_length,
                identity(config.label_tokens),
                config.api_options,
            ]
            for name in experiment.datasets:
                dataset = study.datasets[name]
                drawn = identity(dataset, frozenset({"prompt"}))
                for setting in settings(study, experiment, dataset):
                    prompt = identity(setting.prompt, frozenset({"name"}))
                    shared = digest(
                        [EXTRACTION_VERSION, engine, model_identity, dataset_digests[name], prompt, drawn,
                         experiment.split]
                    )  # fmt: skip
                    for shots in [setting.shots] if setting.shots else experiment.shots:
                        for seed in experiment.seeds:
                            for asked in _asked(study, experiment, config, setting, shots):
                                yield _cell(shared, experiment, model, dataset, setting, shots, seed, asked)


def _asked(
    study: Study, experiment: Experiment, model: Model, setting: Setting, shots: str
) -> Iterator[dict[str, Any]]:
    """What a setting asks: splits, conditions and kinds of decoding."""
    rows = experiment.rows
    limit = {"max_new_tokens": model.max_new_tokens}
    text = {"decoding": "greedy", "generation": limit}
    scored = model.answers == "scores"
    methods = [study.methods[name] for name in study.methods_of(experiment)]
    if experiment.instrument == "written":
        test = {**BASE_CONDITION, "split": "test", "rows": rows.test}
        if isinstance(setting.prompt, ChainOfThoughtPrompt):
            assert experiment.reasoning is not None
            sampling = experiment.reasoning.model_dump(include={"max_new_tokens", "temperature", "top_p"})
            yield {**test, "decoding": "sampled", "generation": sampling}
            return
        if scored:
            yield {**test, "regrouped_rows": experiment.floor_rows}  # as class_accuracy has it, to share its answers
        if experiment.reasoning is None or not scored:
            yield {**test, **text}
        return
    if experiment.instrument == "class_accuracy":
        base: dict[str, Any] = {**BASE_CONDITION, **({} if scored else text)}
        regrouped = experiment.floor_rows if scored else 0
        yield {**base, "split": "test", "rows": rows.test, "regrouped_rows": regrouped}
        yield {**base, "split": "optimisation", "rows": rows.optimisation}
        if any(isinstance(method, DNIPMethod) and method.tuning == "dev" for method in methods):
            yield {**base, "split": "development", "rows": rows.development}
        if experiment.content_free:
            yield {**base, "split": "content_free", "rows": len(experiment.content_free)}
        return
    for condition in conditions(study, experiment, setting.prompt, shots):
        regrouped = experiment.floor_rows if condition == BASE_CONDITION and scored and not setting.factor else 0
        test = {**condition, "split": "test", "rows": rows.test, "regrouped_rows": regrouped}
        yield test if scored else {**test, **text}
        if scored and not setting.factor:
            if experiment.content_free:
                yield {**condition, "split": "content_free", "rows": len(experiment.content_free)}
            order = condition["label_order"]
            others = {**condition, "label_order": "natural"} != BASE_CONDITION
            if not others and any(order in fitted_orders(method) for method in methods):
                yield {**condition, "split": "optimisation", "rows": rows.optimisation}
    if experiment.stochastic is not None and not setting.factor:
        base = {**BASE_CONDITION, "split": "test", "rows": rows.test}
        sampling = {**limit, **experiment.stochastic.model_dump()}
        if scored:
            yield {**base, **text}
        for order, replicate in (("natural", 0), ("natural", 1), ("reversed", 0)):
            yield {**base, "label_order": order, "decoding": "sampled", "replicate": replicate, "generation": sampling}


def fitted_orders(method: Method) -> tuple[str, ...]:
    """Label orders whose optimisation rows a method is fitted on, in the position instrument."""
    if isinstance(method, DNIPMethod):
        return {"natural": ("natural",), "reversed": ("reversed",), "pooled": ("natural", "reversed")}[method.fit_on]
    return ("natural",) if method.kind in ("prior_matching", "linear_adapter") else ()


def _cell(
    shared: str, experiment: Experiment, model: str, dataset: Dataset, setting: Setting, shots: str, seed: int,
    asked: dict[str, Any],
) -> Cell:  # fmt: skip
    axes = {**asked, "shots": shots, "seed": seed, "cardinality": setting.cardinality}
    extra: list[Any] = list(experiment.content_free) if asked["split"] == "content_free" else []
    if setting.cardinality:
        extra.append(experiment.merged_demonstrations)
    if asked["split"] == "optimisation" and not dataset.has_training_rows:
        extra.append(["test rows left out", experiment.rows.test])
    identifier = digest([shared, axes, *extra])
    axes.pop("generation", None)
    return Cell(
        id=identifier,
        experiment=experiment.name,
        model=model,
        dataset=dataset.name,
        prompt=setting.prompt_name,
        factor=setting.factor,
        level=setting.level,
        parts=n_parts(setting.prompt, dataset, shots),
        split_mode=experiment.split,
        **axes,
    )


def n_parts(prompt: Prompt, dataset: Dataset, shots: str) -> int:
    """Requests for one row: two for each demonstration (pairwise), one for each group of them (listwise), or one."""
    if isinstance(prompt, PairwisePrompt):
        return 2 * n_shots(shots) * len(dataset.classes)
    return n_shots(shots) if isinstance(prompt, ListwisePrompt) else 1
