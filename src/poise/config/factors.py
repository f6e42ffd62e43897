"""Factors: one prompt, model or task choice varied at a time, level by level (position paper, Table 3)."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from poise.config.base import Line, Shots, Slug, Strict
from poise.config.prompts import Prompt


class Level(Strict):
    """What one level changes in its experiment.

    ``prompt`` changes single keys of the experiment's prompt; ``paradigm`` replaces it by a whole other one.
    """

    title: Line
    prompt: dict[str, Any] = Field(default_factory=dict)
    paradigm: Prompt | None = None
    shots: Shots | None = None
    cardinality: Slug | None = None

    @model_validator(mode="after")
    def _one_prompt(self) -> Level:
        if self.prompt and self.paradigm is not None:
            raise ValueError("give prompt (changes) or paradigm (a whole prompt), not both")
        return self


class Factor(Strict):
    """A factor and its levels. The ``baseline`` level is the experiment itself; a level that is null is left out."""

    name: Slug
    title: Line
    baseline: Slug
    min_classes: int = Field(default=2, ge=2)
    levels: dict[Slug, Level | None]

    @model_validator(mode="after")
    def _baseline_is_a_level(self) -> Factor:
        if self.levels.get(self.baseline) is None:
            raise ValueError(f"baseline: found {self.baseline!r}, expected one of the levels {sorted(self.levels)}")
        return self

    @property
    def changes(self) -> dict[str, Level]:
        """Levels other than the baseline, by name: the order of keys in a file says nothing."""
        return {name: level for name, level in sorted(self.levels.items()) if level and name != self.baseline}

    @property
    def chooses_prompt(self) -> bool:
        """Whether joint configurations may combine its levels: no other paradigm, no other scale, no configuration."""
        changed = self.changes.values()
        return self.name != "configuration" and not any(level.paradigm or level.cardinality for level in changed)
