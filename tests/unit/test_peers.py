"""The peers of DNIP: small cases by hand, invariances, and what each promises of its corrected probabilities."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from poise.methods import DNIP, BatchCalibration, ContextualCalibration, LinearAdapter, PriDe, PriorMatching
from tests.unit.test_dnip_objective import skewed, slow_z

REWEIGHTING = [
    BatchCalibration(),
    ContextualCalibration(),
    PriorMatching(),
    PriorMatching(prior="labels"),
    PriDe(),
    PriDe(form="official", fraction=1),
]
ALL = [*REWEIGHTING, LinearAdapter(max_epochs=3)]


def fresh(estimator, **parameters):
    return type(estimator)(**{**estimator.get_params(), **parameters})


@pytest.fixture(scope="module")
def data():
    P, y = skewed(500, 4, 3, signal=2, skew=2)
    P = P.astype(np.float64)
    return P / P.sum(axis=1, keepdims=True), y


# What all share


@pytest.mark.parametrize("estimator", REWEIGHTING, ids=str)
def test_permuting_the_classes_permutes_the_result(data, estimator):
    P, y = data
    order = np.array([2, 0, 3, 1])
    plain = fresh(estimator).fit(P, y)
    permuted = fresh(estimator).fit(P[:, order], order.argsort()[y])
    assert permuted.weights_ == pytest.approx(plain.weights_[order])
    assert permuted.predict_proba(P[:, order]) == pytest.approx(plain.predict_proba(P)[:, order])
    assert order[permuted.predict(P[:, order])].tolist() == plain.predict(P).tolist()


@pytest.mark.parametrize("estimator", REWEIGHTING[:-1], ids=str)  # the official PriDe normalises every row
def test_scaling_a_column_is_undone(data, estimator):
    P, y = data
    scale = np.array([1, 0.2, 7, 3])
    plain, scaled = fresh(estimator).fit(P, y), fresh(estimator).fit(P * scale, y)
    assert scaled.predict_proba(P * scale) == pytest.approx(plain.predict_proba(P), abs=1e-6)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_named_classes_pickles_and_probabilities(data, estimator):
    P, y = data
    names = np.array(["zebra", "ant", "mole", "bee"])
    plain = fresh(estimator).fit(P, y)
    named = pickle.loads(pickle.dumps(fresh(estimator, classes=names.tolist()).fit(P, names[y])))
    assert named.predict(P).tolist() == names[plain.predict(P)].tolist()
    assert plain.predict_proba(P).sum(axis=1) == pytest.approx(np.ones(len(P)))
    assert plain.predict_proba(P).argmax(axis=1).tolist() == plain.predict(P).tolist()
    assert named.score(P, names[y]) == plain.score(P, y)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_a_zero_row_counts_as_uniform(data, estimator):
    P, y = data
    P, uniform = P.copy(), P.copy()
    P[[4, 9]], uniform[[4, 9]] = 0, 0.25
    model, same = fresh(estimator).fit(P, y), fresh(estimator).fit(uniform, y)
    assert model.predict_proba(P) == pytest.approx(same.predict_proba(uniform))
    assert model.predict(P).tolist() == same.predict(uniform).tolist()


@pytest.mark.parametrize("estimator", REWEIGHTING, ids=str)
def test_equal_columns_stay_equal_and_ties_go_to_the_lowest(estimator):
    P = np.full((6, 3), 1 / 3)
    model = fresh(estimator).fit(P, [0, 1, 2, 0, 1, 2])
    assert model.weights_.tolist() == [1, 1, 1]
    assert model.predict(P).tolist() == [0] * 6


def test_those_fitted_on_the_test_batch_say_so():
    assert BatchCalibration.transductive
    assert PriDe.transductive
    assert not ContextualCalibration.transductive
    assert not PriorMatching.transductive


@pytest.mark.parametrize("estimator", [DNIP(n_restarts=1), *ALL], ids=str)
@pytest.mark.parametrize(
    ("P", "error", "message"),
    [
        ([[0.5, np.nan]], ValueError, "NaN at row 0, column 1"),
        ([[0.5, np.inf]], ValueError, "infinite at row 0, column 1"),
        ([[0.5, -0.1]], ValueError, "negative at row 0, column 1: -0.1"),
        ([[0.0, 0.0]], ValueError, "no probability above zero"),
        ([[0.5]], ValueError, "two columns"),
        (np.empty((0, 3)), ValueError, "at least one row"),
        ([0.5, 0.5], ValueError, "matrix .rows, classes., found 1 dimension"),
        ([["a", "b"]], ValueError, "matrix of numbers"),
        ([[0.1, 0.2], [0.3]], ValueError, "matrix of numbers"),
        ([[0.1, {}]], TypeError, "matrix of numbers"),
        ([[0.1j, 1]], ValueError, "Complex"),
        (sparse.csr_array([[0.5, 0.5]]), ValueError, "not sparse"),
    ],
)
def test_bad_matrices_are_refused_in_one_line(estimator, P, error, message):
    with pytest.raises(error, match=message) as caught:
        fresh(estimator).fit(P, [0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("estimator", [DNIP(n_restarts=1), *ALL], ids=str)
def test_predict_checks_its_columns(data, estimator):
    P, y = data
    with pytest.raises(NotFittedError):
        fresh(estimator).predict(P)
    with pytest.raises(ValueError, match=r"3 features, but \w+ is expecting 4"):
        fresh(estimator).fit(P, y).predict_proba(P[:, :3])
    model = fresh(estimator).fit(pd.DataFrame(P, columns=list("abcd")), y)
    with pytest.raises(ValueError, match="same order as they were in fit"):
        model.predict(pd.DataFrame(P, columns=list("abdc")))


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (BatchCalibration(classes=["a"]), "4 distinct names"),
        (ContextualCalibration(floor=-1), "floor must be"),
        (ContextualCalibration(floor=np.nan), "floor must be"),
        (PriorMatching(prior="even"), "prior must be 'uniform', 'labels' or an array"),
        (PriorMatching(prior=[0.5, 0.5]), "4 non-negative numbers with sum 1"),
        (PriorMatching(prior=[0.5, 0.5, 0.5, -0.5]), "4 non-negative numbers with sum 1"),
        (PriorMatching(prior=[0.5, 0.5, 0.5, 0.5]), "4 non-negative numbers with sum 1"),
        (PriorMatching(prior=[np.nan] * 4), "4 non-negative numbers with sum 1"),
        (PriorMatching(prior=["a"] * 4), "4 non-negative numbers with sum 1"),
        (PriorMatching(max_iter=0), "max_iter must be"),
        (PriorMatching(tol=0), "tol must be"),
        (LinearAdapter(n_hidden=0), "n_hidden must be"),
        (LinearAdapter(max_epochs=1.5), "max_epochs must be"),
        (LinearAdapter(patience=0), "patience must be"),
        (LinearAdapter(beta=-1), "beta must be"),
        (LinearAdapter(tau=np.inf), "tau must be"),
        (LinearAdapter(mu=0), "mu must be"),
        (LinearAdapter(mu="large"), "mu must be"),
        (LinearAdapter(learning_rate=0), "learning_rate must be"),
        (LinearAdapter(validation_fraction=1), "validation_fraction must be"),
        (PriDe(form="original"), "form must be one of paper, official"),
        (PriDe(fraction=0), "fraction must be"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused_in_one_line(data, estimator, message):
    with pytest.raises(ValueError, match=message) as caught:
        estimator.fit(*data)
    assert "\n" not in str(caught.value)


# Batch calibration


def test_batch_calibration_by_hand():
    model = BatchCalibration().fit([[0.9, 0.1], [0.7, 0.3]])
    assert model.weights_ == pytest.approx([0.25, 1])  # means 0.8 and 0.2
    assert model.predict([[0.9, 0.1], [0.7, 0.3]]).tolist() == [0, 1]
    assert model.predict_proba([[0.7, 0.3]]) == pytest.approx(np.array([[0.175, 0.3]]) / 0.475)


def test_batch_calibration_levels_the_means(data):
    P, _ = data
    means = (P * BatchCalibration().fit(P).weights_).mean(axis=0)
    assert means == pytest.approx(np.full(4, means[0]))


def test_batch_calibration_of_a_class_without_probability():
    model = BatchCalibration().fit([[0.6, 0.4, 0], [0.9, 0.1, 0]])
    assert model.weights_ == pytest.approx([1 / 3, 1, 1])
    assert np.isfinite(BatchCalibration().fit([[1, 5e-324]]).predict_proba([[1, 1]])).all()


# Contextual calibration


def test_contextual_calibration_by_hand():
    model = ContextualCalibration().fit([[0.6, 0.3, 0.1]])
    assert model.weights_ == pytest.approx([1 / 6, 1 / 3, 1])
    assert model.predict([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.5, 0.2, 0.3]]).tolist() == [0, 1, 2]
    assert model.predict_proba([[0.6, 0.3, 0.1]]) == pytest.approx(np.full((1, 3), 1 / 3))


def test_contextual_calibration_averages_its_inputs():
    three = ContextualCalibration().fit([[0.6, 0.4], [0.8, 0.2], [1, 0]])
    assert three.weights_ == pytest.approx([0.25, 1])


def test_contextual_calibration_floor():
    assert ContextualCalibration(floor=0.1).fit([[0.5, 0.5, 0]]).weights_ == pytest.approx([0.2, 0.2, 1])
    assert ContextualCalibration().fit([[1, 0]]).weights_ == pytest.approx([1e-10, 1])
    assert ContextualCalibration(floor=0).fit([[0.8, 0.2, 0]]).weights_ == pytest.approx([0.25, 1, 1])


# Prior matching


def test_prior_matching_by_hand():
    # w0 a / (w0 a + w1 b) over rows (3/4, 1/4) and (1/4, 3/4): symmetric, so equal weights
    assert PriorMatching().fit([[0.75, 0.25], [0.25, 0.75]]).weights_ == pytest.approx([1, 1])
    # one row: odds 3 must become odds 1, and odds 1/4
    assert PriorMatching().fit([[0.75, 0.25]]).weights_ == pytest.approx([1 / 3, 1])
    assert PriorMatching(prior=[0.2, 0.8]).fit([[0.75, 0.25]]).weights_ == pytest.approx([1 / 12, 1])


@pytest.mark.parametrize("prior", ["uniform", "labels", [0.1, 0.2, 0.3, 0.4]], ids=str)
def test_prior_matching_reaches_its_prior(data, prior):
    P, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PriorMatching(prior=prior).fit(P, y)
    wanted = {"uniform": np.full(4, 0.25), "labels": np.bincount(y) / len(y)}.get(str(prior), prior)
    assert model.prior_ == pytest.approx(wanted)
    assert np.abs(model.predict_proba(P).mean(axis=0) - wanted).max() < 1e-6
    assert 1 <= model.n_iter_ < 1000
    assert model.weights_.max() == 1


def test_prior_matching_of_sharp_probabilities():
    P, _ = skewed(2000, 5, 1, skew=2, temperature=12)
    model = PriorMatching().fit(P)
    assert np.abs(model.predict_proba(P).mean(axis=0) - 0.2).max() < 1e-6


def test_prior_matching_does_not_mind_the_scale_of_rows(data):
    P, _ = data
    scale = np.random.default_rng(0).uniform(0.1, 9, (len(P), 1))
    assert PriorMatching().fit(P * scale).weights_ == pytest.approx(PriorMatching().fit(P).weights_)


def test_prior_matching_never_predicts_a_class_of_prior_zero(data):
    P, y = data
    rows = y != 1
    model = PriorMatching(prior="labels").fit(P[rows], y[rows])
    assert model.weights_[1] == 0
    assert 1 not in model.predict([*P, [0, 1, 0, 0]])


def test_prior_matching_says_when_it_cannot():
    with pytest.warns(ConvergenceWarning, match="prior not met to 1e-08 in 1000 iterations"):
        model = PriorMatching().fit(np.eye(3)[[0, 0, 1, 2]])
    assert model.n_iter_ == 1000
    assert model.predict(np.eye(3)).tolist() == [0, 1, 2]
    with pytest.warns(ConvergenceWarning, match="no probability of class 2"):
        model = PriorMatching().fit([[0.75, 0.25, 0]])
    assert model.weights_ == pytest.approx([1 / 3, 1, 1])
    with pytest.raises(ValueError, match="no class whose prior is above zero"):
        PriorMatching(prior=[0, 0, 1]).fit([[0.75, 0.25, 0]])


def test_prior_matching_needs_labels_only_for_their_shares():
    assert PriorMatching().fit([[0.5, 0.5]], None).n_iter_ == 1
    with pytest.raises(ValueError, match="requires y"):
        PriorMatching(prior="labels").fit([[0.5, 0.5]])


# The linear adapter


def soft_z(P, y, mu, beta=2.7, tau=0.2):
    """The surrogate, term by term."""
    m, n = P.shape
    present = [j for j in range(n) if j in y]
    accuracy = {j: P[y == j, j].mean() for j in present}
    gaps = [abs(accuracy[i] - accuracy[j]) for i in present for j in present if i < j]
    pmi = 0.0
    for j in range(n):
        joint = (P[y == j, j].sum() + mu) / (m + mu * n * n)
        pmi += np.log(joint / ((P[:, j].sum() + mu) / (m + mu * n)) / (((y == j).sum() + mu) / (m + mu * n)))
    return 1 - P[np.arange(m), y].mean() + beta * sum(gaps) / max(len(gaps), 1) - tau * pmi


@pytest.mark.parametrize("absent", [[], [1], [0, 1, 2]])
def test_the_adapter_starts_at_the_surrogate_of_the_probabilities(data, absent):
    P, y = data
    rows = ~np.isin(y, absent)
    model = LinearAdapter(mu=50, max_epochs=1, learning_rate=1e-12, validation_fraction=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if absent else "error")
        model.fit(P[rows], y[rows])
    assert model.loss_ == pytest.approx(soft_z(P[rows], y[rows], 50), abs=1e-9)
    assert model.predict_proba(P) == pytest.approx(P, abs=1e-6)
    assert model.mu_ == 50


@pytest.mark.parametrize("mu", ["paper", "scaled"])
def test_the_adapter_reduces_a_planted_imbalance(mu):
    P, y = skewed(1500, 4, 1, signal=2.5, skew=2)
    model = LinearAdapter(mu=mu).fit(P[:1000], y[:1000])
    before, after = P[1000:].argmax(axis=1), model.predict(P[1000:])
    bias_before, bias_after = (slow_z(y[1000:], found, 4, terms=("bias",)) for found in (before, after))
    assert bias_after < 0.6 * bias_before
    assert (after == y[1000:]).mean() > (before == y[1000:]).mean()
    assert model.mu_ == (4000 if mu == "paper" else pytest.approx(4000 * 950 / 9500))


def test_the_adapter_keeps_its_best_epoch_and_stops(data):
    model = LinearAdapter(patience=3, learning_rate=0.5, validation_fraction=0).fit(*data)
    P, y = data
    assert model.n_iter_ < 500
    assert model.loss_ == pytest.approx(soft_z(model.predict_proba(P), y, 4000), abs=1e-9)
    assert model.loss_ <= soft_z(P, y, 4000)
    assert (model.down_.shape, model.up_.shape, model.bias_.shape) == ((4, 64), (64, 4), (4,))


def test_the_adapter_is_deterministic_and_leaves_torch_alone(data):
    import torch

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    first = LinearAdapter(max_epochs=20).fit(*data)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert LinearAdapter(max_epochs=20).fit(*data).up_.tolist() == first.up_.tolist()
    assert LinearAdapter(max_epochs=20, random_state=2).fit(*data).up_.tolist() != first.up_.tolist()


def test_methods_do_not_load_torch():
    code = "import sys, poise.methods; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# PriDe


def planted(prior, content, shifts):
    """P(k | x, shift) proportional to prior(k) content(x, k + shift), by position k: (n_shifts, M, N)."""
    raw = np.stack([prior * np.roll(content, -shift, axis=1) for shift in shifts])
    return raw / raw.sum(axis=2, keepdims=True)


def test_pride_by_hand():
    natural, reverse = [[0.9, 0.1], [0.7, 0.3]], [[0.8, 0.2], [0.4, 0.6]]
    model = PriDe().fit([natural, reverse])
    assert model.prior_ == pytest.approx([0.7, 0.3])
    assert model.weights_ == pytest.approx([3 / 7, 1])
    assert model.predict([[0.71, 0.29], [0.69, 0.31]]).tolist() == [0, 1]
    assert model.predict_proba([[0.7, 0.3]]) == pytest.approx(np.array([[0.5, 0.5]]))
    one = PriDe(form="official", fraction=1).fit([[[0.8, 0.2]], [[0.5, 0.5]]])
    assert one.prior_ == pytest.approx([2 / 3, 1 / 3])  # geometric means: odds (4 * 1) ** 0.5


def test_pride_official_removes_a_planted_prior_exactly():
    content = np.random.default_rng(0).dirichlet(np.ones(4), 60)
    prior = np.array([0.5, 0.1, 0.15, 0.25])
    P = planted(prior, content, range(4))
    for fraction in (0.01, 0.05, 1):  # whichever rows are drawn
        model = PriDe(form="official", fraction=fraction).fit(P)
        assert model.prior_ == pytest.approx(prior)
        for shift in range(4):
            assert model.predict_proba(P[shift]) == pytest.approx(np.roll(content, -shift, axis=1))


def test_pride_paper_removes_a_planted_prior_exactly_where_contents_balance():
    prior = np.array([0.5, 0.1, 0.4])
    level = planted(prior, np.full((5, 3), 1 / 3), [0, 1])
    assert PriDe().fit(level).prior_ == pytest.approx(prior)
    content = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    raw = np.stack([prior * np.roll(content, -shift, axis=1) for shift in range(3)])  # not renormalised: balanced
    model = PriDe().fit(raw)
    assert model.prior_ == pytest.approx(prior / 3)
    assert model.predict_proba(raw[1]) == pytest.approx(np.roll(content, -1, axis=1))
    assert PriDe().fit(planted(prior, content, range(3))).prior_ != pytest.approx(prior, abs=0.01)


def test_pride_of_one_permutation_is_a_stack_of_one(data):
    P, _ = data
    for form in ("paper", "official"):
        assert PriDe(form=form).fit(P).prior_.tolist() == PriDe(form=form).fit(P[None]).prior_.tolist()
    assert PriDe().fit(P).weights_ == pytest.approx(BatchCalibration().fit(P).weights_)


def test_pride_official_draws_the_fraction_of_rows(data):
    P, _ = data
    few, again = (PriDe(form="official", fraction=0.02, random_state=3).fit(P).prior_ for _ in range(2))
    assert few.tolist() == again.tolist()
    assert few.tolist() != PriDe(form="official", fraction=0.02, random_state=4).fit(P).prior_.tolist()
    assert PriDe(form="official", fraction=1).fit(P).prior_ == pytest.approx(P.mean(axis=0))


def test_pride_classes_name_the_positions():
    P = np.array([[0.6, 0.4], [0.9, 0.1]])
    assert PriDe(classes=["negative", "positive"]).fit(P).predict(P).tolist() == ["positive", "negative"]


def test_pride_survives_zeros():
    model = PriDe(form="official", fraction=1).fit([[[1, 0]], [[0.5, 0.5]]])
    assert (model.prior_ > 0).all()
    assert PriDe().fit([[1, 0]]).weights_.tolist() == [1, 1]
