"""Post-hoc corrections of class probabilities, in scikit-learn's estimator shape."""

from poise.methods.dnip import DNIP, DNIPSearch

__all__ = ["DNIP", "DNIPSearch"]
