"""What the report says in words: the templates in ``workflow/report`` ask here, the registry has the sentences. Light.

Text that users chose is escaped, as the templates are reStructuredText.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from poise.artefacts.registry import ARTEFACTS, location
from poise.plan import Plan
from poise.planfile import caveats, describe
from poise.runs.outcome import asked, missing, provenance, unreached

if TYPE_CHECKING:
    from poise.workflow import Wildcards

_INSTRUMENTS = {
    "dnip": "Class accuracy (DNIP paper)",
    "position": "Position (position paper)",
    "joint": "Both instruments together",
}
_ORIGINS = {
    "measured": "measured in this run",
    "paper": "printed in the paper",
    "synthetic": "synthetic, of the test engine",
    "not measured": "not measured, with the reason",
}
FIGURE_SPACE = "\u2007"  # as wide as a digit: Table 2 stands before Table 10
NO_BREAK = "\u00a0"


class Report:
    """Words of one study's report."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.study = rst(plan.study.name)
        self.title = rst(plan.study.title)

    # Where an artefact stands ---------------------------------------------------------------------------------------

    def category(self, wildcards: Wildcards) -> str:
        """Instrument that an artefact belongs to."""
        return _INSTRUMENTS[wildcards.artefact.partition("_")[0]]

    def labels(self, wildcards: Wildcards) -> dict[str, str]:
        """Place in the paper and title of an artefact."""
        place = location(wildcards.artefact).rpartition(", ")[2]
        number = re.fullmatch(r"(\w+) (\d)", place)
        place = f"{number[1]} {FIGURE_SPACE}{number[2]}" if number else place
        return {
            "paper": place.replace(" ", NO_BREAK) if place[0].isupper() else "–",
            "shows": ARTEFACTS[wildcards.artefact].title,
        }

    def page_labels(self, wildcards: Wildcards) -> dict[str, str]:
        """Labels of a table to read."""
        return {**self.labels(wildcards), "format": "page"}

    def values_labels(self, wildcards: Wildcards) -> dict[str, str]:
        """Labels of a table's tidy values."""
        return {**self.labels(wildcards), "format": "values (CSV)"}

    # What the templates print ---------------------------------------------------------------------------------------

    def caption(self, artefact: str) -> dict[str, str]:
        """Title, reading, place and provenance of an artefact."""
        kinds = provenance(self.plan.study.name, artefact) if ARTEFACTS[artefact].kind == "table" else []
        origin = "; ".join(_ORIGINS.get(kind, kind) for kind in kinds)
        return {
            "title": rst(ARTEFACTS[artefact].title),
            "reading": rst(ARTEFACTS[artefact].reading),
            "location": rst(location(artefact)),
            "provenance": origin or "the figure says it in its head",
            "id": rst(artefact),
        }

    @property
    def models(self) -> list[str]:
        """Each model with its source and engine."""
        engine_of = self.plan.study.engine_of
        return [
            rst(f"{model.title}: {describe(model)}; engine {engine_of(model).kind}{caveats(self.plan, model)}")
            for model in self.plan.study.models.values()
        ]

    @property
    def datasets(self) -> list[str]:
        """Each data set with its source and classes."""
        return [
            rst(f"{dataset.title} ({', '.join(dataset.classes)}): {describe(dataset)}")
            for dataset in self.plan.study.datasets.values()
        ]

    @property
    def asked(self) -> list[str]:
        """What each model was asked."""
        return [rst(str(item)) for item in asked(self.plan)]

    @property
    def missing(self) -> list[str]:
        """What is not measured, and why."""
        found = missing(self.plan)
        lines = [f"{name}: {reason}" for name, reason in found.tables.items()]
        lines += [f"{', '.join(found.partly)}: some rows, which say why"] if found.partly else []
        return [rst(line) for line in [*unreached(self.plan), *lines]]


def rst(text: str) -> str:
    """Text that reStructuredText prints literally, in one line."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))
