"""What every table and figure is made from, and the small computations they share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from poise import paths
from poise.artefacts.registry import ARTEFACTS
from poise.config.schema import Study
from poise.errors import PoiseError

RUN = ["experiment", "model", "dataset", "shots", "method", "condition"]


@dataclass(frozen=True)
class Context:
    """Tidy metrics of an artefact's instruments (columns: ``stages.measure.METRIC_COLUMNS``) and the study."""

    study: Study
    metrics: pd.DataFrame

    def metric(self, name: str) -> pd.DataFrame:
        """Rows of one metric; an empty frame if nothing was measured."""
        return self.metrics[self.metrics["metric"] == name]

    def only(self, methods: Collection[str]) -> Context:
        """Metrics of these methods."""
        return replace(self, metrics=self.metrics[self.metrics["method"].isin(methods)])

    def require(self, artefact: str) -> None:
        """Refuse to make an artefact from nothing, unless it can say what is not measured."""
        if self.metrics.empty and not ARTEFACTS[artefact].optional:
            raise PoiseError(
                f"{artefact}: this study measures nothing that it could show; add an experiment to the study"
            )

    def model_title(self, name: str) -> str:
        """Model name as tables print it."""
        models = self.study.models
        return models[name].title if name in models else name

    def dataset_title(self, name: str) -> str:
        """Data-set name as tables print it."""
        datasets = self.study.datasets
        return datasets[name].title if name in datasets else name

    def method_title(self, name: str) -> str:
        """Method name as tables print it."""
        methods = self.study.methods
        return methods[name].title if name in methods else name

    def shots_title(self, experiment: str, model: str, shots: str) -> str:
        """Demonstrations as tables print them, with the experiment where several measured the model with as many."""
        rows = self.metrics[(self.metrics["model"] == model) & (self.metrics["shots"] == shots)]
        shown = shots.replace("_", "-")
        return f"{shown}, {experiment}" if experiment and len(set(rows["experiment"])) > 1 else shown


def mean_sd(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Mean and sample SD (ddof 1) of ``value`` over seeds; ``runs`` counts them; SD is NaN for one run."""
    grouped = rows.groupby(list(by), sort=False)
    found = grouped.agg(
        mean=("value", "mean"),
        sd=("value", "std"),
        runs=("value", "size"),
        provenance=("provenance", "first"),
    )
    return found.reset_index()


def mean_over_datasets(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Average ``value`` over data sets run by run, as rows of the data set ``all``."""
    keys = [*(key for key in by if key != "dataset"), "seed"]
    found = (
        rows.groupby(keys, sort=False).agg(value=("value", "mean"), provenance=("provenance", "first")).reset_index()
    )
    return found.assign(dataset="all")


def reference(name: str, models: Sequence[str], datasets: Sequence[str]) -> pd.DataFrame:
    """Printed figures of a paper for the models and data sets at hand, as text, with provenance ``paper``."""
    rows = pd.read_csv(paths.reference_dir() / name, dtype=str, keep_default_na=False)
    rows = rows[rows["model"].isin(models)] if "model" in rows else rows
    rows = rows[rows["dataset"].isin([*datasets, "all"])] if "dataset" in rows else rows
    return rows.assign(provenance="paper")


def keys_of(rows: pd.DataFrame, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Values of some columns, a tuple a row."""
    return list(zip(*(rows[column] for column in columns), strict=True))


def among(rows: pd.DataFrame, columns: Sequence[str], wanted: Collection[tuple[Any, ...]]) -> pd.Series:
    """Mask of the rows whose values of some columns, as a tuple, are among the wanted ones."""
    return pd.Series([key in wanted for key in keys_of(rows, columns)], index=rows.index, dtype=bool)


def printed(name: str, measured: pd.DataFrame) -> pd.DataFrame:
    """Printed figures of a paper for each model and data set, as a pair, of these rows.

    A model's printed mean over ``all`` data sets goes with them.
    """
    pairs = set(keys_of(measured, ["model", "dataset"]))
    paper = reference(name, list(measured["model"].unique()), list(measured["dataset"].unique()))
    same = among(paper, ["model", "dataset"], pairs)
    models = set(paper.loc[same, "model"])
    means = (paper["dataset"] == "all") & paper["model"].isin(models)
    return paper[means | same]


def percent(value: float, decimals: int = 1) -> str:
    """Fraction as a percentage; a dash if there is none."""
    return "–" if pd.isna(value) else f"{100 * value:.{decimals}f}"


def percent_sd(mean: float, sd: float) -> str:
    """Mean ± SD in percent."""
    return percent(mean) if pd.isna(sd) else f"{percent(mean)} ± {percent(sd)}"


def percent_interval(value: float, low: float, high: float) -> str:
    """Estimate with its interval, in percent."""
    return percent(value) if pd.isna(low) else f"{percent(value)} [{percent(low)}, {percent(high)}]"


def p_value(p: float) -> str:
    """P-value as tables print it."""
    return "–" if pd.isna(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"
