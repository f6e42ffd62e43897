"""Fitting weights to a matrix, applying them, keeping them in a file."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from poise import __version__
from poise.errors import PoiseError
from poise.files import write_json
from poise.matrix.files import PREDICTION, SAFE_MAGNITUDES, Labels, Probabilities, content_of, decoded, listed, writing
from poise.methods import DNIP
from poise.methods.dnip.objective import weighted_argmax


@dataclass(frozen=True)
class Weights:
    """One correction weight a class, and how they came about.

    Attributes
    ----------
    classes, weights
        In one order.
    method, parameters
        What fitted them.
    objective, certified
        The value reached on the fitted rows, and whether it is proven to be the global minimum.
    rows, class_rows
        Labelled rows fitted on, in all and of each class.
    source
        The file, for messages.
    """

    classes: tuple[str, ...]
    weights: tuple[float, ...]
    method: str = "unknown"
    parameters: dict[str, Any] | None = None
    objective: float | None = None
    certified: bool = False
    rows: int | None = None
    class_rows: tuple[int, ...] | None = None
    source: str = "the weights"

    @property
    def multipliers(self) -> NDArray[Any]:
        """What multiplies the columns: the integer levels (exact) where the weights are levels / n_levels."""
        weights = np.array(self.weights)
        n_levels = (self.parameters or {}).get("n_levels")
        if isinstance(n_levels, int) and n_levels > 0:
            levels = np.rint(weights * n_levels)
            if np.array_equal(levels / n_levels, weights):
                return levels.astype(np.int64)
        return weights


def fit(
    probabilities: Probabilities,
    labels: Labels,
    *,
    n_levels: int = 30,
    beta: float = 2.7,
    tau: float = 0.2,
    mu: float | str = 4000,
    objective: str = "cobias",
    solver: str = "heat_bath",
    seed: int = 1,
) -> Weights:
    """Fit DNIP's weights on the labelled rows; the parameters are those of :class:`poise.methods.DNIP`.

    Raises
    ------
    PoiseError
        For a parameter out of its range, or if no labelled row has a probability above 0.
    """
    chosen = labels.labelled
    true = labels.indices[chosen]
    dnip = DNIP(
        n_levels=n_levels, beta=beta, tau=tau, mu=mu, objective=objective, solver=solver, random_state=seed
    )  # fmt: skip
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # absent classes: told by absent_classes
            dnip.fit(probabilities.array[chosen], true)
    except ValueError as error:
        raise PoiseError(f"{probabilities.source}: cannot fit: {error}") from error
    parameters = {
        "n_levels": n_levels,
        "beta": beta,
        "tau": tau,
        "mu": float(dnip.mu_),
        "objective": objective,
        "solver": solver,
        "seed": seed,
    }
    return Weights(
        classes=probabilities.classes,
        weights=tuple(dnip.weights_.tolist()),
        method="dnip",
        parameters=parameters,
        objective=float(dnip.objective_),
        certified=bool(dnip.certified_),
        rows=len(true),
        class_rows=tuple(np.bincount(true, minlength=len(probabilities.classes)).tolist()),
    )


def absent_classes(probabilities: Probabilities, labels: Labels) -> tuple[str, ...]:
    """Classes without a labelled row: they leave the bias term of a fit and the COBias of an audit."""
    present = set(labels.indices.tolist())
    return tuple(name for index, name in enumerate(probabilities.classes) if index not in present)


def aligned(probabilities: Probabilities, weights: Weights) -> Probabilities:
    """Put the columns into the order of the weights.

    Raises
    ------
    PoiseError
        If the classes are not the same.
    """
    missing = [name for name in weights.classes if name not in probabilities.classes]
    extra = [name for name in probabilities.classes if name not in weights.classes]
    if missing or extra:
        parts = [f"{word} {listed(names)}" for word, names in (("missing", missing), ("unknown", extra)) if names]
        raise PoiseError(
            f"{probabilities.source}: classes differ from {weights.source}: {'; '.join(parts)};"
            f" expected {listed(weights.classes)} in any order"
        )
    order = [probabilities.classes.index(name) for name in weights.classes]
    return Probabilities(
        probabilities.source,
        weights.classes,
        probabilities.array[:, order],
        probabilities.ids,
        probabilities.id_column,
    )


def apply(weights: Weights, probabilities: Probabilities) -> pd.DataFrame:
    """Correct every row: its id (or number, from 1), prediction, and corrected probabilities, which sum to 1.

    Ties go to the class that comes first in the weights.

    Raises
    ------
    PoiseError
        If the classes are not the same, or a class bears the name of another output column.
    """
    rows = aligned(probabilities, weights)
    for name in (rows.id_column, PREDICTION):
        if name in rows.classes:
            raise PoiseError(f"{rows.source}: a class is called {name!r}, as a column of the output is: rename it")
    weighted = rows.columns.T * np.array(weights.multipliers, dtype=np.float64)
    corrected = weighted / weighted.sum(axis=1, keepdims=True)
    ids = np.arange(1, len(corrected) + 1) if rows.ids is None else np.array(rows.ids, dtype=object)
    predicted = np.array(rows.classes, dtype=object)[weighted_argmax(rows.columns, weights.multipliers)]
    return pd.DataFrame(
        {rows.id_column: ids, PREDICTION: predicted, **dict(zip(rows.classes, corrected.T, strict=True))}
    )


def write_weights(path: Path, weights: Weights) -> None:
    """Write weights as JSON, atomically."""
    with writing(path):
        write_json(
            path,
            {
                "poise": __version__,
                "method": weights.method,
                "parameters": weights.parameters or {},
                "classes": weights.classes,
                "weights": weights.weights,
                "objective": weights.objective,
                "certified": weights.certified,
                "rows": weights.rows,
                "class_rows": weights.class_rows,
            },
        )


def read_weights(path: Path | str) -> Weights:
    """Read what :func:`write_weights` wrote; ``classes`` and ``weights`` are all that must be there.

    Raises
    ------
    PoiseError
        For whatever is wrong with the file.
    """
    source = str(path)
    text = decoded(content_of(Path(path)), source)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise PoiseError(f"{source}: not a weights file: not JSON: {error.msg} ({where})") from error
    if not isinstance(found, dict):
        raise PoiseError(f"{source}: not a weights file: expected an object with 'classes' and 'weights'")
    for key in ("classes", "weights"):
        if not isinstance(found.get(key), list):
            raise PoiseError(f"{source}: not a weights file: no list {key!r}")
    classes, weights = found["classes"], found["weights"]
    if len(classes) < 2 or not all(isinstance(name, str) for name in classes) or len(set(classes)) != len(classes):
        raise PoiseError(f"{source}: 'classes' must be at least 2 distinct names, found {classes}")
    if len(weights) != len(classes):
        raise PoiseError(f"{source}: found {len(weights)} weights, expected {len(classes)}, one a class")
    for name, weight in zip(classes, weights, strict=True):
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not SAFE_MAGNITUDES[0] <= weight <= SAFE_MAGNITUDES[1]:
            raise PoiseError(f"{source}: the weight of {name!r} is {weight!r}, expected a number above 0")
    parameters, class_rows = found.get("parameters"), found.get("class_rows")
    return Weights(
        classes=tuple(classes),
        weights=tuple(float(weight) for weight in weights),
        method=str(found.get("method", "unknown")),
        parameters=parameters if isinstance(parameters, dict) else None,
        objective=found.get("objective"),
        certified=found.get("certified") is True,
        rows=found.get("rows"),
        class_rows=tuple(class_rows) if isinstance(class_rows, list) else None,
        source=source,
    )
