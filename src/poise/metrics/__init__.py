"""Metrics of a classifier's balance and performance, as plain functions of label arrays.

A class is a column index 0..N-1 and a prediction of -1 an unparsed output. Rates are fractions, not percent.
"""

from poise.metrics.imbalance import (
    class_accuracies,
    cobias,
    cobias_from_accuracies,
    cobias_single,
    confusion_counts,
    odd_classes,
    odd_rate,
)
from poise.metrics.ordinal import (
    SpearmanRho,
    accuracy,
    macro_f1,
    mean_absolute_error,
    parse_failure_rate,
    spearman_rho,
)
from poise.metrics.position import FlipRate, flip_rate, wilson_interval
from poise.metrics.significance import cochran_q, mcnemar_one_sided
from poise.metrics.uncertainty import CobiasBootstrap, Interval, cobias_bootstrap, cobias_sampling_floor

__all__ = [
    "CobiasBootstrap",
    "FlipRate",
    "Interval",
    "SpearmanRho",
    "accuracy",
    "class_accuracies",
    "cobias",
    "cobias_bootstrap",
    "cobias_from_accuracies",
    "cobias_sampling_floor",
    "cobias_single",
    "cochran_q",
    "confusion_counts",
    "flip_rate",
    "macro_f1",
    "mcnemar_one_sided",
    "mean_absolute_error",
    "odd_classes",
    "odd_rate",
    "parse_failure_rate",
    "spearman_rho",
    "wilson_interval",
]
