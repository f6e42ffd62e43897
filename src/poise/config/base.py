"""What all configuration models share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Shots = Annotated[str, Field(pattern=r"^(\d+_shot|k_shot|\d+_per_class)$")]


class Strict(BaseModel):
    """Base of all: unknown keys are errors, values are immutable, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
