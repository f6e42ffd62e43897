"""Batches that end early: one line says why, what is kept and what to do; the same command goes on from there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from poise import paths
from poise.config.engines import DummyConfig
from poise.engines import dummy
from poise.engines.base import LabelScores, MicroBatch, Query
from poise.errors import PoiseError
from poise.plan import Plan
from poise.planfile import freeze, make_plan
from poise.stages import extract, fetch
from tests.conftest import ROOT, Workplace
from tests.workflow.test_own_data import CLASSES, DATASET

STUDY = [
    "study=demo", "name=mine", "dataset=[mine]", "experiment=[class_accuracy]", "method=[icl]", "factor=[]",
    "experiment.class_accuracy.datasets=[mine]", "experiment.class_accuracy.rows.optimisation=24",
    "experiment.class_accuracy.rows.test=24", "experiment.class_accuracy.floor_rows=6", "seeds=[0]",
    "engine.flush_seconds=1000",
]  # fmt: skip
N_ANSWERS = 24 + 24 + 3 + 6  # optimisation, test, content-free, regrouped
SIZE = 4  # requests of one micro-batch, 2 if regrouped
# The dummy engine, slow and in small micro-batches; it writes a line after each.
SLOW = f"""
import time
from poise.engines import dummy
score = dummy.DummyEngine.score
def slow(self, queries, batch):
    found = score(self, queries, batch)
    print("asked", flush=True)
    time.sleep(0.2)
    return found
dummy.DummyEngine.score, dummy.MICRO_BATCH = slow, {SIZE}
from poise.cli import main
main()
"""


@pytest.fixture
def mine(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A workplace with a small data set of its own; the working directory."""
    shutil.copytree(ROOT / "conf", workplace.folder / "conf")
    (workplace.folder / "conf/dataset/mine.yaml").write_text(DATASET)
    (workplace.folder / "mine").mkdir()
    for table, n in (("train", 90), ("test", 30)):
        labels = [CLASSES[k % 3] for k in range(n)]
        texts = [f"{table} item {k}, rather {label} to me" for k, label in enumerate(labels)]
        pd.DataFrame({"text": texts, "label": labels}).to_csv(workplace.folder / f"mine/{table}.csv", index=False)
    (workplace.folder / "data/prepared").unlink()  # not among those of the checkout
    monkeypatch.chdir(workplace.folder)
    monkeypatch.setenv("POISE_CONF", str(workplace.folder / "conf"))
    monkeypatch.setattr("tempfile.tempdir", str(workplace.folder))
    return workplace


def _plan(*overrides: str) -> Plan:
    plan = make_plan([*STUDY, *overrides])
    freeze(plan)
    if not paths.prepared_dataset("mine", plan.dataset_digests["mine"]).exists():
        fetch.prepare_dataset(plan, "mine")
    return plan


def _folder(plan: Plan) -> Path:
    (batch,) = plan.batches
    return paths.batch_dir(batch.model, batch.id)


def _start(place: Workplace, plan: Plan) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SLOW, "extract", "--plan", "results/mine/plan.json", "--log", "extract.log",
               "--batch", plan.batches[0].id]  # fmt: skip
    return subprocess.Popen(
        command, cwd=place.folder, env=place.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _lines(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("poise: ")]


def _cut_short(place: Workplace, plan: Plan, end: Callable[[subprocess.Popen[str]], None]) -> tuple[int, list[str]]:
    """Start a batch, end it after three micro-batches; give its exit status and what it said."""
    process = _start(place, plan)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline() == "asked\n"
    end(process)
    _, stderr = process.communicate(timeout=60)
    return process.returncode, _lines(stderr)


def _run(place: Workplace, plan: Plan) -> list[str]:
    process = _start(place, plan)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    return _lines(stderr)


def _outputs(folder: Path) -> dict[str, bytes]:
    assert {path.name for path in folder.iterdir()} == {
        "batch.json", "demonstrations.parquet", "index.parquet", "meta.json", "regrouped.parquet", "responses.parquet",
    }  # fmt: skip
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def _undisturbed(place: Workplace, plan: Plan) -> dict[str, bytes]:
    """Bytes that the batch has if nothing ends it early; removes them again."""
    assert _run(place, plan) == []
    outputs = _outputs(_folder(plan))
    shutil.rmtree(_folder(plan))
    freeze(plan)
    return outputs


def _number_kept(line: str) -> int:
    found = re.search(rf"(\d+) of {N_ANSWERS} answers are kept", line)
    assert found is not None, line
    return int(found[1])


def test_a_signal_flushes_and_says_what_is_kept(mine: Workplace) -> None:
    plan = _plan("engine=dummy")
    whole = _undisturbed(mine, plan)
    status, lines = _cut_short(mine, plan, subprocess.Popen.terminate)
    assert status == 143
    (line,) = lines
    assert line.startswith("poise: stopped by a signal; ")
    assert line.endswith("; run the same command again")
    assert _number_kept(line) >= 2 * SIZE  # nothing was flushed before
    assert _number_kept(line) % SIZE == 0
    assert "stopped by a signal" in Path("extract.log").read_text()
    assert not (_folder(plan) / "running.json").exists()
    assert _run(mine, plan) == []
    assert json.loads((_folder(plan) / "meta.json").read_text())["resumed_requests"] == _number_kept(line)
    assert _outputs(_folder(plan)) == whole


def test_after_a_kill_the_next_start_says_so(mine: Workplace) -> None:
    plan = _plan("engine=dummy", "engine.flush_seconds=0.001")
    whole = _undisturbed(mine, plan)
    assert _cut_short(mine, plan, subprocess.Popen.kill) == (-9, [])
    (line,) = _run(mine, plan)
    assert line.startswith(
        "poise: the last run of this batch ended without a word while asking (killed? out of memory?): "
    )
    assert line.endswith("answers are kept; if memory ran out, free some memory of this machine")
    assert _number_kept(line) >= 2 * SIZE
    assert json.loads((_folder(plan) / "meta.json").read_text())["resumed_requests"] == _number_kept(line)
    assert _outputs(_folder(plan)) == whole


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


class Greedy(dummy.DummyEngine):
    """Raises an error after some micro-batches."""

    def __init__(self, error: Exception | None = None, after: int = 0) -> None:
        super().__init__(DummyConfig())
        self.error, self.left = error, after

    def score(self, queries: Sequence[Query], batch: MicroBatch) -> list[LabelScores]:
        if self.error is not None and self.left == 0:
            raise self.error
        self.left -= 1
        return super().score(queries, batch)


def _extract(monkeypatch: pytest.MonkeyPatch, plan: Plan, opened: Callable[[], dummy.DummyEngine]) -> None:
    def open_engine(*_: Any) -> dummy.DummyEngine:
        return opened()

    monkeypatch.setattr(extract, "open_engine", open_engine)
    monkeypatch.setattr(dummy, "MICRO_BATCH", SIZE)
    extract.extract(plan, plan.batches[0].id)


def _error(monkeypatch: pytest.MonkeyPatch, plan: Plan, opened: Callable[[], dummy.DummyEngine]) -> str:
    with pytest.raises(PoiseError) as caught:
        _extract(monkeypatch, plan, opened)
    assert "\n" not in str(caught.value)
    assert not (_folder(plan) / "running.json").exists()
    return str(caught.value).removeprefix("model smollm2-135m-instruct: ")


ASKING = [
    OutOfMemoryError("Tried to allocate 2.00 GiB"),
    RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


@pytest.mark.parametrize("error", ASKING)
def test_out_of_memory_names_the_setting_to_lower(
    mine: Workplace, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    plan = _plan("engine=transformers")
    assert _error(monkeypatch, plan, lambda: Greedy(error)) == (
        "out of memory on GPU 1 while asking; lower engine.pack_tokens (now 512; under another value the batch starts "
        "anew), then run the same command again"
    )


def test_out_of_memory_keeps_what_was_answered(mine: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    plan = _plan("engine=vllm")
    line = _error(monkeypatch, plan, lambda: Greedy(OutOfMemoryError(), after=3))
    assert line.startswith("out of memory on the CPU while asking; lower engine.max_sequences (now 256), ")
    assert line.endswith(f"then run the same command again ({3 * SIZE} of {N_ANSWERS} answers are kept)")
    _extract(monkeypatch, _plan("engine=vllm", "engine.max_sequences=64"), Greedy)
    assert json.loads((_folder(plan) / "meta.json").read_text())["resumed_requests"] == 3 * SIZE


@pytest.mark.parametrize(
    ("engine", "error", "words"),
    [
        ("transformers", MemoryError(), ["out of memory on GPU 0 while loading", "engine.dtype=bfloat16"]),
        (
            "vllm",
            ValueError("No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
            [
                "no memory is left for keys and values",
                "raise engine.memory_share (now 0.9)",
                "(now 1)",
                "cpu_cache_gib",
            ],
        ),
        (
            "vllm",
            ValueError("(12 GiB KV cache is needed, which is larger than the available KV cache memory (2 GiB)."),
            ["no memory is left for keys and values on GPU 0 while loading", "lower engine.max_length (now None;"],
        ),
        (
            "vllm",
            ValueError("Free memory on device cuda:0 is less than desired GPU memory utilization (0.9, 126 GiB)."),
            ["out of memory", "lower engine.memory_share (now 0.9)", "raise engine.tensor_parallel (now 1)"],
        ),
        (
            "vllm",
            RuntimeError("Engine core initialization failed. See root cause above."),
            ["vLLM's engine died, often because it is out of memory (the log has its reason), on GPU 0 while loading"],
        ),
    ],
)
def test_a_model_that_does_not_fit_is_told_with_the_setting_to_change(
    mine: Workplace, monkeypatch: pytest.MonkeyPatch, engine: str, error: Exception, words: list[str]
) -> None:
    def opened() -> dummy.DummyEngine:
        try:
            raise error
        except (ValueError, RuntimeError) as cause:
            raise PoiseError("m: vLLM cannot load the model") from cause  # as the engine does

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    line = _error(monkeypatch, _plan(f"engine={engine}"), opened)
    assert line.endswith("then run the same command again")
    for word in words:
        assert word in line


def test_other_errors_stay_what_they_are_and_keep_what_was_answered(
    mine: Workplace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _plan("engine=dummy")
    with pytest.raises(ZeroDivisionError):
        _extract(monkeypatch, plan, lambda: Greedy(ZeroDivisionError(), after=2))
    _extract(monkeypatch, plan, Greedy)
    assert _lines(capsys.readouterr().err) == []
    assert json.loads((_folder(plan) / "meta.json").read_text())["resumed_requests"] == 2 * SIZE


def test_answers_of_other_micro_batches_are_not_said_to_be_kept(
    mine: Workplace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    plan = _plan("engine=transformers")
    with pytest.raises(ZeroDivisionError):
        _extract(monkeypatch, plan, lambda: Greedy(ZeroDivisionError(), after=2))
    (_folder(plan) / "running.json").write_text('{"doing": "asking", "pack_tokens": 512}')  # as a kill leaves it
    _extract(monkeypatch, _plan("engine=transformers", "engine.pack_tokens=256"), Greedy)
    (line,) = _lines(capsys.readouterr().err)
    assert ": its answers are asked anew, as engine.pack_tokens was 512; " in line
    assert "if memory ran out, lower engine.pack_tokens (now 256" in line


def test_an_engine_finds_its_gpu_alone(mine: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def opened() -> dummy.DummyEngine:
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
        return Greedy()

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3,2")
    _extract(monkeypatch, _plan("engine=transformers"), opened)
    shutil.rmtree(_folder(_plan("engine=dummy")), ignore_errors=True)
    _extract(monkeypatch, _plan("engine=dummy"), opened)
    assert seen == ["5", "5,3,2"]
