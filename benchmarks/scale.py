"""Large plans, and what a run costs beside its engine: seconds, memory, jobs.

    make reproduce                # prepares the data sets that are priced and asked about
    python benchmarks/scale.py

Plans of about 10,000 and 100,000 cells (ten models, two experiments, the dummy engine) are composed and written, priced
(``poise plan``) and dry-run. Then a study of about 2,000 cells runs to one table of each paper: everything that is not
the engine answering, from the first command to the last file, is overhead. Each command is a process of its own.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
MODELS = (
    "smollm2-135m-instruct,gemma-3-270m,qwen3-4b,qwen3-8b,gemma-2-2b,gpt2-xl,llama-2-7b,llama-2-13b,granite-4-8b,"
    "ministral-3-8b"
)
BATCH_REQUESTS = 20_000  # as vLLM has it; the dummy engine's own batches are small, for tests
COMPOSE = "import sys; from poise.planfile import freeze, make_plan; freeze(make_plan(sys.argv[1:]))"


def study(name, n_seeds, *more):
    """Overrides of a study with this many seeds."""
    seeds = ",".join(map(str, range(n_seeds)))
    kind = ["engine=dummy", "experiment=[class_accuracy,position]", "factor=[]"]
    return ["study=demo", f"name={name}", *kind, f"seeds=[{seeds}]", *more]


def timed(words, folder, environment):
    """Run a command; give its seconds, peak megabytes (its children's too) and output."""
    with tempfile.TemporaryFile("w+") as output:
        started = time.perf_counter()
        running = subprocess.Popen(words, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(running.pid, 0)
        seconds = time.perf_counter() - started
        output.seek(0)
        text = output.read()
    if status:
        sys.exit(f"{' '.join(words)[:200]} failed:\n{text[-2000:]}")
    return seconds, used.ru_maxrss / 1024, text


def large_plan(name, n_seeds, folder, environment):
    """Compose, price and dry-run one large plan."""
    overrides = study(name, n_seeds, f"model=[{MODELS}]")
    composed = timed([sys.executable, "-c", COMPOSE, *overrides], folder, environment)
    file = folder / "results" / name / "plan.json"
    plan = json.loads(file.read_text())
    print(
        f"{len(plan['cells']):,} cells, {len(plan['batches']):,} batches, plan.json {file.stat().st_size / 1e6:.0f} MB"
    )
    show("composed and written", composed)
    show("poise plan, priced", timed([str(BIN / "poise"), "plan", *overrides], folder, environment))
    dry_run = timed(
        [*snakemake(folder), "--dry-run", "--cores", "all", "--config", f"study={name}"], folder, environment
    )
    n_jobs = int(re.findall(r"^total\s+(\d+)", dry_run[2], re.MULTILINE)[-1])
    inputs = re.findall(r"^(?:local)?rule (\w+):\n    input: (.*)", dry_run[2], re.MULTILINE)
    most, rule = max((files.count(", ") + 1, rule) for rule, files in inputs if rule != "all")
    show(f"dry run, {n_jobs:,} jobs, {most} inputs at most ({rule})", dry_run)


def show(what, measured):
    """Print seconds and memory of one command."""
    print(f"  {measured[0]:6.1f} s  {measured[1]:6.0f} MB  {what}", flush=True)


def whole_run(name, n_seeds, folder, environment):
    """Run a study to two tables, one job at a time; tell the seconds of the engine, of statistics, and all others."""
    settings = [
        "method=[icl,dnip]", "experiment.position.methods=[icl]", f"engine.batch_requests={BATCH_REQUESTS}",
        "artefacts=[dnip_table3,position_table2]",
    ]  # fmt: skip
    planned = timed([str(BIN / "poise"), "plan", *study(name, n_seeds, *settings)], folder, environment)
    words = [*snakemake(folder), "--cores", "1", "--config", f"study={name}", "--", "tables"]
    ran = timed(words, folder, environment)
    metas = [json.loads(path.read_text()) for path in folder.glob("results/responses/*/*/meta.json")]
    plan = json.loads((folder / "results" / name / "plan.json").read_text())
    n_cells = len({cell["id"] for cell in plan["cells"]})
    engine = sum(meta["seconds"] for meta in metas)
    fits, measures = (
        sum(map(job_seconds, folder.glob(f"logs/{name}/{rule}/**/*.log"))) for rule in ("correct", "measure")
    )
    n_requests = sum(meta["requests"] for meta in metas)
    print(f"{n_cells:,} cells run to two tables: {n_requests:,} requests, {len(metas)} batches")
    show("poise plan", planned)
    show("snakemake", ran)
    print(
        f"  {engine:6.1f} s             engine; corrections {fits:.1f} s, metrics with their intervals {measures:.1f} s"
    )
    beside = planned[0] + ran[0] - engine
    each, plain = (1000 * seconds / n_cells for seconds in (beside, beside - fits - measures))
    print(f"  {each:.1f} ms a cell beside the engine, {plain:.1f} ms without corrections and metrics")


def job_seconds(log):
    """Seconds of a job, as its log tells at its end."""
    return float(re.findall(r"done in ([\d.]+) s", log.read_text())[-1])


def snakemake(folder):
    """Give the command that runs the project's workflow in a folder."""
    return [
        sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)
    ]  # fmt: skip


def main():
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="folder with the prepared data sets")
    parser.add_argument("--seeds", type=int, nargs=3, default=(50, 500, 100), help="of the two plans and of the run")
    parser.add_argument("--only", choices=("plans", "run"), help="one half of it")
    options = parser.parse_args()
    if not any(options.data.glob("prepared/*.parquet")):
        sys.exit(f"{options.data}/prepared holds no data set; run `make reproduce` first")
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    environment = {**os.environ, "POISE_CONF": str(ROOT / "conf"), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    for half, seeds in (("plans", options.seeds[:2]), ("run", options.seeds[2:])):
        if options.only in (None, half):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "data").symlink_to(options.data.resolve())
                for name, n_seeds in zip(("large", "huge") if half == "plans" else ("run",), seeds, strict=True):
                    (large_plan if half == "plans" else whole_run)(name, n_seeds, Path(folder), environment)


if __name__ == "__main__":
    main()
