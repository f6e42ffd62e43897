"""GPUs and the CPU are taken by one extraction at a time, and freed by any end of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from poise.config.engines import DummyConfig, OpenAIConfig, TransformersConfig, VLLMConfig
from poise.engines.devices import claim, gpus_wanted, visible_gpus
from poise.errors import PoiseError

# Claims argv[1] GPUs and holds them for argv[2] seconds, or else until its input ends; writes what it got, and when.
HOLDER = """
import json, os, signal, sys, time
signal.alarm(60)  # a test that fails does not hang
from poise.engines.devices import claim
with claim(int(sys.argv[1]), lambda line: print(line, file=sys.stderr, flush=True)) as device:
    start = time.monotonic()
    print("held", flush=True)
    time.sleep(float(sys.argv[2])) if len(sys.argv) > 2 else sys.stdin.read()
    found = [device, os.environ.get("CUDA_VISIBLE_DEVICES"), start, time.monotonic()]
print(json.dumps(found), flush=True)
"""


class Holder:
    """A process that holds devices; its locks lie in ``folder``."""

    def __init__(self, folder: Path, n_gpus: int, gpus: str, *seconds: float, **more: str) -> None:
        environment = {**os.environ, "TMPDIR": str(folder), "CUDA_VISIBLE_DEVICES": gpus, **more}
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(n_gpus), *map(str, seconds)], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def held(self) -> Holder:
        """Return once it holds its devices."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"
        return self

    def waits(self) -> str:
        """Return what it says while it waits."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().strip()

    def end(self) -> tuple[str, str, float, float]:
        """Let it go; return the device in words, the variable, and the times between which it held it."""
        out, err = self.process.communicate(timeout=60)
        assert (self.process.returncode, err) == (0, "")
        device, visible, start, stop = json.loads(out.splitlines()[-1])
        return device, visible, start, stop


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0,1", ["0", "1"]),
        ("3, 1", ["3", "1"]),
        ("2,2", ["2"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,-1,0", ["1"]),  # CUDA stops at the first that is none
        ("GPU-8932f937-d72c,MIG-GPU-5a/1/0", ["GPU-8932f937-d72c", "MIG-GPU-5a/1/0"]),
    ],
)
def test_visible_gpus_are_those_of_the_variable(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert visible_gpus() == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm"], ["0", "1"]),
        (["dev/nvidia3", "proc/driver/nvidia/gpus/0000:01:00.0", "proc/driver/nvidia/gpus/0000:02:00.0"], ["0"]),
        (["proc/driver/nvidia/gpus/0000:01:00.0"], ["0"]),
        (["dev/null"], []),
    ],
)
def test_without_the_variable_they_are_those_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: list[str], expected: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert visible_gpus(tmp_path) == expected


def test_only_engines_that_load_weights_take_devices() -> None:
    assert gpus_wanted(TransformersConfig()) == 1
    assert gpus_wanted(VLLMConfig(tensor_parallel=4)) == 4
    assert gpus_wanted(OpenAIConfig(base_url="http://localhost:1/v1")) == gpus_wanted(DummyConfig()) == 0
    with claim(0, pytest.fail) as device, claim(0, pytest.fail):
        assert device == "this machine"


def _apart(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return one[3] <= other[2] or other[3] <= one[2]


def test_no_two_ever_hold_the_same_gpu(tmp_path: Path) -> None:
    holders = [Holder(tmp_path, 1, "0,1", 0.3) for _ in range(6)]
    ended = [json.loads(holder.process.communicate(timeout=60)[0].splitlines()[-1]) for holder in holders]
    assert {visible for _, visible, *_ in ended} <= {"0", "1"}
    assert all(one[1] != other[1] or _apart(one, other) for one, other in combinations(ended, 2))


def test_two_take_two_gpus_and_a_third_waits(tmp_path: Path) -> None:
    first, second = Holder(tmp_path, 1, "0,1").held(), Holder(tmp_path, 1, "0,1").held()
    third = Holder(tmp_path, 1, "0,1")
    assert third.waits() == "waiting for a GPU: all 2 are in use by other extractions"
    assert second.end()[:2] == ("GPU 1", "1")
    assert third.held().end()[:2] == ("GPU 1", "1")
    assert first.end()[:2] == ("GPU 0", "0")


def test_gpus_of_one_model_are_taken_together(tmp_path: Path) -> None:
    single = Holder(tmp_path, 1, "0,1,2").held()
    pair = Holder(tmp_path, 2, "0,1,2").held()
    waiting = Holder(tmp_path, 2, "0,1,2")
    assert waiting.waits() == "waiting for 2 GPUs: other extractions leave fewer of the 3 free"
    single.end()
    assert pair.end()[:2] == ("GPUs 1, 2", "1,2")
    assert waiting.held().end()[0] == "GPUs 0, 1"


def test_a_cpu_is_for_one_at_a_time(tmp_path: Path) -> None:
    first = Holder(tmp_path, 1, "").held()
    second = Holder(tmp_path, 1, "")
    assert second.waits() == "waiting for the CPU: another extraction uses all its cores"
    ended = first.end(), second.held().end()
    assert [device for device, *_ in ended] == ["the CPU", "the CPU"]
    assert ended[0][3] <= ended[1][2]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_jobs_on_other_cores_do_not_wait(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    holders = []
    try:
        for core in sorted(before)[:2]:
            os.sched_setaffinity(0, {core})  # what a batch system's cpuset does
            holders.append(Holder(tmp_path, 1, "").held())
    finally:
        os.sched_setaffinity(0, before)
    one, other = (holder.end() for holder in holders)
    assert not _apart(one, other)


def test_jobs_of_a_batch_system_have_devices_of_their_own(tmp_path: Path) -> None:
    """Each of its jobs sees its GPUs numbered from 0."""
    first = Holder(tmp_path, 1, "0", SLURM_JOB_ID="11").held()
    Holder(tmp_path, 1, "0", SLURM_JOB_ID="12").held().end()
    second = Holder(tmp_path, 1, "0", SLURM_JOB_ID="11")
    assert second.waits() == "waiting for the GPU: another extraction uses it"
    first.end()
    second.held().end()


def test_a_killed_extraction_leaves_its_gpu_free(tmp_path: Path) -> None:
    killed = Holder(tmp_path, 1, "0").held()
    killed.process.kill()
    killed.process.wait()
    Holder(tmp_path, 1, "0").held().end()


def test_claims_within_a_claim_get_the_same_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with claim(1, pytest.fail) as outer, claim(1, pytest.fail) as inner:
        assert outer == inner == "GPU 0"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize(("gpus", "found"), [("0", 1), ("", 0)])
def test_fewer_gpus_than_a_model_needs_is_an_error(monkeypatch: pytest.MonkeyPatch, gpus: str, found: int) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    with (
        pytest.raises(PoiseError, match=rf"tensor_parallel: 2 GPUs are asked for, found {found} here .*='{gpus}'"),
        claim(2, pytest.fail),
    ):
        pass


def test_a_lock_folder_that_others_can_write_to_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / f"poise-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PoiseError, match="you alone can write to"), claim(1, pytest.fail):
        pass
