"""Where everything lies, relative to the working directory. The Snakefile and the library both ask here."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path("data")
DOWNLOADS = DATA / "downloads"
PREPARED = DATA / "prepared"
MODELS = DATA / "models"
RESULTS = Path("results")
RESPONSES = RESULTS / "responses"
FIGURES = Path("figures")


def project_file(name: str) -> Path:
    """``name`` in the working directory if it is there, otherwise in the checkout that this package runs from."""
    return Path(name) if Path(name).exists() else Path(__file__).parents[2] / name


def conf_dir() -> Path:
    """Folder of the Hydra configuration: ``$POISE_CONF``, or ``conf`` of the project."""
    return Path(os.environ.get("POISE_CONF") or project_file("conf")).resolve()


def reference_dir() -> Path:
    """Folder of the papers' printed figures."""
    return project_file("data/reference")


def prepared_dataset(dataset: str, digest: str) -> Path:
    """Rows of one data set in Poise's own columns."""
    return PREPARED / f"{dataset}.{digest}.parquet"


def model_dir(model: str, digest: str) -> Path:
    """Local folder of one model, ready for an engine."""
    return MODELS / f"{model}.{digest}"


def model_manifest(model: str, digest: str) -> Path:
    """Written last when a model folder is complete: its files and their checksums."""
    return model_dir(model, digest) / "poise.json"


def batch_dir(model: str, batch: str) -> Path:
    """Everything that one extraction leaves behind."""
    return RESPONSES / model / batch


def plan_file(study: str) -> Path:
    """Latest plan of a study."""
    return RESULTS / study / "plan.json"


def frozen_plan_file(study: str, digest: str) -> Path:
    """Immutable copy of one plan, which the jobs of a run read."""
    return RESULTS / study / "plans" / f"{digest}.json"


def predictions(study: str, experiment: str, model: str, dataset: str, method: str) -> Path:
    """Predictions of one method on the test rows of all cells of one model and data set."""
    return RESULTS / study / "predictions" / experiment / model / dataset / f"{method}.parquet"


def timings(study: str, experiment: str, model: str, dataset: str, method: str) -> Path:
    """Seconds that the fits of one method took."""
    return predictions(study, experiment, model, dataset, method).with_suffix(".timings.json")


def cell_metrics(study: str, experiment: str, model: str, dataset: str) -> Path:
    """Tidy metrics of one model and data set."""
    return RESULTS / study / "metrics" / experiment / model / f"{dataset}.parquet"


def metrics(study: str, instrument: str) -> Path:
    """Tidy metrics of one instrument: all models and data sets."""
    return RESULTS / study / "metrics" / f"{instrument}.parquet"


def metrics_part(study: str, instrument: str, part: int | str) -> Path:
    """Tidy metrics of one instrument: one part of very many models and data sets."""
    return RESULTS / study / "gathered" / instrument / f"{part}.parquet"


def selection(study: str) -> Path:
    """Joint configurations that a study chose from its own factors."""
    return RESULTS / study / "selection.json"


def table(study: str, artefact: str, suffix: str = ".csv") -> Path:
    """One table: tidy CSV, or the paper's shape in Markdown."""
    return RESULTS / study / "tables" / f"{artefact}{suffix}"


def figure(study: str, artefact: str, suffix: str = ".png") -> Path:
    """One figure."""
    return FIGURES / study / f"{artefact}{suffix}"


def report(study: str) -> Path:
    """One page with all tables and figures."""
    return RESULTS / study / "report.html"
