"""For people who only have a matrix of class probabilities: read it, fit weights, apply them, audit the outcome.

Files are CSV, TSV or Parquet, gzipped or not (``docs/your-own-probabilities.md``). In messages rows are counted from 1,
without the header.
"""

from poise.matrix.auditing import Audit, audit, write_audit
from poise.matrix.files import (
    Labels,
    Probabilities,
    check_table_name,
    delimited_text,
    read_dcs,
    read_labels,
    read_probabilities,
    write_table,
)
from poise.matrix.weights import Weights, absent_classes, aligned, apply, fit, read_weights, write_weights

__all__ = [
    "Audit",
    "Labels",
    "Probabilities",
    "Weights",
    "absent_classes",
    "aligned",
    "apply",
    "audit",
    "check_table_name",
    "delimited_text",
    "fit",
    "read_dcs",
    "read_labels",
    "read_probabilities",
    "read_weights",
    "write_audit",
    "write_table",
    "write_weights",
]
