"""Which rows are demonstrations, which are optimised on, which are tested.

Seeded draws follow the papers' code where it is known: NumPy's legacy ``RandomState`` (research: DNIP and
few-shot-learning), Python's ``random`` for shuffles.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pandas as pd

from poise.config.data import Dataset
from poise.datasets.tables import normalised
from poise.errors import PoiseError

OPTIMISATION_SEED = 1
OPTIMISATION_SHARE = 0.95
TEST_SEED = 0


def draw_demonstrations(train: pd.DataFrame, n_classes: int, shots: str, seed: int, where: str) -> pd.DataFrame:
    """Demonstrations of one seed, in their base order.

    ``<n>_shot``: ``RandomState(seed).choice(n_train, n, replace=False)``, the DNIP paper's draw. ``k_shot``:
    one row of each class, then ``random.Random(seed).shuffle``. ``<n>_per_class``: n rows of each class, in
    table order.

    Raises
    ------
    PoiseError
        If there are too few training rows, or too few of a class.
    """
    n = int(re.sub(r"\D", "", shots) or 1)
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


def order_demonstrations(demonstrations: pd.DataFrame, order: str, seed: int) -> pd.DataFrame:
    """Rearrange demonstrations for probe 2: base, class-ascending, class-descending, fixed random order."""
    if order == "base":
        return demonstrations
    if order == "random":
        rows = list(range(len(demonstrations)))
        random.Random(seed).shuffle(rows)
        return demonstrations.iloc[rows]
    return demonstrations.sort_values("label", kind="stable", ascending=order == "ascending")


def training_pool(train: pd.DataFrame, test: pd.DataFrame, split_mode: str) -> pd.DataFrame:
    """Training rows that may be shown or optimised on.

    ``clean`` leaves out rows whose normalised text is a test row's; ``paper`` keeps them, as the authors'
    code does.
    """
    if split_mode == "paper":
        return train
    return train[~normalised(train["text"]).isin(set(normalised(test["text"])))]


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


def _pool_order(pool: pd.DataFrame, demonstrations: pd.DataFrame, split_mode: str) -> np.ndarray:
    order = np.random.RandomState(OPTIMISATION_SEED).permutation(len(pool))
    if split_mode == "paper":
        return order
    free = ~normalised(pool["text"]).isin(set(normalised(demonstrations["text"]))).to_numpy()
    return order[free[order]]


def draw_test_rows(rows: pd.DataFrame, dataset: Dataset, n: int | None) -> pd.DataFrame:
    """Draw the fixed test rows of a data set: all, the first, or ``n`` by a random or a stratified draw."""
    limits = [limit for limit in (n, dataset.test_rows) if limit is not None]
    size = min([*limits, len(rows)])
    if dataset.test_draw in ("all", "first") or size == len(rows):
        return rows.iloc[:size]
    generator = np.random.RandomState(TEST_SEED)
    if dataset.test_draw == "random":
        return rows.iloc[np.sort(generator.choice(len(rows), size, replace=False))]
    labels = rows["label"].to_numpy()
    quotas = stratified_quotas(np.bincount(labels, minlength=len(dataset.classes)), size)
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
