"""Reading tables: every format gives the same rows, and every kind of bad input one line that says where."""

import gzip
import io
import json
import tarfile
import zipfile

import numpy as np
import pandas as pd
import pytest

from poise.config.data import Dataset
from poise.datasets.tables import normalised, prepare
from poise.errors import PoiseError

ROWS = [
    ("7", "plain words", "pos"),
    ("8", "Ελληνικά, 日本語 и кириллица", "neg"),
    ("11", "‏العربية‏ naïve 😀", "pos"),
    ("9", 'she said "no", twice', "neg"),
]
LABELS = [1, 0, 1, 0]


def dataset(folder, path=("rows.csv",), classes=("neg", "pos"), table=None, **changes):
    """One file as the training table and the same as the test table, unless ``changes`` says otherwise."""
    table = {"path": [path] if isinstance(path, str) else list(path), **(table or {})}
    values = {
        "name": "toy",
        "title": "Toy",
        "task": "Sentiment Classification",
        "domain": "none",
        "ordered": True,
        "source": {"kind": "files", "folder": str(folder)},
        "tables": {"train": table, "test": table},
        "columns": {"text": "text", "label": "label", "id": "id"},
        "classes": list(classes),
        "on_duplicate_text": "keep",
        "prompt": {
            "kind": "icl",
            "name": "toy",
            "text_prefix": "",
            "label_prefix": "",
            "label_words": list(classes),
        },
    }
    return Dataset.model_validate({**values, **changes})


def single(folder, n_test, **changes):
    """One table, of which a holdout makes two."""
    tables = {"all": {"path": [changes.pop("path", "rows.csv")]}}
    return dataset(folder, tables=tables, holdout={"test": n_test, "seed": changes.pop("seed", 0)}, **changes)


def train(frame):
    return frame[frame["table"] == "train"]


def csv_text(rows, header=("id", "text", "label")):
    quoted = [[f'"{field}"'.replace('"no"', '""no""') for field in row] for row in rows]
    return "\n".join(",".join(row) for row in [header, *quoted]) + "\n"


def tsv_text(rows, header=("id", "text", "label")):
    return "\n".join("\t".join(row) for row in [header, *rows]) + "\n"


def jsonl_text(rows):
    return "".join(json.dumps({"id": int(i), "text": text, "label": label}) + "\n" for i, text, label in rows)


def parquet_bytes(frame, **options):
    stream = io.BytesIO()
    frame.to_parquet(stream, **options)
    return stream.getvalue()


def zip_bytes(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def tar_bytes(members, mode="w:gz"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


FORMATS = {
    ".csv": csv_text(ROWS).encode(),
    ".tsv": tsv_text(ROWS).encode(),
    ".txt": tsv_text(ROWS).encode(),
    ".jsonl": jsonl_text(ROWS).encode(),
    ".ndjson": jsonl_text(ROWS).encode(),
    ".parquet": parquet_bytes(pd.DataFrame(ROWS, columns=["id", "text", "label"]).astype({"id": int})),
}


@pytest.mark.parametrize("container", ["plain", "zip", "tar.gz in zip"])
@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_rows(tmp_path, suffix, gzipped, container):
    name = "rows" + suffix + (".gz" if gzipped else "")
    content = gzip.compress(FORMATS[suffix]) if gzipped else FORMATS[suffix]
    path = [name]
    if container == "zip":
        path, content = ["outer.zip", f"in/{name}"], zip_bytes({f"in/{name}": content})
    elif container == "tar.gz in zip":
        inner = tar_bytes({f"deep/{name}": content})
        path = ["outer.zip", "in/inner.tar.gz", f"deep/{name}"]
        content = zip_bytes({"other.txt": b"", "in/inner.tar.gz": inner})
    (tmp_path / path[0]).write_bytes(content)
    rows = prepare(dataset(tmp_path, path), tmp_path)
    assert list(rows.columns) == ["table", "id", "text", "label"]
    assert list(rows["table"]) == ["train"] * 4 + ["test"] * 4
    assert list(train(rows)["id"]) == [row[0] for row in ROWS]
    assert list(train(rows)["text"]) == [row[1].strip() for row in ROWS]
    assert list(train(rows)["label"]) == LABELS
    # A downloaded package is itself the outermost file.
    if container != "plain":
        again = prepare(dataset(tmp_path, path[1:]), tmp_path / "outer.zip")
        pd.testing.assert_frame_equal(again, rows)


def test_a_tar_that_holds_a_zip_is_not_taken_for_a_zip(tmp_path):
    inner = zip_bytes({"rows.csv": csv_text(ROWS)})
    (tmp_path / "outer.tar").write_bytes(tar_bytes({"inner.zip": inner}, mode="w"))
    rows = prepare(dataset(tmp_path, ["outer.tar", "inner.zip", "rows.csv"]), tmp_path)
    assert list(train(rows)["label"]) == LABELS


def test_csv_quotes_hide_commas_quotes_and_newlines(tmp_path):
    content = 'id,text,label\r\n1,"a, b",neg\r\n2,"say ""hi""",pos\r\n3,"two\nlines",neg\r\n4,"""",pos\r\n'
    (tmp_path / "rows.csv").write_bytes(content.encode())
    rows = train(prepare(dataset(tmp_path), tmp_path))
    assert list(rows["text"]) == ["a, b", 'say "hi"', "two\nlines", '"']
    assert list(rows["id"]) == ["1", "2", "3", "4"]


def test_in_tsv_quotes_are_characters(tmp_path):
    (tmp_path / "rows.tsv").write_bytes(b'id\ttext\tlabel\n1\t"open\tneg\n2\tclose"\tpos\n')
    rows = train(prepare(dataset(tmp_path, "rows.tsv"), tmp_path))
    assert list(rows["text"]) == ['"open', 'close"']


def test_header_names_and_skipped_lines(tmp_path):
    (tmp_path / "bare.tsv").write_bytes(b"made by hand\n1\tneg\tone\n2\tpos\ttwo\n")
    bare = dataset(tmp_path, "bare.tsv", table={"header": ["id", "label", "text"], "skip_lines": 1})
    assert list(train(prepare(bare, tmp_path))["text"]) == ["one", "two"]
    (tmp_path / "types.tsv").write_bytes(b"id\tlabel\ttext\nd\td\tstring\nclass\t\tmeta\n1\tneg\tone\n2\tpos\ttwo\n")
    types = dataset(tmp_path, "types.tsv", table={"skip_lines": 2})
    assert list(train(prepare(types, tmp_path))["text"]) == ["one", "two"]


def test_a_lone_line_feed_inside_a_crlf_file_stays_in_its_text(tmp_path):
    content = b'1\tfirst\nhalf\tneg\r\n2\tsecond "half\tpos\r\n'
    (tmp_path / "rows.txt").write_bytes(content)
    table = {"header": ["id", "text", "label"], "line_ending": "crlf"}
    rows = train(prepare(dataset(tmp_path, "rows.txt", table=table), tmp_path))
    assert list(rows["text"]) == ["first\nhalf", 'second "half']
    with pytest.raises(PoiseError, match=r"row 1: fields found: 2, expected: 3"):
        prepare(dataset(tmp_path, "rows.txt", table={**table, "line_ending": "any"}), tmp_path)


def test_byte_order_mark_and_blank_lines_are_no_data(tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"\xef\xbb\xbf\nid,text,label\n1,one,neg\n\n   \n2,two,pos\n\n")
    assert list(train(prepare(dataset(tmp_path), tmp_path))["id"]) == ["1", "2"]


def test_without_an_id_column_rows_are_numbered_from_zero(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\none,neg\ntwo,pos\n")
    rows = prepare(dataset(tmp_path, columns={"text": "text", "label": "label"}), tmp_path)
    assert list(train(rows)["id"]) == ["0", "1"]
    # Not the index that pandas may have left in the file.
    frame = pd.DataFrame({"text": ["one", "two"], "label": ["neg", "pos"]}, index=["x", "x"])
    (tmp_path / "rows.parquet").write_bytes(parquet_bytes(frame))
    rows = prepare(dataset(tmp_path, "rows.parquet", columns={"text": "text", "label": "label"}), tmp_path)
    assert list(train(rows)["id"]) == ["0", "1"]


def test_an_index_that_pandas_saved_is_a_column(tmp_path):
    frame = pd.DataFrame(ROWS, columns=["id", "text", "label"]).set_index("id")
    (tmp_path / "rows.parquet").write_bytes(parquet_bytes(frame))
    assert list(train(prepare(dataset(tmp_path, "rows.parquet"), tmp_path))["id"]) == ["7", "8", "11", "9"]


def test_whole_numbers_stay_whole_beside_missing_values(tmp_path):
    lines = [
        '{"id": 1, "text": 12345678901234567890, "label": 0, "note": null}',
        '{"id": 2, "text": 3, "label": 1}',
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join([*lines, '{"text": 4, "label": 1, "id": 9007199254740993}']))
    rows = train(prepare(dataset(tmp_path, "rows.jsonl", label_values=[["0"], ["1"]]), tmp_path))
    assert list(rows["text"]) == ["12345678901234567890", "3", "4"]
    assert list(rows["id"]) == ["1", "2", "9007199254740993"]
    frame = pd.DataFrame(
        {"id": [1, 2], "text": ["a", "b"], "label": pd.array([0, 1], dtype="Int64"), "note": [1, None]}
    )
    (tmp_path / "rows.parquet").write_bytes(parquet_bytes(frame))
    rows = train(prepare(dataset(tmp_path, "rows.parquet", label_values=[["0"], ["1"]]), tmp_path))
    assert list(rows["label"]) == [0, 1]


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_only_a_line_feed_ends_a_json_line(tmp_path, separator):
    text = f"one{separator}two"
    line = json.dumps({"id": 1, "text": text, "label": "neg"}, ensure_ascii=separator < " ")
    (tmp_path / "rows.jsonl").write_text(line + "\n", encoding="utf-8")
    assert list(train(prepare(dataset(tmp_path, "rows.jsonl"), tmp_path))["text"]) == [text]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{title}. {body}", "A {b}. c"),
        ("{{{title}}}", "{A {b}}"),
        ("{dotted.name}/{body}", "d/c"),
        ("dotted.name", "d"),
        ("premise: {body}\nquestion: {title} True or False?", "premise: c\nquestion: A {b} True or False?"),
    ],
)
def test_text_templates(tmp_path, template, expected):
    (tmp_path / "rows.tsv").write_bytes(b"title\tbody\tdotted.name\tlabel\nA {b}\tc\td\tneg\n")
    toy = dataset(tmp_path, "rows.tsv", columns={"text": template, "label": "label"})
    assert list(train(prepare(toy, tmp_path))["text"]) == [expected]


def test_replacements_are_literal_and_in_order_then_words_are_cut(tmp_path):
    (tmp_path / "rows.tsv").write_bytes(b"id\ttext\tlabel\n1\t  a.b &amp; ''c''   d  \tneg\n2\tx\tpos\n")
    changes = {"replacements": [["&amp;", "&"], ["&", "and"], [".", "!"], ["''", '"']]}
    assert list(train(prepare(dataset(tmp_path, "rows.tsv", **changes), tmp_path))["text"]) == [
        'a!b and "c"   d',
        "x",
    ]
    cut = dataset(tmp_path, "rows.tsv", **changes, max_words=3)
    assert list(train(prepare(cut, tmp_path))["text"]) == ['a!b and "c"', "x"]


def test_thresholds_are_inclusive_upper_bounds(tmp_path):
    values = {
        "-4": 0,
        "-2": 0,
        "-2.0": 0,
        "-1.99": 1,
        "-0.5": 1,
        "-0.4999": 2,
        "5e-1": 2,
        "0.5000001": 3,
        "4": 3,
    }
    content = "".join(f"{k},text {k},{rating}\n" for k, rating in enumerate(values))
    (tmp_path / "rows.csv").write_text("id,text,label\n" + content)
    toy = dataset(tmp_path, classes="abcd", label_thresholds=[-2.0, -0.5, 0.5])
    assert list(train(prepare(toy, tmp_path))["label"]) == list(values.values())


def test_label_values_and_class_names(tmp_path):
    (tmp_path / "rows.csv").write_text("id,text,label\n1,a,0\n2,b,two\n3,c,1\n4,d,2\n")
    listed = dataset(tmp_path, classes=["low", "mid", "high"], label_values=[["0"], ["1"], ["2", "two"]])
    assert list(train(prepare(listed, tmp_path))["label"]) == [0, 2, 1, 2]
    with pytest.raises(PoiseError, match=r"row 1: unknown label '0', expected one of \['low', 'mid', 'high'\]"):
        prepare(dataset(tmp_path, classes=["low", "mid", "high"]), tmp_path)


def test_duplicate_texts_are_dropped_within_a_table_by_normalised_text(tmp_path):
    (tmp_path / "train.csv").write_text(
        "id,text,label\n1,Good  Film,pos\n2,bad,neg\n3,good film,neg\n4,ΚΑΛΟ,pos\n5,καλο,pos\n"
    )
    (tmp_path / "test.csv").write_text("id,text,label\n1,good film,pos\n2,GOOD\tFILM,neg\n")
    tables = {"train": {"path": ["train.csv"]}, "test": {"path": ["test.csv"]}}
    dropped = prepare(dataset(tmp_path, tables=tables, on_duplicate_text="drop"), tmp_path)
    assert list(zip(dropped["table"], dropped["id"], strict=True)) == [
        ("train", "1"), ("train", "2"), ("train", "4"), ("test", "1")]  # fmt: skip
    assert list(dropped.index) == [0, 1, 2, 3]
    assert dropped["text"].iloc[0] == "Good  Film"  # only the comparison is normalised
    assert len(prepare(dataset(tmp_path, tables=tables, on_duplicate_text="keep"), tmp_path)) == 7


def test_normalised_texts():
    texts = pd.Series(["  A\tb \n C ", "a B c", "Ünï"])
    assert list(normalised(texts)) == ["a b c", "a b c", "ünï"]


def test_rows_without_a_text_are_kept_if_one_says_so(tmp_path):
    (tmp_path / "rows.csv").write_text('id,text,label\n1,a,pos\n2," ",neg\n')
    with pytest.raises(PoiseError, match="row 2: empty text"):
        prepare(dataset(tmp_path), tmp_path)
    assert list(train(prepare(dataset(tmp_path, on_empty_text="keep"), tmp_path))["text"]) == ["a", ""]


def test_holdout_is_a_seeded_permutation_that_nothing_else_moves(tmp_path):
    (tmp_path / "rows.csv").write_text("id,text,label\n" + "".join(f"{k},text {k},neg\n" for k in range(30)))
    np.random.seed(5)  # noqa: NPY002 (the global state must not matter)
    rows = prepare(single(tmp_path, 8), tmp_path)
    chosen = sorted(np.random.RandomState(0).permutation(30)[:8])
    assert [int(row) for row in rows.loc[rows["table"] == "test", "id"]] == chosen
    assert sorted(map(int, rows["id"])) == list(range(30))  # every row once: disjoint and complete
    np.random.seed(6)  # noqa: NPY002
    pd.testing.assert_frame_equal(prepare(single(tmp_path, 8), tmp_path), rows)
    relabelled = (tmp_path / "rows.csv").read_text().replace("5,neg", "5,pos")
    (tmp_path / "rows.csv").write_text(relabelled)
    again = prepare(single(tmp_path, 8), tmp_path)
    assert list(again["table"]) == list(rows["table"])
    assert list(again["label"]) != list(rows["label"])
    other = prepare(single(tmp_path, 8, seed=1), tmp_path)
    assert list(other["table"]) != list(rows["table"])
    with pytest.raises(PoiseError, match=r"toy: holdout.test is 30, but there are 30 rows"):
        prepare(single(tmp_path, 30), tmp_path)


HEAD = b"id,text,label\n"
GOOD = HEAD + b"1,one,neg\n2,two,pos\n"
GZIPPED = gzip.compress(GOOD * 20, mtime=0)
ZIPPED = zip_bytes({"rows.csv": GOOD * 20})
TARRED = tar_bytes({"rows.csv": GOOD * 20, "big": bytes(range(256)) * 20})
PARQUET = FORMATS[".parquet"]
PARQUET_EMPTY = parquet_bytes(pd.DataFrame({"id": [], "text": [], "label": []}))
PARQUET_BLANK = parquet_bytes(pd.DataFrame({"id": "1", "text": None, "label": "neg"}, index=[5]))
JSON = b'{"id":1,"text":"a","label":"neg"}\n'
UNREADABLE = "cannot read 'rows.csv' in the archive"
RATED = {"label_thresholds": [0.0]}


def template(text):
    return {"columns": {"text": text, "label": "label"}}


BAD = [
    ("rows.csv", None, {}, "file not found"),
    ("rows.csv", b"", {}, "the file is empty"),
    ("rows.csv", b" \n\n", {}, "the file is empty"),
    ("rows.csv", b"\xef\xbb\xbf", {}, "the file is empty"),
    ("rows.csv.gz", gzip.compress(b""), {}, "the file is empty"),
    ("rows.jsonl", b"", {}, "the file is empty"),
    ("rows.parquet", b"", {}, "the file is empty"),
    ("rows.csv", HEAD, {}, "no rows"),
    ("rows.jsonl", b"{}\n", {}, "no rows"),
    ("rows.parquet", PARQUET_EMPTY, {}, "no rows"),
    ("rows.csv", b"id,txt,label\n1,a,neg\n", {}, "no column 'text'; the file has ['id', 'txt', 'label']"),
    ("rows.csv", b"id,text,text,label\n1,a,b,neg\n", {}, "two columns 'text'"),
    ("rows.jsonl", b'{"id": 1, "label": "neg"}\n', {}, "no column 'text'; the file has ['id', 'label']"),
    ("rows.csv", GOOD + b"3,x,meh\n", {}, "row 3: unknown label 'meh', expected one of ['neg', 'pos']"),
    ("rows.csv", GOOD + b"3,x,\n", {}, "row 3: unknown label ''"),
    ("rows.jsonl", b'{"id": 1, "text": "a", "label": ["neg"]}\n', {}, "row 1: unknown label \"['neg']\""),
    ("rows.jsonl", b'{"id": 1, "text": "a", "label": null}\n', {}, "row 1: unknown label ''"),
    ("rows.csv", HEAD + b"1,a,0.5\n2,b,good\n", RATED, "row 2: label 'good', expected a finite number"),
    ("rows.csv", HEAD + b"1,a,0.5\n2,b,nan\n", RATED, "row 2: label 'nan', expected a finite number"),
    ("rows.csv", HEAD + b"1,a,0.5\n2,b,-inf\n", RATED, "row 2: label '-inf', expected a finite number"),
    ("rows.csv", HEAD + b"1,a,\n2,b,1\n", RATED, "row 1: label '', expected a finite number"),
    ("rows.csv", HEAD + b"1,a,neg\n2,caf\xe9,pos\n", {}, "line 3: not UTF-8 (byte 0xe9)"),
    ("rows.csv", b"\xef\xbb\xbf" + HEAD + b"1,a,neg\n\xfe,b,pos\n", {}, "line 3: not UTF-8 (byte 0xfe)"),
    ("rows.jsonl", b'\n\n{"id": 1, "text": "\xff"}\n', {}, "line 3: not UTF-8 (byte 0xff)"),
    ("rows.tsv", GOOD.decode().replace(",", "\t").encode("utf-16"), {}, "line 1: not UTF-8 (byte 0xff)"),
    ("rows.csv", GOOD + b"\n1,x,neg\n", {}, "row 3: duplicate id '1'; ids must be unique"),
    ("rows.csv", GOOD + b'3,"  ",neg\n', {}, "row 3: empty text"),
    ("rows.jsonl", JSON + b'{"id":2,"text":null,"label":"neg"}', {}, "row 2: empty text"),
    ("rows.jsonl", JSON + b'{"id":2,"label":"neg"}', {}, "row 2: empty text"),
    ("rows.parquet", PARQUET_BLANK, {}, "row 1: empty text"),
    ("rows.xlsx", b"PK\x03\x04", {}, "unknown format '.xlsx', expected .csv"),
    ("rows", GOOD, {}, "unknown format ''"),
    ("rows.csv.gz", GOOD, {}, "not a readable gzip file"),
    ("rows.csv.gz", GZIPPED[:-12], {}, "not a readable gzip file"),
    ("rows.csv.gz", GZIPPED[:15] + b"\xff\xff" + GZIPPED[17:], {}, "not a readable gzip file"),
    ("rows.csv.gz", GZIPPED[:-8] + b"crc?" + GZIPPED[-4:], {}, "not a readable gzip file"),
    ("rows.parquet", b"not parquet at all", {}, "not a readable Parquet file"),
    ("rows.parquet", PARQUET[:-30], {}, "not a readable Parquet file"),
    ("rows.jsonl", JSON + b'{"id": 2, "text\n', {}, "line 2: not a JSON object: Unterminated"),
    ("rows.jsonl", JSON + b"[1, 2]\n", {}, "line 2: expected a JSON object, found '[1, 2]'"),
    ("rows.jsonl", b'{"id":1,"text":"\\ud83d","label":"neg"}\n', {}, "line 1: not Unicode text"),
    ("rows.csv", GOOD + b"3,a,b,neg\n", {}, "row 3: fields found: 4, expected: 3 (id, text, label)"),
    (
        "rows.csv",
        HEAD + b"1,a,b,neg\n2,c,d,pos\n",
        {},
        "row 1: fields found: 4, expected: 3",
    ),
    ("rows.csv", GOOD + b"3,a\n", {}, "row 3: fields found: 2, expected: 3 (id, text, label)"),
    ("rows.csv", GOOD + b'3,"never closed,neg\n', {}, "row 3: not readable as csv"),
    ("rows.csv", GOOD, template("{title}: {text}"), "no column 'title'; the file has ['id', "),
    ("rows.csv", GOOD, template("{text"), "columns.text '{text' is not a template"),
    ("rows.csv", GOOD, template("text}"), "columns.text 'text}' is not a template"),
    ("rows.csv", GOOD, template("{text} {}"), "no column ''"),
    ("rows.csv", GOOD, template("{text!r}"), "columns.text '{text!r}': expected {text}"),
    ("rows.csv", GOOD, template("{text:d}"), "columns.text '{text:d}': expected {text}"),
    (["a.zip", "rows.csv"], None, {}, "file not found"),
    (["a.zip", "rows.csv"], ZIPPED[:-20], {}, UNREADABLE),
    (["a.zip", "rows.csv"], ZIPPED[:45] + b"\xff\xff\xff" + ZIPPED[48:], {}, UNREADABLE),
    (
        ["a.zip", "other.csv"],
        ZIPPED,
        {},
        "cannot read 'other.csv' in the archive: There is no",
    ),
    (["a.zip", "rows.csv"], GOOD, {}, "it is no zip or tar archive, or a damaged one"),
    (["a.tar.gz", "rows.csv"], TARRED[:-30], {}, UNREADABLE),
    (["a.tar.gz", "rows.csv"], TARRED[:60] + b"\xff\xff" + TARRED[62:], {}, UNREADABLE),
    (["a.tar.gz", "rows.csv"], TARRED[:-8] + b"crc?" + TARRED[-4:], {}, UNREADABLE),
    (
        ["a.tar.gz", "other.csv"],
        TARRED,
        {},
        "cannot read 'other.csv' in the archive: filename",
    ),
    (["a.zip", "b.tar.gz", "rows.csv"], zip_bytes({"b.tar.gz": TARRED[:50]}), {}, UNREADABLE),
]


@pytest.mark.parametrize(
    ("name", "content", "changes", "expected"), BAD, ids=[f"{k}: {case[3]}" for k, case in enumerate(BAD)]
)
def test_bad_input_gets_one_line_that_says_where(tmp_path, name, content, changes, expected):
    path = [name] if isinstance(name, str) else name
    if content is not None:
        (tmp_path / path[0]).write_bytes(content)
    with pytest.raises(PoiseError) as error:
        prepare(dataset(tmp_path, path, **changes), tmp_path)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"toy: {tmp_path / path[0]}")
    assert expected in message


def test_every_flipped_byte_of_a_compressed_table_is_noticed_or_harmless(tmp_path):
    intact = train(prepare(_written(tmp_path, GZIPPED), tmp_path))
    harmless = 0
    for position in range(len(GZIPPED)):
        damaged = bytearray(GZIPPED)
        damaged[position] ^= 0x55
        try:
            rows = train(prepare(_written(tmp_path, bytes(damaged)), tmp_path))
        except PoiseError:
            continue
        pd.testing.assert_frame_equal(rows, intact)
        harmless += 1
    assert harmless < 10  # the header's time stamp and system


def _written(folder, content):
    (folder / "rows.csv.gz").write_bytes(content)
    columns = {"text": "text", "label": "label"}
    return dataset(folder, "rows.csv.gz", columns=columns, label_values=[["neg", "label"], ["pos"]])
