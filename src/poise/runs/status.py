"""What a run of Snakemake would do now, and why, in plain words. Snakemake decides; this reads its dry run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from poise import paths
from poise.errors import PoiseError
from poise.plan import Plan
from poise.stages.attempt import kept_answers

# Rules in the order of the data's way; those that are not named come last.
_ORDER = (
    "download_package", "prepare_dataset", "prepare_model", "extract", "correct", "measure", "collect_part", "collect",
    "select", "table", "figure",
)  # fmt: skip
_TARGET_RULES = ("all", "sources", "tables", "figures")  # they make nothing themselves
# How Snakemake's reasons start, and what they mean here.
_FOLLOWS = "Input files updated by another job"
_REASONS = {
    "Missing output files": "not made yet",
    "Incomplete output files": "was stopped midway",
    "Updated input files": "changed: {files}",
    _FOLLOWS: "what it is made from is made anew",
    "Set of input files has changed": "it is made from other files than before",
    "Params have changed": "its settings, or the code that makes it, changed",
    "Code has changed": "its command changed",
    "Software environment definition has changed": "its software environment changed",
    "Forced execution": "asked for with --force",
}
_SHOWN = 4


@dataclass(frozen=True)
class Job:
    """One step that would run: its rule, what it is for, and Snakemake's reason."""

    rule: str
    wildcards: dict[str, str]
    reason: str

    def __str__(self) -> str:
        """Name the step by its rule and wildcards: ``figure artefact=dnip_figure8``."""
        return " ".join([self.rule, *(f"{key}={value}" for key, value in sorted(self.wildcards.items()))])


class _Listener(logging.Handler):
    """Gathers the jobs and the errors that Snakemake tells of."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.jobs: list[Job] = []
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take up one record."""
        told: dict[str, Any] = vars(record)
        if str(told.get("event")) == "job_info":
            wildcards = {str(key): str(value) for key, value in dict(told["wildcards"] or {}).items()}
            self.jobs.append(Job(told["rule_name"], wildcards, told["reason"]))
        elif record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage())


def jobs_to_run(plan_path: Path, targets: Sequence[str] = ()) -> list[Job]:
    """Steps that Snakemake would run for a frozen plan, in no order.

    Parameters
    ----------
    plan_path
        The frozen plan.
    targets
        Files or rules; the whole study if there are none.

    Raises
    ------
    PoiseError
        If Snakemake refuses, for instance a target that nothing makes.
    """
    from snakemake import cli  # type: ignore[import-untyped]

    logger = logging.getLogger("snakemake")  # above Snakemake's own, whose handlers it sets up itself
    listener = _Listener()
    logger.addHandler(listener)
    printed = StringIO()
    command = [
        "--dry-run", "--rerun-incomplete", "--cores", "all", "--snakefile", str(paths.project_file("Snakefile")),
        *targets, "--config", f"plan={plan_path}",
    ]  # fmt: skip
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            cli.main(command)
    except SystemExit as ended:
        if ended.code:
            raise PoiseError(_refusal(listener.errors or [printed.getvalue()], targets)) from None
    finally:
        logger.removeHandler(listener)
    return [job for job in listener.jobs if job.rule not in _TARGET_RULES]


def _refusal(said: Sequence[str], targets: Sequence[str]) -> str:
    """Turn Snakemake's refusal into one line."""
    line = " ".join(" ".join(said).split())
    if targets and ("MissingRule" in line or "No rule to produce" in line):
        return (
            f"target {', '.join(targets)}: nothing makes it; expected files under results/ or figures/ as the study "
            f"names them, or some of {', '.join(_TARGET_RULES)} (answers that are complete are never asked again)"
        )
    return f"snakemake: {line or 'it ended without a word'}"


def describe_status(plan: Plan, jobs: Sequence[Job], targets: Sequence[str] = ()) -> str:
    """Tell what would run, rule by rule and reason by reason, and the command that runs it."""
    what = f"Study {plan.study.name}" + (f" ({', '.join(targets)})" if targets else "")
    if not jobs:
        where = f"; tables: {paths.table(plan.study.name, '*', '.md')}, figures: {paths.figure(plan.study.name, '*')}"
        return f"{what}: nothing to do{'' if targets else where}"
    lines = [f"{what}: {len(jobs)} step{'s'[: len(jobs) > 1]} would run."]
    for rule in sorted({job.rule for job in jobs}, key=lambda rule: (*_ORDER, rule).index(rule)):
        chosen = [job for job in jobs if job.rule == rule]
        head = f"  {rule:<16} {len(chosen):>4}  "
        for line in _lines(plan, chosen):
            lines.append(head + line)
            head = " " * len(head)
    command = " ".join(["snakemake --cores all", *targets, f"--config study={plan.study.name}"])
    return "\n".join([*lines, "Nothing else.", f"Run it:  {command}"])


def _lines(plan: Plan, jobs: Sequence[Job]) -> list[str]:
    """Describe jobs of one rule: each batch, as it is dear; the others by their reason."""
    if jobs[0].rule == "extract":
        return [_batch(plan, job.wildcards["batch"]) for job in jobs]
    reasons: dict[str, list[str]] = {}
    for job in jobs:
        reasons.setdefault(_reason(job), []).append(_name(job))
    return [f"{reason}: {_some(sorted(names))}" for reason, names in reasons.items()]


def _reason(job: Job) -> str:
    """Snakemake's reason in plain words; that something before it runs is told only where it is the sole reason."""
    parts = job.reason.split("; ")
    own = [part for part in parts if not part.startswith(_FOLLOWS)]
    words = []
    for part in own or parts:
        known = next((start for start in _REASONS if part.startswith(start)), None)
        files = part.partition(": ")[2].split(", ")
        words.append(part if known is None else _REASONS[known].format(files=_some(files)))
    return ", ".join(words)


def _batch(plan: Plan, batch_id: str) -> str:
    """What a batch has to ask, and what an earlier try has left."""
    batch = plan.batch_by_id[batch_id]
    cells = [plan.cell_by_id[cell] for cell in batch.cells if cell in plan.cell_by_id]
    datasets = ", ".join(sorted({cell.dataset for cell in cells}))
    seeds = ", ".join(str(seed) for seed in sorted({cell.seed for cell in cells}))
    known = [None if cell.rows is None else cell.rows * cell.parts for cell in cells]
    requests = "all rows" if None in known else f"at most {sum(n or 0 for n in known):,} requests"
    n_kept = kept_answers(paths.batch_dir(batch.model, batch.id))
    kept = f"; stopped before: {n_kept:,} answers are kept" if n_kept else ""
    return (
        f"batch {batch.id} of {batch.model}: {len(cells)} cells without answers ({datasets}; seeds {seeds}; "
        f"{requests}{kept})"
    )


def _name(job: Job) -> str:
    """What a step is for, in words."""
    words = job.wildcards
    if job.rule in ("correct", "measure"):
        what = f"{words['method']} on " if "method" in words else ""
        return f"{what}{words['model']} {words['dataset']} ({words['experiment']})"
    return next((words[key] for key in ("filename", "dataset", "model", "instrument", "artefact") if key in words), "")


def _some(names: Sequence[str]) -> str:
    """Join names, the first few if they are many."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
