# The plan of this run. Everything else that is Python is in poise.workflow, where it is typed and tested.
import sys
from functools import partial
from pathlib import Path

# The checkout's own code, also where Poise is not installed.
sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake.settings.enums import Quietness
from snakemake_interface_executor_plugins.settings import ExecMode

from poise import paths
from poise.errors import PoiseError
from poise.runs.locks import free_stale_locks
from poise.runs.outcome import describe_failure, describe_outcome
from poise.runs.progress import Watch
from poise.runs.report import Report
from poise.workflow import Workflow

try:
    if workflow.exec_mode == ExecMode.DEFAULT:
        free_stale_locks()
    POISE = Workflow.start(
        Path(workflow.basedir),
        config,
        is_main=workflow.exec_mode == ExecMode.DEFAULT,
        cores=workflow.resource_settings.cores,
        local=workflow.resource_settings.nodes is None,
    )
except PoiseError as error:
    raise WorkflowError(f"poise: {error}") from None
STUDY = POISE.study
REPORT = Report(POISE.plan)
config["report"] = REPORT  # what workflow/report/*.rst ask
WATCH = Watch(POISE.plan, partial(logger.info, extra={"quietness": Quietness.PROGRESS}))
if workflow.exec_mode == ExecMode.DEFAULT:
    logger.addHandler(WATCH)

# What extractions share, unless --resources says how much there is. GPUs of other nodes (--jobs) their scheduler counts.
if workflow.exec_mode == ExecMode.DEFAULT:
    for name, total in POISE.totals().items():
        if name not in workflow.global_resources:
            workflow.register_resource(name, total)


wildcard_constraints:
    model=r"[a-z0-9][a-z0-9._-]*",
    dataset=r"[a-z0-9][a-z0-9._-]*",
    experiment=r"[a-z0-9][a-z0-9._-]*",
    method=r"[a-z0-9][a-z0-9._-]*",
    artefact=r"[a-z0-9][a-z0-9._-]*",
    instrument=r"[a-z0-9][a-z0-9._-]*",
    batch=r"[0-9a-f]{12}",
    digest=r"[0-9a-f]{12}",
