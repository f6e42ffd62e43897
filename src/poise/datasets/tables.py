"""Reading a data set's files, whatever their format, into Poise's own columns."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import lzma
import re
import string
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, cast

import numpy as np
import pandas as pd

from poise.config.data import Dataset, TableFile
from poise.config.sources import FilesSource
from poise.errors import PoiseError

COLUMNS = ["table", "id", "text", "label"]

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")
_DRAW_SEED = 0
_HIDDEN = "\0"
# What the readers of compressed files and archives raise for a missing member or damaged bytes.
_DAMAGE = (
    KeyError,
    EOFError,
    OSError,
    RuntimeError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
)


def prepare(dataset: Dataset, root: Path) -> pd.DataFrame:
    """Read, label, clean and check all rows of a data set.

    Parameters
    ----------
    dataset
        Its configuration.
    root
        What ``tables.*.path`` is relative to: the user's folder, a package file, a hub snapshot.

    Returns
    -------
    DataFrame
        Columns ``table`` (``train``, ``test``, ``shot_{n}/seed_{seed}`` for demonstration files), ``id`` (unique
        within its table), ``text``, ``label`` (class index); rows of a table in the order of its file.

    Raises
    ------
    PoiseError
        For a file that is missing, empty, damaged or not UTF-8, a missing column, an unknown label, a
        duplicate id. Rows are counted from 1, without the header, skipped and blank lines.
    """
    frames: dict[str, pd.DataFrame] = {}
    files = dataset.files()
    by_need = sorted(files.items(), key=lambda item: item[1].ids_of is not None)  # named rows come last
    for name, table in by_need:
        where = f"{dataset.name}: {_where(dataset, table)}"
        own = dataset.own(table)
        rows = read_table(table, root, where)
        ids = _ids(rows, own, where)
        if table.ids_of is None:
            frame = pd.DataFrame({"id": ids, "text": _texts(rows, own, where), "label": _labels(rows, own, where)})
        else:
            frame = _named_rows(ids, frames[table.ids_of], f"{where}: columns.id", table.ids_of)
        frames[name] = frame.assign(table=name)
    rows = pd.concat([frames[name] for name in files], ignore_index=True)
    if dataset.on_duplicate_text == "drop":
        rows = rows[~rows.assign(key=normalised(rows["text"])).duplicated(["table", "key"])]
    if dataset.holdout is not None:
        rows = _hold_out(rows, dataset)
    if dataset.train_rows is not None:
        rows = _draw_train_rows(rows, dataset.train_rows)
    return rows.reset_index(drop=True)[COLUMNS]


def normalised(texts: pd.Series) -> pd.Series:
    """Lower-case with single spaces: two texts that agree here count as the same row."""
    return texts.str.lower().str.split().str.join(" ")


def with_text_keys(rows: pd.DataFrame) -> pd.DataFrame:
    """Ready rows for many draws: hashes of their normalised texts in ``text_key``, and types that are quick to take."""
    return rows.assign(text_key=text_keys(rows)).astype({"table": "category", "id": object, "text": object})


def text_keys(rows: pd.DataFrame) -> pd.Series:
    """Keys of rows that agree exactly where their normalised texts do."""
    if "text_key" in rows:
        return rows["text_key"]
    return pd.Series(pd.util.hash_array(normalised(rows["text"]).to_numpy(object)), index=rows.index)


def read_table(table: TableFile, root: Path, where: str) -> pd.DataFrame:
    """Read one file (CSV, TSV, JSONL, JSON, Parquet; gzipped or not; inside archives or not), all values as text.

    A ``.json`` file is one object: a row a member, its key in the column ``key``. Lines of text may also be read with
    the table's ``pattern``. A value that is missing (null, NaN, a key that a JSON line lacks) is the empty text.
    """
    name = table.path[-1].lower()
    suffix = PurePosixPath(name.removesuffix(".gz")).suffix
    if suffix not in (*_SEPARATORS, *_JSON_LINES, ".json", ".parquet"):
        raise PoiseError(
            f"{where}: unknown format {suffix!r}, expected .csv, .tsv, .jsonl, .json or .parquet (or .gz of these)"
        )
    if table.pattern is not None and suffix not in _SEPARATORS:
        raise PoiseError(f"{where}: tables.*.pattern reads lines of text (.txt, .csv, .tsv), not {suffix}")
    content = _open(root, table.path, where)
    if name.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except _DAMAGE as error:
            raise PoiseError(f"{where}: not a readable gzip file: {_reason(error)}") from error
    if suffix == ".parquet":
        rows = _parquet(content, table, where)
    else:
        text = _decode(content, where)
        if not text.strip():
            raise PoiseError(f"{where}: the file is empty")
        if table.pattern is not None:
            rows = _matched(text, table.pattern, where)
        elif suffix == ".json":
            rows = _json_members(text, table, where)
        elif suffix in _JSON_LINES:
            rows = _json_lines(text, table, where)
        else:
            rows = _delimited(text, suffix, table, where)
    if rows.empty:
        raise PoiseError(f"{where}: no rows")
    return rows


def _delimited(text: str, suffix: str, table: TableFile, where: str) -> pd.DataFrame:
    """Rows of a CSV (quotes as in RFC 4180) or tab-separated file (quotes are characters like any other)."""
    crlf = table.line_ending == "crlf"
    lines: Iterable[str] = io.StringIO(text, newline="")
    if crlf:  # hide lone line feeds from the reader, which would end a row there
        lines = (line.replace("\n", _HIDDEN) + "\r\n" for line in text.split("\r\n"))
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(
        lines,
        delimiter=_SEPARATORS[suffix],
        quoting=csv.QUOTE_MINIMAL if suffix == ".csv" else csv.QUOTE_NONE,
        strict=True,
    )
    rows: list[list[str]] = []
    try:
        names = table.header or next(filter(None, reader), [])
        for row in itertools.islice(reader, table.skip_lines, None):
            if len(row) <= 1 and not "".join(row).strip():
                continue  # a blank line
            if len(row) != len(names):
                raise PoiseError(
                    f"{where}: row {len(rows) + 1}: fields found: {len(row)}, "
                    f"expected: {len(names)} ({', '.join(names)})"
                )
            rows.append([field.replace(_HIDDEN, "\n") for field in row] if crlf else row)
    except csv.Error as error:
        raise PoiseError(f"{where}: row {len(rows) + 1}: not readable as {suffix[1:]}: {error}") from error
    return pd.DataFrame(rows, columns=names)


def _matched(text: str, pattern: str, where: str) -> pd.DataFrame:
    """Rows of a text file by a regular expression: one line a row, one named group a column."""
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        found = re.fullmatch(pattern, line.removesuffix("\r"))
        if found is None:
            raise PoiseError(f"{where}: line {number}: {line.strip()[:40]!r} does not match the pattern {pattern!r}")
        rows.append(found.groupdict(default=""))
    return pd.DataFrame(rows)


def _json_lines(text: str, table: TableFile, where: str) -> pd.DataFrame:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        row = _json_object(line, number, where)
        rows.append({key: _as_text(value, table) for key, value in row.items()})
    return pd.DataFrame(rows).fillna("")


def _json_members(text: str, table: TableFile, where: str) -> pd.DataFrame:
    """Rows of one JSON object, in its order: members that are no objects have the column ``value``."""
    rows = []
    for key, member in _json_object(text, 1, where).items():
        row = member if isinstance(member, dict) else {"value": member}
        rows.append({**{name: _as_text(value, table) for name, value in row.items()}, "key": key})
    return pd.DataFrame(rows).fillna("")


def _json_object(text: str, line: int, where: str) -> dict[str, Any]:
    """Parse one JSON object that begins in a line."""
    try:
        found = json.loads(text, object_pairs_hook=_without_repeats)
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is JSON, but no text
    except json.JSONDecodeError as error:
        raise PoiseError(
            f"{where}: line {line + error.lineno - 1}: not a JSON object: {error.msg} (column {error.colno})"
        ) from error
    except UnicodeEncodeError as error:
        raise PoiseError(f"{where}: line {line}: not Unicode text: {error.reason}") from error
    except KeyError as error:
        raise PoiseError(f"{where}: line {line}: duplicate key {error} in a JSON object") from error
    if not isinstance(found, dict):
        raise PoiseError(f"{where}: line {line}: expected a JSON object, found {text.strip()[:40]!r}")
    return found


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise KeyError(key)
        found[key] = value
    return found


def _parquet(content: bytes, table: TableFile, where: str) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not content:
        raise PoiseError(f"{where}: the file is empty")
    try:
        columns = pq.read_table(io.BytesIO(content)).to_pydict()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise PoiseError(f"{where}: not a readable Parquet file: {_reason(error)}") from error
    return pd.DataFrame({name: [_as_text(value, table) for value in values] for name, values in columns.items()})


def _as_text(value: Any, table: TableFile) -> str:
    if isinstance(value, list) and table.list_separator is not None:
        return table.list_separator.join(_as_text(item, table) for item in value)
    return "" if value is None or value != value else str(value)


def _decode(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # error.object is what was decoded: the content without its byte-order mark
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        raise PoiseError(f"{where}: line {line}: not UTF-8 (byte 0x{byte:02x}); save it as UTF-8") from error


def _open(root: Path, path: list[str], where: str) -> bytes:
    """Bytes of a file, or of a member of nested archives."""
    outer = root if root.is_file() else root / path[0]
    members = path if root.is_file() else path[1:]
    try:
        content = outer.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise PoiseError(f"{where}: file not found: {outer}") from None
    for member in members:
        try:
            content = _member(content, member)
        except _DAMAGE as error:
            raise PoiseError(f"{where}: cannot read {member!r} in the archive: {_reason(error)}") from error
    return content


def _member(content: bytes, member: str) -> bytes:
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.read(member)
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)  # the whole of it, so that its checksum is checked
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        stream = tar.extractfile(member)
        if stream is None:
            raise KeyError(f"{member} is not a file")
        return stream.read()


def _reason(error: Exception) -> str:
    if isinstance(error, tarfile.ReadError):
        return "it is no zip or tar archive, or a damaged one"
    return " ".join(" ".join(map(str, error.args)).split())


def _where(dataset: Dataset, table: TableFile) -> str:
    if isinstance(dataset.source, FilesSource):
        return "!".join([str(Path(dataset.source.folder) / table.path[0]), *table.path[1:]])
    return "!".join(table.path)


def _column(rows: pd.DataFrame, name: str, where: str) -> pd.Series:
    if list(rows.columns).count(name) != 1:
        found = "two columns" if name in rows.columns else "no column"
        raise PoiseError(f"{where}: {found} {name!r}; the file has {[str(column) for column in rows.columns]}")
    return cast(pd.Series, rows[name])


def _ids(rows: pd.DataFrame, dataset: Dataset, where: str) -> pd.Series:
    if dataset.columns.id is None:
        return pd.Series(rows.index.astype(str), index=rows.index)
    ids = _column(rows, dataset.columns.id, where)
    repeated = ids[ids.duplicated()]
    if len(repeated):
        raise PoiseError(f"{where}: row {repeated.index[0] + 1}: duplicate id {repeated.iloc[0]!r}; ids must be unique")
    return ids


def _filled(rows: pd.DataFrame, template: str, where: str) -> pd.Series:
    """Fill a template like ``{title}. {body}`` from each row; a plain name is a column."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise PoiseError(f"{where}: columns.text {template!r} is not a template: {error}") from error
    if all(name is None for _, name, _, _ in parts):
        return _column(rows, template, where)
    texts = pd.Series("", index=rows.index)
    for literal, name, form, conversion in parts:
        if form or conversion:
            raise PoiseError(f"{where}: columns.text {template!r}: expected {{{name}}}, no format or conversion")
        texts = texts + literal + ("" if name is None else _column(rows, name, where))
    return texts


def _texts(rows: pd.DataFrame, dataset: Dataset, where: str) -> pd.Series:
    texts = _filled(rows, dataset.columns.text, where)
    for old, new in dataset.replacements:
        texts = texts.str.replace(old, new, regex=False)
    if dataset.tokens is not None:
        texts = texts.str.findall(dataset.tokens).str.join(" ")
    if dataset.lower_case:
        texts = texts.str.lower()
    texts = texts.str.strip()
    if dataset.max_words is not None:
        texts = texts.str.split().str[: dataset.max_words].str.join(" ")
    binary = texts.index[texts.str.contains("\0", regex=False)]
    if len(binary):
        raise PoiseError(f"{where}: row {binary[0] + 1}: a NUL character in the text; is the file text, in UTF-8?")
    blank = texts.index[texts == ""]
    if len(blank) and dataset.on_empty_text == "error":
        raise PoiseError(f"{where}: row {blank[0] + 1}: empty text")
    return texts


def _labels(rows: pd.DataFrame, dataset: Dataset, where: str) -> pd.Series:
    """Class index of each row: by thresholds (upper bounds, inclusive), listed values, or class name."""
    found = _column(rows, dataset.columns.label, where)
    if dataset.label_thresholds is not None:
        numbers = pd.to_numeric(found, errors="coerce")
        wrong = found[~np.isfinite(numbers)]
        if len(wrong):
            raise PoiseError(f"{where}: row {wrong.index[0] + 1}: label {wrong.iloc[0]!r}, expected a finite number")
        return pd.Series(np.searchsorted(dataset.label_thresholds, numbers, side="left"), index=rows.index)
    values = dataset.label_values or [[name] for name in dataset.classes]
    index = {value: k for k, names in enumerate(values) for value in names}
    labels = found.map(index)
    unknown = found[labels.isna()]
    if len(unknown):
        raise PoiseError(
            f"{where}: row {unknown.index[0] + 1}: unknown label {unknown.iloc[0]!r}, expected one of {list(index)}"
        )
    return labels.astype(int)


def _named_rows(ids: pd.Series, source: pd.DataFrame, where: str, name: str) -> pd.DataFrame:
    """Rows of another table that a file names by their ids, in the file's order."""
    unknown = ids[~ids.isin(source["id"])]
    if len(unknown):
        raise PoiseError(f"{where}: row {unknown.index[0] + 1}: {unknown.iloc[0]!r} is no id of the table {name}")
    return source.set_index("id").loc[ids].reset_index()


def _hold_out(rows: pd.DataFrame, dataset: Dataset) -> pd.DataFrame:
    """Set test rows aside by a seeded permutation: the draw ignores how the file orders its classes."""
    assert dataset.holdout is not None
    table = rows["table"].to_numpy(dtype=object, copy=True)
    places = np.flatnonzero(table == "all")  # the others are demonstration files
    if dataset.holdout.test >= len(places):
        raise PoiseError(f"{dataset.name}: holdout.test is {dataset.holdout.test}, but there are {len(places)} rows")
    order = np.random.RandomState(dataset.holdout.seed).permutation(len(places))
    table[places] = "train"
    table[places[order[: dataset.holdout.test]]] = "test"
    return rows.assign(table=table)


def _draw_train_rows(rows: pd.DataFrame, n: int) -> pd.DataFrame:
    """Keep ``n`` training rows at most, drawn as the DNIP paper's code does and in the order of the draw."""
    train, others = rows[rows["table"] == "train"], rows[rows["table"] != "train"]
    if len(train) > n:
        train = train.iloc[np.random.RandomState(_DRAW_SEED).choice(len(train), n, replace=False)]
    return pd.concat([train, others])
