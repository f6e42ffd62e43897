"""Correction of one run: subsets of the optimisation rows, tuning, rounding, curves."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pydantic import TypeAdapter

from poise.answers import CellAnswers
from poise.config.methods import Method
from poise.metrics import cobias
from poise.stages.correct import Run, predict
from poise.stages.fitting import CURVE_POINTS, optimisation_subset

N_CLASSES = 3
METHOD: TypeAdapter[Method] = TypeAdapter(Method)


def _answers(n: int, seed: int) -> CellAnswers:
    """Answers with a planted preference for class 0."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, N_CLASSES, n)
    logits = generator.normal(size=(n, N_CLASSES)) + 1.5 * np.eye(N_CLASSES)[labels] + np.array([2.0, 0, 0])
    probabilities = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
    blank = np.full_like(probabilities, np.nan)
    return CellAnswers(np.arange(n), labels, probabilities, labels, np.ones(n), blank)


@pytest.fixture(scope="module")
def run() -> Run:
    return Run("1_shot", 0, _answers(400, 1), _answers(300, 2), _answers(60, 3), _answers(3, 4))


def _predict(run: Run, **config: object) -> tuple[np.ndarray, dict]:
    return predict(METHOD.validate_python({"name": "m", "title": "M", **config}), run, N_CLASSES)


@pytest.mark.parametrize(
    "config",
    [
        {"kind": "dnip"},
        {"kind": "dnip", "solver": "exact"},
        {"kind": "dnip", "tuning": "dev", "grid": {"beta": [0.5, 2.7], "n_levels": [10.0, 30.0]}},
        {"kind": "batch_calibration"},
        {"kind": "prior_matching", "prior": "labels"},
        {"kind": "linear_adapter"},
    ],
)
def test_every_correction_reduces_a_planted_imbalance(run: Run, config: dict) -> None:
    before, nothing = _predict(run, kind="icl")
    after, record = _predict(run, **config)
    assert nothing == {}
    assert cobias(run.test.labels, after, N_CLASSES) < cobias(run.test.labels, before, N_CLASSES) - 0.1
    json.dumps(record, allow_nan=False)


def test_contextual_calibration_uses_as_many_inputs_as_it_says(run: Run) -> None:
    assert run.content_free is not None
    for n_inputs in (1, 3):
        mean = run.content_free.probabilities[:n_inputs].mean(axis=0)
        found, _ = _predict(run, kind="contextual_calibration", n_inputs=n_inputs)
        np.testing.assert_array_equal(found, (run.test.probabilities / mean).argmax(axis=1))


def test_tuning_keeps_what_it_chose(run: Run) -> None:
    _, record = _predict(run, kind="dnip", tuning="dev", grid={"beta": [0.5, 2.7], "n_levels": [10.0, 30.0]})
    assert record["tuned"]["beta"] in (0.5, 2.7)
    assert record["tuned"]["n_levels"] in (10, 30)
    assert record["development_rows"] == 60


def test_annealing_leaves_thinned_curves_and_exact_a_certificate(run: Run) -> None:
    _, annealed = _predict(run, kind="dnip", solver="metropolis", limits="dcs")
    curve = annealed["curve"]
    assert 10 < len(curve["evaluation"]) <= CURVE_POINTS
    assert curve["evaluation"][0] == 1
    assert curve["best"] == sorted(curve["best"], reverse=True)
    _, exact = _predict(run, kind="dnip", solver="exact")
    assert exact["certified"]
    assert exact["objective"] <= min(annealed["objective"], _predict(run, kind="dnip")[1]["objective"]) + 1e-12


def test_small_subsets_hold_equally_many_of_each_class() -> None:
    labels = np.array([0] * 50 + [1] * 30 + [2] * 20)
    assert np.bincount(labels[optimisation_subset(labels, 10, 3)]).tolist() == [3, 3, 4]
    assert np.bincount(labels[optimisation_subset(labels, 2, 3)]).tolist() == [1, 1, 2]
    many = np.repeat(np.arange(14), 10)
    assert len(optimisation_subset(many, 10, 14)) == 15  # the paper's 15 for DBpedia's 10


def test_larger_subsets_are_the_first_rows_and_full_is_all() -> None:
    labels = np.zeros(500, dtype=int)
    assert optimisation_subset(labels, 101, 3).tolist() == list(range(101))
    assert len(optimisation_subset(labels, None, 3)) == len(optimisation_subset(labels, 1000, 3)) == 500


def test_rounding_is_the_authors_six_decimals() -> None:
    answers = _answers(3, 0)
    tiny = answers.probabilities.copy()
    tiny[0] = [4e-7, 6e-7, 1]
    rounded = CellAnswers(answers.rows, answers.labels, tiny, answers.greedy, answers.label_mass, tiny).rounded(6)
    np.testing.assert_array_equal(rounded.probabilities[0], np.array([0, 1e-6, 1], dtype=np.float32))
    assert answers.rounded(None) is answers
