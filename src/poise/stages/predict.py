"""Classifying new texts: with a study's model, template and demonstrations, and with weights if there are any."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from poise import __version__, paths
from poise.answers import class_probabilities, hard_probabilities
from poise.cells import Cell
from poise.config.data import TableFile
from poise.datasets.tables import read_table
from poise.engines.ask import ask, tokenise
from poise.engines.base import open_engine
from poise.engines.devices import claim, gpus_wanted
from poise.errors import PoiseError
from poise.files import read_parquet
from poise.hashing import digest
from poise.matrix.files import PREDICTION, Probabilities, listed, read_cells, suffix_of
from poise.matrix.weights import Weights, apply, read_weights
from poise.plan import Plan
from poise.prompts.parsing import parse_label
from poise.prompts.render import prompt_labels
from poise.prompts.requests import as_rows, in_order, renderer, select_rows
from poise.stages.attempt import Attempt, say

CORRECTED = "corrected"


@dataclass(frozen=True)
class Texts:
    """Texts to classify, with their ids; without ids, rows count from 1."""

    source: str
    ids: tuple[str, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Predicted:
    """Predictions, one row a text, and what made them."""

    table: pd.DataFrame
    record: dict[str, Any]


def read_texts(path: Path, column: str) -> Texts:
    """Read texts from CSV, TSV, JSONL or Parquet, gzipped or not; a column ``id`` names them.

    Raises
    ------
    PoiseError
        If there is no such column, or a text is empty.
    """
    json_lines = suffix_of(path) in (".jsonl", ".ndjson")
    if json_lines and not path.is_file():
        raise PoiseError(f"{path}: file not found")
    rows = read_table(TableFile(path=[path.name]), path.parent, str(path)) if json_lines else read_cells(path)
    if column not in rows:
        raise PoiseError(
            f"{path}: no column {column!r}, found {', '.join(map(repr, rows.columns))}; name it with --column"
        )
    texts = ["" if text is None or text != text else str(text) for text in rows[column]]
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise PoiseError(f"{path}: row {number}, column {column!r}: the text is empty")
    ids = rows["id"].astype(str) if "id" in rows and column != "id" else map(str, range(1, len(texts) + 1))
    return Texts(str(path), tuple(ids), tuple(texts))


def find_cell(plan: Plan, model: str, dataset: str, experiment: str, shots: str | None, seed: int | None) -> Cell:
    """Find the cell whose prompts new texts get: test rows under the base condition.

    Raises
    ------
    PoiseError
        If the study has no such cell; says what it has.
    """
    asked = [
        cell
        for cell in plan.cells
        if (cell.split, cell.condition, cell.factor, cell.replicate, cell.parts) == ("test", "base", "", 0, 1)
        and cell.decoding == ("scores" if plan.study.models[cell.model].answers == "scores" else "greedy")
    ]
    wanted = {"model": model, "dataset": dataset, "experiment": experiment, "shots": shots, "seed": seed}
    for key, value in wanted.items():
        known = list(dict.fromkeys(getattr(cell, key) for cell in asked))
        if value is not None and value not in known:
            raise PoiseError(f"--{key} {value}: not in study {plan.study.name}, which has {', '.join(map(str, known))}")
        asked = [cell for cell in asked if value is None or getattr(cell, key) == value]
    return asked[0]


def fitted_weights(plan: Plan, cell: Cell, method: str) -> Weights:
    """Read the weights that a study has fitted for a cell's demonstrations.

    Raises
    ------
    PoiseError
        If it has not, or the method has no weights.
    """
    path = paths.predictions(plan.study.name, cell.experiment, cell.model, cell.dataset, method).with_suffix(".json")
    if not path.is_file():
        raise PoiseError(
            f"--method {method}: study {plan.study.name} has no fit of it at {path}; run "
            f"snakemake --cores all --config study={plan.study.name}, or give --weights"
        )
    for fit in json.loads(path.read_text(encoding="utf-8")):
        if (fit["shots"], fit["seed"]) == (cell.shots, cell.seed) and "weights" in fit:
            classes = tuple(plan.study.datasets[cell.dataset].classes)
            return Weights(classes=classes, weights=tuple(fit["weights"]), method=method, source=str(path))
    raise PoiseError(f"--method {method}: {path} holds no weights for {cell.shots}, seed {cell.seed}")


def weights_of(plan: Plan, cell: Cell, file: Path | None, method: str | None) -> Weights | None:
    """Weights from a file of ``poise fit``, or from the study; None if neither is asked for."""
    if file is not None and method is not None:
        raise PoiseError("--weights and --method: give one of them")
    if file is not None:
        weights = read_weights(file)
        classes = plan.classes(cell)
        if sorted(weights.classes) != sorted(classes):  # before anything is asked
            raise PoiseError(
                f"{file}: weights for the classes {listed(weights.classes)}, expected those of {cell.dataset}: "
                f"{listed(classes)}"
            )
        return weights
    return None if method is None else fitted_weights(plan, cell, method)


def predict(plan: Plan, cell: Cell, texts: Texts, weights: Weights | None = None) -> Predicted:
    """Classify texts with a cell's prompt; a run that is killed goes on where it was.

    Returns
    -------
    Predicted
        Columns ``id``, ``prediction`` (class name), a probability for each class, and with weights ``corrected``.
    """
    model = plan.study.models[cell.model]
    config = plan.study.engine_of(model)
    rows = _prepared(plan, cell)
    demonstrations, _ = select_rows(plan, cell, rows)
    render = renderer(plan, cell, in_order(cell, as_rows(demonstrations)))
    requests = {request.id: request for text in texts.texts for request in render.requests(text)}
    order = [render.requests(text)[0].id for text in texts.texts]
    folder = paths.RESULTS / "predict" / digest([cell.id, list(requests)])
    asked = list(requests.values())
    with (
        Attempt(folder, cell.model, config, len(asked)) as attempt,
        claim(gpus_wanted(config), say) as attempt.device,
    ):
        attempt.doing("loading")
        engine = open_engine(config, model, paths.model_dir(cell.model, plan.model_digests[cell.model]))
        attempt.doing("asking")
        context_length = config.context_length(model.context_length)
        tokenised = tokenise(engine, asked, model.label_tokens.scoring, context_length, f"model {cell.model}")
        answers = ask(engine, asked, tokenised, folder / "parts", config.flush_seconds, f"predict {cell.model}")
    found = answers.responses.set_index("request").loc[order]
    classes = plan.classes(cell)
    probabilities, predicted = _read(found, prompt_labels(plan.prompts[cell.prompt], classes))
    names = np.array([*classes, ""], dtype=object)  # the last, at -1, is for texts without a label
    table = pd.DataFrame({"id": texts.ids, PREDICTION: names[predicted]})
    table[classes] = probabilities
    if weights is not None:
        ours = Probabilities(texts.source, tuple(classes), probabilities, texts.ids, "id")
        table[CORRECTED] = apply(weights, ours)[PREDICTION].to_numpy()
    shutil.rmtree(folder, ignore_errors=True)
    return Predicted(table, _record(plan, cell, demonstrations, engine.description(), weights))


def _prepared(plan: Plan, cell: Cell) -> pd.DataFrame:
    """Rows of the cell's data set; what is missing is told with the commands that make it."""
    rows = paths.prepared_dataset(cell.dataset, plan.dataset_digests[cell.dataset])
    model = paths.model_manifest(cell.model, plan.model_digests[cell.model])
    loads_weights = plan.study.engine_of(plan.study.models[cell.model]).kind not in ("dummy", "openai")
    missing = [str(path) for path in (rows, model)[: 1 + loads_weights] if not path.exists()]
    if missing:
        name = plan.study.name
        known = (paths.conf_dir() / "study" / f"{name}.yaml").is_file()
        first = "" if known else f"poise plan --quiet {shlex.join(plan.overrides)} && "
        raise PoiseError(
            f"{', '.join(missing)}: not prepared yet; run "
            f"{first}snakemake --cores 1 {' '.join(missing)} --config study={name}"
        )
    return read_parquet(rows)


def _read(answers: pd.DataFrame, labels: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Class probabilities and predictions; hard ones where texts are all that there is."""
    if not answers["logprobs"].isna().any():
        probabilities = class_probabilities(np.stack(answers["logprobs"].tolist()), list(range(len(labels))))
        return probabilities, probabilities.argmax(axis=1)
    hard = np.array(
        [
            greedy if text is None or text is pd.NA else parse_label(text, labels)
            for greedy, text in zip(answers["greedy"], answers["text"], strict=True)
        ]
    )
    return hard_probabilities(hard, len(labels)), hard


def _record(
    plan: Plan, cell: Cell, demonstrations: pd.DataFrame, engine: dict[str, Any], weights: Weights | None
) -> dict[str, Any]:
    synthetic = plan.study.engine_of(plan.study.models[cell.model]).kind == "dummy"
    return {
        "poise": __version__,
        "provenance": "synthetic" if synthetic else "measured",
        "study": plan.study.name,
        "cell": cell.id,
        "model": cell.model,
        "dataset": cell.dataset,
        "shots": cell.shots,
        "seed": cell.seed,
        "demonstrations": list(demonstrations["id"]),
        "engine": engine,
        "weights": None if weights is None else dict(zip(weights.classes, weights.weights, strict=True)),
        "weights_source": None if weights is None else weights.source,
    }
