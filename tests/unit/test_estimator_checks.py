"""scikit-learn's own checks of every method. Those that cannot apply are listed with the reason, and must fail."""

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from poise import methods as m

LABELLED = {
    "check_classifiers_train": "its labels are three for two columns; a column is a class",
    "check_classifiers_classes": "its labels are names, and three for two columns; a column is a class",
    "check_classifier_data_not_an_array": "label 2 of its data has no column; a column is a class",
    "check_estimators_overwrite_params": "label 2 of its data has no column; a column is a class",
    "check_estimators_fit_returns_self": "label 2 of its data has no column; a column is a class",
    "check_readonly_memmap_input": "label 2 of its data has no column; a column is a class",
    "check_supervised_y_2d": "a column vector of labels is refused, not flattened with a warning",
}
ABSENT = {"check_classifiers_one_label": "a class absent from y keeps its column, and may still be predicted"}
UNLABELLED = {
    "check_classifiers_train": "fit makes no use of y, so y of another length is no error",
    "check_classifiers_classes": "fit makes no use of y, so classes_ are the columns and not its labels",
    "check_classifiers_one_label": "fit makes no use of y, so it cannot know that there is one label",
    "check_classifiers_regression_target": "fit makes no use of y, so a continuous y is no error",
    "check_supervised_y_2d": "fit makes no use of y, so a column vector of labels is no cause for a warning",
}
ESTIMATORS = {
    m.DNIP(solver="heat_bath", n_restarts=2): LABELLED | ABSENT,
    m.LinearAdapter(max_epochs=5): LABELLED | ABSENT,
    m.PriorMatching(prior="labels"): LABELLED,
    m.PriorMatching(): UNLABELLED,
    m.BatchCalibration(): UNLABELLED,
    m.ContextualCalibration(): UNLABELLED,
    m.PriDe(): UNLABELLED,
    m.PriDe(form="official"): UNLABELLED,
}


@pytest.mark.filterwarnings("ignore:no row of y has class", "ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(list(ESTIMATORS), expected_failed_checks=ESTIMATORS.__getitem__, xfail_strict=True)
def test_scikit_learn_checks(estimator: BaseEstimator, check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it, the array API check skips
    check(estimator)
