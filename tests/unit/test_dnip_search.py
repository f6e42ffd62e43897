"""The grid search: selection on the development set, by each rule."""

import numpy as np
import pytest
from sklearn.base import clone

from poise.methods import DNIP, DNIPSearch
from poise.methods.dnip.search import _SELECTIONS
from tests.unit.test_dnip_objective import skewed, slow_z

GRID = {"beta": [0.0, 0.5, 2.7, 10.0], "tau": [0.0, 1.0], "n_levels": [10, 30]}


@pytest.fixture(scope="module")
def split():
    P, y = skewed(700, 4, 11, signal=2)
    return P[:400], y[:400], P[400:], y[400:]


@pytest.mark.parametrize(
    ("selection", "key"),
    [
        ("acc_then_cobias", lambda s: (-s[0], s[1])),
        ("cobias_then_acc", lambda s: (s[1], -s[0])),
        ("z", lambda s: s[2:]),
    ],
)
def test_each_rule_selects_by_its_own_order(split, selection, key):
    P, y, P_dev, y_dev = split
    search = DNIPSearch(DNIP(beta=1.5, mu="scaled"), GRID, selection).fit(*split)
    keys = []
    for parameters in search.results_["params"]:
        predicted = DNIP(mu="scaled", **parameters).fit(P, y).predict(P_dev)
        cobias = slow_z(y_dev, predicted, 4, terms=("bias",))
        z = slow_z(y_dev, predicted, 4, beta=1.5, tau=0.2, mu=4000 * 300 / 9500)
        keys.append(key(((predicted == y_dev).mean(), cobias, z)))
    assert len(keys) == 16
    # the transcription rounds differently in the last bits, so compare the winner's key, not its index
    assert keys[search.best_index_] == pytest.approx(min(keys), abs=1e-12)
    assert search.best_params_ == search.results_["params"][search.best_index_]
    assert search.predict(P_dev).tolist() == search.best_estimator_.predict(P_dev).tolist()
    assert search.score(P_dev, y_dev) == pytest.approx(search.results_["dev_accuracy"][search.best_index_])
    assert search.predict_proba(P_dev).shape == (300, 4)


def test_rules_can_disagree_and_threads_do_not_matter(split):
    one, two = (DNIPSearch(grid=GRID, n_jobs=n).fit(*split) for n in (1, 2))
    assert one.results_ == two.results_
    assert one.best_index_ == two.best_index_
    other = DNIPSearch(grid=GRID, selection="cobias_then_acc").fit(*split)
    assert other.best_index_ != one.best_index_


def test_the_default_grid_is_the_authors(split):
    P, y, P_dev, y_dev = split
    search = DNIPSearch(DNIP(n_restarts=1), n_jobs=2).fit(P[:60], y[:60], P_dev, y_dev)
    assert len(search.results_["params"]) == 80


def test_bad_searches_are_refused(split):
    with pytest.raises(ValueError, match="selection must be one of"):
        DNIPSearch(selection="best").fit(*split)
    with pytest.raises(ValueError, match="non-empty"):
        DNIPSearch(grid={"beta": []}).fit(*split)
    with pytest.raises(ValueError, match="n_jobs must be"):
        DNIPSearch(n_jobs=0).fit(*split)
    P, y, P_dev, y_dev = split
    with pytest.raises(ValueError, match="3 features"):
        DNIPSearch(grid=GRID).fit(P, y, P_dev[:, :3], y_dev)
    with pytest.raises(ValueError, match="negative"):
        DNIPSearch(grid=GRID).fit(-P, y, P_dev, y_dev)


def test_it_is_cloned_like_any_estimator():
    search = DNIPSearch(DNIP(beta=3), {"tau": [0, 1]}, "z")
    assert clone(search).get_params(deep=True)["estimator__beta"] == 3


def test_evaluate_overrides_leave_the_estimator_alone():
    P, y = skewed(300, 4, 5)
    model = DNIP(mu="scaled").fit(P, y)
    assert model.evaluate(P, y) == model.objective_
    predicted = model.predict(P)
    assert model.evaluate(P, y, terms=("bias",), objective="cobias_single") == pytest.approx(
        slow_z(y, predicted, 4, bias="cobias_single", terms=("bias",)), abs=1e-12
    )
    assert model.evaluate(P, y, terms=("error",)) == pytest.approx(np.mean(predicted != y))
    assert model.objective == "cobias"
    assert model.evaluate(P, y) == model.objective_


def test_equals_are_told_apart_by_the_second_criterion():
    accurate, balanced, both = (0.9, 0.2, 0.0), (0.8, 0.1, 0.0), (0.9, 0.1, 0.0)  # accuracy, COBias, Z
    for selection in ("acc_then_cobias", "cobias_then_acc"):
        assert min((accurate, balanced, both), key=_SELECTIONS[selection]) == both
    assert min((balanced, accurate), key=_SELECTIONS["acc_then_cobias"]) == accurate
    assert min((accurate, balanced), key=_SELECTIONS["cobias_then_acc"]) == balanced
