"""Demonstration files, coarser scales, optimisation rows without a training table: on files made up here."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from poise import paths
from poise.config.data import Dataset
from poise.datasets.sampling import draw_demonstrations, merge_labels, select
from poise.datasets.tables import prepare
from poise.errors import PoiseError
from poise.planfile import content_digests
from poise.stages import fetch
from tests.unit import test_fetch

CLASSES = ["worst", "bad", "fair", "good", "best"]
# Names in which the alphabet and the order of the keys both go against the scale.
MERGED = {
    "three": {"up": ["best", "good"], "middle": ["fair"], "down": ["worst", "bad"]},
    "two": {"up": ["good", "best"], "down": ["bad", "worst"]},
}
FILE_4 = [2, 0, 1, 4, 3, 0, 2, 1, 3, 4, 4, 3, 2, 0, 1, 0, 1, 2, 3, 4]  # four of each
FILE_2 = [4, 4, 0, 1, 2, 3, 3, 2, 1, 0]
hub = test_fetch.hub


def toy(**changes: Any) -> Dataset:
    return Dataset.model_validate(
        {
            "name": "toy",
            "title": "Toy",
            "task": "",
            "domain": "",
            "ordered": True,
            "source": {"kind": "files", "folder": "."},
            "tables": {"test": {"path": ["test.csv"]}},
            "demonstrations": {"path": ["n{shots}", "s{seed}.csv"], "shots": [4, 2], "seeds": [0, 3]},
            "columns": {"text": "text", "label": "label"},
            "classes": CLASSES,
            "merged": MERGED,
            "on_duplicate_text": "keep",
            "prompt": {
                "kind": "icl", "name": "toy", "text_prefix": "", "label_prefix": "", "label_words": CLASSES
            },
            **changes,
        }
    )  # fmt: skip


def table(name: str, labels: list[int]) -> pd.DataFrame:
    rows = {"table": name, "id": [str(k) for k in range(len(labels))], "label": labels}
    return pd.DataFrame({**rows, "text": [f"{name} {k}" for k in range(len(labels))]})


def prepared(*more: pd.DataFrame) -> pd.DataFrame:
    """Rows as of the toy's files; those of the two seeds differ in their texts only."""
    files = [
        table(f"shot_{n}/seed_{seed}", labels) for n, labels in ((4, FILE_4), (2, FILE_2)) for seed in (0, 3)
    ]  # fmt: skip
    return pd.concat([table("test", [0, 1, 2, 3, 4] * 8), *files, *more], ignore_index=True)


def numbers(rows: pd.DataFrame) -> list[int]:
    return [int(row) for row in rows["id"]]


def shown(shots: str, seed: int = 0, dataset: Dataset | None = None, **options: Any) -> pd.DataFrame:
    return draw_demonstrations(prepared(), dataset or toy(), shots, seed, "clean", "cell", **options)


def chosen(
    split: str, rows: pd.DataFrame | None = None, dataset: Dataset | None = None, **changes: Any
) -> pd.DataFrame:
    options: dict[str, Any] = {"shots": "2_per_class", "seed": 0, "n_rows": None, "n_test_rows": 15, "where": "cell"}
    options.update({"split_mode": "clean", **changes})
    return select(prepared() if rows is None else rows, dataset or toy(test_draw="stratified"), split=split, **options)[
        1
    ]


# --- which demonstrations ---


@pytest.mark.parametrize(
    ("shots", "file", "expected"),
    [
        ("4_per_class", 4, list(range(20))),
        ("2_per_class", 2, list(range(10))),  # of the file of two, not the first two of the file of four
        ("1_per_class", 2, [0, 2, 3, 4, 5]),
        ("3_per_class", 4, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
    ],
)
def test_demonstrations_are_the_first_of_the_smallest_file(shots: str, file: int, expected: list[int]) -> None:
    for seed in (0, 3):
        drawn = shown(shots, seed)
        assert numbers(drawn) == expected
        assert set(drawn["table"]) == {f"shot_{file}/seed_{seed}"}
        assert list(drawn["label"]) == [{4: FILE_4, 2: FILE_2}[file][k] for k in expected]


@pytest.mark.parametrize("with_training_rows", [False, True])
def test_no_demonstrations(with_training_rows: bool) -> None:
    tables = {name: {"path": ["x.csv"]} for name in ("train", "test")}
    dataset = toy(tables=tables, demonstrations=None) if with_training_rows else toy()
    for cardinality in ("", "two"):
        drawn = shown("0_per_class", 77, dataset, cardinality=cardinality)
        assert drawn.empty
        assert list(drawn.columns) == list(prepared().columns)
        assert drawn["label"].dtype == int


def test_training_rows_serve_the_other_draws_and_no_files_are_needed_there() -> None:
    train = table("train", [0, 1, 2, 3, 4] * 6)
    dataset = toy(tables={"train": {"path": ["a.csv"]}, "test": {"path": ["b.csv"]}})
    rows = prepared(train)
    of_training = draw_demonstrations(rows, dataset, "3_shot", 5, "clean", "")
    assert numbers(of_training) == list(np.random.RandomState(5).choice(30, 3, replace=False))
    assert set(of_training["table"]) == {"train"}
    assert set(draw_demonstrations(rows, dataset, "2_per_class", 3, "clean", "")["table"]) == {"shot_2/seed_3"}


@pytest.mark.parametrize(
    ("shots", "seed", "expected"),
    [
        ("2_per_class", 7, "cell: no demonstration file of seed 7; toy has files of seeds 0, 3"),
        ("5_per_class", 0, "cell: 5_per_class needs 5 demonstrations of each class, the largest files of toy have 4"),
        ("k_shot", 0, "cell: k_shot needs a training table, toy has none; use <n>_per_class"),
        ("3_shot", 0, "cell: 3_shot needs a training table, toy has none; use <n>_per_class"),
    ],
)
def test_draws_that_the_files_cannot_give(shots: str, seed: int, expected: str) -> None:
    with pytest.raises(PoiseError) as error:
        shown(shots, seed)
    assert str(error.value).startswith(expected)
    assert "\n" not in str(error.value)


def test_a_file_with_another_number_of_a_class_is_refused() -> None:
    rows = prepared()
    short = rows[~((rows["table"] == "shot_2/seed_3") & (rows["id"] == "8"))]
    assert len(draw_demonstrations(short, toy(), "2_per_class", 0, "clean", "cell")) == 10
    with pytest.raises(
        PoiseError, match=r"cell: demonstration file shot_2/seed_3 of toy: class 'bad' has 1 rows, expec"
    ):
        draw_demonstrations(short, toy(), "1_per_class", 3, "clean", "cell")


def test_a_demonstration_is_no_test_row() -> None:
    rows = prepared()
    rows.loc[(rows["table"] == "test") & (rows["id"] == "9"), "text"] = " SHOT_2/seed_0\t3"
    with pytest.raises(PoiseError, match=r"cell: demonstration '3' of shot_2/seed_0 is also a test row of toy"):
        draw_demonstrations(rows, toy(), "2_per_class", 0, "clean", "cell")
    assert len(draw_demonstrations(rows, toy(), "2_per_class", 0, "paper", "cell")) == 10
    assert len(draw_demonstrations(rows, toy(), "2_per_class", 3, "clean", "cell")) == 10
    # Numbers of rows say nothing; ids of one column do.
    columns = {"text": "text", "label": "label", "id": "id"}
    with pytest.raises(PoiseError, match="demonstration '0' of shot_2/seed_3 is also a test row"):
        draw_demonstrations(rows, toy(columns=columns), "2_per_class", 3, "clean", "cell")
    own = {**toy().demonstrations.model_dump(), "columns": {"text": "text", "label": "label"}}
    assert len(draw_demonstrations(rows, toy(columns=columns, demonstrations=own), "2_per_class", 3, "clean", "")) == 10


# --- scales ---


@pytest.mark.parametrize(
    ("cardinality", "expected", "labels"),
    [
        ("", CLASSES, [0, 1, 2, 3, 4]),
        ("three", ["down", "middle", "up"], [0, 0, 1, 2, 2]),
        ("two", ["down", "up"], [0, 0, 1, 1]),
    ],
)
def test_merged_classes_keep_the_order_of_the_scale(cardinality: str, expected: list[str], labels: list[int]) -> None:
    # The plan is a file with sorted keys.
    for dataset in (toy(), Dataset.model_validate(json.loads(json.dumps(toy().model_dump(), sort_keys=True)))):
        assert dataset.scaled(cardinality).classes == expected
        rows = merge_labels(table("test", [0, 1, 2, 3, 4]), dataset, cardinality)
        assert list(rows["label"]) == labels
        assert numbers(rows) == ([0, 1, 3, 4] if cardinality == "two" else [0, 1, 2, 3, 4])


def test_a_scaled_data_set_keeps_the_rest() -> None:
    dataset = toy(poles=["lowest", "highest"], label_values=[["0"], ["1"], ["2"], ["3"], ["4"]])
    assert dataset.scaled("") is dataset
    two = dataset.scaled("two")
    assert (two.name, two.poles, two.label_values, two.merged) == ("toy", ("lowest", "highest"), None, {})
    assert dataset.classes == CLASSES
    with pytest.raises(PoiseError, match=r"dataset toy: no scale 'four' in merged, which has \['three', 'two'\]"):
        dataset.scaled("four")
    with pytest.raises(PoiseError, match=r"no scale 'two' in merged, which has none"):
        toy(merged=None).scaled("two")


@pytest.mark.parametrize(
    ("cardinality", "redraw", "rows", "labels"),
    [
        # 4 4 0 1 2 3 3 2 1 0, relabelled
        ("three", False, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 2, 0, 0, 1, 2, 2, 1, 0, 0]),
        ("two", False, [0, 1, 2, 3, 5, 6, 8, 9], [1, 1, 0, 0, 1, 1, 0, 0]),
        # the first two of each merged class
        ("three", True, [0, 1, 2, 3, 4, 7], [2, 2, 0, 0, 1, 1]),
        ("two", True, [0, 1, 2, 3], [1, 1, 0, 0]),
    ],
)
def test_demonstrations_of_files_on_a_coarser_scale(
    cardinality: str, redraw: bool, rows: list[int], labels: list[int]
) -> None:
    drawn = shown("2_per_class", cardinality=cardinality, redraw=redraw)
    assert numbers(drawn) == rows
    assert list(drawn["label"]) == labels


def test_demonstrations_of_training_rows_on_a_coarser_scale() -> None:
    dataset = toy(tables={"train": {"path": ["a"]}, "test": {"path": ["b"]}}, demonstrations=None)
    rows = prepared(table("train", [0, 1, 2, 3, 4] * 6))

    def draw(shots: str, **options: Any) -> pd.DataFrame:
        return draw_demonstrations(rows, dataset, shots, 1, "clean", "", **options)

    base = draw("3_per_class")
    assert numbers(draw("3_per_class", cardinality="three")) == numbers(base)
    kept = base[base["label"] != 2]
    remapped = draw("3_per_class", cardinality="two")
    assert numbers(remapped) == numbers(kept)
    assert list(remapped["label"]) == [int(label > 2) for label in kept["label"]]
    assert list(np.bincount(draw("3_per_class", cardinality="two", redraw=True)["label"])) == [3, 3]
    generator = np.random.RandomState(1)
    groups = [[k for k in range(30) if k % 5 in members] for members in ([0, 1], [2], [3, 4])]
    expected = sorted(int(k) for group in groups for k in generator.choice(group, 3, replace=False))
    assert numbers(draw("3_per_class", cardinality="three", redraw=True)) == expected
    assert sorted(draw("k_shot", cardinality="three", redraw=True)["label"]) == [0, 1, 2]


def test_demonstrations_that_a_scale_drops_altogether_are_no_demonstrations_by_accident() -> None:
    dataset = toy(tables={"train": {"path": ["a"]}, "test": {"path": ["b"]}}, demonstrations=None)
    rows = prepared(table("train", [2, 2, 2]))
    with pytest.raises(PoiseError, match="cell: 1_shot: no demonstration is of a class that two keeps; redraw them"):
        draw_demonstrations(rows, dataset, "1_shot", 0, "clean", "cell", cardinality="two")


# --- which rows are asked about ---


def test_scales_that_keep_every_class_ask_the_same_rows() -> None:
    full, three, two = (chosen("test", n_rows=15, cardinality=scale) for scale in ("", "three", "two"))
    assert list(np.bincount(full["label"])) == [3, 3, 3, 3, 3]
    assert numbers(three) == numbers(full)
    assert list(np.bincount(three["label"])) == [6, 3, 6]
    # 32 rows are left without the middle class; 15 · 8/32 = 3.75 each: ties to the lower classes, 4 4 4 3
    assert list(np.bincount([k % 5 for k in numbers(two)], minlength=5)) == [4, 4, 0, 4, 3]
    assert list(np.bincount(two["label"])) == [8, 7]
    assert len(chosen("test", cardinality="two")) == 32  # more were wanted than there are


def test_without_a_training_table_the_other_test_rows_are_optimised_on() -> None:
    tested = numbers(chosen("test", n_rows=15))
    others = [k for k in range(40) if k not in tested]
    expected = [others[k] for k in np.random.RandomState(1).permutation(25)]
    assert numbers(chosen("optimisation")) == expected
    assert numbers(chosen("optimisation", n_rows=4)) == expected[:4]
    assert numbers(chosen("optimisation", cardinality="three")) == expected
    two = chosen("optimisation", cardinality="two")
    assert set(two["label"]) == {0, 1}
    assert not set(numbers(two)) & set(numbers(chosen("test", n_rows=15, cardinality="two")))
    assert len(two) == 32 - 15


def test_rows_to_optimise_on_repeat_no_text() -> None:
    rows = prepared()
    tested = numbers(chosen("test", n_rows=15))
    spare = [str(k) for k in range(40) if k not in tested][:2]
    rows.loc[(rows["table"] == "test") & rows["id"].isin(spare), "text"] = f"TEST  {tested[3]}"
    optimised = chosen("optimisation", rows)
    assert not set(optimised["id"]) & set(spare)
    assert len(optimised) == 23
    assert len(chosen("optimisation", rows, split_mode="paper")) == 25


def test_rows_that_there_are_none_of() -> None:
    with pytest.raises(PoiseError, match=r"cell: toy has no training table, so there are no development rows"):
        chosen("development")
    with pytest.raises(
        PoiseError, match=r"cell: no optimisation rows are left; toy has no training table, so test fewer"
    ):
        chosen("optimisation", n_test_rows=None)


def test_training_rows_of_dropped_classes_are_not_optimised_on() -> None:
    dataset = toy(tables={"train": {"path": ["a"]}, "test": {"path": ["b"]}})
    rows = prepared(table("train", [0, 1, 2, 3, 4] * 20))
    full, three, two = (chosen("optimisation", rows, dataset, cardinality=scale) for scale in ("", "three", "two"))
    assert numbers(three) == numbers(full)
    assert (len(full), len(two)) == (95, 76)
    assert all(k % 5 != 2 for k in numbers(two))
    developed = chosen("development", rows, dataset, cardinality="two")
    assert len(developed) == 4
    assert not set(numbers(developed)) & set(numbers(two))


# --- files ---


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy's files, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, rows in prepared().groupby("table"):
        path = tmp_path / str(name).replace("shot_", "n").replace("seed_", "s")
        path.parent.mkdir(exist_ok=True)
        named = rows.assign(label=[CLASSES[k] for k in rows["label"]])
        named[["text", "label"]].to_csv(path.with_suffix(".csv"), index=False)
    return tmp_path


def nested(**changes: Any) -> Dataset:
    files = {"path": ["n{shots}/s{seed}.csv"], "shots": [4, 2], "seeds": [0, 3]}
    return toy(demonstrations={**files, **changes.pop("files", {})}, **changes)


def test_every_file_is_read_in_its_order(folder: Path) -> None:
    rows = prepare(nested(), folder)
    pd.testing.assert_frame_equal(rows, prepared()[["table", "id", "text", "label"]])


def test_demonstration_files_beside_a_holdout_are_not_held_out(folder: Path) -> None:
    dataset = nested(tables={"all": {"path": ["test.csv"]}}, holdout={"test": 10, "seed": 2})
    rows = prepare(dataset, folder)
    expected = sorted(np.random.RandomState(2).permutation(40)[:10])
    assert numbers(rows[rows["table"] == "test"]) == expected
    assert rows["table"].value_counts().to_dict() == {
        "train": 30, "test": 10, "shot_4/seed_0": 20, "shot_4/seed_3": 20, "shot_2/seed_0": 10, "shot_2/seed_3": 10
    }  # fmt: skip


def test_demonstration_files_may_be_laid_out_apart(folder: Path) -> None:
    (folder / "few.tsv").write_text("".join(f"{k}\t{'wbfgB'[k]}\n" for k in range(5)), encoding="utf-8")
    own = {
        "path": ["few.tsv"], "header": ["words", "letter"], "shots": [1], "seeds": [0],
        "columns": {"text": "words", "label": "letter"}, "label_values": [["w"], ["b"], ["f"], ["g"], ["B"]],
    }  # fmt: skip
    rows = prepare(toy(demonstrations=own), folder)
    found = rows[rows["table"] == "shot_1/seed_0"]
    assert list(found["text"]) == ["0", "1", "2", "3", "4"]
    assert list(found["label"]) == [0, 1, 2, 3, 4]


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "n2" / "s3.csv").unlink()
    with pytest.raises(PoiseError, match=r"^toy: n2/s3\.csv: file not found: "):
        prepare(nested(), folder)


def test_bytes_of_every_file_are_part_of_the_identity(folder: Path) -> None:
    study: Any = SimpleNamespace(datasets={"toy": nested()}, models={})
    before = content_digests(study)
    assert content_digests(study) == before
    changed = folder / "n4" / "s3.csv"
    changed.write_text(changed.read_text().replace("test", "text") + "more,best\n")
    assert content_digests(study)["toy"] != before["toy"]
    changed.unlink()
    with pytest.raises(PoiseError, match=r"^dataset toy: file not found: n4/s3\.csv$"):
        content_digests(study)


def test_from_a_hub_every_file_arrives(folder: Path, hub: type, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.csv")}
    monkeypatch.setattr(test_fetch, "FILES", {**files, "n9/s0.csv": b"not asked for"})
    source = {"kind": "hub", "repo": "owner/toy", "revision": test_fetch.REVISION}
    plan: Any = SimpleNamespace(
        study=SimpleNamespace(datasets={"toy": nested(source=source)}), dataset_digests={"toy": "0"}
    )
    fetch.prepare_dataset(plan, "toy")
    rows = pd.read_parquet(paths.prepared_dataset("toy", "0"))
    pd.testing.assert_frame_equal(rows, prepared()[["table", "id", "text", "label"]])
    assert not [path for path in hub.asked if "n9" in path and "tree" not in path]  # type: ignore[attr-defined]


# --- what is wrong with a key ---

FILES: dict[str, Any] = {"path": ["n{shots}/s{seed}.csv"], "shots": [4, 2], "seeds": [0, 3]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"demonstrations": None}, "or 'test' beside demonstrations, found ['test']"),
        ({"tables": {"train": {"path": ["a"]}}}, "or 'test' beside demonstrations, found ['train']"),
        ({"train_rows": 5}, "train_rows is for data sets with a training table"),
        (
            {"tables": {"test": {"path": ["a"], "ids_of": "train", "columns": {"id": "i", "text": "t", "label": "l"}}}},
            "tables.test.ids_of: there is no table train",
        ),
        ({"demonstrations": {**FILES, "path": ["n{shots}.csv"]}}, "path must hold {seed}, which tells the files"),
        ({"demonstrations": {**FILES, "path": ["s{seed}.csv"]}}, "path must hold {shots}, which tells the files"),
        ({"demonstrations": {**FILES, "seeds": [3, 3]}}, "found [3, 3], expected each once"),
        ({"demonstrations": {**FILES, "shots": [0]}}, "greater than 0"),
        ({"demonstrations": {**FILES, "ids_of": "train"}}, "ids_of is for the table test, not for demonstrations"),
        (
            {"demonstrations": {**FILES, "label_values": [["0"], ["1"]]}},
            "demonstrations.label_values must list 5 classes, found 2",
        ),
        (
            {"merged": {"two": {"low": ["worst", "awful"], "high": ["best"]}}},
            "merged.two: ['awful'] not among the classes ['worst',",
        ),
        (
            {"merged": {"two": {"low": ["worst", "fair"], "high": ["fair", "best"]}}},
            "merged.two: each class may be in one new class only",
        ),
        ({"merged": {"one": {"all": ["worst", "best"]}}}, "merged.one: expected two or more new classes"),
        ({"merged": {"two": {"low": ["worst"], "high": []}}}, "merged.two: expected two or more new classes"),
        (
            {"merged": {"two": {"ends": ["worst", "best"], "middle": ["fair"]}}},
            "merged.two: the new classes must keep the order of ['worst',",
        ),
        ({"merged": {"Two ways": {"low": ["worst"], "high": ["best"]}}}, "String should match pattern"),
    ],
)  # fmt: skip
def test_keys_that_do_not_fit(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as error:
        toy(**changes)
    assert expected in str(error.value)


def test_classes_without_an_order_merge_as_one_likes() -> None:
    merged = {"two": {"ends": ["best", "worst"], "middle": ["good", "fair"]}}
    assert toy(ordered=False, merged=merged).scaled("two").classes == ["ends", "middle"]
