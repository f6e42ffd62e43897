"""Which rows are demonstrations, which are optimised on, which are tested, and on which scale.

Seeded draws follow the papers' code where it is known: NumPy's legacy ``RandomState`` (research: DNIP and
few-shot-learning), Python's ``random`` for shuffles.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from poise.config.data import Dataset
from poise.datasets.tables import text_keys
from poise.errors import PoiseError

OPTIMISATION_SEED = 1
OPTIMISATION_SHARE = 0.95
TEST_SEED = 0


def select(
    rows: pd.DataFrame,
    dataset: Dataset,
    *,
    split: str,
    shots: str,
    seed: int,
    n_rows: int | None,
    n_test_rows: int | None,
    split_mode: str,
    cardinality: str = "",
    redraw: bool = False,
    where: str,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Give the demonstrations of a cell, in their base order, and the rows that it asks about.

    Parameters
    ----------
    rows
        All prepared rows of the data set (:func:`poise.datasets.tables.prepare`), with its own classes. Those that have
        their text keys (:func:`poise.datasets.tables.with_text_keys`) are compared much faster.
    dataset
        The data set itself, not a scaled one.
    split
        ``test``, ``optimisation`` or ``development``.
    shots, seed
        As for :func:`draw_demonstrations`.
    n_rows
        Rows asked about at most; None takes all that the data set's own limits allow.
    n_test_rows
        Test rows at most of the same experiment. Without a training table the optimisation rows are the test table's
        other rows, in the order of ``RandomState(1).permutation``; with one it is not used.
    split_mode
        ``clean`` or ``paper``, see :func:`training_pool`.
    cardinality
        A scale of ``dataset.merged``, or ``""``. Test rows are stratified by the data set's own classes once rows of
        dropped classes are out: a scale that drops none has the very rows of the full scale.
    redraw
        Whether demonstrations are drawn by merged class instead of drawn first and then relabelled.
    where
        What the error messages begin with.

    Returns
    -------
    tuple of DataFrame
        Rows with the columns of ``rows``; labels are indices into ``dataset.scaled(cardinality).classes``.

    Raises
    ------
    PoiseError
        As :func:`draw_demonstrations`; also if no row is left, or if development rows are wanted without a training
        table.
    """
    shown = draw_demonstrations(rows, dataset, shots, seed, split_mode, where, cardinality=cardinality, redraw=redraw)
    test = _kept(rows[rows["table"] == "test"], dataset, cardinality)
    if split == "test":
        chosen = draw_test_rows(test, dataset, n_rows)
    elif dataset.has_training_rows:
        pool = training_pool(rows[rows["table"] == "train"], rows[rows["table"] == "test"], split_mode)
        draw = optimisation_rows if split == "optimisation" else development_rows
        chosen = draw(_kept(pool, dataset, cardinality), shown, n_rows, split_mode)
    elif split == "optimisation":
        drawn = draw_test_rows(test, dataset, n_test_rows)
        others = training_pool(test[~test["id"].isin(drawn["id"])], drawn, split_mode)
        chosen = others.iloc[_pool_order(others, shown, split_mode)[:n_rows]]
    else:
        raise PoiseError(f"{where}: {dataset.name} has no training table, so there are no {split} rows")
    if chosen.empty:
        hint = "" if dataset.has_training_rows else f"; {dataset.name} has no training table, so test fewer of its rows"
        raise PoiseError(f"{where}: no {split} rows are left{hint}")
    return shown, merge_labels(chosen, dataset, cardinality)


def draw_demonstrations(
    rows: pd.DataFrame,
    dataset: Dataset,
    shots: str,
    seed: int,
    split_mode: str,
    where: str,
    *,
    cardinality: str = "",
    redraw: bool = False,
) -> pd.DataFrame:
    """Demonstrations of one seed, in their base order, labelled on the scale ``cardinality``.

    From the training rows: ``<n>_shot`` is ``RandomState(seed).choice(n_train, n, replace=False)``, the DNIP paper's
    draw; ``k_shot`` one row of each class, then ``random.Random(seed).shuffle``; ``<n>_per_class`` n rows of each
    class, in table order. From demonstration files, which go first for ``<n>_per_class``: the first n rows of each
    class, in file order, of the smallest file that has as many; of the file of n itself, these are all its rows.

    Parameters
    ----------
    rows
        All prepared rows of the data set.
    dataset
        The data set itself, not a scaled one.
    shots, seed
        The draw; no demonstrations for n = 0.
    split_mode
        ``clean``: no demonstration is a test row, see :func:`training_pool`. ``paper``: that is not looked at.
    where
        What the error messages begin with.
    cardinality
        A scale of ``dataset.merged``, or ``""`` for the data set's own.
    redraw
        False: drawn by the data set's own classes, then relabelled; rows of dropped classes are left out. True:
        relabelled first, then drawn by merged class.

    Raises
    ------
    PoiseError
        If there are too few rows, or too few of a class, no file of this seed, a draw that files cannot give, or, in
        ``clean`` mode, a demonstration in a file that is also a test row.
    """
    n = int(re.sub(r"\D", "", shots) or 1)
    first = cardinality if redraw else ""
    n_classes = len(dataset.scale(first))
    if n == 0:
        return rows.iloc[:0]
    test = rows[rows["table"] == "test"]
    if dataset.demonstrations is not None and shots.endswith("_per_class"):
        drawn = _first_of_file(rows, dataset, n, seed, first, where)
        if split_mode == "clean":
            _check_apart(drawn, test, dataset, where)
    elif dataset.has_training_rows:
        train = rows[rows["table"] == "train"]
        pool = training_pool(train, test, split_mode)
        if pool.empty and len(train):
            raise PoiseError(
                f"{where}: all {len(train)} training rows are test rows of {dataset.name} too (by text), so none is "
                f"left to show; take them out of one of the two, or use split: paper"
            )
        drawn = _draw(merge_labels(pool, dataset, first), n_classes, shots, n, seed, where)
    else:
        raise PoiseError(f"{where}: {shots} needs a training table, {dataset.name} has none; use <n>_per_class")
    shown = drawn if redraw else merge_labels(drawn, dataset, cardinality)
    if shown.empty:
        raise PoiseError(f"{where}: {shots}: no demonstration is of a class that {cardinality} keeps; redraw them")
    return shown


def _draw(train: pd.DataFrame, n_classes: int, shots: str, n: int, seed: int, where: str) -> pd.DataFrame:
    generator = np.random.RandomState(seed)
    if re.fullmatch(r"\d+_shot", shots):
        if n > len(train):
            raise PoiseError(f"{where}: {shots} needs {n} training rows, found {len(train)}")
        return train.iloc[generator.choice(len(train), n, replace=False)]
    picked: list[int] = []
    for label in range(n_classes):
        rows = np.flatnonzero(train["label"].to_numpy() == label)
        if len(rows) < n:
            raise PoiseError(
                f"{where}: {shots} needs {n} training rows of class {label}, found {len(rows)}; use fewer shots"
            )
        picked += list(generator.choice(rows, n, replace=False))
    if shots == "k_shot":
        random.Random(seed).shuffle(picked)
    else:
        picked.sort()
    return train.iloc[picked]


def _first_of_file(
    rows: pd.DataFrame, dataset: Dataset, n: int, seed: int, cardinality: str, where: str
) -> pd.DataFrame:
    """Take the first ``n`` rows of each class of a scale from the smallest demonstration file that has them."""
    files = dataset.demonstrations
    assert files is not None
    if seed not in files.seeds:
        known = ", ".join(map(str, files.seeds))
        raise PoiseError(f"{where}: no demonstration file of seed {seed}; {dataset.name} has files of seeds {known}")
    size = min((shots for shots in files.shots if shots >= n), default=None)
    if size is None:
        raise PoiseError(
            f"{where}: {n}_per_class needs {n} demonstrations of each class, the largest files of {dataset.name} have "
            f"{max(files.shots)}; use fewer shots"
        )
    table = files.table(size, seed)
    found = rows[rows["table"] == table]
    counts = np.bincount(found["label"], minlength=len(dataset.classes))
    if (counts != size).any():
        label = int(np.flatnonzero(counts != size)[0])
        raise PoiseError(
            f"{where}: demonstration file {table} of {dataset.name}: class {dataset.classes[label]!r} has "
            f"{counts[label]} rows, expected {size}; correct the file or demonstrations.shots"
        )
    merged = merge_labels(found, dataset, cardinality)
    return merged[(merged.groupby("label").cumcount() < n).to_numpy()]


def _check_apart(demonstrations: pd.DataFrame, test: pd.DataFrame, dataset: Dataset, where: str) -> None:
    """Refuse demonstrations of a file that are test rows, by text or, where both have a column of ids, by id."""
    assert dataset.demonstrations is not None
    shared = _same_text(demonstrations, test)
    tested = dataset.tables["test" if "test" in dataset.tables else "all"]
    ids, test_ids = (dataset.own(table).columns.id for table in (dataset.demonstrations, tested))
    if ids is not None and ids == test_ids:
        shared |= demonstrations["id"].isin(set(test["id"]))
    if shared.any():
        row = demonstrations[shared].iloc[0]
        raise PoiseError(
            f"{where}: demonstration {row['id']!r} of {row['table']} is also a test row of {dataset.name} (by text or "
            f"id); take it out of one of them, or use split: paper"
        )


def merge_labels(rows: pd.DataFrame, dataset: Dataset, cardinality: str) -> pd.DataFrame:
    """Relabel rows on a scale of ``dataset.merged``, leaving out those of its dropped classes; ``""`` changes nothing.

    Parameters
    ----------
    rows
        Rows whose ``label`` indexes ``dataset.classes``.
    dataset
        The data set itself, not a scaled one.
    cardinality
        Name of the scale.

    Returns
    -------
    DataFrame
        The same columns and order; ``label`` indexes ``dataset.scaled(cardinality).classes``.
    """
    if not cardinality:
        return rows
    groups = dataset.scale(cardinality).values()
    label = {old: new for new, group in enumerate(groups) for old in group}
    kept = _kept(rows, dataset, cardinality)
    return kept.assign(label=kept["label"].map(label).astype(int))


def _kept(rows: pd.DataFrame, dataset: Dataset, cardinality: str) -> pd.DataFrame:
    """Rows whose class is in a scale, with the labels they have."""
    if not cardinality:
        return rows
    labels = [old for group in dataset.scale(cardinality).values() for old in group]
    return rows[rows["label"].isin(labels)]


def demonstration_places(labels: Sequence[int], order: str, seed: int) -> list[int]:
    """Places of demonstrations for probe 2: base, class-ascending, class-descending, fixed random order."""
    places = list(range(len(labels)))
    if order == "random":
        random.Random(seed).shuffle(places)
    elif order != "base":
        places.sort(key=lambda place: labels[place] if order == "ascending" else -labels[place])
    return places


def training_pool(train: pd.DataFrame, test: pd.DataFrame, split_mode: str) -> pd.DataFrame:
    """Training rows that may be shown or optimised on.

    ``clean`` leaves out rows whose normalised text is a test row's; ``paper`` keeps them, as the authors'
    code does.
    """
    if split_mode == "paper":
        return train
    return train[~_same_text(train, test)]


def optimisation_rows(pool: pd.DataFrame, demonstrations: pd.DataFrame, n: int | None, split_mode: str) -> pd.DataFrame:
    """Draw the optimisation set: 95 % of the pool by ``RandomState(1)``, at most ``n``.

    ``clean`` leaves out the demonstrations and rows with their normalised text; ``paper`` keeps them.
    """
    order = _pool_order(pool, demonstrations, split_mode)
    return pool.iloc[order[: int(OPTIMISATION_SHARE * len(order))][:n]]


def development_rows(pool: pd.DataFrame, demonstrations: pd.DataFrame, n: int | None, split_mode: str) -> pd.DataFrame:
    """Draw the development set: the 5 % of the pool that :func:`optimisation_rows` never takes, at most ``n``."""
    order = _pool_order(pool, demonstrations, split_mode)
    return pool.iloc[order[int(OPTIMISATION_SHARE * len(order)) :][:n]]


def _same_text(rows: pd.DataFrame, others: pd.DataFrame) -> pd.Series:
    """Whether each row has the normalised text of one of the others."""
    return text_keys(rows).isin(text_keys(others))


def _pool_order(pool: pd.DataFrame, demonstrations: pd.DataFrame, split_mode: str) -> np.ndarray:
    order = np.random.RandomState(OPTIMISATION_SEED).permutation(len(pool))
    if split_mode == "paper":
        return order
    free = ~_same_text(pool, demonstrations).to_numpy()
    return order[free[order]]


def draw_test_rows(rows: pd.DataFrame, dataset: Dataset, n: int | None) -> pd.DataFrame:
    """Draw the fixed test rows of a data set: all, the first, or ``n`` by a random, stratified or balanced draw."""
    limits = [limit for limit in (n, dataset.test_rows) if limit is not None]
    size = min([*limits, len(rows)])
    if dataset.test_draw in ("all", "first") or size == len(rows):
        return rows.iloc[:size]
    generator = np.random.RandomState(TEST_SEED)
    if dataset.test_draw == "random":
        return rows.iloc[np.sort(generator.choice(len(rows), size, replace=False))]
    labels = rows["label"].to_numpy()
    draw = balanced_quotas if dataset.test_draw == "balanced" else stratified_quotas
    quotas = draw(np.bincount(labels, minlength=len(dataset.classes)), size)
    picked = [
        generator.choice(np.flatnonzero(labels == label), quota, replace=False)
        for label, quota in enumerate(quotas)
        if quota
    ]
    return rows.iloc[np.sort(np.concatenate(picked))]


def stratified_quotas(counts: np.ndarray, size: int) -> np.ndarray:
    """Rows per class of a proportional stratified draw, by largest remainder (ties to the lower class)."""
    exact = counts * size / counts.sum()
    quotas = np.floor(exact).astype(int)
    largest = np.argsort(-(exact - quotas), kind="stable")
    quotas[largest[: size - quotas.sum()]] += 1
    return quotas


def balanced_quotas(counts: np.ndarray, size: int) -> np.ndarray:
    """Rows per class of a balanced draw: as equal as the counts allow (remainders to the lower classes)."""
    quotas = np.zeros_like(counts)
    while quotas.sum() < size:
        open_classes = np.flatnonzero(quotas < counts)
        share, rest = divmod(size - quotas.sum(), len(open_classes))
        wanted = np.full(len(open_classes), share) + (np.arange(len(open_classes)) < rest)
        quotas[open_classes] = np.minimum(quotas[open_classes] + wanted, counts[open_classes])
    return quotas
