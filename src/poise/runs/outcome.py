"""What a study has measured, what is missing and why, and where everything is: the last words of a run. Light."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poise import paths
from poise.artefacts.registry import ARTEFACTS, artefact_outputs
from poise.plan import Plan
from poise.planfile import caveats, is_answered

_SHOWN = 8
_WIDTH = 150


@dataclass(frozen=True)
class Asked:
    """What one model was asked.

    Attributes
    ----------
    n_batches, n_finished
        Batches of the plan, and those that are answered.
    n_prompts, n_resumed
        Prompts of the finished ones, and how many of them an earlier, stopped try had answered.
    seconds
        Seconds that asking took, without the loading of the model.
    synthetic
        Whether a test engine answered.
    """

    model: str
    n_batches: int
    n_finished: int
    n_prompts: int
    n_resumed: int
    seconds: float
    synthetic: bool

    def __str__(self) -> str:
        """Tell it in one phrase."""
        words = f"{self.model}: {self.n_prompts:,} prompts asked in {_seconds(self.seconds)}"
        words += f", {self.n_resumed:,} kept from a stopped try" if self.n_resumed else ""
        words += "" if self.n_finished == self.n_batches else f" ({self.n_finished} of {self.n_batches} batches)"
        return words + (": synthetic, of the test engine" if self.synthetic else "")


@dataclass(frozen=True)
class Missing:
    """What a study's tables do not have: whole tables with their reason, and those that lack some values."""

    tables: Mapping[str, str]
    partly: Sequence[str]


def asked(plan: Plan) -> list[Asked]:
    """What each model of a plan was asked, in the study's order; models that have no cells are left out."""
    found = []
    for model in plan.study.models:
        batches = [batch for batch in plan.batches if batch.model == model]
        finished = [batch for batch in batches if is_answered(batch)]
        metas = [_meta(paths.batch_dir(model, batch.id) / "meta.json") for batch in finished]
        if batches:
            found.append(
                Asked(
                    model, len(batches), len(finished), sum(meta.get("requests", 0) for meta in metas),
                    sum(meta.get("resumed_requests", 0) for meta in metas),
                    sum(meta.get("seconds", 0.0) for meta in metas), any(meta.get("synthetic") for meta in metas),
                )
            )  # fmt: skip
    return found


def missing(plan: Plan) -> Missing:
    """Read from a study's tidy tables what was not measured, and why."""
    tables, partly = {}, []
    for name in _wanted(plan, "table"):
        path = paths.table(plan.study.name, name)
        rows = _rows(path) if path.is_file() else []
        kinds = {row.get("provenance", "") for row in rows}
        if kinds & {"measured", "synthetic"}:
            partly += [name] if "not measured" in kinds else []
        elif "not measured" in kinds:
            reasons = dict.fromkeys(row.get("note", "") for row in rows if row.get("provenance") == "not measured")
            tables[name] = next(filter(None, reasons), "nothing measured for it")
    return Missing(tables, partly)


def provenance(study: str, table: str) -> list[str]:
    """Where the numbers of a table come from: ``measured``, ``paper``, ``synthetic``, ``not measured``."""
    path = paths.table(study, table)
    return sorted({row.get("provenance", "") for row in _rows(path)}) if path.is_file() else []


def unreached(plan: Plan) -> list[str]:
    """Models of a study that no cell asks, each with the reason."""
    idle = [model for model in plan.study.models.values() if all(cell.model != model.name for cell in plan.cells)]
    return [f"{model.name}{caveats(plan, model)}" for model in idle]


def describe_outcome(plan: Plan) -> str:
    """Summarise a study: what was asked, what is missing and why, where the tables, figures and the report are."""
    study = plan.study.name
    told = asked(plan)
    made = {kind: [name for name in _wanted(plan, kind) if _is_made(study, name)] for kind in ("table", "figure")}
    datasets = len({cell.dataset for cell in plan.cells})
    answered = {cell for batch in plan.batches if is_answered(batch) for cell in batch.cells}
    n_answered = sum(cell in answered for cell in plan.cell_by_id)
    lines = [
        f"Study {study}: {_count(len(told), 'model')}, {_count(datasets, 'data set')}, "
        f"{n_answered:,} of {_count(len(plan.cell_by_id), 'cell')} answered",
        *(f"  asked    {item}" for item in told),
        *(f"  no cells {item}" for item in unreached(plan)),
        *_missing_lines(missing(plan)),
    ]
    for kind, where, beside in (
        ("table", paths.table(study, "*", ".md"), ".csv with full precision, .tex and .html"),
        ("figure", paths.figure(study, "*"), ".pdf"),
    ):
        wanted = _wanted(plan, kind)
        if wanted:
            n = f"{len(made[kind])} of {len(wanted)}"
            lines.append(f"  {kind + 's':<8} {n} made: {where} (beside each: {beside})")
    report = paths.report(study)
    lines.append(
        f"  report   {report}" if report.is_file() else f"  report   make report STUDY={study} writes {report}"
    )
    return "\n".join(lines)


def describe_failure(failed: Iterable[tuple[str, Sequence[str]]], arguments: Sequence[str]) -> str:
    """Say which steps failed, why as far as their logs tell, and how to go on.

    Parameters
    ----------
    failed
        Rule and log files of each step that failed.
    arguments
        Arguments of the command that was run.
    """
    steps = list(failed)
    lines = ["The run stopped before its end."]
    for rule, logs in steps[:_SHOWN]:
        lines += [f"  {rule}: {_last_error(Path(logs[0]))}", f"    log: {', '.join(logs)}"] if logs else [f"  {rule}"]
    lines += [f"  and {len(steps) - _SHOWN} more steps"] if len(steps) > _SHOWN else []
    command = shlex.join(["snakemake", *(word for word in arguments if word != "--rerun-incomplete")])
    return "\n".join([*lines, f"  What is finished is kept. To go on:  {command} --rerun-incomplete"])


def _missing_lines(found: Missing) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in found.tables.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in list(by_reason.items())[:_SHOWN]:
        line = f"{', '.join(names)}: {reason}"
        yield f"  missing  {line if len(line) <= _WIDTH else line[: _WIDTH - 1] + '…'}"
    if len(by_reason) > _SHOWN:
        n_more = sum(len(names) for names in list(by_reason.values())[_SHOWN:])
        yield f"  missing  {_count(n_more, 'more table')}: each says why"
    if found.partly:
        yield f"  in part  {', '.join(found.partly)}: their rows marked `not measured` say why"


def _last_error(log: Path) -> str:
    """The last error that a job's log tells of."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 20_000))
            text = stream.read().decode(errors="replace")
    except OSError:
        return "it wrote no log (was it started?)"
    errors = re.findall(r"^.*? error: (.*)$", text, re.MULTILINE)
    return errors[-1] if errors else "its log ends without an error (killed? out of memory or time?)"


def _wanted(plan: Plan, kind: str) -> list[str]:
    return [name for name in plan.study.artefacts if ARTEFACTS[name].kind == kind]


def _is_made(study: str, artefact: str) -> bool:
    return all(path.is_file() for path in artefact_outputs(study, artefact))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _meta(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _seconds(seconds: float) -> str:
    return "less than a second" if seconds < 1 else f"{seconds:,.0f} s"
