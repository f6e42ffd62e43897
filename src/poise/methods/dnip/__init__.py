"""DNIP: correction weights by nonlinear integer programming, with three solvers and a search."""

from poise.methods.dnip.estimator import DNIP
from poise.methods.dnip.search import DNIPSearch

__all__ = ["DNIP", "DNIPSearch"]
