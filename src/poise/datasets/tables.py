"""Reading a data set's files, whatever their format, into Poise's own columns."""

from __future__ import annotations

import io
import string
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import numpy as np
import pandas as pd

from poise.config.schema import Dataset, FilesSource, TableFile
from poise.errors import PoiseError

COLUMNS = ["table", "id", "text", "label"]


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
        Columns ``table`` (``train``/``test``), ``id`` (unique within its table), ``text``, ``label`` (class index).

    Raises
    ------
    PoiseError
        For a file that is missing, empty or not UTF-8, a missing column, an unknown label, a duplicate id.
    """
    frames = []
    for name, table in dataset.tables.items():
        where = f"{dataset.name}: {_where(dataset, table)}"
        rows = read_table(table, root, where)
        frame = pd.DataFrame(
            {
                "table": name,
                "id": _ids(rows, dataset, where),
                "text": _texts(rows, dataset, where),
                "label": _labels(rows, dataset, where),
            }
        )
        frames.append(frame)
    rows = pd.concat(frames, ignore_index=True)
    if dataset.on_duplicate_text == "drop":
        rows = rows[~rows.assign(key=normalised(rows["text"])).duplicated(["table", "key"])]
    if dataset.holdout is not None:
        rows = _hold_out(rows, dataset)
    return rows.reset_index(drop=True)[COLUMNS]


def normalised(texts: pd.Series) -> pd.Series:
    """Lower-case with single spaces: two texts that agree here count as the same row (DESIGN.md, rule 7)."""
    return texts.str.lower().str.split().str.join(" ")


def read_table(table: TableFile, root: Path, where: str) -> pd.DataFrame:
    """Read one file (CSV, TSV, JSONL, Parquet; gzipped or not; inside archives or not), all values as text."""
    content = _open(root, table.path, where)
    name = table.path[-1].lower()
    if name.endswith(".gz"):
        import gzip

        content, name = gzip.decompress(content), name.removesuffix(".gz")
    suffix = PurePosixPath(name).suffix
    if not content.strip():
        raise PoiseError(f"{where}: the file is empty")
    if suffix == ".parquet":
        rows = pd.read_parquet(io.BytesIO(content))
        return rows.map(lambda value: value if isinstance(value, list | dict) else str(value))
    text = _decode(content, where)
    try:
        rows = _parse(text, suffix, table, where)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        raise PoiseError(f"{where}: not a readable {suffix[1:].upper()} file: {' '.join(str(error).split())}") from error
    if rows.empty:
        raise PoiseError(f"{where}: no rows")
    return rows


def _parse(text: str, suffix: str, table: TableFile, where: str) -> pd.DataFrame:
    if suffix in (".jsonl", ".ndjson"):
        rows = pd.read_json(io.StringIO(text), lines=True, dtype=False, convert_dates=False)
        return rows.map(lambda value: value if isinstance(value, str | list | dict) else str(value))
    separators = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
    if suffix not in separators:
        raise PoiseError(f"{where}: unknown format {suffix!r}, expected .csv, .tsv, .jsonl or .parquet (or .gz of these)")
    lines: dict[str, Any] = {"lineterminator": "\r"} if table.line_ending == "crlf" else {}
    return pd.read_csv(
        io.StringIO(text.replace("\r\n", "\r") if lines else text),
        sep=separators[suffix],
        dtype=str,
        keep_default_na=False,
        quoting=0 if suffix == ".csv" else 3,
        header=None if table.header else 0,
        names=table.header,
        skiprows=range(1, table.skip_lines + 1) if not table.header else table.skip_lines,
        **lines,
    )


def _decode(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise PoiseError(f"{where}: line {line}: not UTF-8 (byte 0x{content[error.start]:02x}); save it as UTF-8") from error


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
            content = _member(io.BytesIO(content), member)
        except (KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
            raise PoiseError(f"{where}: cannot read {member!r} in the archive: {error}") from error
    return content


def _member(archive: IO[bytes], member: str) -> bytes:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            return opened.read(member)
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        stream = tar.extractfile(member)
        if stream is None:
            raise KeyError(f"{member} is not a file")
        return stream.read()


def _where(dataset: Dataset, table: TableFile) -> str:
    if isinstance(dataset.source, FilesSource):
        return "!".join([str(Path(dataset.source.folder) / table.path[0]), *table.path[1:]])
    return "!".join(table.path)


def _column(rows: pd.DataFrame, name: str, where: str) -> pd.Series:
    if name not in rows.columns:
        raise PoiseError(f"{where}: no column {name!r}; the file has {[str(column) for column in rows.columns]}")
    return cast(pd.Series, rows[name])


def _ids(rows: pd.DataFrame, dataset: Dataset, where: str) -> pd.Series:
    if dataset.columns.id is None:
        return pd.Series(rows.index.astype(str), index=rows.index)
    ids = _column(rows, dataset.columns.id, where)
    repeated = ids[ids.duplicated()]
    if len(repeated):
        raise PoiseError(f"{where}: row {repeated.index[0] + 1}: duplicate id {repeated.iloc[0]!r}; ids must be unique")
    return ids


def _texts(rows: pd.DataFrame, dataset: Dataset, where: str) -> pd.Series:
    fields = [name for _, name, _, _ in string.Formatter().parse(dataset.columns.text) if name]
    if not fields:
        texts = _column(rows, dataset.columns.text, where)
    else:
        columns = {name: _column(rows, name, where) for name in fields}
        texts = pd.Series(
            [dataset.columns.text.format(**dict(zip(columns, values, strict=True)))
             for values in zip(*columns.values(), strict=True)], index=rows.index,
        )  # fmt: skip
    for old, new in dataset.replacements:
        texts = texts.str.replace(old, new, regex=False)
    texts = texts.str.strip()
    if dataset.max_words is not None:
        texts = texts.str.split().str[: dataset.max_words].str.join(" ")
    blank = texts.index[texts == ""]
    if len(blank):
        raise PoiseError(f"{where}: row {blank[0] + 1}: empty text")
    return texts


def _labels(rows: pd.DataFrame, dataset: Dataset, where: str) -> pd.Series:
    """Class index of each row: by thresholds (upper bounds, inclusive), by listed values, or by class name."""
    found = _column(rows, dataset.columns.label, where)
    if dataset.label_thresholds is not None:
        numbers = pd.to_numeric(found, errors="coerce")
        wrong = found[numbers.isna()]
        if len(wrong):
            raise PoiseError(f"{where}: row {wrong.index[0] + 1}: label {wrong.iloc[0]!r} is not a number")
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


def _hold_out(rows: pd.DataFrame, dataset: Dataset) -> pd.DataFrame:
    """Set test rows aside by a seeded permutation, so that the draw does not depend on the file's order of classes."""
    assert dataset.holdout is not None
    if dataset.holdout.test >= len(rows):
        raise PoiseError(f"{dataset.name}: holdout.test is {dataset.holdout.test}, but there are {len(rows)} rows")
    order = np.random.RandomState(dataset.holdout.seed).permutation(len(rows))
    table = np.full(len(rows), "train", dtype=object)
    table[order[: dataset.holdout.test]] = "test"
    return rows.assign(table=table)
