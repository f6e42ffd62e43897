"""All tables and figures by id: what each shows, what it is made of, which function makes it. Light to import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from poise import paths

CLASS_ACCURACY = "class_accuracy"
POSITION = "position"


@dataclass(frozen=True)
class Artefact:
    """One table or figure.

    Attributes
    ----------
    kind
        ``table`` or ``figure``.
    instruments
        Whose metrics it reads.
    maker
        ``module:function`` in :mod:`poise.artefacts`.
    reference
        Printed figures of the papers that may stand beside the measured ones.
    """

    kind: str
    title: str
    instruments: tuple[str, ...]
    maker: str
    reference: tuple[str, ...] = ()


ARTEFACTS = {
    "dnip_table1": Artefact(
        "table", "Confusion matrix before correction", (CLASS_ACCURACY,),
        "tables.imbalance:confusion_before", ("dnip/table1.csv",),
    ),
    "dnip_table2": Artefact(
        "table", "Confusion matrix after DNIP", (CLASS_ACCURACY,),
        "tables.imbalance:confusion_after", ("dnip/table2.csv",),
    ),
    "dnip_table3": Artefact(
        "table", "Test accuracy and COBias, before and after DNIP", (CLASS_ACCURACY,),
        "tables.imbalance:main_table", ("dnip/table3.csv",),
    ),
    "dnip_figure7": Artefact(
        "figure", "Test confusion matrices before and after DNIP", (CLASS_ACCURACY,),
        "figures.imbalance:confusion_matrices",
    ),
    "dnip_figure8": Artefact(
        "figure", "Pairwise class-accuracy differences before and after DNIP", (CLASS_ACCURACY,),
        "figures.imbalance:pairwise_differences",
    ),
    "position_table1": Artefact(
        "table", "Ordered data sets", (POSITION,),
        "tables.position:datasets_overview", ("position/table1.csv",),
    ),
    "position_table2": Artefact(
        "table", "Position sensitivity: prediction flip rates", (POSITION,),
        "tables.position:flip_rates", ("position/table2.csv",),
    ),
    "position_phase0_tests": Artefact(
        "table", "Accuracy under each probe condition, with tests", (POSITION,),
        "tables.position:accuracy_tests",
    ),
    "position_figure1": Artefact(
        "figure", "Label-order sensitivity, illustrated and measured", (POSITION,),
        "figures.position:label_order",
    ),
}  # fmt: skip


def artefact_outputs(study: str, artefact: str) -> list[Path]:
    """Files of an artefact, the one to look at first."""
    if ARTEFACTS[artefact].kind == "table":
        return [paths.table(study, artefact, suffix) for suffix in (".csv", ".md", ".html")]
    return [paths.figure(study, artefact, suffix) for suffix in (".png", ".pdf")]
