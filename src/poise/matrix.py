"""For people who only have a matrix of class probabilities: read it, fit weights, apply them, audit the outcome.

Files are CSV, TSV or Parquet, gzipped or not (``docs/your-own-probabilities.md``). In messages rows are counted from 1,
without the header.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from poise import __version__
from poise import metrics as m
from poise.artefacts.tables.table import Table
from poise.errors import PoiseError
from poise.files import replacing, write_json, write_text
from poise.methods import DNIP
from poise.methods.dnip.objective import weighted_argmax

ID, LABEL, PREDICTION = "id", "label", "prediction"
UNLABELLED = -1
N_RESAMPLES, CONFIDENCE = 2000, 0.95

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_TABLES = (*_SEPARATORS, ".parquet")
_MOST_NAMES = 20  # that a message lists
_SAFE = (1e-30, 1e30)  # a row whose largest number lies outside is scaled, so that float32 can hold it


@dataclass(frozen=True)
class Probabilities:
    """A matrix of class probabilities.

    Attributes
    ----------
    source
        The file, for messages.
    classes
        Class names in column order.
    array
        Shape (rows, classes): finite, at least 0; rows need not sum to 1.
    ids
        One text a row, or None.
    id_column
        Name of their column.
    """

    source: str
    classes: tuple[str, ...]
    array: NDArray[np.float64]
    ids: tuple[str, ...] | None = None
    id_column: str = ID

    @property
    def zero_rows(self) -> int:
        """Rows without any probability, which count as uniform."""
        return int((~self.array.any(axis=1)).sum())

    @property
    def columns(self) -> NDArray[np.float32]:
        """The layout of the solvers, (classes, rows), with rows without any probability made uniform."""
        rows = np.where(self.array.any(axis=1, keepdims=True), self.array, 1.0)
        return np.ascontiguousarray(rows.T, dtype=np.float32)


@dataclass(frozen=True)
class Labels:
    """Labels, aligned with the rows of a matrix.

    Attributes
    ----------
    source
        The file, for messages.
    indices
        Class index of each row of the matrix, -1 where it has no label.
    are_indices
        Whether the file holds 0-based class indices rather than class names.
    joined_by
        ``id`` or ``order``.
    """

    source: str
    indices: NDArray[np.int64]
    are_indices: bool
    joined_by: str

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which rows have a label."""
        return self.indices != UNLABELLED

    def described(self, probabilities: Probabilities) -> str:
        """How the file was read: names or indices, joined by what, how many rows without a label."""
        how = f"class indices (0 is {probabilities.classes[0]!r})" if self.are_indices else "class names"
        if not self.are_indices and all(name.isdecimal() for name in probabilities.classes):
            how += " (not indices)"
        left_out = int((~self.labelled).sum())
        return f"{how}, joined by {self.joined_by}" + (f"; unlabelled rows left out: {left_out}" if left_out else "")


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


@dataclass(frozen=True)
class Audit:
    """Measures of a matrix's predictions, before and (with weights) after correction.

    Attributes
    ----------
    source, weights_source
        The files.
    classes, class_rows, weights
        In one order; ``weights`` is None without correction.
    labels_read
        How the labels were read.
    tidy
        One number a row, as fractions: ``metric``, ``class``, ``state`` (``before``, ``after``, ``change``),
        ``value``, ``low`` and ``high`` (95 % bootstrap interval, where there is one), ``n``, ``provenance``.
    """

    source: str
    weights_source: str | None
    classes: tuple[str, ...]
    class_rows: tuple[int, ...]
    weights: tuple[float, ...] | None
    labels_read: str
    tidy: pd.DataFrame

    def value(self, metric: str, state: str = "before", class_name: str = "") -> float:
        """One of the numbers."""
        chosen = self.tidy[["metric", "class", "state"]].eq([metric, class_name, state]).all(axis=1)
        return float(self.tidy.loc[chosen, "value"].item())

    def table(self) -> Table:
        """Render for reading, in percent."""
        return _audit_table(self)

    def markdown(self) -> str:
        """Render as Markdown, in percent."""
        return self.table().markdown()


# --- reading ---------------------------------------------------------------------------------------------------------


def read_probabilities(path: Path | str, *, id_column: str | None = None, log: bool = False) -> Probabilities:
    """Read a matrix: one column a class, named in the header, after an optional column of ids.

    Parameters
    ----------
    path
        CSV, TSV or Parquet, gzipped or not.
    id_column
        Name of the column of ids; by default the first column if it is called ``id``.
    log
        The numbers are log-probabilities (or logits: a row's constant does not matter).

    Raises
    ------
    PoiseError
        For whatever is wrong with the file.
    """
    source, frame = str(path), _read_cells(Path(path))
    names = list(frame.columns)
    if id_column is not None and id_column not in names:
        raise PoiseError(f"{source}: no column {id_column!r} for the ids, found {_listed(names)}")
    key = id_column or (ID if names[0] == ID else None)
    classes = tuple(name for name in names if name != key)
    if len(classes) < 2:
        found = f"{len(classes)} class column{'s' * (len(classes) != 1)}" + f" ({_listed(classes)})" * bool(classes)
        raise PoiseError(f"{source}: found {found}, expected at least 2, one a class")
    numbers = [_number(name) for name in classes]
    if all(number <= 1 for number in numbers) and not all(number.is_integer() for number in numbers):
        raise PoiseError(f"{source}: the header holds numbers ({_listed(classes)}), expected the names of the classes")
    values = _numbers(frame[list(classes)], source, log=log)
    ids = None if key is None else _ids(frame[key], source)
    return Probabilities(source, classes, _within_float32(values), ids, key or ID)


def read_labels(path: Path | str, probabilities: Probabilities, *, id_column: str | None = None) -> Labels:
    """Read labels and align them with a matrix: by id if both have ids, else by order.

    Parameters
    ----------
    path
        CSV, TSV or Parquet, gzipped or not, with a column ``label`` (or one column beside the ids): class names,
        or 0-based class indices if no label is a class name. An empty label marks an unlabelled row.
    probabilities
        The matrix.
    id_column
        Name of the column of ids, by default ``id``.

    Raises
    ------
    PoiseError
        For whatever is wrong with the file or does not match the matrix.
    """
    source, frame = str(path), _read_cells(Path(path))
    key = id_column or ID
    others = [name for name in frame.columns if name != key]
    if LABEL not in others and len(others) != 1:
        raise PoiseError(f"{source}: found columns {_listed(list(frame.columns))}, expected a column 'label'")
    texts = _texts(frame[LABEL if LABEL in others else others[0]])
    indices, are_indices = _class_indices(texts, probabilities.classes, source)
    if probabilities.ids is None or key not in frame.columns:
        if len(indices) != len(probabilities.array):
            raise PoiseError(
                f"{source}: found {len(indices)} rows, expected {len(probabilities.array)} as in"
                f" {probabilities.source} (joined by order: not both files have ids)"
            )
        return _checked(Labels(source, indices, are_indices, "order"))
    position = {text: row for row, text in enumerate(probabilities.ids)}
    aligned = np.full(len(probabilities.array), UNLABELLED, dtype=np.int64)
    for row, (text, index) in enumerate(zip(_ids(frame[key], source), indices, strict=True), 1):
        if text not in position:
            raise PoiseError(f"{source}: row {row}: id {text!r} has no row in {probabilities.source}")
        aligned[position[text]] = index
    return _checked(Labels(source, aligned, are_indices, "id"))


def read_dcs(path: Path | str, *, log: bool = False) -> tuple[Probabilities, Labels]:
    """Read the text format of DNIP's authors: lines of ``id label prediction p1 ... pN``, without a header.

    Classes are called 0 to N - 1; the prediction is ignored.
    """
    source = str(path)
    lines = [line.split() for line in _decoded(_content(Path(path)), source).splitlines() if line.strip()]
    if not lines:
        raise PoiseError(f"{source}: the file is empty")
    if len(lines[0]) < 5:
        expected = "id, label, prediction and at least 2 probabilities"
        raise PoiseError(f"{source}: row 1: found {len(lines[0])} fields, expected {expected}")
    classes = tuple(str(k) for k in range(len(lines[0]) - 3))
    for row, line in enumerate(lines, 1):
        if len(line) != len(lines[0]):
            raise PoiseError(f"{source}: row {row}: found {len(line)} fields, expected {len(lines[0])} as in row 1")
    frame = pd.DataFrame(lines, columns=[ID, LABEL, PREDICTION, *classes])
    values = _within_float32(_numbers(frame[list(classes)], source, log=log))
    indices, are_indices = _class_indices(_texts(frame[LABEL]), classes, source)
    probabilities = Probabilities(source, classes, values, _ids(frame[ID], source))
    return probabilities, Labels(source, indices, are_indices, "id")


def _read_cells(path: Path) -> pd.DataFrame:
    """Rows of a file as they stand there, with distinct column names."""
    suffix = _suffix(path)
    if suffix not in _TABLES:
        raise PoiseError(f"{path}: unknown format {suffix!r}, expected {', '.join(_TABLES)} (or .gz of these)")
    content = _content(path)
    frame = _parquet(content, path) if suffix == ".parquet" else _delimited(content, _SEPARATORS[suffix], path)
    names = [str(name).strip() for name in frame.columns]
    for number, name in enumerate(names, 1):
        if not name:
            raise PoiseError(f"{path}: column {number} has no name, expected 'id' or the name of a class in the header")
        if name in names[: number - 1]:
            raise PoiseError(f"{path}: column {number}: a second column {name!r}, expected distinct names")
    frame.columns = pd.Index(names)
    if frame.empty:
        raise PoiseError(f"{path}: no rows below the header")
    return frame


def _suffix(path: Path) -> str:
    return PurePath(path.name.lower().removesuffix(".gz")).suffix


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise PoiseError(f"{path}: file not found") from None
    except OSError as error:
        raise PoiseError(f"{path}: cannot be read: {error.strerror}") from error
    if path.name.lower().endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise PoiseError(f"{path}: not a readable gzip file: {error}") from error
    if not content.strip():
        raise PoiseError(f"{path}: the file is empty")
    return content


def _decoded(content: bytes, source: Path | str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PoiseError(f"{source}: line {line}: not UTF-8 text, save it as UTF-8") from error


def _delimited(content: bytes, separator: str, path: Path) -> pd.DataFrame:
    reader = csv.reader(io.StringIO(_decoded(content, path), newline=""), delimiter=separator, strict=True)
    lines: list[list[str]] = []
    try:
        lines.extend(reader)
    except csv.Error as error:
        raise PoiseError(f"{path}: line {reader.line_num}: not readable: {error}") from error
    while lines and not lines[-1]:  # blank lines at the end
        lines.pop()
    header = next((number for number, line in enumerate(lines) if line), 0)
    names, *rows = lines[header:]
    # In a file of one column a blank line is an empty cell (an unlabelled row); elsewhere it is nothing.
    rows = [row or [""] for row in rows] if len(names) == 1 else [row for row in rows if row]
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise PoiseError(f"{path}: row {number}: found {len(row)} fields, expected {len(names)} ({_listed(names)})")
    return pd.DataFrame(rows, columns=names, dtype=object)


def _parquet(content: bytes, path: Path) -> pd.DataFrame:
    import pyarrow as pa

    try:
        frame = pd.read_parquet(io.BytesIO(content))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise PoiseError(f"{path}: not a readable Parquet file: {error}") from error
    return frame if frame.index.names == [None] else frame.reset_index()


def _texts(cells: pd.Series) -> list[str]:
    return ["" if _missing(cell) else str(cell).strip() for cell in cells.tolist()]


def _missing(cell: Any) -> bool:
    return cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, float) and math.isnan(cell))


def _ids(cells: pd.Series, source: str) -> tuple[str, ...]:
    first: dict[str, int] = {}
    for row, text in enumerate(_texts(cells), 1):
        if not text:
            raise PoiseError(f"{source}: row {row}, column {str(cells.name)!r}: found an empty cell, expected an id")
        if text in first:
            raise PoiseError(f"{source}: row {row}: duplicate id {text!r} (first in row {first[text]})")
        first[text] = row
    return tuple(first)


def _numbers(cells: pd.DataFrame, source: str, *, log: bool) -> NDArray[np.float64]:
    """Probabilities, from text or numbers, of which the first bad one is reported."""
    objects = cells.to_numpy(dtype=object)
    try:
        values = objects.astype(np.float64)
    except (TypeError, ValueError):
        values = np.array([[_number(cell) for cell in row] for row in objects])
    bad = (np.isnan(values) | (values == np.inf)) if log else ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row, column = (int(place) for place in np.argwhere(bad)[0])
        cell = objects[row, column]
        empty = _missing(cell) or str(cell).strip() == ""
        found = "an empty cell" if empty else repr(cell) if isinstance(cell, str) else str(cell)
        expected = "a log-probability" if log else "a number of at least 0"
        hint = " (log-probabilities need --log)" if values[row, column] < 0 and not log else ""
        where = f"row {row + 1}, column {str(cells.columns[column])!r}"
        raise PoiseError(f"{source}: {where}: found {found}, expected {expected}{hint}")
    if not log:
        return values
    largest = values.max(axis=1, keepdims=True)
    possible = np.exp(values - np.where(np.isfinite(largest), largest, 0.0))
    sums: NDArray[np.float64] = possible.sum(axis=1, keepdims=True)
    return possible / np.where(sums > 0, sums, 1.0)


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return math.nan


def _within_float32(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale the rows that float32, in which probabilities are weighted, would lose or overflow."""
    largest = values.max(axis=1, keepdims=True)
    outside = (largest > 0) & ((largest < _SAFE[0]) | (largest > _SAFE[1]))
    return values / np.where(outside, largest, 1.0)


def _class_indices(texts: Sequence[str], classes: Sequence[str], source: str) -> tuple[NDArray[np.int64], bool]:
    """Class index of each label, and whether labels are indices: names win, if any label is one."""
    named = {name: index for index, name in enumerate(classes)}
    are_indices = not any(text in named for text in texts)
    # A column of whole numbers in which some are missing is written with decimals by many programs.
    numbered = {f"{index}{end}": index for index in range(len(classes)) for end in ("", ".0")}
    known = {**(numbered if are_indices else named), "": UNLABELLED}
    for row, text in enumerate(texts, 1):
        if text not in known:
            expected = f"one of {_listed(classes)}"
            if are_indices:
                expected += f" or an index from 0 to {len(classes) - 1}"
            raise PoiseError(f"{source}: row {row}: unknown label {text!r}, expected {expected}")
    return np.array([known[text] for text in texts], dtype=np.int64), are_indices


def _checked(labels: Labels) -> Labels:
    if not labels.labelled.any():
        raise PoiseError(f"{labels.source}: no row has a label, expected at least one")
    return labels


def _listed(names: Sequence[str]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > _MOST_NAMES else ""
    return ", ".join(repr(name) for name in names[:_MOST_NAMES]) + more


# --- fitting and applying --------------------------------------------------------------------------------------------


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
        parts = [f"{word} {_listed(names)}" for word, names in (("missing", missing), ("unknown", extra)) if names]
        raise PoiseError(
            f"{probabilities.source}: classes differ from {weights.source}: {'; '.join(parts)};"
            f" expected {_listed(weights.classes)} in any order"
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


# --- auditing --------------------------------------------------------------------------------------------------------


def audit(probabilities: Probabilities, labels: Labels, weights: Weights | None = None) -> Audit:
    """Measure the predictions of the labelled rows, before and, with weights, after correction.

    Raises
    ------
    PoiseError
        If the classes of the weights are not those of the matrix.
    """
    chosen = labels.labelled
    true, n = labels.indices[chosen], len(probabilities.classes)
    columns = np.ascontiguousarray(probabilities.columns[:, chosen])
    predictions = {"before": weighted_argmax(columns, np.ones(n, dtype=np.int64))}
    if weights is not None:
        order = [probabilities.classes.index(name) for name in aligned(probabilities, weights).classes]
        in_order = weighted_argmax(np.ascontiguousarray(columns[order]), weights.multipliers)
        predictions["after"] = np.array(order)[in_order]
    counts = np.bincount(true, minlength=n)
    rows = [
        *_measured(true, predictions, n),
        *_class_measures(true, predictions, probabilities.classes),
    ]
    tidy = pd.DataFrame(rows, columns=["metric", "class", "state", "value", "low", "high", "n"])
    by_class = None if weights is None else dict(zip(weights.classes, weights.weights, strict=True))
    return Audit(
        source=probabilities.source,
        weights_source=None if weights is None else weights.source,
        classes=probabilities.classes,
        class_rows=tuple(counts.tolist()),
        weights=None if by_class is None else tuple(by_class[name] for name in probabilities.classes),
        labels_read=labels.described(probabilities),
        tidy=tidy.assign(provenance="measured"),
    )


_Row = tuple[str, str, str, float, float, float, int]


def _measured(true: NDArray[np.int64], predictions: dict[str, NDArray[np.int64]], n: int) -> Iterator[_Row]:
    bootstrap = m.cobias_bootstrap(
        true, *predictions.values(), n_classes=n, n_resamples=N_RESAMPLES, confidence=CONFIDENCE
    )
    accuracy, accuracy_change = _accuracy_bootstrap(true, *predictions.values())
    none = (math.nan, math.nan)
    last: dict[str, float] = {}
    for k, (state, predicted) in enumerate(predictions.items()):
        values = {
            "accuracy": (m.accuracy(true, predicted), accuracy[k]),
            "macro_f1": (m.macro_f1(true, predicted, n), none),
            "cobias": (m.cobias(true, predicted, n), (bootstrap.intervals[k].low, bootstrap.intervals[k].high)),
            "cobias_floor": (_floor(true, predicted, n), none),
            "cobias_single": (m.cobias_single(true, predicted, n), none),
            "odd_rate": (m.odd_rate(true, predicted, n), none),
        }
        for metric, (value, (low, high)) in values.items():
            yield metric, "", state, value, low, high, len(true)
        if state == "after":
            change = bootstrap.differences[0]
            ends = {"accuracy": accuracy_change, "cobias": (change.low, change.high)}
            for metric, (value, _) in values.items():
                if metric == "cobias_floor":
                    continue
                yield metric, "", "change", value - last[metric], *ends.get(metric, none), len(true)
        last = {metric: value for metric, (value, _) in values.items()}


def _class_measures(
    true: NDArray[np.int64], predictions: dict[str, NDArray[np.int64]], classes: Sequence[str]
) -> Iterator[_Row]:
    n = len(classes)
    counts = np.bincount(true, minlength=n).tolist()
    for metric in ("class_accuracy", "predicted"):
        last: list[float] = []
        for state, predicted in predictions.items():
            measured = m.class_accuracies(true, predicted, n) if metric == "class_accuracy" else None
            values = (np.bincount(predicted, minlength=n) if measured is None else measured).tolist()
            states = {state: values}
            if last:
                states["change"] = [after - before for before, after in zip(last, values, strict=True)]
            for name_of_state, numbers in states.items():
                for name, value, count in zip(classes, numbers, counts, strict=True):
                    yield metric, name, name_of_state, value, math.nan, math.nan, count
            last = values


def _floor(true: NDArray[np.int64], predicted: NDArray[np.int64], n: int) -> float:
    """Sampling floor of COBias: every class as accurate as the classes are on average."""
    accuracies, counts = m.class_accuracies(true, predicted, n), np.bincount(true, minlength=n)
    return m.cobias_sampling_floor(counts[counts > 0], float(accuracies[counts > 0].mean()))


_Ends = tuple[float, float]


def _accuracy_bootstrap(true: NDArray[np.int64], *predictions: NDArray[np.int64]) -> tuple[list[_Ends], _Ends]:
    """Paired percentile intervals of the accuracies, and of the last minus the first."""
    right = np.column_stack([predicted == true for predicted in predictions])
    kinds, counts = np.unique(right, axis=0, return_counts=True)
    draws = np.random.default_rng(0).multinomial(len(true), counts / len(true), size=N_RESAMPLES)
    samples = draws @ kinds.astype(np.float64) / len(true)
    return [_ends(sample) for sample in samples.T], _ends(samples[:, -1] - samples[:, 0])


def _ends(sample: NDArray[np.float64]) -> _Ends:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(sample, [tail, 1 - tail])
    return float(low), float(high)


_TITLES = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "cobias": "COBias",
    "cobias_floor": "COBias, sampling floor",
    "cobias_single": "COBias_single",
    "odd_rate": "odd rate H",
}


def _audit_table(audit: Audit) -> Table:
    states = [state for state in ("before", "after", "change") if (audit.tidy["state"] == state).any()]
    found = {(row["metric"], row["class"], row["state"]): row for row in audit.tidy.to_dict("records")}

    def cells(metric: str, name: str, wanted: Sequence[str]) -> list[str]:
        return [_percent(found.get((metric, name, state))) for state in wanted]

    overall = pd.DataFrame(
        [[title, *cells(metric, "", states)] for metric, title in _TITLES.items()], columns=["percent", *states]
    )
    compared = [state for state in states if state != "change"]
    lines = []
    for k, name in enumerate(audit.classes):
        predicted = [f"{found['predicted', name, state]['value']:.0f}" for state in compared]
        weight = [] if audit.weights is None else [f"{audit.weights[k]:.4g}"]
        shown = name.replace("|", "\\|")
        lines.append([shown, f"{audit.class_rows[k]}", *predicted, *cells("class_accuracy", name, states), *weight])
    columns = ["class", "rows"]
    columns += [f"predicted, {state}" for state in compared]
    columns += [f"accuracy %, {state}" for state in states]
    columns += [] if audit.weights is None else ["weight"]
    corrected = "" if audit.weights_source is None else f", before and after {audit.weights_source}"
    return Table(
        caption=f"Audit of {audit.source}: {sum(audit.class_rows)} labelled rows{corrected}",
        tidy=audit.tidy,
        sections=(("", overall), ("Classes", pd.DataFrame(lines, columns=columns))),
        notes=(
            f"[low, high]: {CONFIDENCE * 100:.0f} % bootstrap interval, {N_RESAMPLES} resamples of the rows"
            + ("." if audit.weights is None else ", the same ones before and after."),
            "Sampling floor: the COBias that classes of equal accuracy would show by chance, at these numbers of rows."
            " Near it, resampling adds to COBias, and the interval may lie above the value.",
            f"Labels: {audit.labels_read}.",
        ),
    )


def _percent(row: dict[Any, Any] | None) -> str:
    if row is None or math.isnan(row["value"]):
        return "–"
    sign = "+" if row["state"] == "change" else ""
    low, high = (f"{100 * row[end]:{sign}.2f}" for end in ("low", "high"))
    return f"{100 * row['value']:{sign}.2f}" + ("" if math.isnan(row["low"]) else f" [{low}, {high}]")


# --- writing and reading back ----------------------------------------------------------------------------------------


def check_table_name(path: Path, *more: str) -> None:
    """Refuse an output name whose format is unknown; ``more`` are suffixes allowed beside those of tables."""
    if (suffix := _suffix(path)) not in (allowed := (*_TABLES, *more)):
        raise PoiseError(f"{path}: unknown format {suffix!r}, expected {', '.join(allowed)} (or .gz of these)")


def write_table(path: Path, frame: pd.DataFrame) -> None:
    """Write a table atomically, in the format its name asks for; the same bytes for the same frame."""
    check_table_name(path)
    suffix = _suffix(path)
    if suffix == ".parquet":
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        content = buffer.getvalue()
    else:
        content = delimited_text(frame, _SEPARATORS[suffix]).encode()
    if path.name.lower().endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    with _writing(path), replacing(path) as temporary:
        temporary.write_bytes(content)


def delimited_text(frame: pd.DataFrame, separator: str = ",") -> str:
    """CSV text of a table."""
    return frame.to_csv(index=False, sep=separator, lineterminator="\n")


def write_audit(path: Path, audit: Audit) -> None:
    """Write an audit atomically: as Markdown (``.md``), or its tidy numbers as a table."""
    check_table_name(path, ".md")
    if _suffix(path) != ".md":
        return write_table(path, audit.tidy)
    with _writing(path):
        write_text(path, audit.markdown())
    return None


def write_weights(path: Path, weights: Weights) -> None:
    """Write weights as JSON, atomically."""
    with _writing(path):
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


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Name the file that was asked for, not the temporary one."""
    try:
        yield
    except OSError as error:
        no_folder = isinstance(error, FileExistsError | NotADirectoryError)
        reason = f"{path.parent} is not a folder" if no_folder else error.strerror
        raise PoiseError(f"{path}: cannot be written: {reason}") from error


def read_weights(path: Path | str) -> Weights:
    """Read what :func:`write_weights` wrote; ``classes`` and ``weights`` are all that must be there.

    Raises
    ------
    PoiseError
        For whatever is wrong with the file.
    """
    source = str(path)
    text = _decoded(_content(Path(path)), source)
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
        if not number or not _SAFE[0] <= weight <= _SAFE[1]:
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
