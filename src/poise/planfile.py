"""Plans on disk: composing with what is there, freezing, loading."""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from poise import paths
from poise.cells import reachable
from poise.config.compose import compose_study
from poise.config.data import Dataset
from poise.config.factors import Level
from poise.config.models import Model
from poise.config.schema import Study, selects, with_selection
from poise.config.sources import FilesSource
from poise.errors import PoiseError
from poise.files import replacing, write_json
from poise.hashing import digest, file_sha256
from poise.plan import Batch, Plan, expand
from poise.rates import requests_per_second


def make_plan(overrides: Sequence[str]) -> Plan:
    """Compose a study and expand it, taking account of the batches on disk and of the bytes of local files."""
    study = compose_study(overrides)
    if selects(study):
        study = with_selection(study, chosen_levels(study.name))
    on_disk = list(batches_on_disk())
    return expand(
        study,
        overrides,
        content=content_digests(study),
        finished=[batch for batch, finished in on_disk if finished],
        pending=[batch for batch, finished in on_disk if not finished],
        rates=measured_rates(study),
    )


def measured_rates(study: Study) -> dict[str, float]:
    """Requests a second of the models that answered before, through the engine that they have now."""
    rates = {name: requests_per_second(name, study.engine_of(model).kind) for name, model in study.models.items()}
    return {name: rate for name, rate in rates.items() if rate}


def chosen_levels(study: str) -> dict[str, Level] | None:
    """Joint configurations that an earlier run of a study chose; None before it has."""
    path = paths.selection(study)
    if not path.is_file():
        return None
    try:
        levels = json.loads(path.read_text(encoding="utf-8"))["levels"]
        return {name: Level.model_validate(level) for name, level in levels.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise PoiseError(
            f"{path}: not a choice of configurations ({type(error).__name__}); delete it and run again"
        ) from error


def freeze(plan: Plan) -> Path:
    """Write a plan and its batches' manifests; return the immutable copy that jobs read."""
    data = plan.to_json()
    frozen = paths.frozen_plan_file(plan.study.name, digest(data))
    if not frozen.exists():
        write_json(frozen, data)
    latest = paths.plan_file(plan.study.name)
    if not latest.exists() or not filecmp.cmp(frozen, latest, shallow=False):
        with replacing(latest) as temporary:
            shutil.copyfile(frozen, temporary)
    for batch in plan.batches:
        manifest = paths.batch_dir(batch.model, batch.id) / "batch.json"
        if not manifest.exists():
            write_json(manifest, {"id": batch.id, "model": batch.model, "cells": list(batch.cells)})
    return frozen


def load(path: Path) -> Plan:
    """Read a plan."""
    try:
        return Plan.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise PoiseError(f"{path}: no plan here; make one with: poise plan study=… name=…") from None
    except (KeyError, TypeError, ValueError) as error:
        raise PoiseError(
            f"{path}: not a plan of this version of Poise ({type(error).__name__}); make it anew"
        ) from error


def resolve(study: str) -> Path:
    """Freeze the plan of a study: composed if ``conf/study`` has it, otherwise the one that ``poise plan`` left."""
    return freeze(composed(study))


def composed(study: str, more: Sequence[str] = ()) -> Plan:
    """Compose a study of ``conf/study``, or one that ``poise plan`` left, with more overrides."""
    if (paths.conf_dir() / "study" / f"{study}.yaml").is_file():
        return make_plan([f"study={study}", *more])
    latest = paths.plan_file(study)
    if latest.is_file():
        return make_plan([*json.loads(latest.read_text(encoding="utf-8"))["overrides"], *more])
    known = sorted(path.stem for path in (paths.conf_dir() / "study").glob("*.yaml"))
    raise PoiseError(
        f"study {study!r}: neither a configuration ({', '.join(known)}) nor a plan at {latest}; "
        f"make one with: poise plan study=demo name={study}"
    )


def batches_on_disk() -> Iterator[tuple[Batch, bool]]:
    """Batches that were planned before, in a fixed order, each with whether its responses are complete."""
    for manifest in sorted(paths.RESPONSES.glob("*/*/batch.json")):
        try:
            data = json.loads(manifest.read_text(encoding="utf-8"))
            batch = Batch(data["id"], data["model"], tuple(data["cells"]))
        except (KeyError, TypeError, ValueError):
            continue  # a damaged manifest: its cells are asked again, in another batch
        yield batch, is_answered(batch)


def is_answered(batch: Batch) -> bool:
    """Whether all answers of a batch are on disk."""
    folder = paths.batch_dir(batch.model, batch.id)
    return all((folder / name).is_file() for name in ("responses.parquet", "index.parquet"))


def content_digests(study: Study) -> dict[str, str]:
    """Digest of the bytes of every local source, by data set or model name."""
    found: dict[str, str] = {}
    for dataset in study.datasets.values():
        if isinstance(dataset.source, FilesSource):
            names = dict.fromkeys(table.path[0] for table in dataset.files().values())  # an archive counts once
            files = [source_file(dataset.source, name) for name in names]
            found[dataset.name] = digest([_sha256(path, f"dataset {dataset.name}") for path in files], 64)
    for model in study.models.values():
        if isinstance(model.source, FilesSource):
            folder = source_file(model.source, "")
            files = sorted(path for path in folder.glob("*") if path.is_file())
            if not files:
                raise PoiseError(f"model {model.name}: source.folder {folder}: no files here")
            found[model.name] = digest([_model_file(path) for path in files], 64)
    return found


def source_file(source: FilesSource, name: str) -> Path:
    """Path of one file of a local source; relative folders are meant from the working directory."""
    return Path(os.path.expandvars(source.folder)).expanduser() / name


def _sha256(path: Path, owner: str) -> str:
    if not path.is_file():
        raise PoiseError(f"{owner}: file not found: {path}")
    return file_sha256(path)


def _model_file(path: Path) -> list[str | int]:
    """Name, size and digest of a file; weights can be hundreds of gigabytes, so samples of theirs stand for them."""
    size = path.stat().st_size
    if size <= 16_000_000:
        return [path.name, size, file_sha256(path)]
    state = hashlib.sha256()
    with path.open("rb") as stream:
        for k in range(64):
            stream.seek(k * (size - 65_536) // 63)
            state.update(stream.read(65_536))
    return [path.name, size, state.hexdigest()]


def describe(config: Dataset | Model) -> str:
    """One phrase that says where a data set or model comes from."""
    source = config.source
    if source.kind == "package":
        return f"package {source.package} {source.version}"
    if source.kind == "packages":
        return f"packages {', '.join(f'{part.package} {part.version}' for part in source.parts)}"
    if source.kind == "api":
        return f"{source.provider}, model {source.id}"
    if source.kind == "hub":
        return f"hub {source.repo} @ {source.revision[:12]}"
    return f"files in {source.folder}"


def caveats(plan: Plan, model: Model) -> str:
    """What to know of a model before trusting, or waiting for, its rows."""
    notes = ["assumed: the paper does not name the checkpoint"] if model.assumed else []
    if model.source.kind == "hub" and model.source.gated:
        notes.append("gated: accept its terms on its hub page and set HF_TOKEN")
    engine = plan.study.engine_of(model)
    if not reachable(engine, model):
        hint = "add +engine@api=openai to ask it" if model.api else "its weights need engine=transformers or vllm"
        notes.append(f"the {engine.kind} engine does not reach it: no cells, its rows are not measured; {hint}")
    return "".join(f" ({note})" for note in notes)
