"""The verbs for people who only have a matrix of class probabilities: ``fit``, ``apply``, ``audit``."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from poise.errors import PoiseError

if TYPE_CHECKING:
    from poise.matrix import Labels, Probabilities

_PATH = click.Path(path_type=Path)
_PROBABILITIES = click.argument("probabilities", type=_PATH)
_LABELS = click.argument("labels", type=_PATH, required=False)
_READING = (
    click.option("--id-column", help="Column of ids; by default the first of PROBABILITIES if it is called id."),
    click.option("--log", is_flag=True, help="PROBABILITIES holds log-probabilities (or logits)."),
    click.option(
        "--format",
        "form",
        type=click.Choice(["auto", "dcs"]),
        default="auto",
        show_default=True,
        help="dcs: lines of `id label prediction p1 ... pN`, which need no LABELS.",
    ),
)


def register(group: click.Group, verb: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Add the verbs to the command; ``verb`` turns a user's mistake into one line."""
    for command in (fit, apply, audit):
        assert command.callback is not None
        command.callback = verb(command.callback)
        group.add_command(command)


def _reading(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_READING):
        command = option(command)
    return command


def _mu(_context: click.Context, _option: click.Parameter, value: str) -> float | str:
    """Accept a number of rows, or one of the two rules for it."""
    if value in ("paper", "scaled"):
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise click.BadParameter(f"{value!r} is neither a number above 0 nor 'paper' or 'scaled'.")
    return number


@click.command()
@_PROBABILITIES
@_LABELS
@click.option("-o", "--output", type=_PATH, required=True, help="Weights to write, as JSON.")
@click.option("--method", type=click.Choice(["dnip"]), default="dnip", show_default=True)
@click.option("--beta", type=click.FloatRange(min=0), default=2.7, show_default=True, help="Weight of the bias term.")
@click.option("--tau", type=click.FloatRange(min=0), default=0.2, show_default=True, help="Weight of the PMI term.")
@click.option("--n-levels", type=click.IntRange(2, 4096), default=30, show_default=True, help="Points of the scale, K.")
@click.option(
    "--mu",
    callback=_mu,
    metavar="ROWS|paper|scaled",
    default="paper",
    show_default=True,
    help="Smoothing of the PMI term, in rows: paper is 4000, scaled 4000 x labelled rows / 9500.",
)
@click.option(
    "--objective",
    type=click.Choice(["cobias", "cobias_single", "odd_rate"]),
    default="cobias",
    show_default=True,
    help="The bias term.",
)
@click.option(
    "--solver",
    type=click.Choice(["heat_bath", "metropolis", "exact"]),
    default="heat_bath",
    show_default=True,
    help="exact proves the optimum, for six classes or so.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True)
@_reading
def fit(
    probabilities: Path,
    labels: Path | None,
    output: Path,
    method: str,  # noqa: ARG001 - one so far, and the file names it
    id_column: str | None,
    log: bool,
    form: str,
    **parameters: Any,
) -> None:
    """Fit one correction weight a class on the labelled rows.

    \b
    poise fit probabilities.csv labels.csv -o weights.json
    """  # noqa: D301 - \b keeps the line as it is
    from poise import matrix

    check_output(output, probabilities, labels)
    rows, known = _read(probabilities, labels, id_column, log, form)
    weights = matrix.fit(rows, known, **parameters)
    matrix.write_weights(output, weights)
    assert weights.parameters is not None
    assert weights.class_rows is not None
    _print(
        f"{output}: {weights.method}, {weights.rows} labelled rows; labels: {known.described(rows)}\n"
        f"objective {weights.objective:.6f} ({'' if weights.certified else 'not '}certified as the optimum),"
        f" mu {weights.parameters['mu']:g}\n"
    )
    from tabulate import tabulate

    lines = zip(weights.classes, weights.class_rows, weights.weights, strict=True)
    _print(tabulate([*lines], ["class", "rows", "weight"], "github", floatfmt=".4g") + "\n")


@click.command()
@click.argument("weights", type=_PATH)
@_PROBABILITIES
@click.option("-o", "--output", type=_PATH, help="Table to write (.csv, .tsv, .parquet, or .gz); else CSV is printed.")
@_reading
def apply(weights: Path, probabilities: Path, output: Path | None, id_column: str | None, log: bool, form: str) -> None:
    """Correct every row, labelled or not: id, prediction, corrected probabilities.

    \b
    poise apply weights.json probabilities.csv -o corrected.csv
    """  # noqa: D301 - \b keeps the line as it is
    from poise import matrix

    if output is not None:
        check_output(output, weights, probabilities)
        matrix.check_table_name(output)
    fitted = matrix.read_weights(weights)
    if form == "dcs":
        rows = matrix.read_dcs(probabilities, log=log)[0]
    else:
        rows = matrix.read_probabilities(probabilities, id_column=id_column, log=log)
    corrected = matrix.apply(fitted, rows)
    _tell_zero_rows(rows)
    if output is None:
        _print(matrix.delimited_text(corrected))
    else:
        matrix.write_table(output, corrected)
        _print(f"{output}: {len(corrected)} rows\n")


@click.command()
@_PROBABILITIES
@_LABELS
@click.option("--weights", type=_PATH, help="Also measure after correction by these weights.")
@click.option("-o", "--output", type=_PATH, help="Write it too: .md, or the numbers as .csv, .tsv or .parquet.")
@_reading
def audit(
    probabilities: Path,
    labels: Path | None,
    weights: Path | None,
    output: Path | None,
    id_column: str | None,
    log: bool,
    form: str,
) -> None:
    """Measure accuracy and balance on the labelled rows, before and after correction.

    \b
    poise audit probabilities.csv labels.csv --weights weights.json
    """  # noqa: D301 - \b keeps the line as it is
    from poise import matrix

    if output is not None:
        check_output(output, probabilities, labels, weights)
        matrix.check_table_name(output, ".md")
    fitted = None if weights is None else matrix.read_weights(weights)
    rows, known = _read(probabilities, labels, id_column, log, form)
    found = matrix.audit(rows, known, fitted)
    if output is not None:
        matrix.write_audit(output, found)
    _print(found.markdown())


def _read(
    probabilities: Path, labels: Path | None, id_column: str | None, log: bool, form: str
) -> tuple[Probabilities, Labels]:
    """Read both files; say on stderr what a user should know."""
    from poise import matrix

    if form == "dcs":
        rows, known = matrix.read_dcs(probabilities, log=log)
    elif labels is None:
        raise PoiseError("the file of labels is missing: expected PROBABILITIES LABELS")
    else:
        rows = matrix.read_probabilities(probabilities, id_column=id_column, log=log)
    if labels is not None:
        known = matrix.read_labels(labels, rows, id_column=id_column)
    _tell_zero_rows(rows)
    if absent := matrix.absent_classes(rows, known):
        names = ", ".join(map(repr, absent))
        click.echo(f"poise: warning: {known.source}: no labelled row of class {names}: left out of COBias", err=True)
    return rows, known


def _tell_zero_rows(rows: Probabilities) -> None:
    if count := rows.zero_rows:
        plural = "rows have" if count > 1 else "row has"
        click.echo(f"poise: warning: {rows.source}: {count} {plural} no probability above 0: read as uniform", err=True)


def check_output(output: Path, *inputs: Path | None) -> None:
    """Refuse to write over an input."""
    if any(path is not None and path.resolve() == output.resolve() for path in inputs):
        raise PoiseError(f"{output}: the output is one of the inputs, expected another name")


def _print(text: str) -> None:
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
