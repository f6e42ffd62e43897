"""Post-hoc corrections of class probabilities, in scikit-learn's estimator shape."""

from poise.methods.calibration import BatchCalibration, ContextualCalibration
from poise.methods.dnip import DNIP, DNIPSearch
from poise.methods.linear_adapter import LinearAdapter
from poise.methods.pride import PriDe
from poise.methods.prior_matching import PriorMatching

__all__ = [
    "DNIP",
    "BatchCalibration",
    "ContextualCalibration",
    "DNIPSearch",
    "LinearAdapter",
    "PriDe",
    "PriorMatching",
]
