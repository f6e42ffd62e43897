"""Matrices and labels from files (CSV, TSV, Parquet, gzipped or not), and tables back to files.

In messages rows are counted from 1, without the header.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from poise.errors import PoiseError
from poise.files import replacing

ID, LABEL, PREDICTION = "id", "label", "prediction"
UNLABELLED = -1
N_RESAMPLES, CONFIDENCE = 2000, 0.95

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_TABLES = (*_SEPARATORS, ".parquet")
_MOST_NAMES = 20  # that a message lists
SAFE_MAGNITUDES = (1e-30, 1e30)  # a row whose largest number lies outside is scaled, so that float32 can hold it


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
    source, frame = str(path), read_cells(Path(path))
    names = list(frame.columns)
    if id_column is not None and id_column not in names:
        raise PoiseError(f"{source}: no column {id_column!r} for the ids, found {listed(names)}")
    key = id_column or (ID if names[0] == ID else None)
    classes = tuple(name for name in names if name != key)
    if len(classes) < 2:
        found = f"{len(classes)} class column{'s' * (len(classes) != 1)}" + f" ({listed(classes)})" * bool(classes)
        raise PoiseError(f"{source}: found {found}, expected at least 2, one a class")
    numbers = [_number(name) for name in classes]
    if all(number <= 1 for number in numbers) and not all(number.is_integer() for number in numbers):
        raise PoiseError(f"{source}: the header holds numbers ({listed(classes)}), expected the names of the classes")
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
    source, frame = str(path), read_cells(Path(path))
    key = id_column or ID
    others = [name for name in frame.columns if name != key]
    if LABEL not in others and len(others) != 1:
        raise PoiseError(f"{source}: found columns {listed(list(frame.columns))}, expected a column 'label'")
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
    lines = [line.split() for line in decoded(content_of(Path(path)), source).splitlines() if line.strip()]
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


def read_cells(path: Path) -> pd.DataFrame:
    """Rows of a file as they stand there, with distinct column names."""
    suffix = suffix_of(path)
    if suffix not in _TABLES:
        raise PoiseError(f"{path}: unknown format {suffix!r}, expected {', '.join(_TABLES)} (or .gz of these)")
    content = content_of(path)
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


def suffix_of(path: Path) -> str:
    """Format of a file by its name, without ``.gz``."""
    return PurePath(path.name.lower().removesuffix(".gz")).suffix


def content_of(path: Path) -> bytes:
    """Bytes of a file, unpacked; one clear line if it cannot be read."""
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


def decoded(content: bytes, source: Path | str) -> str:
    """Decode UTF-8 text; one clear line with the place of what is not."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PoiseError(f"{source}: line {line}: not UTF-8 text, save it as UTF-8") from error


def _delimited(content: bytes, separator: str, path: Path) -> pd.DataFrame:
    reader = csv.reader(io.StringIO(decoded(content, path), newline=""), delimiter=separator, strict=True)
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
            raise PoiseError(f"{path}: row {number}: found {len(row)} fields, expected {len(names)} ({listed(names)})")
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
    outside = (largest > 0) & ((largest < SAFE_MAGNITUDES[0]) | (largest > SAFE_MAGNITUDES[1]))
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
            expected = f"one of {listed(classes)}"
            if are_indices:
                expected += f" or an index from 0 to {len(classes) - 1}"
            raise PoiseError(f"{source}: row {row}: unknown label {text!r}, expected {expected}")
    return np.array([known[text] for text in texts], dtype=np.int64), are_indices


def _checked(labels: Labels) -> Labels:
    if not labels.labelled.any():
        raise PoiseError(f"{labels.source}: no row has a label, expected at least one")
    return labels


def listed(names: Sequence[str]) -> str:
    """Quote names for a message, not too many of them."""
    more = f", … ({len(names)} in all)" if len(names) > _MOST_NAMES else ""
    return ", ".join(repr(name) for name in names[:_MOST_NAMES]) + more


def check_table_name(path: Path, *more: str) -> None:
    """Refuse an output name whose format is unknown; ``more`` are suffixes allowed beside those of tables."""
    if (suffix := suffix_of(path)) not in (allowed := (*_TABLES, *more)):
        raise PoiseError(f"{path}: unknown format {suffix!r}, expected {', '.join(allowed)} (or .gz of these)")


def write_table(path: Path, frame: pd.DataFrame) -> None:
    """Write a table atomically, in the format its name asks for; the same bytes for the same frame."""
    check_table_name(path)
    suffix = suffix_of(path)
    if suffix == ".parquet":
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        content = buffer.getvalue()
    else:
        content = delimited_text(frame, _SEPARATORS[suffix]).encode()
    if path.name.lower().endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    with writing(path), replacing(path) as temporary:
        temporary.write_bytes(content)


def delimited_text(frame: pd.DataFrame, separator: str = ",") -> str:
    """CSV text of a table."""
    return frame.to_csv(index=False, sep=separator, lineterminator="\n")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file that was asked for, not the temporary one."""
    try:
        yield
    except OSError as error:
        no_folder = isinstance(error, FileExistsError | NotADirectoryError)
        reason = f"{path.parent} is not a folder" if no_folder else error.strerror
        raise PoiseError(f"{path}: cannot be written: {reason}") from error
