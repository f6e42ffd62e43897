"""After each edit exactly the jobs run that it concerns: a finished small study, one edit, Snakemake's dry run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from poise.config.compose import compose_study
from poise.plan import expand
from poise.workflow import Workflow
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

CLASSES = ["negative", "neutral", "positive"]
DATASET = """# @package dataset.{name}
name: {name}
title: Reviews, {name}
task: Sentiment Classification
domain: product reviews
ordered: true
source: {{kind: files, folder: data/local/{name}}}
tables: {{train: {{path: [train.csv]}}, test: {{path: [test.csv]}}}}
columns: {{text: text, label: label}}
classes: [negative, neutral, positive]
prompt:
  kind: icl
  name: {name}
  text_prefix: "Review: "
  label_prefix: "Sentiment:"
  label_words: [negative, neutral, positive]
"""
MODEL = """# @package model.{name}
name: {name}
title: Model {name}
source: {{kind: hub, repo: nobody/{name}, revision: "{revision}", licence: none}}
gguf: null
chat: false
chat_options: {{}}
label_tokens: {{prefix_space: true, scoring: sequence}}
context_length: 8192
answers: scores
max_new_tokens: 8
precision_note: ""
assumed: false
"""
STUDY = """# @package _global_
defaults:
  - override /engine: dummy
  - override /model: [one]
  - override /dataset: [mine, other]
  - override /probe: [label_order, demonstration_order, placement]
  - override /method: [icl, dnip]
  - override /experiment: [class_accuracy, position]
name: small
title: For tests
seeds: [0, 1]
artefacts: [dnip_table3, dnip_figure8, position_table2, position_figure3]
experiment:
  class_accuracy: {datasets: [mine, other], rows: {optimisation: 24, test: 12}}
  position: {datasets: [mine], shots: [1_per_class], rows: {test: 12}, floor_rows: 6}
"""
# A job is its rule and its wildcards in the order of their names, without digests.
JOBS = """
import sys
from poise.planfile import resolve
from poise.runs.status import jobs_to_run
for job in jobs_to_run(resolve(sys.argv[1])):
    print(job.rule, *(value for key, value in sorted(job.wildcards.items()) if key not in ("batch", "digest")))
"""


MADE_LAST_FIRST = ("figures", "tables", "metrics", "predictions", "responses", "prepared")


class Project:
    """A copy of the checkout, so that its code and configuration can be edited too, with a study of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: str) -> str:
        """Run a command of this copy's own Python code; it must succeed."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(self.folder / "src")}
        environment.pop("POISE_CONF", None)
        done = subprocess.run(
            [sys.executable, *command], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def snakemake(self, *arguments: str, study: str = "small", cores: int = 2) -> str:
        """Run the workflow as a user does."""
        return self.run("-m", "snakemake", "--cores", str(cores), *arguments, "--config", f"study={study}")

    def jobs(self, study: str = "small") -> set[str]:
        """Jobs that would run now."""
        listed = self.run("-c", JOBS, study).splitlines()
        assert len(listed) == len(set(listed))
        return set(listed)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that stands in a file exactly once."""
        path = self.folder / name
        text = path.read_text()
        assert text.count(old) == 1, f"{name}: {old!r} is there {text.count(old)} times"
        path.write_text(text.replace(old, new))

    def append(self, name: str, text: str = "\n# An edit that changes nothing.\n") -> None:
        """Write a line at the end of a file."""
        with (self.folder / name).open("a") as stream:
            stream.write(text)

    def touch_everything(self) -> None:
        """Give all files new times, where what is made first is the newest."""
        now = time.time()
        for path in (path for path in self.folder.rglob("*") if path.is_file() and ".snakemake" not in path.parts):
            place = next((k for k, part in enumerate(MADE_LAST_FIRST) if part in path.parts), len(MADE_LAST_FIRST))
            os.utime(path, (now, now + 10 * place))


def _edit_plumbing(at: Project) -> None:
    for name in ("cli.py", "summary.py", "plan.py", "workflow.py", "stages/extract.py", "engines/transformers.py"):
        at.append(f"src/poise/{name}")
    at.edit("workflow/rules/extraction.smk", "-m poise extract", "-m poise  extract")
    at.edit("conf/study/small.yaml", "seeds: [0, 1]", "seeds: [0, 1] # a comment")


def _turn_knobs(at: Project) -> None:
    at.edit("conf/engine/dummy.yaml", "flush_seconds: 5.0", "flush_seconds: 1.0")
    at.edit("conf/engine/dummy.yaml", "batch_requests: 3000", "batch_requests: 70")
    at.append("conf/model/one.yaml", "tokens_per_second: 1000\n")
    (at.folder / "data/local/mine").rename(at.folder / "data/local/moved")
    at.edit("conf/dataset/mine.yaml", "data/local/mine", "data/local/moved")


def _sources(folder: Path) -> None:
    """The files of the checkout that make a project, and nothing made."""
    for name in ("src", "conf", "workflow", "profiles", "data/reference"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy2(ROOT / "Snakefile", folder)
    # Over 1 MB, where Snakemake by itself goes by file times; of a model that no study here has.
    with (folder / "data/reference/dnip/table3.csv").open("a") as stream:
        stream.write("icl,nobody,1_shot,agnews,accuracy,52.1,5.4,\n" * 30_000)
    for number, name in enumerate(("one", "two")):
        (folder / f"conf/model/{name}.yaml").write_text(MODEL.format(name=name, revision=str(number) * 40))
    for name in ("mine", "other"):
        (folder / f"conf/dataset/{name}.yaml").write_text(DATASET.format(name=name))
        data = folder / "data/local" / name
        data.mkdir(parents=True)
        for table, n in (("train", 60), ("test", 24)):
            labels = [CLASSES[k % 3] for k in range(n)]
            texts = [f"{name} {table} item {k}, rather {label} to me" for k, label in enumerate(labels)]
            pd.DataFrame({"text": texts, "label": labels}).to_csv(data / f"{table}.csv", index=False)
    (folder / "conf/study/small.yaml").write_text(STUDY)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The small study, run to its end once. Read only: tests edit copies."""
    project = Project(tmp_path_factory.mktemp("reruns") / "finished")
    _sources(project.folder)
    project.snakemake()
    return project


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished study with the same file times."""
    shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True)
    return Project(tmp_path / "copy")


SMALL = "conf/study/small.yaml"
CORRECT = {f"correct {name} class_accuracy {method} one" for name in ("mine", "other") for method in ("dnip", "icl")}
DNIP = {job for job in CORRECT if " dnip " in job}
MEASURE = {f"measure {name} class_accuracy one" for name in ("mine", "other")}
POSITION = {"measure mine position one", "collect position", "table position_table2", "figure position_figure3"}
CLASS_ACCURACY = {"collect class_accuracy", "table dnip_table3", "figure dnip_figure8"}
TABLES = {"table dnip_table3", "table position_table2"}
FIGURES = {"figure dnip_figure8", "figure position_figure3"}
COLLECT = {"collect class_accuracy", "collect position"}
MINE = {job for job in CORRECT | MEASURE if " mine " in job}  # in the class-accuracy instrument
ANALYSIS_OF_TWO = {job.replace(" one", " two") for job in CORRECT | MEASURE | {"measure mine position one"}}
ANALYSIS = CORRECT | MEASURE | CLASS_ACCURACY | POSITION


SHOWN = TABLES | FIGURES
NOTHING: set[str] = set()
EDITS: dict[str, tuple[Callable[[Project], None], set[str]]] = {
    "nothing": (lambda at: None, NOTHING),
    "all files touched": (lambda at: at.touch_everything(), NOTHING),
    "a seed more": (lambda at: at.edit(SMALL, "seeds: [0, 1]", "seeds: [0, 1, 2]"), {"extract one"} | ANALYSIS),
    "a seed less": (lambda at: at.edit(SMALL, "seeds: [0, 1]", "seeds: [1]"), ANALYSIS),
    "a model more": (
        lambda at: at.edit(SMALL, "model: [one]", "model: [one, two]"),
        {"prepare_model two", "extract two"} | ANALYSIS_OF_TWO | COLLECT | SHOWN,
    ),
    "a template": (
        lambda at: at.edit("conf/dataset/mine.yaml", '"Review: "', '"Text: "'),
        {"extract one"} | MINE | CLASS_ACCURACY,
    ),
    "a label word": (
        lambda at: at.edit("conf/dataset/mine.yaml", "label_words: [negative", "label_words: [bad"),
        {"extract one"} | MINE | CLASS_ACCURACY,
    ),
    "beta": (
        lambda at: at.edit("conf/method/dnip.yaml", "beta: 2.7", "beta: 1.5"),
        DNIP | MEASURE | CLASS_ACCURACY | SHOWN,
    ),
    "the solver": (lambda at: at.append("src/poise/methods/dnip/heat_bath.py"), CORRECT | MEASURE | CLASS_ACCURACY),
    "a metric": (lambda at: at.append("src/poise/metrics/imbalance.py"), MEASURE | CLASS_ACCURACY | POSITION),
    "the figures' style": (lambda at: at.append("src/poise/artefacts/figures/style.py"), FIGURES),
    "a table's code": (lambda at: at.append("src/poise/artefacts/tables/imbalance.py"), TABLES | FIGURES),
    "code that makes no number": (_edit_plumbing, NOTHING),
    "a printed figure": (
        lambda at: at.edit(
            "data/reference/position/table2.csv", "claude-haiku-4.5,greedy,p1,0.180", "nobody,greedy,p1,0.180"
        ),
        {"table position_table2", "figure position_figure3"},
    ),
    "a data file": (
        lambda at: at.edit("data/local/mine/test.csv", "item 1,", "item one,"),
        {"prepare_dataset mine", "extract one"} | MINE | CLASS_ACCURACY | POSITION,
    ),
    "a table deleted": (
        lambda at: (at.folder / "results/small/tables/dnip_table3.csv").unlink(),
        {"table dnip_table3"},
    ),
    "knobs and paths": (_turn_knobs, NOTHING),
    "the study's title": (lambda at: at.edit(SMALL, "title: ", "title: Another, "), NOTHING),
    "a title": (lambda at: at.edit("conf/model/one.yaml", "title: Model one", "title: The first"), SHOWN),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_runs_exactly_what_it_concerns(project: Project, edit: str) -> None:
    change, expected = EDITS[edit]
    change(project)
    assert project.jobs() == expected


def test_file_sizes_matter_to_snakemake_alone(project: Project) -> None:
    project.touch_everything()
    output = project.snakemake("--dry-run", "--workflow-profile", "none")
    assert "table dnip_table3" in _dry(output)  # made from a printed table of over 1 MB: so the profile is needed


def test_a_study_that_shares_cells_asks_nothing(project: Project) -> None:
    text = (project.folder / SMALL).read_text().replace("name: small", "name: second")
    text = text.replace("dataset: [mine, other]", "dataset: [mine]").replace(
        "datasets: [mine, other]", "datasets: [mine]"
    )
    (project.folder / "conf/study/second.yaml").write_text(text.replace("seeds: [0, 1]", "seeds: [1]"))
    assert project.jobs("second") == MINE | COLLECT | POSITION | CLASS_ACCURACY
    assert project.jobs() == NOTHING


def test_fewer_cores_run_nothing(project: Project) -> None:
    assert "Nothing to be done" in project.snakemake("--dry-run", cores=1)


def test_a_change_undone_asks_nothing(project: Project) -> None:
    table = project.folder / "results/small/tables/dnip_table3.csv"
    before = table.read_bytes()
    project.edit("conf/dataset/mine.yaml", '"Review: "', '"Text: "')
    output = project.snakemake()
    assert output.count("rule extract:") == 1
    assert table.read_bytes() != before
    assert project.jobs() == NOTHING
    project.edit("conf/dataset/mine.yaml", '"Text: "', '"Review: "')
    assert project.jobs() == MINE | CLASS_ACCURACY


def test_titles_of_levels_are_shown() -> None:
    """Tables of factors print them, and no metric changes with them."""
    wildcards: Any = SimpleNamespace(artefact="position_table3")
    digests = [
        Workflow(expand(compose_study(["study=demo", *overrides]))).artefact_digest(wildcards)
        for overrides in ([], ["title=Another"], ["factor.label_format.levels.letter.title=Another"])
    ]
    assert digests[0] == digests[1] != digests[2]


MADE = ("results", "figures", "logs", "data/prepared", "data/models")


def _clone(finished: Project, folder: Path, *made: str, copy: Callable[..., object]) -> Project:
    """The checkout anew, with new file times, and what an earlier one made."""
    for name in ("Snakefile", "src", "conf", "workflow", "profiles", "data/reference", "data/local"):
        source = finished.folder / name
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, folder / name, copy_function=shutil.copy)
        else:
            shutil.copy(source, folder / name)
    for name in made:
        shutil.copytree(finished.folder / name, folder / name, copy_function=copy)
    return Project(folder)


def test_a_fresh_clone_goes_on_from_finished_results(finished: Project, tmp_path: Path) -> None:
    everything = _clone(finished, tmp_path / "all", *MADE, ".snakemake", copy=shutil.copy)  # all file times are new
    assert everything.jobs() == NOTHING
    # Without Snakemake's notes file times decide: of the printed figures that stand beside the measured ones.
    dated = _clone(finished, tmp_path / "dated", *MADE, copy=shutil.copy2)
    printed = {"table dnip_table3", "table position_table2", "figure position_figure3"}
    assert dated.jobs() == printed
    # With new times in a wrong order everything cheap may run; what is asked once is never asked again.
    answers = _clone(finished, tmp_path / "answers", "results/responses", copy=shutil.copy)
    assert answers.jobs() == ANALYSIS


def _dry(output: str) -> str:
    """Rules and wildcards of a dry run that a person reads."""
    words = []
    rule = ""
    for line in output.splitlines():
        if line.startswith("rule "):
            rule = line.removeprefix("rule ").rstrip(":")
        elif line.strip().startswith("wildcards: artefact="):
            words.append(f"{rule} {line.partition('=')[2]}")
    return "\n".join(words)
