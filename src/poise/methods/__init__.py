"""Post-hoc corrections of class probabilities, as scikit-learn estimators, and of hard answers, as functions."""

from poise.methods.aggregation import (
    AGGREGATION_RULES,
    bradley_terry,
    consensus,
    copeland,
    listwise_position,
    majority_of_groups,
    majority_vote,
    mean_score,
    weighted_sum,
)
from poise.methods.averaging import ROUNDING, average_labels, round_labels
from poise.methods.calibration import BatchCalibration, ContextualCalibration
from poise.methods.dnip import DNIP, DNIPSearch
from poise.methods.linear_adapter import LinearAdapter
from poise.methods.pride import PriDe
from poise.methods.prior_matching import PriorMatching

__all__ = [
    "AGGREGATION_RULES",
    "DNIP",
    "ROUNDING",
    "BatchCalibration",
    "ContextualCalibration",
    "DNIPSearch",
    "LinearAdapter",
    "PriDe",
    "PriorMatching",
    "average_labels",
    "bradley_terry",
    "consensus",
    "copeland",
    "listwise_position",
    "majority_of_groups",
    "majority_vote",
    "mean_score",
    "round_labels",
    "weighted_sum",
]
