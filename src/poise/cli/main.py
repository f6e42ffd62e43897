"""The ``poise`` command: one verb a rule, and the verbs people type. Heavy imports happen inside the verbs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import Any

import click

from poise import __version__
from poise.cli import matrix, predict, runs
from poise.errors import PoiseError
from poise.runs.joblog import job_log

_PLAN = click.option(
    "--plan",
    "plan_path",
    envvar="POISE_PLAN",
    required=True,
    type=click.Path(path_type=Path),
    help="The frozen plan; $POISE_PLAN if not given.",
)
_LOG = click.option(
    "--log", "log_path", type=click.Path(path_type=Path), help="Write the whole story here, tracebacks too."
)

_PAGE = click.option("-o", "--output", type=click.Path(path_type=Path), help="Page to write; printed if not given.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="poise")
def main() -> None:
    """Poise: LLM classifiers that are fair to every class and steady under rearranged prompts.

    Start with `make reproduce` in Poise's folder; `poise plan study=demo` shows what it would measure.
    """


def verb(command: Callable[..., None]) -> Callable[..., None]:
    """Run a verb so that a user's mistake is one line and exit status 2, with the traceback in the log only."""

    @wraps(command)
    def run(*args: Any, log_path: Path | None = None, **kwargs: Any) -> None:
        log = job_log(log_path, command.__name__, kwargs) if log_path is not None else nullcontext()
        try:
            with log:
                command(*args, **kwargs)
        except (PoiseError, OSError) as error:
            line = " ".join(str(error).split())
            if not isinstance(error, PoiseError):
                line = f"{error.filename or 'a file'}: {error.strerror or line}"
            click.echo(f"poise: error: {line}", err=True)
            sys.exit(2)
        except Exception:
            if log_path is None:
                raise
            click.echo(f"poise: unexpected error, a mistake of ours; the traceback is in {log_path}", err=True)
            sys.exit(1)

    return run


@main.command()
@click.argument("overrides", nargs=-1)
@click.option("--quiet", is_flag=True, help="Print the path of the plan only.")
@verb
def plan(overrides: tuple[str, ...], quiet: bool) -> None:
    """Compose a study with Hydra OVERRIDES, freeze its plan and say what it would ask.

    \b
    poise plan study=demo
    poise plan study=demo name=more 'seeds=[0,1,2,3]'
    poise plan study=demo name=short dataset.movies5.max_words=10,20     (a sweep: one plan each)
    """  # noqa: D301
    from poise.config.compose import expand_sweeps
    from poise.engines.check import check_labels
    from poise.planfile import freeze, make_plan
    from poise.pricing import estimate
    from poise.summary import describe_plan

    combinations = expand_sweeps(overrides or ("study=demo",))
    for number, combination in enumerate(combinations):
        if len(combinations) > 1:
            combination = [f"{item}-{number}" if item.startswith("name=") else item for item in combination]
        made = make_plan(combination)
        check_labels(made)
        prices = [] if quiet else estimate(made)
        path = freeze(made)
        click.echo(str(path) if quiet else describe_plan(made, path, prices))


@main.command()
@click.argument("overrides", nargs=-1)
@_PAGE
@verb
def prompts(overrides: tuple[str, ...], output: Path | None) -> None:
    """List the exact prompts of a study's position experiments, as Markdown.

    \b
    poise prompts                                  (study=position, the page docs/prompts.md)
    poise prompts study=demo factor.label_format.levels.letter=null
    """  # noqa: D301
    from poise.config.compose import compose_study
    from poise.prompts.listings import prompt_page

    _show(prompt_page(compose_study(overrides or ("study=position",))), output)


@main.command()
@_PAGE
@verb
def artefacts(output: Path | None) -> None:
    """List all tables and figures: id, what it shows, place in the papers, rule, module."""
    from poise.artefacts.index import artefact_page

    _show(artefact_page(), output)


def _show(page: str, output: Path | None) -> None:
    from poise.files import write_text

    if output is None:
        click.echo(page, nl=False)
    else:
        write_text(output, page)


@main.command()
@_PLAN
@click.option("--file", "filename", required=True, help="File name of the package.")
@_LOG
@verb
def download(plan_path: Path, filename: str) -> None:
    """Download one package file and check it (needs the network)."""
    from poise import planfile
    from poise.stages import fetch

    fetch.download(planfile.load(plan_path), filename)


@main.command("prepare-dataset")
@_PLAN
@click.option("--dataset", required=True)
@_LOG
@verb
def prepare_dataset(plan_path: Path, dataset: str) -> None:
    """Read, label, clean and check the rows of one data set."""
    from poise import planfile
    from poise.stages import fetch

    fetch.prepare_dataset(planfile.load(plan_path), dataset)


@main.command("prepare-model")
@_PLAN
@click.option("--model", required=True)
@_LOG
@verb
def prepare_model(plan_path: Path, model: str) -> None:
    """Make the local folder of one model, converting it if need be."""
    from poise import planfile
    from poise.stages import fetch

    fetch.prepare_model(planfile.load(plan_path), model)


@main.command()
@_PLAN
@click.option("--batch", required=True)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads; all cores if not given.")
@_LOG
@verb
def extract(plan_path: Path, batch: str, threads: int | None) -> None:
    """Ask a model everything in one batch: label log-probabilities."""
    from poise import planfile
    from poise.stages import extract as stage

    stage.extract(planfile.load(plan_path), batch, threads)


@main.command()
@_PLAN
@click.option("--experiment", required=True)
@click.option("--model", required=True)
@click.option("--dataset", required=True)
@click.option("--method", required=True)
@_LOG
@verb
def correct(plan_path: Path, experiment: str, model: str, dataset: str, method: str) -> None:
    """Fit one method on the optimisation rows and predict the test rows."""
    from poise import planfile
    from poise.stages import correct as stage

    stage.correct(planfile.load(plan_path), experiment, model, dataset, method)


@main.command()
@_PLAN
@click.option("--experiment", required=True)
@click.option("--model", required=True)
@click.option("--dataset", required=True)
@_LOG
@verb
def measure(plan_path: Path, experiment: str, model: str, dataset: str) -> None:
    """Turn predictions into tidy metrics, one row a number."""
    from poise import planfile
    from poise.stages import measure as stage

    stage.measure(planfile.load(plan_path), experiment, model, dataset)


@main.command()
@_PLAN
@_LOG
@verb
def select(plan_path: Path) -> None:
    """Choose joint configurations from the study's own factors, on half of the test rows."""
    from poise import planfile
    from poise.stages import select as stage

    stage.select(planfile.load(plan_path))


@main.command()
@_PLAN
@click.option("--instrument", required=True)
@click.option("--part", type=int, help="One part of them only, where files are many.")
@_LOG
@verb
def collect(plan_path: Path, instrument: str, part: int | None) -> None:
    """Gather the metrics of one instrument into one file."""
    from poise import planfile
    from poise.stages import measure as stage

    stage.collect(planfile.load(plan_path), instrument, part)


@main.command()
@_PLAN
@click.option("--artefact", required=True)
@_LOG
@verb
def table(plan_path: Path, artefact: str) -> None:
    """Make one table."""
    from poise import planfile
    from poise.stages import artefacts as stage

    stage.make_table(planfile.load(plan_path), artefact)


@main.command()
@_PLAN
@click.option("--artefact", required=True)
@_LOG
@verb
def figure(plan_path: Path, artefact: str) -> None:
    """Draw one figure."""
    from poise import planfile
    from poise.stages import artefacts as stage

    stage.make_figure(planfile.load(plan_path), artefact)


matrix.register(main, verb)
predict.register(main, verb)
runs.register(main, verb)
