"""The verb ``predict``: new texts, a study's model, template and demonstrations, and saved weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

_PATH = click.Path(path_type=Path)


def register(group: click.Group, verb: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Add the verb to the command; ``verb`` turns a user's mistake into one line."""
    assert predict.callback is not None
    predict.callback = verb(predict.callback)
    group.add_command(predict)


@click.command()
@click.argument("texts", type=_PATH)
@click.argument("overrides", nargs=-1)
@click.option("--study", default="demo", show_default=True, help="Study whose prompts and demonstrations are used.")
@click.option("--model", required=True, help="A model of the study.")
@click.option("--dataset", required=True, help="A data set of the study: it gives classes, template, demonstrations.")
@click.option("--experiment", default="class_accuracy", show_default=True, help="An experiment of the study.")
@click.option("--shots", help="e.g. 1_shot; the experiment's first if not given.")
@click.option("--seed", type=int, help="Seed of the demonstrations; the experiment's first if not given.")
@click.option("--weights", type=_PATH, help="Weights that `poise fit` wrote.")
@click.option("--method", help="A method of the study, whose fitted weights are used, e.g. dnip.")
@click.option("--column", default="text", show_default=True, help="Column of TEXTS to classify.")
@click.option("-o", "--output", type=_PATH, help="Table to write, with a .json beside it that says what made it.")
def predict(
    texts: Path,
    overrides: tuple[str, ...],
    study: str,
    model: str,
    dataset: str,
    experiment: str,
    shots: str | None,
    seed: int | None,
    weights: Path | None,
    method: str | None,
    column: str,
    output: Path | None,
) -> None:
    """Classify the TEXTS of a CSV, TSV, JSONL or Parquet file. Hydra OVERRIDES change the study, e.g. engine=vllm.

    \b
    poise predict texts.csv --model smollm2-135m-instruct --dataset movies5
    poise predict texts.csv --model smollm2-135m-instruct --dataset movies5 --method dnip -o predictions.csv
    """  # noqa: D301
    from poise.cli.matrix import check_output
    from poise.files import write_json
    from poise.matrix.files import check_table_name, delimited_text, write_table
    from poise.planfile import composed
    from poise.stages import predict as stage

    if output is not None:  # before anything is asked
        check_table_name(output)
        record = output.with_name(f"{Path(output.name.removesuffix('.gz')).stem}.json")
        for path in (output, record):
            check_output(path, texts, weights)
        output.parent.mkdir(parents=True, exist_ok=True)
    plan = composed(study, overrides)
    cell = stage.find_cell(plan, model, dataset, experiment, shots, seed)
    chosen = stage.weights_of(plan, cell, weights, method)
    found = stage.predict(plan, cell, stage.read_texts(texts, column), chosen)
    if output is None:
        click.echo(delimited_text(found.table), nl=False)
        return
    write_table(output, found.table)
    write_json(record, found.record)
    click.echo(f"{len(found.table)} texts: {output} ({found.record['provenance']}; {record})")
