"""What all configuration models share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"found {text!r}, expected one line without control characters")
    return text


def _distinct(values: list[int]) -> list[int]:
    if len(set(values)) < len(values):
        raise ValueError(f"found {values}, expected each once")
    return values


Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=100)]
Line = Annotated[str, AfterValidator(_printable)]
Seeds = Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1), AfterValidator(_distinct)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Shots = Annotated[str, Field(pattern=r"^(\d+_shot|k_shot|\d+_per_class)$")]


class Strict(BaseModel):
    """Base of all: unknown keys are errors, values are immutable, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
