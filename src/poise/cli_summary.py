"""The verb ``summary``: what a study has measured, what is missing and why, where everything is."""

from __future__ import annotations

from collections.abc import Callable

import click


def register(group: click.Group, verb: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Add the verb to the command; ``verb`` turns a user's mistake into one line."""
    assert summary.callback is not None
    summary.callback = verb(summary.callback)
    group.add_command(summary)


@click.command()
@click.argument("study", default="demo")
def summary(study: str) -> None:
    """Say what STUDY has measured, what is missing and why, and where its tables, figures and report are.

    \b
    poise summary                 (the default study, demo)
    poise summary mine
    """  # noqa: D301
    from poise import paths, planfile
    from poise.outcome import describe_outcome

    click.echo(describe_outcome(planfile.load(paths.plan_file(study))))
