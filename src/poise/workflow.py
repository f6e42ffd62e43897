"""What the Snakefile asks: which plan this run follows, which files each rule reads, what its digest is. Light."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from poise import gathering, paths, planfile
from poise.artefacts.registry import ARTEFACTS, artefact_outputs
from poise.cells import Cell, corrected
from poise.config.data import Dataset
from poise.config.engines import EngineConfig
from poise.config.models import Model
from poise.config.schema import Experiment, selecting_experiment, selects
from poise.config.sources import package_files
from poise.engines.devices import available_cores, gpus_wanted, visible_gpus
from poise.errors import PoiseError
from poise.hashing import digest
from poise.plan import Plan
from poise.versions import source_digest

PLAN_VARIABLE = "POISE_PLAN"
# What no artefact reads of a model or data set: metrics change with it, or nothing does.
_NEVER_SHOWN = ("source", "prompt", "tables", "tokens_per_second", "price")
_CORES_ELSEWHERE = 4
_LOADING_MINUTES = 15


class Wildcards(Protocol):
    """Snakemake's wildcards: the names that a rule's file patterns captured."""

    def __getattr__(self, name: str) -> str: ...


class Workflow:
    """Input functions and digests of all rules, for one plan.

    ``cores`` are those that Snakemake was given; all of this machine if it was given none. ``local`` tells whether jobs
    run on this machine, or where a batch system puts them: then what is found here says nothing of theirs.
    """

    def __init__(self, plan: Plan, cores: int | None = None, local: bool = True) -> None:
        self.plan = plan
        self.study = plan.study.name
        self.cores = cores or available_cores()
        self.local = local

    @classmethod
    def start(
        cls, project: Path, config: Mapping[str, Any], is_main: bool, cores: int | None = None, local: bool = True
    ) -> Workflow:
        """Load the plan of this run.

        The main process composes the study once and freezes it. Its jobs, on other nodes too, get the frozen file's
        name and the path of the ``poise`` command through the environment, and never compose.
        """
        os.environ.setdefault("POISE_CONF", str(project / "conf"))
        if is_main:
            _prepend("PATH", Path(sys.executable).parent)
            _prepend("PYTHONPATH", project / "src")  # for environments that hold what Poise needs, but not Poise
            path = Path(config["plan"]) if "plan" in config else planfile.resolve(config.get("study", "demo"))
            os.environ[PLAN_VARIABLE] = str(path)
        elif PLAN_VARIABLE not in os.environ:
            raise PoiseError(f"{PLAN_VARIABLE} is not set in this job; pass the environment on to jobs")
        return cls(planfile.load(Path(os.environ[PLAN_VARIABLE])), cores, local)

    # Targets -------------------------------------------------------------------------------------------------------

    def artefacts(self, kind: str) -> list[str]:
        """Files of the artefacts of one kind that the study wants."""
        wanted = [name for name in self.plan.study.artefacts if ARTEFACTS[name].kind == kind]
        return [str(path) for name in wanted for path in artefact_outputs(self.study, name)]

    def sources(self) -> list[str]:
        """Prepared data sets and models of the study."""
        return [self._dataset(name) for name in self.plan.study.datasets] + [
            self._model(name) for name in self.plan.study.models
        ]

    # Inputs --------------------------------------------------------------------------------------------------------

    def dataset_inputs(self, wildcards: Wildcards) -> list[str]:
        """Downloaded package file that a data set is made of, if any."""
        return _package_files(self.plan.study.datasets[wildcards.dataset])

    def model_inputs(self, wildcards: Wildcards) -> list[str]:
        """Downloaded package files that a model is made of, if any."""
        return _package_files(self.plan.study.models[wildcards.model])

    def batch_inputs(self, wildcards: Wildcards) -> dict[str, str | list[str]]:
        """What one extraction reads: the model, by the name ``weights`` if they are loaded, and the data sets."""
        batch = self.plan.batch_by_id[wildcards.batch]
        cells = (self.plan.cell_by_id.get(cell) for cell in batch.cells)
        datasets = sorted({cell.dataset for cell in cells if cell is not None})
        loaded = gpus_wanted(self._engine(batch.id)) > 0
        return {
            "weights" if loaded else "model": self._model(batch.model),
            "datasets": [self._dataset(name) for name in datasets],
        }

    def open_batches(self) -> str:
        """Pattern of the batches that an extraction may make: those without all of their answers.

        What is answered is a source file like any other. So nothing asks it again, neither another study whose plan
        knows some of its cells only, nor new file times, nor an edit of the rule.
        """
        batches = [batch.id for batch in self.plan.batches if not planfile.is_answered(batch)]
        return "|".join(batches) or "(?!)"  # matches nothing

    def selections(self) -> list[str]:
        """File of the joint configurations that this run chooses, or nothing."""
        return [str(paths.selection(self.study))] if selects(self.plan.study) else []

    def select_inputs(self, wildcards: Wildcards) -> list[str]:  # noqa: ARG002
        """Answers that joint configurations are chosen from."""
        return self._responses(self._selecting_cells())

    def correct_inputs(self, wildcards: Wildcards) -> list[str]:
        """Answers that a method is fitted on and applied to."""
        return self._responses(self._group(wildcards))

    def measure_inputs(self, wildcards: Wildcards) -> list[str]:
        """What metrics are made of: corrected predictions, or the answers themselves."""
        experiment = self._experiment(wildcards)
        group = (wildcards.experiment, wildcards.model, wildcards.dataset)
        methods = corrected(self.plan.study, experiment, wildcards.model)
        answers = self._responses(self._group(wildcards)) if experiment.instrument != "class_accuracy" else []
        return answers + [str(paths.predictions(self.study, *group, method)) for method in methods]

    def collect_inputs(self, wildcards: Wildcards) -> list[str]:
        """Metrics of all models and data sets of one instrument, or the seconds of all fits; in parts if many."""
        return list(map(str, gathering.inputs(self.plan, wildcards.instrument)))

    def collect_part_inputs(self, wildcards: Wildcards) -> list[str]:
        """What one part of an instrument's metrics is gathered from."""
        return list(map(str, gathering.part_sources(self.plan, wildcards.instrument, int(wildcards.part))))

    def artefact_inputs(self, wildcards: Wildcards) -> list[str]:
        """Metrics that an artefact is made of, and the papers' printed figures that may stand beside them."""
        artefact = ARTEFACTS[wildcards.artefact]
        reference = [str(paths.reference_dir() / name) for name in artefact.reference]
        return [str(paths.metrics(self.study, name)) for name in artefact.instruments] + reference

    # Devices -------------------------------------------------------------------------------------------------------

    def totals(self) -> dict[str, int]:
        """How much there is of what extractions share: servers to ask and, if jobs run on this machine, its GPUs."""
        found = {"gpu": len(visible_gpus()) if self.local else 0, "server": int(self._asks_servers)}
        return {name: total for name, total in found.items() if total}

    def extract_gpus(self, wildcards: Wildcards) -> int:
        """GPUs of one extraction; 0 on a machine that has none, and for engines that load no weights."""
        return gpus_wanted(self._engine(wildcards.batch)) if visible_gpus() or not self.local else 0

    def extract_servers(self, wildcards: Wildcards) -> int:
        """1 for an extraction that asks a server: one batch at a time, as all have one budget."""
        return int(self._engine(wildcards.batch).kind == "openai")

    def extract_threads(self, wildcards: Wildcards) -> int:
        """CPU cores of one extraction: a GPU's share of them, or all, but for one where another waits for a server.

        For those of other machines, where no profile says how many: a few.
        """
        if self.extract_servers(wildcards):
            return 1
        if not self.local:
            return _CORES_ELSEWHERE
        cores = self.cores - self._asks_servers
        n_gpus = self.extract_gpus(wildcards)
        return max(1, cores * n_gpus // len(visible_gpus()) if n_gpus else cores)

    def extract_minutes(self, wildcards: Wildcards, attempt: int) -> int:
        """Minutes to ask a batch system for: the batch, the model's loading, and as much again at every attempt."""
        return (self._engine(wildcards.batch).batch_minutes + _LOADING_MINUTES) * attempt

    @property
    def _asks_servers(self) -> bool:
        return any(self._engine(batch.id).kind == "openai" for batch in self.plan.batches)

    def _engine(self, batch: str) -> EngineConfig:
        return self.plan.study.engine_of(self.plan.study.models[self.plan.batch_by_id[batch].model])

    # Digests: what a job depends on besides its input files ---------------------------------------------------------

    def correct_digest(self, wildcards: Wildcards) -> str:
        """Cells, method and code of a correction."""
        method = self.plan.study.methods[wildcards.method].model_dump(mode="json", exclude={"title"})
        decimals = self._experiment(wildcards).round_decimals
        return digest([_ids(self._group(wildcards)), method, decimals, source_digest("methods")])

    def select_digest(self, wildcards: Wildcards) -> str:  # noqa: ARG002
        """Cells, factors and code of the choice."""
        cells = [[cell.id, cell.factor, cell.level] for cell in self._selecting_cells()]
        factors = self.plan.study.model_dump(mode="json", include={"factor", "probe"})
        factors["factor"].pop("configuration", None)  # what is chosen is not what it is chosen from
        return digest([cells, factors, source_digest("selection")])

    def measure_digest(self, wildcards: Wildcards) -> str:
        """Cells, class names, probes and code of a measurement."""
        study = self.plan.study
        experiment = self._experiment(wildcards)
        probes = {name: study.probes[name].model_dump(mode="json") for name in experiment.probes}
        dataset = study.datasets[wildcards.dataset]
        cells = [[cell.id, cell.factor, cell.level] for cell in self._group(wildcards)]
        return digest([cells, dataset.classes, dataset.merged, probes, experiment.selection, source_digest("metrics")])

    def collect_digest(self, wildcards: Wildcards) -> str:
        """Names of the files gathered."""
        return digest(self.collect_inputs(wildcards))

    def collect_part_digest(self, wildcards: Wildcards) -> str:
        """Names of the files that one part gathers."""
        return digest(self.collect_part_inputs(wildcards))

    def artefact_digest(self, wildcards: Wildcards) -> str:
        """Names and titles in the study, and the code that makes this kind of artefact."""
        study = self.plan.study
        shown = study.model_dump(mode="json", include={"model", "dataset", "probe", "factor", "method", "experiment"})
        for config in (*shown["model"].values(), *shown["dataset"].values()):
            for key in _NEVER_SHOWN:
                config.pop(key, None)
        return digest([shown, source_digest(f"{ARTEFACTS[wildcards.artefact].kind}s")])

    def _selecting_cells(self) -> tuple[Cell, ...]:
        experiment, model = selecting_experiment(self.plan.study)
        factors = self.plan.study.factors
        return tuple(
            cell
            for dataset in self.plan.study.experiment[experiment].datasets
            for cell in self.plan.groups[experiment, model, dataset]
            if cell.split == "test" and (not cell.factor or factors[cell.factor].chooses_prompt)
        )

    def _experiment(self, wildcards: Wildcards) -> Experiment:
        return self.plan.study.experiment[wildcards.experiment]

    def _group(self, wildcards: Wildcards) -> tuple[Cell, ...]:
        return self.plan.groups[wildcards.experiment, wildcards.model, wildcards.dataset]

    def _responses(self, cells: tuple[Cell, ...]) -> list[str]:
        folders = [paths.batch_dir(batch.model, batch.id) for batch in self.plan.batches_of(cells)]
        return [str(folder / name) for folder in folders for name in ("responses.parquet", "index.parquet")]

    def _dataset(self, name: str) -> str:
        return str(paths.prepared_dataset(name, self.plan.dataset_digests[name]))

    def _model(self, name: str) -> str:
        return str(paths.model_manifest(name, self.plan.model_digests[name]))


def _prepend(variable: str, folder: Path) -> None:
    os.environ[variable] = os.pathsep.join(filter(None, [str(folder), os.environ.get(variable)]))


def _package_files(config: Dataset | Model) -> list[str]:
    return [str(paths.DOWNLOADS / file.filename) for file in package_files(config.source)]


def _ids(cells: tuple[Cell, ...]) -> list[str]:
    return [cell.id for cell in cells]
