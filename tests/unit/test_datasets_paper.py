"""What the first paper's data sets need beyond plain tables, on small files made up here."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from poise.config.compose import compose_study
from poise.config.data import Dataset, TableFile
from poise.config.models import Model
from poise.datasets.sampling import draw_demonstrations, draw_test_rows, optimisation_rows, training_pool
from poise.datasets.tables import prepare
from poise.errors import PoiseError
from tests.conftest import ROOT

PATTERN = r"(?P<label>[A-Z]+):\S+ (?P<text>.*)"


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Dataset, pd.DataFrame]]:
    """One data set of the study, as its configuration reads the files that a test wrote."""
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    monkeypatch.setenv("POISE_DATA", str(tmp_path))

    def read(name: str, files: dict[str, str], *overrides: str) -> tuple[Dataset, pd.DataFrame]:
        for file, text in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(text.encode()) if file.endswith(".gz") else text.encode())
        dataset = compose_study(["study=dnip", *overrides]).datasets[name]
        return dataset, prepare(dataset, tmp_path / name)

    return read


def toy(folder: Path, path: str = "rows.json", table: dict[str, Any] | None = None, **changes: Any) -> Dataset:
    one = {"path": [path], **(table or {})}
    return Dataset.model_validate(
        {
            "name": "toy",
            "title": "Toy",
            "task": "",
            "domain": "",
            "ordered": False,
            "source": {"kind": "files", "folder": str(folder)},
            "tables": {"train": one, "test": one},
            "columns": {"id": "key", "text": "text", "label": "label"},
            "classes": ["neg", "pos"],
            "on_duplicate_text": "keep",
            "prompt": {
                "kind": "icl", "name": "toy", "text_prefix": "", "label_prefix": "", "label_words": ["neg", "pos"]
            },
            **changes,
        }
    )  # fmt: skip


def of(rows: pd.DataFrame, table: str) -> pd.DataFrame:
    return rows[rows["table"] == table]


# --- the four configurations ---


AGNEWS_TEST = 'Class Index,Title,Description\n3,Shares up,"It\'s oil, quot;dear quot;\\again"\n1,Talks, They #39;ll\n'


def test_agnews_tables_are_laid_out_apart(paper: Callable[..., tuple[Dataset, pd.DataFrame]]) -> None:
    train = '{"text": "Cup final It #39;s on", "label": 1}\n{"text": "Chips", "label": 3}\n'
    _, rows = paper("agnews", {"train.jsonl": train, "test.csv.gz": AGNEWS_TEST})
    assert list(of(rows, "train")["text"]) == ["Cup final It's on", "Chips"]
    assert list(of(rows, "train")["label"]) == [1, 3]
    assert list(of(rows, "test")["text"]) == ['Shares up. It\'s oil,"dear" again', "Talks.  They'll"]
    assert list(of(rows, "test")["label"]) == [2, 0]


def test_agnews_demonstrations_of_the_whole_training_file(paper: Callable[..., tuple[Dataset, pd.DataFrame]]) -> None:
    whole = "Class Index,Title,Description\n" + "".join(f"{1 + k % 4},row,{k}\n" for k in range(120_000))
    dataset, rows = paper(
        "agnews",
        {"train.csv": whole, "test.csv.gz": AGNEWS_TEST},
        *(f"dataset.agnews.tables.train.{key}" for key in ("path=[train.csv]", "columns=null", "label_values=null")),
    )
    train = of(rows, "train")
    assert len(train) == 10_000
    drawn = [list(draw_demonstrations(train, dataset, "5_shot", seed, "paper", "")["id"]) for seed in (0, 1, 2)]
    assert drawn == [
        ["54694", "84405", "31353", "74714", "91674"],
        ["66756", "65630", "89880", "115302", "115709"],
        ["29444", "87013", "88906", "50807", "86076"],
    ]
    assert len(optimisation_rows(train, train.iloc[:5], None, "paper")) == 9500
    test = pd.concat([of(rows, "test")] * 3000)
    pd.testing.assert_frame_equal(draw_test_rows(test, dataset, None), test.iloc[:5000])


def test_trec_lines_and_their_clean_up(paper: Callable[..., tuple[Dataset, pd.DataFrame]]) -> None:
    lines = "NUM:count How many `` sides '' has it ?\nABBR:exp What 's a k , then ?\n\nHUM:ind Who: you ?\r\n"
    _, rows = paper("trec", {"full/train.txt.gz": lines, "test.txt": "ENTY:cremat a\x85b\u2028c ?\n"})
    assert list(of(rows, "train")["text"]) == ['How many "sides" has it?', "What's a k, then?", "Who: you?"]
    assert list(of(rows, "train")["label"]) == [0, 5, 2]
    assert list(of(rows, "test")["text"]) == ["a\x85b\u2028c?"]  # only a line feed ends a line


def test_ddi_texts_are_tokens_in_lower_case(paper: Callable[..., tuple[Dataset, pd.DataFrame]]) -> None:
    line = {"id": "d.p0", "text": "@DRUG$-like (5.5%)\tand\u00a0@DRUG$, Élan's.", "label": "DDI-int"}
    files = dict.fromkeys(("full/train.jsonl.gz", "test.jsonl.gz"), json.dumps(line) + "\n")
    _, rows = paper("ddi", files)
    assert rows["text"].iloc[0] == "@drug$ - like ( 5 . 5 % ) and \u00a0 @drug$ , élan ' s ."
    assert list(rows["label"]) == [4, 4]


PUBMED = {
    f"{100 + k}": {"QUESTION": f"Is it {k}?", "CONTEXTS": [f"First {k}.", "Then."], "final_decision": answer}
    for k, answer in enumerate(["yes", "no", "maybe", "yes", "no", "yes"])
}


def test_pubmedqa_test_rows_are_named_training_rows(paper: Callable[..., tuple[Dataset, pd.DataFrame]]) -> None:
    named = {"104": "no", "101": "no", "102": "maybe"}
    files = {"ori_pqal.json.gz": json.dumps(PUBMED, indent=1), "test_ground_truth.json": json.dumps(named)}
    _, rows = paper("pubmedqa", files)
    train, test = of(rows, "train"), of(rows, "test")
    assert list(train["id"]) == list(PUBMED)  # the file's order: seeded draws count on it
    assert list(train["label"]) == [0, 1, 2, 0, 1, 0]
    assert train["text"].iloc[1] == "Context: First 1.===Then.\nQuestion: Is it 1?yes, no, or maybe?"
    assert list(test["id"]) == list(named)
    assert list(test["label"]) == [1, 1, 2]
    assert list(test["text"]) == [train.set_index("id")["text"][key] for key in named]
    assert list(training_pool(train, test, "paper")["id"]) == list(PUBMED)
    assert list(training_pool(train, test, "clean")["id"]) == ["100", "103", "105"]


# --- each key, and what is wrong with it ---


def test_training_rows_are_cut_in_the_order_of_the_draw(tmp_path: Path) -> None:
    rows = {str(k): {"text": f"text {k}", "label": "neg"} for k in range(50)}
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    cut = prepare(toy(tmp_path, train_rows=20), tmp_path)
    expected = np.random.RandomState(0).choice(50, 20, replace=False)
    assert list(of(cut, "train")["id"]) == [str(k) for k in expected]
    assert list(of(cut, "test")["id"]) == list(rows)  # the test rows are not drawn from
    assert list(cut.index) == list(range(70))
    for enough in (50, 51):
        pd.testing.assert_frame_equal(
            prepare(toy(tmp_path, train_rows=enough), tmp_path), prepare(toy(tmp_path), tmp_path)
        )


def test_training_rows_of_a_single_table_are_cut_after_the_holdout(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps({str(k): {"text": f"t {k}", "label": "neg"} for k in range(30)}))
    one = {"tables": {"all": {"path": ["rows.json"]}}, "holdout": {"test": 10}}
    whole, cut = (prepare(toy(tmp_path, **one, train_rows=n), tmp_path) for n in (None, 5))
    assert list(of(cut, "test")["id"]) == list(of(whole, "test")["id"])
    assert len(of(cut, "train")) == 5
    assert set(of(cut, "train")["id"]) < set(of(whole, "train")["id"])


def test_lists_are_joined_in_every_format_that_has_them(tmp_path: Path) -> None:
    frame = pd.DataFrame({"key": ["1"], "text": [["a", "b"]], "label": ["neg"]})
    frame.to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text('{"key": 1, "text": ["a", "b"], "label": "neg"}\n')
    (tmp_path / "rows.json").write_text('{"1": {"text": ["a", "b"], "label": "neg"}}')
    for path in ("rows.parquet", "rows.jsonl", "rows.json"):
        joined = prepare(toy(tmp_path, path, {"list_separator": " | "}), tmp_path)
        assert list(joined["text"]) == ["a | b", "a | b"], path


def test_members_that_are_no_objects_have_a_value(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"one text": "neg", "two": "pos", "three": null}')
    columns = {"text": "key", "label": "value"}
    with pytest.raises(PoiseError, match=r"row 3: unknown label ''"):
        prepare(toy(tmp_path, columns=columns), tmp_path)
    rows = prepare(toy(tmp_path, columns=columns, label_values=[["neg", ""], ["pos"]]), tmp_path)
    assert list(of(rows, "train")["text"]) == ["one text", "two", "three"]
    assert list(of(rows, "train")["label"]) == [0, 1, 0]


def test_a_group_without_a_match_is_the_empty_text(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("neg 1 a\npos b\n")
    pattern = r"(?P<label>\w+) ((?P<note>\d) )?(?P<text>.*)"
    rows = prepare(
        toy(tmp_path, "rows.txt", {"pattern": pattern}, columns={"text": "{note}{text}", "label": "label"}), tmp_path
    )
    assert list(of(rows, "train")["text"]) == ["1a", "b"]


MEMBER = '{"text": "a", "label": "neg"}'
ONE = f'{{"1": {MEMBER}}}'
LINES = {"columns": {"text": "text", "label": "label"}}


@pytest.mark.parametrize(
    ("name", "content", "table", "changes", "expected"),
    [
        ("rows.txt", "NUM:x a\n\n  Num a\n", {"pattern": PATTERN}, LINES, "line 3: 'Num a' does not match the pattern"),
        ("rows.jsonl", MEMBER, {"pattern": PATTERN}, LINES, "pattern reads lines of text (.txt, .csv, .tsv), "),
        ("rows.json", "", {}, {}, "the file is empty"),
        ("rows.json", "{}", {}, {}, "no rows"),
        ("rows.json", f"[{MEMBER}]", {}, {}, "line 1: expected a JSON object, found '[{\"text\": "),
        ("rows.json", f'{{"1": {MEMBER},\n "2": {{"text" "b"}}}}', {}, {}, "line 2: not a JSON object: Expecting ':'"),
        ("rows.json", f'{{"1": {MEMBER}, "1": {MEMBER}}}', {}, {}, "line 1: duplicate key '1' in a JSON object"),
        ("rows.json", '{"1": {"text": "\\ud83d", "label": "neg"}}', {}, {}, "line 1: not Unicode text"),
        ("rows.jsonl", '{"key": 1}\n{"key": 2, "key": 3}', {}, {}, "line 2: duplicate key 'key' in a JSON object"),
        ("rows.json", '{"1": {"text": " ", "label": "neg"}}', {}, {}, "row 1: empty text"),
        ("rows.json", '{"1": {"text": "--", "label": "neg"}}', {}, {"tokens": r"\w+"}, "row 1: empty text"),
        ("rows.json", ONE, {"columns": {"id": "k", "text": "text", "label": "label"}}, {}, "no column 'k'"),
        ("rows.json", ONE, {"label_values": [["0"], ["1"]]}, {}, "row 1: unknown label 'neg', expected one of ['0'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    tmp_path: Path, name: str, content: str, table: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(PoiseError) as error:
        prepare(toy(tmp_path, name, table, **changes), tmp_path)
    message = str(error.value)
    assert message.startswith(f"toy: {tmp_path / name}: ")
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ('{"1": "", "9": ""}', "ids.json: columns.id: row 2: '9' is no id of the table train"),
        ("", "ids.json: the file is empty"),
    ],
)
def test_bad_ids_are_one_line(tmp_path: Path, ids: str, expected: str) -> None:
    (tmp_path / "rows.json").write_text(f'{{"1": {MEMBER}, "2": {MEMBER}}}')
    (tmp_path / "ids.json").write_text(ids)
    tables = {"test": {"path": ["ids.json"], "ids_of": "train"}, "train": {"path": ["rows.json"]}}
    with pytest.raises(PoiseError) as error:
        prepare(toy(tmp_path, tables=tables), tmp_path)
    assert str(error.value) == f"toy: {tmp_path}/{expected}"


ROWS: dict[str, Any] = {"path": ["rows.json"]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tokens": "(a"}, "'(a' is not a regular expression: missing ), unterminated subpattern"),
        ({"tokens": "(a)b"}, "'(a)b' has a group: a token is the whole match, write (?:…)"),
        ({"train_rows": 0}, "greater than 0"),
        ({"tables": {"train": {**ROWS, "ids_of": "train"}, "test": ROWS}}, "only the table test may have it"),
        (
            {"tables": {"train": ROWS, "test": {**ROWS, "ids_of": "train"}}, "columns": {"text": "a", "label": "b"}},
            "tables.test.ids_of: only the table test may have it, and it needs columns.id",
        ),
        (
            {"tables": {"train": {**ROWS, "label_values": [["0"]]}, "test": ROWS}},
            "tables.train.label_values must list 2 classes, found 1",
        ),
        (
            {"tables": {"train": {**ROWS, "label_values": [["0"], ["1"]]}, "test": ROWS}, "label_thresholds": [0.0]},
            "give tables.train.label_values or label_thresholds, not both",
        ),
    ],
)
def test_keys_that_do_not_fit_the_data_set(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as error:
        toy(tmp_path, **changes)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"pattern": "(?P<a"}, "'(?P<a' is not a regular expression: missing >"),
        ({"pattern": "(a)"}, "'(a)' has no named group (?P<column>…), so it makes no column"),
        ({"pattern": PATTERN, "skip_lines": 1}, "give no header, skip_lines or line_ending beside it"),
        ({"pattern": PATTERN, "header": ["a"]}, "give no header, skip_lines or line_ending beside it"),
        ({"ids_of": "train", "label_values": [["0"], ["1"]]}, "ids_of takes the labels of the table train"),
    ],
)
def test_keys_that_do_not_fit_each_other(table: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as error:
        TableFile.model_validate({**ROWS, **table})
    assert expected in str(error.value)


def test_chat_options_go_with_chat() -> None:
    values = {"name": "m", "title": "M", "source": {"kind": "files"}, "context_length": 8}
    options = {"enable_thinking": False, "effort": "low", "budget": 3}
    assert Model.model_validate({**values, "chat": True, "chat_options": options}).chat_options == options
    with pytest.raises(ValidationError, match="chat_options are for chat: true"):
        Model.model_validate({**values, "chat_options": options})
