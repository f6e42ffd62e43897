"""The second paper's five data sets on their real files, which lie beside the checkout and are in no repository."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from poise.config.compose import compose_study
from poise.config.data import Dataset
from poise.datasets.sampling import draw_demonstrations, select
from poise.datasets.tables import prepare
from poise.planfile import content_digests
from tests.conftest import ROOT

DATA = ROOT.parent / "shared" / "data"
FOLDERS = {"sst5-sentiment": "sst5", **{name: name for name in ("yelp5", "twitter", "hate", "offensive")}}
SEEDS = (0, 1, 42)
real_files = pytest.mark.skipif(not (DATA / "llm_sentiment").is_dir(), reason=f"no {DATA}/llm_sentiment here")

# Column label of sst5/shot_5/seed_42/train.csv and of shot_1/seed_42/train.csv, from the top
FIVE = [2, 0, 1, 4, 3, 2, 3, 1, 4, 2, 1, 3, 0, 1, 1, 4, 0, 4, 0, 4, 2, 3, 3, 0, 2]
ONE = [2, 4, 3, 1, 0]
FIRST_THREE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16]  # of each class in FIVE


def configured(name: str) -> Dataset:
    """A data set as its file has it, with any prompt."""
    raw: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "dataset" / f"{name}.yaml"), resolve=True)
    raw["prompt"] = {
        "kind": "icl", "name": "any", "text_prefix": "", "label_prefix": "", "label_words": raw["classes"]
    }  # fmt: skip
    return Dataset.model_validate({key: value for key, value in raw.items() if key != "defaults"})


@cache
def read(name: str) -> tuple[Dataset, pd.DataFrame]:
    dataset = configured(name)
    return dataset, prepare(dataset, DATA / "llm_sentiment" / FOLDERS[name])


def raw_file(name: str, file: str) -> pd.DataFrame:
    return pd.read_csv(DATA / "llm_sentiment" / FOLDERS[name] / file, keep_default_na=False)


def shown(name: str, shots: str, seed: int = 42, **options: Any) -> pd.DataFrame:
    dataset, rows = read(name)
    return draw_demonstrations(rows, dataset, shots, seed, "clean", "", **options)


def chosen(name: str, split: str, n_rows: int | None = None, **options: Any) -> pd.DataFrame:
    dataset, rows = read(name)
    shared: dict[str, Any] = {"shots": "5_per_class", "seed": 42, "n_test_rows": 200, "split_mode": "clean"}
    return select(rows, dataset, split=split, n_rows=n_rows, where="", **{**shared, **options})[1]


def numbers(rows: pd.DataFrame) -> list[int]:
    return [int(row) for row in rows["id"]]


def canonical(texts: pd.Series) -> set[str]:
    return {" ".join(text.lower().split()) for text in texts}


@real_files
@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_papers_demonstrations_are_the_files(name: str, seed: int) -> None:
    dataset, _ = read(name)
    for shots in (1, 5, 10):
        file = raw_file(name, f"shot_{shots}/seed_{seed}/train.csv")
        drawn = shown(name, f"{shots}_per_class", seed)
        assert list(drawn["text"]) == [text.strip() for text in file["text"]]
        assert list(drawn["label"]) == list(file["label"])
        assert [dataset.classes[label] for label in drawn["label"]] == list(file["label_text"])
    three = shown(name, "3_per_class", seed)
    file = raw_file(name, f"shot_5/seed_{seed}/train.csv")
    kept: list[int] = []
    for k, label in enumerate(file["label"]):
        if sum(file["label"][j] == label for j in kept) < 3:
            kept.append(k)
    assert numbers(three) == kept
    assert set(shown(name, "1_per_class", seed)["text"]) < set(shown(name, "5_per_class", seed)["text"])


@real_files
def test_sst5_demonstrations_of_seed_42() -> None:
    five, one, three = (shown("sst5-sentiment", f"{n}_per_class") for n in (5, 1, 3))
    assert list(five["label"]) == FIVE
    assert list(one["label"]) == ONE
    assert set(one["text"]) < set(five["text"])
    assert numbers(three) == FIRST_THREE
    assert list(three["label"]) == [2, 0, 1, 4, 3, 2, 3, 1, 4, 2, 1, 3, 0, 4, 0]
    assert five["text"].iloc[0].startswith("If this silly little cartoon can inspire a few kids")


@real_files
@pytest.mark.parametrize(
    ("options", "rows", "labels"),
    [
        (
            {"cardinality": "3_way"},
            list(range(25)),
            [1, 0, 0, 2, 2, 1, 2, 0, 2, 1, 0, 2, 0, 0, 0, 2, 0, 2, 0, 2, 1, 2, 2, 0, 1],  # 10, 5, 10
        ),
        (
            {"cardinality": "2_way"},
            [1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21, 22, 23],
            [0, 0, 1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 0],  # 10, 10
        ),
        ({"cardinality": "3_way", "redraw": True}, [*range(13), 20, 24], [1, 0, 0, 2, 2, 1, 2, 0, 2, 1, 0, 2, 0, 1, 1]),
        ({"cardinality": "2_way", "redraw": True}, [1, 2, 3, 4, 6, 7, 8, 10, 11, 12], [0, 0, 1, 1, 1, 0, 1, 0, 1, 0]),
    ],
)
def test_sst5_demonstrations_on_coarser_scales(options: dict[str, Any], rows: list[int], labels: list[int]) -> None:
    drawn = shown("sst5-sentiment", "5_per_class", **options)
    assert numbers(drawn) == rows
    assert list(drawn["label"]) == labels


# Counts of the files: SST-5 55 140 100 111 94, Yelp-5 108 93 91 115 93, Twitter 158 227 115, Hate 285 215,
# Offensive 360 140; 200 of 500, the remainders to the largest fractions.
@real_files
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sst5-sentiment", [22, 56, 40, 44, 38]),  # 22.0 56.0 40.0 44.4 37.6
        ("yelp5", [43, 37, 37, 46, 37]),  # 43.2 37.2 36.4 46.0 37.2
        ("twitter", [63, 91, 46]),  # 63.2 90.8 46.0
        ("hate", [114, 86]),
        ("offensive", [144, 56]),
    ],
)
def test_200_rows_are_tested_and_the_others_left_to_optimise_on(name: str, expected: list[int]) -> None:
    tested, optimised = chosen(name, "test"), chosen(name, "optimisation")
    assert list(np.bincount(tested["label"])) == expected
    assert list(np.bincount(chosen(name, "test", 200)["label"])) == expected
    others = sorted(set(range(500)) - set(numbers(tested)))
    texts = dict(enumerate(raw_file(name, "test.csv")["text"]))
    seen = canonical(tested["text"])
    free = [k for k in others if not canonical(pd.Series([texts[k]])) & seen]
    assert len(free) == 300 or name == "offensive"  # which has texts that stand twice in the file
    assert numbers(optimised) == [free[k] for k in np.random.RandomState(1).permutation(len(free))]
    assert not canonical(optimised["text"]) & seen
    for seed in SEEDS:
        demonstrations = canonical(shown(name, "10_per_class", seed)["text"])
        assert not demonstrations & (seen | canonical(optimised["text"]))


@real_files
@pytest.mark.parametrize("name", ["sst5-sentiment", "yelp5"])
def test_scales_of_the_five_classes(name: str) -> None:
    full, three, two = (chosen(name, "test", cardinality=scale) for scale in ("", "3_way", "2_way"))
    assert numbers(three) == numbers(full)
    assert list(three["label"]) == [[0, 0, 1, 2, 2][label] for label in full["label"]]
    own = raw_file(name, "test.csv")["label"]
    assert len(two) == 200
    assert list(two["label"]) == [{0: 0, 1: 0, 3: 1, 4: 1}[own[k]] for k in numbers(two)]
    optimised = chosen(name, "optimisation", cardinality="2_way")
    assert set(numbers(optimised)) == {k for k in range(500) if own[k] != 2} - set(numbers(two))
    assert numbers(chosen(name, "optimisation", cardinality="3_way")) == numbers(chosen(name, "optimisation"))


@real_files
def test_sst5_on_two_classes_is_stratified_by_the_five() -> None:
    own = raw_file("sst5-sentiment", "test.csv")["label"]
    two = numbers(chosen("sst5-sentiment", "test", cardinality="2_way"))
    # 55 140 – 111 94 of 400: 27.5 70.0 55.5 47.0, the tie goes to the lower class
    assert list(np.bincount([own[k] for k in two])) == [28, 70, 0, 55, 47]


@real_files
def test_the_five_are_read_from_where_their_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POISE_DATA", str(DATA))
    for name in FOLDERS:
        study: Any = type("Study", (), {"datasets": {name: configured(name)}, "models": {}})
        assert len(content_digests(study)[name]) == 64  # all ten files are there


@pytest.mark.parametrize("name", FOLDERS)
def test_a_hub_repository_may_take_the_folders_place(name: str) -> None:
    text = (ROOT / "conf" / "dataset" / f"{name}.yaml").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "kind: hub" in line)
    overrides = [part for part in line.split("'") if "dataset." in part]
    study = compose_study(
        [f"dataset=[{name}]", "experiment=[position]", f"experiment.position.datasets=[{name}]",
         *(part.replace("<commit>", "0" * 40) for part in overrides)]
    )  # fmt: skip
    dataset = study.datasets[name]
    assert dataset.source.kind == "hub"
    expected = {"test.csv", *(f"shot_{n}/seed_{seed}/train.csv" for n in (1, 5, 10) for seed in SEEDS)}
    assert {str(Path(*table.path)) for table in dataset.files().values()} == expected
