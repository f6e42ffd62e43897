"""The solvers on what a real model answered: SmolLM2-135M-Instruct on R8, movie reviews, tweets, SST-5 and TREC."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from poise.methods import DNIP

FILE = Path(__file__).parents[1] / "data/real_matrices.npz"
with np.load(FILE) as loaded:
    MATRICES = {
        name.removesuffix("|P"): (loaded[name], loaded[name.removesuffix("P") + "y"].astype(int))
        for name in loaded.files
        if name.endswith("|P")
    }
SMALL = [name for name, (P, _) in MATRICES.items() if P.shape[1] <= 5]


def test_there_are_enough_and_they_are_probabilities() -> None:
    assert len(MATRICES) >= 20
    assert len(SMALL) >= 15
    for P, y in MATRICES.values():
        assert P.dtype == np.float32
        np.testing.assert_allclose(P.sum(axis=1), 1, atol=1e-5)
        assert y.min() >= 0
        assert y.max() < P.shape[1]


@pytest.fixture(scope="module")
def heat_bath() -> dict[str, DNIP]:
    return {name: DNIP(mu="scaled").fit(P, y) for name, (P, y) in MATRICES.items()}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_heat_bath_is_never_above_the_papers_annealing(heat_bath: dict[str, DNIP]) -> None:
    for name, (P, y) in MATRICES.items():
        paper = DNIP(mu="scaled", solver="metropolis", limits="paper").fit(P, y)
        assert heat_bath[name].objective_ <= paper.objective_ + 1e-12, name


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_heat_bath_finds_the_certified_optimum(heat_bath: dict[str, DNIP]) -> None:
    missed = []
    for name in SMALL:
        exact = DNIP(mu="scaled", solver="exact", time_limit_s=60).fit(*MATRICES[name])
        assert exact.certified_, name
        assert exact.objective_ <= heat_bath[name].objective_ + 1e-12
        missed += [name] if heat_bath[name].objective_ > exact.objective_ + 1e-9 else []
    assert len(missed) <= len(SMALL) // 20, missed


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_objective_is_what_the_predictions_give(heat_bath: dict[str, DNIP]) -> None:
    for name, (P, y) in MATRICES.items():
        assert heat_bath[name].evaluate(P, y) == pytest.approx(heat_bath[name].objective_, abs=1e-12)
        assert set(np.unique(heat_bath[name].predict(P))) <= set(range(P.shape[1]))
