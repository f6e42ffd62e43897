# The plan of this run, and the helpers that turn it into file names. No rules here.
import os
import shlex
import sys
from pathlib import Path

# Works from a checkout without installation, and in jobs on other nodes.
sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from snakemake.exceptions import WorkflowError
from snakemake_interface_executor_plugins.settings import ExecMode

from poise import paths, planfile
from poise.artefacts.registry import ARTEFACTS, artefact_outputs
from poise.errors import PoiseError
from poise.hashing import digest
from poise.versions import source_digest

os.environ.setdefault("POISE_CONF", str(Path(workflow.basedir) / "conf"))


def load_plan():
    """Path of the frozen plan and the plan itself.

    The main process composes the study once and freezes it; its jobs, on other nodes too, get that file by its name
    in the environment and never compose.
    """
    try:
        if workflow.exec_mode == ExecMode.DEFAULT:
            path = Path(config["plan"]) if "plan" in config else planfile.resolve(config.get("study", "demo"))
            os.environ["POISE_PLAN"] = str(path)
        else:
            path = Path(os.environ["POISE_PLAN"])
        return path, planfile.load(path)
    except PoiseError as error:
        raise WorkflowError(f"poise: {error}") from None


PLAN_PATH, PLAN = load_plan()
STUDY = PLAN.study.name
POISE = f"{shlex.quote(sys.executable)} -m poise"
SINGLE = ["model", "dataset", "experiment", "method", "batch", "artefact", "instrument"]


wildcard_constraints:
    **{name: r"[a-z0-9][a-z0-9._-]*" for name in SINGLE},


def artefact_files(kind):
    """Files of the artefacts of one kind that the study wants."""
    wanted = [name for name in PLAN.study.artefacts if ARTEFACTS[name].kind == kind]
    return [str(path) for name in wanted for path in artefact_outputs(STUDY, name)]


def package_file(config):
    """Downloaded package file that a data set or model is made of, as a list."""
    return [str(paths.DOWNLOADS / config.source.filename)] if config.source.kind == "package" else []


def prepared_file(dataset):
    return str(paths.prepared_dataset(dataset, PLAN.dataset_digests[dataset]))


def model_file(model):
    return str(paths.model_manifest(model, PLAN.model_digests[model]))


def source_files():
    """Prepared data sets and models of the study."""
    return [prepared_file(name) for name in PLAN.study.datasets] + [
        model_file(name) for name in PLAN.study.models
    ]


def batch_inputs(wildcards):
    """What one extraction reads: the model and the data sets of its cells."""
    batch = PLAN.batch_by_id[wildcards.batch]
    cells = [PLAN.cell_by_id[cell] for cell in batch.cells if cell in PLAN.cell_by_id]
    return [model_file(batch.model), *(prepared_file(name) for name in sorted({cell.dataset for cell in cells}))]


def responses(experiment, model, dataset):
    """Answers that one model and data set of an experiment need."""
    batches = PLAN.batches_of(PLAN.groups[experiment, model, dataset])
    return [str(paths.batch_dir(b.model, b.id) / name) for b in batches for name in ("responses.parquet", "index.parquet")]


def group_cells(wildcards):
    """Ids of the cells of one model and data set of an experiment, in order."""
    group = PLAN.groups[wildcards.experiment, wildcards.model, wildcards.dataset]
    return [cell.id for cell in group]


def metric_inputs(wildcards):
    """What the metrics of one model and data set are made of: corrected predictions, or the answers themselves."""
    experiment = PLAN.study.experiment[wildcards.experiment]
    group = (wildcards.experiment, wildcards.model, wildcards.dataset)
    if experiment.instrument == "class_accuracy":
        return [str(paths.predictions(STUDY, *group, method)) for method in experiment.methods]
    return responses(*group)


def instrument_inputs(wildcards):
    """Metrics of all models and data sets of one instrument."""
    names = [experiment.name for experiment in PLAN.experiments(wildcards.instrument)]
    return [str(paths.cell_metrics(STUDY, *group)) for group in PLAN.groups if group[0] in names]


def artefact_inputs(wildcards):
    """Metrics that an artefact is made of, and the papers' printed figures beside them."""
    artefact = ARTEFACTS[wildcards.artefact]
    reference = [str(paths.reference_dir() / name) for name in artefact.reference]
    return [str(paths.metrics(STUDY, name)) for name in artefact.instruments] + reference
