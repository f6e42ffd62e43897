"""Seeded draws against what the papers' code draws, and the rule that no row is used twice."""

import random

import numpy as np
import pandas as pd
import pytest

from poise.config.data import Dataset
from poise.datasets.sampling import (
    demonstration_places,
    development_rows,
    draw_demonstrations,
    draw_test_rows,
    optimisation_rows,
    select,
    stratified_quotas,
    training_pool,
)
from poise.errors import PoiseError


def frame(labels, texts=None, table="train"):
    texts = [f"text {k}" for k in range(len(labels))] if texts is None else texts
    ids = [f"{table}-{k}" for k in range(len(labels))]
    return pd.DataFrame({"table": table, "id": ids, "text": texts, "label": np.asarray(labels, dtype=int)})


def draw(train, n_classes, shots, seed, where=""):
    """Draw from training rows that no test row restrains."""
    return draw_demonstrations(train, toy(max(n_classes, 2)), shots, seed, "paper", where)


def numbers(rows):
    return [int(row.split("-")[1]) for row in rows["id"]]


def toy(n_classes=2, **changes):
    table = {"path": ["x.csv"]}
    return Dataset.model_validate(
        {
            "name": "toy",
            "title": "",
            "task": "",
            "domain": "",
            "ordered": False,
            "source": {"kind": "files"},
            "tables": {"train": table, "test": table},
            "columns": {"text": "text", "label": "label"},
            "classes": [f"class {k}" for k in range(n_classes)],
            "prompt": {
                "kind": "icl",
                "name": "toy",
                "text_prefix": "",
                "label_prefix": "",
                "label_words": [str(k) for k in range(n_classes)],
            },
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (8544, [4816, 4161, 4978]),  # SST-5
        (5452, [2755, 2457, 4344]),  # TREC
        (2490, [2325, 2355, 1415]),  # RTE
        (1000, [993, 507, 37]),  # PubMedQA
    ],
)
def test_one_shot_rows_of_the_dnip_paper(n, expected):
    train = frame(np.zeros(n))
    assert [numbers(draw(train, 1, "1_shot", seed)) for seed in (0, 1, 2)] == [[row] for row in expected]


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (0, [54694, 84405, 31353, 74714, 91674]),
        (1, [66756, 65630, 89880, 115302, 115709]),
        (2, [29444, 87013, 88906, 50807, 86076]),
    ],
)
def test_five_shot_rows_of_agnews(seed, expected):
    train = frame(np.zeros(120_000))
    cut = train.iloc[np.random.RandomState(0).choice(120_000, 10_000, replace=False)]  # the authors' first step
    assert numbers(draw(cut, 1, "5_shot", seed)) == expected


@pytest.mark.parametrize(("n", "size"), [(8544, 8116), (5452, 5179), (2490, 2365), (1000, 950), (10_000, 9500)])
def test_optimisation_rows_of_the_dnip_paper(n, size):
    train = frame(np.zeros(n), texts=["the same"] * n)  # paper mode does not look at the texts
    chosen = optimisation_rows(train, train.iloc[:5], None, "paper")
    assert len(chosen) == size
    expected = np.random.RandomState(1).choice(n, int(0.95 * n), replace=False)
    assert numbers(chosen) == list(expected)
    assert numbers(optimisation_rows(train, train.iloc[:5], 7, "paper")) == list(expected[:7])


def test_paper_mode_keeps_training_rows_that_are_test_rows():
    train = frame(np.zeros(1000))
    test = train.iloc[500:]
    pool = training_pool(train, test, "paper")
    assert numbers(pool) == list(range(1000))
    chosen = optimisation_rows(pool, draw(pool, 1, "1_shot", 0), None, "paper")
    # The leak of the paper's PubMedQA, where half of the training rows are the test rows.
    assert len(set(chosen["id"]) & set(test["id"])) > 400
    assert numbers(training_pool(train, test, "clean")) == list(range(500))


def canonical(texts):
    return {" ".join(text.lower().split()) for text in texts}


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("shots", ["3_shot", "k_shot", "2_per_class"])
def test_in_clean_mode_no_text_serves_twice(seed, shots):
    rng = np.random.default_rng(seed)
    variants = ["{}", " {}", "{}\n", "{}\t!", "{}  !"]

    def texts(n, words):
        drawn = rng.choice(words, n)
        upper = rng.random(n) < 0.5
        forms = [variants[k] for k in rng.integers(0, len(variants), n)]
        return [form.format(word.upper() if up else word) for form, word, up in zip(forms, drawn, upper, strict=True)]

    words = [f"word {k}" for k in range(60)]
    train = frame(rng.integers(0, 3, 300), texts(300, words))
    test = frame(rng.integers(0, 3, 40), texts(40, words[:20]), table="test")
    rows = pd.concat([train, test], ignore_index=True)

    def chosen(split):
        return select(
            rows, toy(3), split=split, shots=shots, seed=seed, n_rows=None, n_test_rows=5, split_mode="clean", where="c"
        )

    demonstrations, tested = chosen("test")
    again, optimised = chosen("optimisation")
    pd.testing.assert_frame_equal(demonstrations, again)
    assert numbers(tested) == list(range(40))
    groups = [demonstrations, optimised, tested]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not set(groups[one]["id"]) & set(groups[other]["id"])
        assert not canonical(groups[one]["text"]) & canonical(groups[other]["text"])
    # Nothing is given away: 95 % of all rows that are allowed.
    taken = canonical([*tested["text"], *demonstrations["text"]])
    free = [text for text in train["text"] if not canonical([text]) & taken]
    assert len(optimised) == int(0.95 * len(free)) > 0


@pytest.mark.parametrize(("seed", "order"), [(0, [2, 1, 0, 4, 3]), (1, [2, 3, 4, 0, 1]), (2, [2, 1, 3, 4, 0])])
def test_k_shot_is_one_of_each_class_in_a_seeded_shuffle(seed, order):
    train = frame([0, 1, 2, 3, 4, 4, 3, 2, 1, 0] * 20)
    chosen = draw(train, 5, "k_shot", seed)
    assert list(chosen["label"]) == order  # Random(seed).shuffle of 0 1 2 3 4
    assert numbers(chosen) != numbers(draw(train, 5, "k_shot", seed + 1))


def test_per_class_draws_come_in_table_order():
    train = frame([2, 1, 0] * 30)
    chosen = draw(train, 3, "4_per_class", 0)
    assert list(np.bincount(chosen["label"])) == [4, 4, 4]
    assert numbers(chosen) == sorted(numbers(chosen))
    assert len(set(numbers(chosen))) == 12
    assert numbers(chosen) != numbers(draw(train, 3, "4_per_class", 1))
    assert draw(train, 3, "0_shot", 0).empty


@pytest.mark.parametrize(
    ("shots", "expected"),
    [
        ("11_shot", "toy: 11_shot needs 11 training rows, found 10"),
        ("k_shot", "toy: k_shot needs 1 training rows of class 2, found 0"),
        ("4_per_class", "toy: 4_per_class needs 4 training rows of class 1, found 3"),
    ],
)
def test_too_few_rows_for_the_demonstrations_is_one_line(shots, expected):
    with pytest.raises(PoiseError) as error:
        draw(frame([0] * 7 + [1] * 3), 3, shots, 0, "toy")
    assert str(error.value).startswith(expected)
    assert "\n" not in str(error.value)


def test_orders_hold_the_same_demonstrations():
    labels = [2, 0, 1, 0, 2, 1]
    assert demonstration_places(labels, "base", 0) == [0, 1, 2, 3, 4, 5]
    assert demonstration_places(labels, "ascending", 0) == [1, 3, 2, 5, 0, 4]
    assert demonstration_places(labels, "descending", 0) == [0, 4, 2, 5, 1, 3]
    for seed in (0, 1, 42):
        expected = list(range(6))
        random.Random(seed).shuffle(expected)
        assert demonstration_places(labels, "random", seed) == expected
    assert demonstration_places([0] * 5, "random", 1) == [2, 3, 4, 0, 1]


@pytest.mark.parametrize(
    ("counts", "size", "expected"),
    [
        ([70, 20, 10], 15, [11, 3, 1]),  # 10.5 3.0 1.5: the tie goes to the lower class
        ([1, 1, 1], 2, [1, 1, 0]),
        ([279, 633, 389, 510, 399], 200, [25, 58, 35, 46, 36]),  # 25.2 57.3 35.2 46.2 36.1
        ([5, 0, 5], 4, [2, 0, 2]),
        ([9, 1], 3, [3, 0]),  # 2.7 0.3
        ([4, 4], 8, [4, 4]),
    ],
)
def test_stratified_quotas_by_largest_remainder(counts, size, expected):
    assert list(stratified_quotas(np.array(counts), size)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_stratified_quotas_always_sum_and_never_exceed_a_class(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 50, rng.integers(2, 15))
    counts[0] += 1
    for size in range(1, counts.sum() + 1):
        quotas = stratified_quotas(counts, size)
        assert quotas.sum() == size
        assert (quotas <= counts).all()
        assert (np.abs(quotas - counts * size / counts.sum()) < 1 + 1e-9).all()


def test_test_rows_by_each_draw():
    rows = frame([0] * 70 + [1] * 20 + [2] * 10, table="test")
    assert numbers(draw_test_rows(rows, toy(3, test_draw="first"), 5)) == [0, 1, 2, 3, 4]
    assert numbers(draw_test_rows(rows, toy(3, test_draw="all"), None)) == list(range(100))
    expected = sorted(np.random.RandomState(0).choice(100, 15, replace=False))
    assert numbers(draw_test_rows(rows, toy(3, test_draw="random"), 15)) == expected
    stratified = draw_test_rows(rows, toy(3, test_draw="stratified"), 15)
    assert list(np.bincount(stratified["label"])) == [11, 3, 1]
    assert numbers(stratified) == sorted(set(numbers(stratified)))
    assert numbers(draw_test_rows(rows, toy(3, test_draw="stratified"), 15)) == numbers(stratified)
    # The smaller of the two limits holds, and no limit exceeds the rows.
    assert len(draw_test_rows(rows, toy(3, test_draw="random", test_rows=8), 15)) == 8
    assert len(draw_test_rows(rows, toy(3, test_draw="random", test_rows=80), 15)) == 15
    assert numbers(draw_test_rows(rows, toy(3, test_draw="stratified"), 1000)) == list(range(100))


@pytest.mark.parametrize(
    ("counts", "size", "quotas"),
    [
        ([50, 50, 50], 15, [5, 5, 5]),
        ([50, 50, 50], 16, [6, 5, 5]),
        ([50, 2, 50], 15, [7, 2, 6]),
        ([1, 2, 3], 6, [1, 2, 3]),
    ],
)
def test_a_balanced_draw_takes_as_many_of_each_class_as_there_are(counts, size, quotas):
    labels = np.repeat(np.arange(len(counts)), counts)
    rows = pd.DataFrame({"id": [str(k) for k in range(len(labels))], "text": "x", "label": labels})
    drawn = draw_test_rows(rows, toy(3, test_draw="balanced"), size)
    assert np.bincount(drawn["label"], minlength=3).tolist() == quotas


@pytest.mark.parametrize(
    "index",
    [range(59, -1, -1), [f"row {k}" for k in range(60)], [0] * 60],
    ids=["reversed", "text", "all equal"],
)
def test_draws_do_not_depend_on_the_labels_of_the_index(index):
    plain = frame([0, 1, 2] * 20)
    other = plain.set_axis(list(index), axis="index")

    def draws(train):
        demonstrations = draw(train, 3, "k_shot", 0)
        chosen = [
            *[draw(train, 3, shots, 0) for shots in ("5_shot", "2_per_class")],
            *[optimisation_rows(train, demonstrations, None, mode) for mode in ("clean", "paper")],
            *[draw_test_rows(train, toy(3, test_draw=draw), 7) for draw in ("first", "random", "stratified")],
            training_pool(train, demonstrations, "clean"),
        ]
        return [numbers(rows) for rows in chosen]

    assert draws(other) == draws(plain)


@pytest.mark.parametrize("split_mode", ["clean", "paper"])
def test_development_rows_are_those_that_optimisation_never_takes(split_mode: str) -> None:
    pool = pd.DataFrame({"id": [str(k) for k in range(200)], "text": [f"text {k % 150}" for k in range(200)]})
    shown = pool.iloc[[3]]
    optimised = optimisation_rows(pool, shown, None, split_mode)
    developed = development_rows(pool, shown, None, split_mode)
    assert not set(optimised["id"]) & set(developed["id"])
    n_free = 200 if split_mode == "paper" else 198  # text 3 stands twice
    assert (len(optimised), len(developed)) == (int(0.95 * n_free), n_free - int(0.95 * n_free))
    assert development_rows(pool, shown, 4, split_mode)["id"].tolist() == developed["id"].tolist()[:4]
