"""The verbs about runs: ``status`` says what would run and why, ``clean`` removes what no plan uses."""

from __future__ import annotations

from collections.abc import Callable

import click


def register(group: click.Group, verb: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Add the verbs to the command; ``verb`` turns a user's mistake into one line."""
    for command in (status, clean):
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
    from poise.status import describe_status, jobs_to_run

    overrides = [word for word in words if "=" in word]
    targets = [word for word in words if "=" not in word]
    study = next((word.partition("=")[2] for word in overrides if word.startswith("study=")), "demo")
    plan = composed(study, [word for word in overrides if not word.startswith("study=")])
    click.echo(describe_status(plan, jobs_to_run(freeze(plan), targets), targets))


@click.command()
@click.option("--yes", is_flag=True, help="Remove without asking, for scripts.")
@click.option("--dry-run", "-n", is_flag=True, help="List only.")
def clean(yes: bool, dry_run: bool) -> None:
    """List what no study's latest plan uses: answers, prepared data sets, models, old plans. Asks before it removes."""
    from poise.clean import describe, find_unused, remove

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
