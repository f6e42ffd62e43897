"""Hydra composition: configuration files and overrides become one validated :class:`Study`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from poise.config.schema import Study
from poise.errors import PoiseError
from poise.hashing import digest
from poise.paths import conf_dir

_VARIANTS = ("package", "packages", "files", "hub", "api", "icl", "ordinal", "pairwise", "listwise")
_ENGINES = ("transformers", "vllm", "openai", "dummy")
_ALIASES = 20
_GROUPS = ("study", "model", "dataset", "prompt", "probe", "factor", "engine", "method", "experiment")


def expand_sweeps(overrides: Sequence[str]) -> list[list[str]]:
    """Split Hydra sweeps (``key=a,b``, ``range()``, ``glob()``) into the product of plain override lists."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import OverrideParseException

    try:
        parsed = OverridesParser.create().parse_overrides(overrides=list(overrides))
    except OverrideParseException as error:
        raise PoiseError(f"override {error.override!r}: not Hydra's override grammar (expected key=value)") from error
    axes = [
        [f"{item.get_key_element()}={value}" for value in item.sweep_string_iterator()]
        if item.is_sweep_override()
        else [str(item.input_line)]
        for item in parsed
    ]
    return [list(combination) for combination in itertools.product(*axes)]


def compose_study(overrides: Sequence[str]) -> Study:
    """Compose and validate one study; no sweep among the overrides.

    A study changed by overrides never takes the plain study's name: without ``name=`` it gets a digest suffix.

    Raises
    ------
    PoiseError
        One line naming the file, the key, what was found and what was expected.
    """
    import yaml
    from hydra import compose, initialize_config_dir
    from hydra.errors import ConfigCompositionException, HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    folder = conf_dir()
    if not (folder / "config.yaml").is_file():
        raise PoiseError(f"{folder}: no config.yaml here; run in Poise's folder or set POISE_CONF")
    _check_files(folder)
    try:
        with initialize_config_dir(str(folder), version_base=None):
            config = compose("config", overrides=list(overrides))
        raw = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except (ConfigCompositionException, HydraException) as error:
        raise PoiseError(_hydra_line(error, folder)) from error
    except yaml.YAMLError as error:
        raise PoiseError(f"{folder.name}: not YAML: {' '.join(str(error).split())}") from error
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or "?"
        raise PoiseError(f"{folder.name}: key {key}: {str(error).splitlines()[0]}") from error
    chosen = _without_unselected(cast(dict[str, Any], raw), folder)
    return validate_study(_named(chosen, overrides, folder), folder, overrides)


def _check_files(folder: Path) -> None:
    """Refuse what the YAML reader chokes on: files that are not UTF-8, aliases that multiply without end."""
    for path in sorted(folder.rglob("*.yaml")):
        name = f"{folder.name}/{path.relative_to(folder)}"
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise PoiseError(f"{name}: not UTF-8 (byte {error.start + 1}); save it as UTF-8") from error
        if len(re.findall(r"[\[\s,:-]\*\w", text)) > _ALIASES:
            raise PoiseError(f"{name}: more than {_ALIASES} YAML aliases (*name); write out what they stand for")


def validate_study(raw: dict[str, Any], folder: Path, overrides: Sequence[str] = ()) -> Study:
    """Check composed plain data against the schema, with one line for the first error."""
    try:
        return Study.model_validate(raw)
    except ValidationError as error:
        raise PoiseError(_validation_line(error, folder, overrides)) from error


def _without_unselected(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Drop a study's changes to experiments and factors that overrides took out of it (``experiment=[…]``)."""
    chosen = dict(raw)
    for group, essential in (("experiment", "instrument"), ("factor", "title")):
        chosen[group] = {
            key: value
            for key, value in raw.get(group, {}).items()
            if essential in value or not (folder / group / f"{key}.yaml").is_file()
        }
    return chosen


def _named(raw: dict[str, Any], overrides: Sequence[str], folder: Path) -> dict[str, Any]:
    """Give a changed study a name of its own: the one that ``name=`` says, or a digest suffix."""
    if all(item.startswith("study=") for item in overrides):
        return raw
    if not any(item.startswith("name=") for item in overrides):
        return {**raw, "name": f"{raw['name']}-{digest(raw, 6)}"}
    if raw["name"] in {path.stem for path in folder.glob("study/*.yaml")}:
        raise PoiseError(
            f"override name={raw['name']}: the name of a study in {folder.name}/study, whose results it would "
            f"overwrite; choose another"
        )
    return raw


def _hydra_line(error: Exception, folder: Path) -> str:
    text = str(error)
    missing = re.search(r"Could not (?:find|load) '(\w+)/([^']+)'", text)
    if missing:
        group, name = missing.groups()
        known = sorted(path.stem for path in (folder / group).glob("*.yaml"))
        return f"{folder.name}/{group}/{name}.yaml: file not found; {group} must be one of: {', '.join(known)}"
    override = re.search(r"Could not override '([^']+)'", text)
    if override:
        return (
            f"override {override[1]}: no such key in {folder.name}/; see the files there for the keys and their meaning"
        )
    return f"{folder.name}: {' '.join(text.split())[:300]}"


def _validation_line(error: ValidationError, folder: Path, overrides: Sequence[str]) -> str:
    errors = error.errors()
    locations = [_location(item["loc"]) for item in errors]
    causes = [_cause(location, overrides) for location in locations]
    # One that an override sets goes first: others may follow from it.
    number = next((k for k, cause in enumerate(causes) if cause), 0)
    first, location, cause = errors[number], locations[number], causes[number]
    key = ".".join(location) or "study"
    where = f"override {cause}" if cause else _file_of(location, folder, overrides)
    message = first["msg"].removeprefix("Value error, ")
    others = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"{where}: key {key}: unknown key{others}"
    if first["type"] == "missing":
        return f"{where}: key {key}: missing{others}"
    found = repr(first["input"])
    found = found if len(found) <= 80 else found[:77] + "..."
    if first["type"] == "value_error":
        return f"{where}: key {key}: {message}{others}"
    return f"{where}: key {key}: found {found}, expected: {message}{others}"


def _location(found: Sequence[str | int]) -> list[str]:
    """Keys of the configuration that lead to an error: after a union pydantic names the variant, which is none."""
    parts = list(map(str, found))
    return [
        part
        for k, part in enumerate(parts)
        if not (k and parts[k - 1] in ("source", "prompt") and part in _VARIANTS)
        and not (k == 2 and parts[0] == "method")
        and not (k == 1 and parts[0] == "engine" and part in _ENGINES)
    ]


def _cause(location: Sequence[str], overrides: Sequence[str]) -> str:
    """Last override that sets a place of the configuration; one that chooses members of a group sets none of theirs."""
    place = ".".join(location)
    keys = [(item.lstrip("+~").split("=", 1)[0], item) for item in overrides]
    return next((item for key, item in reversed(keys) if key not in _GROUPS and f"{place}.".startswith(f"{key}.")), "")


def _file_of(location: Sequence[str], folder: Path, overrides: Sequence[str]) -> str:
    """Name the file that a key most likely comes from: its ``@package`` header tells."""
    if len(location) >= 2 and location[0] in _GROUPS:
        for path in sorted((folder / location[0]).glob("*.yaml")):
            header = path.read_text(encoding="utf-8").split("\n", 1)[0]
            if header.replace(" ", "") == f"#@package{location[0]}.{location[1]}":
                return f"{folder.name}/{location[0]}/{path.name}"
        return f"{folder.name}/{location[0]}"
    study = next((item.split("=", 1)[1] for item in overrides if item.startswith("study=")), "demo")
    return f"{folder.name}/study/{study}.yaml"
