"""The DNIP estimator: its fitted state, its consistency, and what it refuses."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from poise.methods import DNIP
from tests.unit.test_dnip_objective import skewed, slow_argmax, slow_z


@pytest.fixture(scope="module")
def data():
    return skewed(600, 4, 7)


@pytest.mark.parametrize("solver", ["heat_bath", "metropolis", "exact"])
@pytest.mark.parametrize("objective", ["cobias", "cobias_single", "odd_rate"])
def test_predictions_give_back_the_reported_objective(data, solver, objective):
    P, y = data
    model = DNIP(solver=solver, objective=objective, mu="scaled").fit(P, y)
    z = slow_z(y, model.predict(P), 4, bias=objective, mu=4000 * 600 / 9500)
    assert model.objective_ == pytest.approx(z, abs=1e-12)
    assert model.predict(P).tolist() == slow_argmax(P, model.levels_)
    assert np.all((model.weights_ > 0) & (model.weights_ <= 1))
    assert model.weights_.tolist() == (model.levels_ / 30).tolist()
    assert model.certified_ == (solver == "exact")
    assert (model.history_ != {}) == (solver == "metropolis")


def test_it_corrects_imbalance_and_accuracy():
    P, y = skewed(2000, 4, 1, signal=2.5, skew=2)
    model = DNIP().fit(P, y)
    before, after = P.argmax(axis=1), model.predict(P)
    assert slow_z(y, after, 4, terms=("bias",)) < 0.5 * slow_z(y, before, 4, terms=("bias",))
    assert (after == y).mean() > (before == y).mean()


def test_probabilities_are_weighted_and_renormalised(data):
    P, y = data
    model = DNIP().fit(P, y)
    expected = P * model.weights_
    assert model.predict_proba(P) == pytest.approx(expected / expected.sum(axis=1, keepdims=True))
    assert model.predict_proba(P).argmax(axis=1).tolist() == model.predict(P).tolist()


def test_classes_are_names_in_column_order(data):
    P, y = data
    names = ["zebra", "ant", "mole", "bee"]
    named = DNIP(classes=names).fit(P, np.array(names)[y])
    plain = DNIP().fit(P, y)
    assert named.classes_.tolist() == names
    assert named.levels_.tolist() == plain.levels_.tolist()
    assert named.predict(P).tolist() == [names[i] for i in plain.predict(P)]
    assert named.score(P, np.array(names)[y]) == plain.score(P, y)


def test_mu_by_name(data):
    assert DNIP(mu="paper").fit(*data).mu_ == 4000
    assert DNIP(mu="scaled").fit(*data).mu_ == pytest.approx(4000 * 600 / 9500)
    assert DNIP(mu=7).fit(*data).objective_ != DNIP(mu=8).fit(*data).objective_


def test_an_absent_class_keeps_its_column_and_leaves_cobias(data):
    P, y = data
    rows = y != 2
    with pytest.warns(UserWarning, match="class 2"):
        model = DNIP(solver="exact").fit(P[rows], y[rows])
    assert model.weights_.shape == (4,)
    assert model.objective_ == pytest.approx(slow_z(y[rows], model.predict(P[rows]), 4), abs=1e-12)


def test_zero_rows_are_uniform(data):
    P, y = data
    P = P.copy()
    P[[3, 8]] = 0
    model = DNIP().fit(P, y)
    assert model.n_zero_rows_ == 2
    uniform = P.copy()
    uniform[[3, 8]] = 0.25
    assert DNIP().fit(uniform, y).objective_ == model.objective_
    assert model.predict_proba(P)[3] == pytest.approx(model.levels_ / model.levels_.sum())
    assert model.predict(P)[3] == model.levels_.argmax()


def test_row_scale_by_powers_of_two_and_input_kind_do_not_matter(data):
    P, y = data
    model = DNIP().fit(P, y)
    scale = 2.0 ** np.random.default_rng(0).integers(-9, 9, (len(P), 1))
    for same in (P.tolist(), P.astype(np.float64), np.asfortranarray(P), P * scale):
        assert DNIP().fit(same, y.tolist()).levels_.tolist() == model.levels_.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda P, y: (np.where(P[5, 1] == P, np.nan, P), y), "NaN at row 5, column 1"),
        (lambda P, y: (np.where(P[5, 1] == P, np.inf, P), y), "infinite at row 5, column 1"),
        (lambda P, y: (-P, y), "negative at row 0, column 0"),
        (lambda P, y: (P * 0, y), "no probability above zero"),
        (lambda P, y: (P[0], y), "matrix"),
        (lambda P, y: (P[:, :1], y), "two columns"),
        (lambda P, y: (P[:0], y[:0]), "at least one row"),
        (lambda P, y: ([*P.tolist(), ["a"] * 4], y), "matrix of numbers"),
        (lambda P, y: (P, y[:-1]), "one label for each of the 600 rows"),
        (lambda P, y: (P, y[:, None]), "one label for each"),
        (lambda P, y: (P, y + 1), "column index 0..3"),
        (lambda P, _: (P, np.full(600, np.nan)), "column index 0..3"),
        (lambda P, _: (P, np.full(600, "a")), "name the classes"),
    ],
)
def test_bad_data_is_refused_in_one_line(data, change, message):
    with pytest.raises(ValueError, match=message) as caught:
        DNIP().fit(*change(*data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_levels": 1}, "n_levels must be"),
        ({"n_levels": 2.5}, "n_levels must be"),
        ({"n_levels": 10**6}, "n_levels must be"),
        ({"n_restarts": 0}, "n_restarts must be"),
        ({"solver": "magic"}, "solver must be one of"),
        ({"objective": "gini"}, "objective must be one of"),
        ({"mu": "large"}, "mu must be"),
        ({"mu": -1}, "mu must be"),
        ({"classes": ["a", "b"]}, "4 distinct names"),
        ({"classes": ["a", "b", "c", "a"]}, "4 distinct names"),
        ({"time_limit_s": -1}, "time_limit_s must be"),
        ({"solver": "metropolis", "limits": "huge"}, "limits must be"),
        ({"solver": "metropolis", "limits": (0, 5)}, "limits must be"),
        ({"solver": "metropolis", "init": "zeros"}, "init must be"),
    ],
)
def test_bad_parameters_are_refused(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        DNIP(**parameters).fit(*data)


def test_predict_checks_its_input(data):
    P, y = data
    with pytest.raises(NotFittedError):
        DNIP().predict(P)
    model = DNIP().fit(P, y)
    with pytest.raises(ValueError, match="3 features, but DNIP is expecting 4"):
        model.predict(P[:, :3])
    with pytest.raises(ValueError, match="negative"):
        model.predict_proba(-P)


def test_scikit_learn_conventions(data):
    model = DNIP(beta=1.0, n_levels=10, classes=[3, 2, 1, 0], limits=(2, 4))
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert twin.set_params(beta=5.0).beta == 5.0
    P, y = data
    fitted = model.fit(P, 3 - y)
    again = pickle.loads(pickle.dumps(fitted))
    assert again.predict(P).tolist() == fitted.predict(P).tolist()
    assert not hasattr(clone(fitted), "weights_")


def test_no_warning_when_all_classes_are_present(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DNIP().fit(*data)
