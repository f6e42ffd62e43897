"""The SLURM profile, without a SLURM: what each job would ask for. tests/slurm runs it on a real one."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.conftest import ROOT, Workplace

PROFILE = ROOT / "workflow/profiles/slurm"
LOCAL, API = "smollm2-135m-instruct", "gpt-5.4"
GRES = {"    # gpu: 0 #": "    gpu: 0 #", '    # gres: "': '    gres: "'}


def _jobs(workplace: Workplace, study: str, profile: str = str(PROFILE)) -> dict[str, dict[str, str]]:
    """Resources of the jobs of a dry run, by rule; those of an extraction by rule and model."""
    command = workplace.snakemake_command("-n", "--profile", profile, "--config", f"study={study}")
    at = command.index("--cores")
    done = workplace.run(*command[:at], *command[at + 2 :], CUDA_VISIBLE_DEVICES="")  # a controller without a GPU
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for job in re.split(r"\n(?:local)?rule ", done.stdout + done.stderr)[1:]:
        rule, wildcards = job.split(":", 1)[0], re.search(r"wildcards: .*?model=([^,\s]+)", job)
        resources = re.search(r"resources: (.*)", job)
        if resources:
            name = f"{rule} {wildcards[1]}" if rule == "extract" and wildcards else rule
            found[name] = dict(pair.split("=", 1) for pair in resources[1].split(", "))
    return found


def _plan(workplace: Workplace, *overrides: str) -> None:
    planned = workplace.poise("plan", "study=demo", "name=asked", *overrides)
    assert planned.returncode == 0, planned.stderr


@pytest.mark.slow
def test_the_demo_asks_for_a_gpu_where_a_model_is_loaded(workplace: Workplace) -> None:
    jobs = _jobs(workplace, "demo")
    extraction = jobs.pop(f"extract {LOCAL}")
    assert {key: extraction[key] for key in ("slurm_partition", "gpu", "mem_mb", "runtime")} == {
        "slurm_partition": "gpu", "gpu": "1", "mem_mb": "32000", "runtime": "135",
    }  # fmt: skip
    remote = {rule: job for rule, job in jobs.items() if rule in ("correct", "measure", "collect", "table", "figure")}
    assert len(remote) == 5
    for rule, job in remote.items():
        assert (job["slurm_partition"], job["mem_mb"], job["runtime"]) == ("cpu", "1500", "60"), rule
        assert "gpu" not in job, rule


@pytest.mark.slow
def test_an_extraction_that_asks_a_server_needs_no_gpu(workplace: Workplace) -> None:
    _plan(
        workplace, "+engine@api=openai", f"model=[{LOCAL},{API}]", "engine=vllm", "engine.tensor_parallel=2",
        "engine.batch_minutes=30", "api.batch_minutes=600", "experiment=[position]",
    )  # fmt: skip
    jobs = _jobs(workplace, "asked")
    keys = ("slurm_partition", "gpu", "mem_mb", "runtime")
    assert [jobs[f"extract {LOCAL}"][key] for key in keys] == ["gpu", "2", "32000", "45"]
    assert [jobs[f"extract {API}"][key] for key in keys] == ["cpu", "0", "4000", "615"]


@pytest.mark.slow
def test_the_dummy_engine_needs_no_gpu(workplace: Workplace) -> None:
    _plan(workplace, "engine=dummy")
    assert _jobs(workplace, "asked")[f"extract {LOCAL}"]["slurm_partition"] == "cpu"


@pytest.mark.slow
def test_two_lines_ask_for_gres_instead(workplace: Workplace) -> None:
    text = (PROFILE / "config.yaml").read_text(encoding="utf-8")
    for commented, line in GRES.items():
        assert text.count(commented) == 1
        text = text.replace(commented, line)
    folder = workplace.folder / "gres"
    folder.mkdir()
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    extraction = _jobs(workplace, "demo", str(folder))[f"extract {LOCAL}"]
    assert (extraction["gpu"], extraction["gres"]) == ("0", "gpu:1")


def test_every_key_says_why() -> None:
    lines = (PROFILE / "config.yaml").read_text(encoding="utf-8").splitlines()
    for k, line in enumerate(lines):
        if re.match(r"\s*[a-z-]+:", line.replace("_", "-")) and not line.rstrip().endswith(":"):
            assert " # " in line or lines[k - 1].lstrip().startswith("#"), line
    assert yaml.safe_load("\n".join(lines))["executor"] == "slurm"
