"""Tidy metrics of the position instrument as the measuring stage writes them, from values given by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from poise.artefacts.context import Context
from poise.config.factors import Factor
from poise.stages.tidy import tidy_frame

PERFORMANCE = ("accuracy", "macro_f1", "spearman_rho", "mae")
FLIPS = ("p1", "p2", "p2a", "p2b", "p3", "p3a", "p3b")
RULES = ("majority_vote", "mean_score", "weighted_sum", "copeland", "bradley_terry")

LABEL_FORMAT = Factor(
    name="label_format",
    title="Label format",
    baseline="numeric",
    levels={
        "letter": {"title": "Letter"},
        "numeric": {"title": "Numeric"},
        "natural_language": {"title": "Natural language"},
    },
)
DEMO_COUNT = Factor(
    name="demo_count",
    title="Demo count",
    baseline="5_shot",
    levels={"0_shot": {"title": "0-shot", "shots": "0_per_class"}, "5_shot": {"title": "5-shot"}},
)
CONFIGURATION = Factor(
    name="configuration",
    title="Configuration",
    baseline="baseline",
    levels={
        "baseline": {"title": "Baseline"},
        "accuracy_optimal": {"title": "A"},
        "p1_optimal": {"title": "P1"},
    },
)
PARADIGM = Factor(
    name="inference_paradigm",
    title="Inference paradigm",
    baseline="pointwise",
    min_classes=3,
    levels={name: {"title": name.capitalize()} for name in ("pointwise", "pairwise", "listwise")},
)


def study(
    models: Iterable[str] = ("first",),
    factors: Iterable[Factor] = (LABEL_FORMAT, DEMO_COUNT, CONFIGURATION, PARADIGM),
    api: Iterable[str] = (),
) -> Any:
    """Just what tables read of a study: names, titles and classes."""
    datasets = {"five": ["a", "b", "c", "d", "e"], "three": ["a", "b", "c"], "two": ["a", "b"]}
    return SimpleNamespace(
        models={name: SimpleNamespace(title=f"Model {name}", api=name in set(api)) for name in [*models, *api]},
        datasets={
            name: SimpleNamespace(title=name.upper(), classes=classes, domain="") for name, classes in datasets.items()
        },
        methods={},
        factors={factor.name: factor for factor in factors},
    )


def run(values: Mapping[str, float], **columns: Any) -> list[dict[str, Any]]:
    """Rows of one run: performance at the base condition, flip rates with interval and worst case."""
    shared = {
        "experiment": "position", "model": "first", "dataset": "five", "shots": "5_per_class", "seed": 0,
        "factor": "", "level": "", "method": "icl", "n": 200, "provenance": "measured", **columns,
    }  # fmt: skip
    rows = []
    for measure, value in values.items():
        if measure in PERFORMANCE:
            rows.append({**shared, "metric": measure, "condition": "base", "value": value})
        else:
            flips = {**shared, "condition": measure.split("_")[0]}
            rows.append({**flips, "metric": f"pfr_{measure}", "value": value, "low": value / 2, "high": value + 0.1})
            rows.append({**flips, "metric": f"pfr_{measure}_worst", "value": value + 0.01})
    return rows


def floor(value: float, n: int, **columns: Any) -> dict[str, Any]:
    """Row of the numerical floor of one baseline run."""
    (row,) = run({"accuracy": value}, **columns, n=n)
    return {**row, "metric": "flip_floor", "low": 0.0, "high": 0.1}


def context(rows: Iterable[dict[str, Any]], of: Any = None) -> Context:
    """Rows as tables get them."""
    return Context(of or study(), tidy_frame(rows))


def full_rows(models: Iterable[str] = ("first", "second"), seeds: Iterable[int] = (0, 1, 2)) -> list[dict[str, Any]]:
    """Everything the instrument can measure, with values that are random but the same each time."""
    random = np.random.default_rng(0)

    def values(names: Iterable[str]) -> dict[str, float]:
        return {name: float(random.uniform(0.2, 0.8)) for name in names}

    everything = (*PERFORMANCE, *FLIPS)
    rows: list[dict[str, Any]] = []
    for model in models:
        for dataset in ("five", "three", "two"):
            for seed in seeds:
                at = {"model": model, "dataset": dataset, "seed": seed}
                rows += run(values(everything), **at)
                rows.append(floor(0.05, 20, **at))
                for level in ("letter", "natural_language"):
                    semantic = ("p1_semantic",) if level == "natural_language" else ()
                    rows += run(values((*everything, *semantic)), **at, factor="label_format", level=level)
                rows += run(
                    values((*PERFORMANCE, "p1")), **at, factor="demo_count", level="0_shot", shots="0_per_class"
                )
                for level, names in (("accuracy_optimal", (*PERFORMANCE, "p1")), ("p1_optimal", everything)):
                    rows += run(values(names), **at, factor="configuration", level=level)
                for method in ("pride", "label_averaging"):
                    names = (*PERFORMANCE, "p1") if method == "pride" else PERFORMANCE
                    rows += run(values(names), **at, method=method)
                if dataset == "two":
                    continue
                for rule in RULES:
                    still = dict.fromkeys(FLIPS[1:], 0.0)
                    found = {**values((*PERFORMANCE, "p1")), **still}
                    rows += run(found, **at, factor="inference_paradigm", level="pairwise", method=rule)
                rows += run(values((*PERFORMANCE, "p1")), **at, factor="inference_paradigm", level="listwise")
    return rows
