"""The verbs about runs: ``status`` says what would run and why, ``summary`` what is measured, ``clean`` tidies up."""

from __future__ import annotations

from collections.abc import Callable

import click


def register(group: click.Group, verb: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Add the verbs to the command; ``verb`` turns a user's mistake into one line."""
    for command in (status, summary, clean):
        assert command.callback is not None
        command.callback = verb(command.callback)
        group.add_command(command)


@click.command()
@click.argument("words", nargs=-1, metavar="[OVERRIDES] [TARGETS]")
def status(words: tuple[str, ...]) -> None:
    """Say what would run, and why, without running it. TARGETS are files or rules; OVERRIDES as in `poise plan`.

    \b
    poise status                                            (study=demo)
    poise status study=mine
    poise status study=demo results/demo/tables/dnip_table3.md
    """  # noqa: D301
    from poise.planfile import composed, freeze
    from poise.runs.status import describe_status, jobs_to_run

    overrides = [word for word in words if "=" in word]
    targets = [word for word in words if "=" not in word]
    study = next((word.partition("=")[2] for word in overrides if word.startswith("study=")), "demo")
    plan = composed(study, [word for word in overrides if not word.startswith("study=")])
    click.echo(describe_status(plan, jobs_to_run(freeze(plan), targets), targets))


@click.command()
@click.argument("study", default="demo")
def summary(study: str) -> None:
    """Say what STUDY has measured, what is missing and why, and where its tables, figures and report are.

    \b
    poise summary                 (the default study, demo)
    poise summary mine
    """  # noqa: D301
    from poise import paths, planfile
    from poise.runs.outcome import describe_outcome

    click.echo(describe_outcome(planfile.load(paths.plan_file(study))))


@click.command()
@click.option("--yes", is_flag=True, help="Remove without asking, for scripts.")
@click.option("--dry-run", "-n", is_flag=True, help="List only.")
def clean(yes: bool, dry_run: bool) -> None:
    """List what no study's latest plan uses: answers, prepared data sets, models. Asks before it removes."""
    from poise.runs.clean import describe, find_unused, remove

    unused = find_unused()
    click.echo(describe(unused))
    free = [item for item in unused if not item.held]
    if dry_run or not free:
        return
    if yes or click.confirm("Remove them?", default=False):
        removed = [item for item in free if remove(item)]
        click.echo(f"Removed {len(removed)} of {len(unused)}.")
    else:
        click.echo("Nothing was removed.")
