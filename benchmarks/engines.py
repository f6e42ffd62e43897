"""Seconds a prompt: Poise's engines beside lm-evaluation-harness and vLLM's raw ``generate``, in one run.

    POISE_DATA=/your/files python benchmarks/engines.py --model data/models/smollm2-135m-instruct.* \
        --harness-python harness/bin/python --vllm-python .venv-vllm/bin/python

200 prompts of SST-5 (LLM-Sentiment's files, seed 42) with 25 demonstrations, on the CPU. Everybody starts
from the prompts' texts and ends with the answers; loading a model and a warm-up of 8 prompts are not counted. Each
contender runs in a process of its own, one after the other, ``--repeats`` times; the harness on ``--harness-prompts``
prompts, with the faster of two batch sizes. The label words are either digits (one token each, which the harness
answers with one forward pass a prompt) or the classes' names (several tokens).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMPTS = 200
WARM_UP = 8


def prompts(label_format, folder):
    """Write the prompts and label texts of the position instrument's base condition."""
    from poise.datasets.tables import prepare
    from poise.planfile import make_plan, source_file
    from poise.prompts.requests import build_requests

    plan = make_plan(
        [
            "study=position", "name=benchmark", "model=[smollm2-135m-instruct]", "dataset=[sst5-sentiment]",
            "experiment=[position]", "seeds=[42]", "method=[icl]", "factor=[]", "probe=[]",
            "experiment.position.models=null", "experiment.position.methods=[]", "experiment.position.probes=[]",
            f"experiment.position.prompt.label_format={label_format}",
        ]
    )  # fmt: skip
    cell = plan.cells[0]
    dataset = plan.study.datasets[cell.dataset]
    rows = prepare(dataset, source_file(dataset.source, ""))
    requests = list(build_requests(plan, [cell], {cell.dataset: rows}).requests.values())
    path = Path(folder) / "prompts.json"
    path.write_text(json.dumps([[request.prompt.text, request.labels] for request in requests[:PROMPTS]]))
    return path


def poise(engine, asked):
    """Answer prompts as an extraction does: tokenise, score, write parts."""
    from poise.engines.ask import ask, tokenise
    from poise.prompts.text import PromptText, Request

    requests = [Request(PromptText("", (), text), tuple(labels)) for text, labels in asked]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        tokenised = tokenise(engine, requests, "sequence", 8192, "benchmark")
        ask(engine, requests, tokenised, Path(folder) / "parts", 5.0, "benchmark")
        return time.perf_counter() - started


def open_poise(kind, model, dtype):
    from poise.config.engines import TransformersConfig, VLLMConfig
    from poise.config.models import Model
    from poise.engines.base import open_engine

    source = {"kind": "files", "folder": "."}
    described = Model.model_validate({"name": "m", "title": "M", "source": source, "context_length": 8192})
    config = VLLMConfig(dtype=dtype) if kind == "vllm" else TransformersConfig(dtype=dtype)
    return open_engine(config, described, Path(model))


def worker(kind, model, dtype, asked, repeats, n_harness):
    """Seconds of each repeat of one contender, and the prompts in it."""
    if kind == "harness":
        return harness(model, dtype, asked[:n_harness], asked[-WARM_UP:])
    if kind in ("transformers", "vllm"):
        engine = open_poise(kind, model, dtype)
        poise(engine, asked[:WARM_UP])
        return [poise(engine, asked) for _ in range(repeats)], len(asked)
    from vllm import SamplingParams

    engine = open_poise("vllm", model, dtype)  # the same settings
    texts = [text for text, _ in asked]

    def generate(texts):
        engine.llm.reset_prefix_cache()
        started = time.perf_counter()
        engine.llm.generate(texts, SamplingParams(max_tokens=1, temperature=0.0), use_tqdm=False)
        return time.perf_counter() - started

    generate(texts[:WARM_UP])
    return [generate(texts) for _ in range(repeats)], len(texts)


def harness(model, dtype, asked, warm_up):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    def instances(asked):
        pairs = [(text, label) for text, labels in asked for label in labels]
        return [Instance("loglikelihood", {}, pair, k) for k, pair in enumerate(pairs)]

    found = []
    for batch_size in (1, 8):
        lm = HFLM(pretrained=model, dtype=dtype, device="cpu", batch_size=batch_size)
        lm.loglikelihood(instances(warm_up[:2]), disable_tqdm=True)
        started = time.perf_counter()
        lm.loglikelihood(instances(asked), disable_tqdm=True)
        found.append(time.perf_counter() - started)
    return [min(found)], len(asked)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of the prepared model")
    parser.add_argument("--harness-python", help="python with lm-eval; without it the harness is left out")
    parser.add_argument("--vllm-python", help="python with vllm; without it vLLM is left out")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--harness-prompts", type=int, default=24)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dtype", default="bfloat16", help="bfloat16 or float32; CPUs without bfloat16 emulate it")
    parser.add_argument("--labels", nargs="+", default=["numeric", "natural_language"])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--prompts", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        asked = json.loads(Path(arguments.prompts).read_text())
        found = worker(
            arguments.worker, arguments.model, arguments.dtype, asked, arguments.repeats, arguments.harness_prompts
        )
        print(json.dumps(found))
        return
    pythons = {
        "harness": arguments.harness_python, "transformers": sys.executable, "vllm": arguments.vllm_python,
        "raw generate": arguments.vllm_python,
    }  # fmt: skip
    for label_format in arguments.labels:
        with tempfile.TemporaryDirectory() as folder:
            path = prompts(label_format, folder)
            labels = json.loads(path.read_text())[0][1]
            shown = ", ".join(map(repr, labels))
            print(f"\n{PROMPTS} prompts, labels {shown}, {arguments.dtype}, {arguments.threads} threads", flush=True)
            seconds = {}
            for kind, python in pythons.items():
                if python is None:
                    continue
                command = [
                    python, __file__, "--worker", kind, "--model", arguments.model, "--dtype", arguments.dtype,
                    "--prompts", str(path),
                    "--repeats", str(arguments.repeats), "--harness-prompts", str(arguments.harness_prompts),
                ]  # fmt: skip
                environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "HF_HUB_OFFLINE": "1"}
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(f"{kind}: {done.stderr[-2000:]}")
                runs, n = json.loads(done.stdout.splitlines()[-1])
                seconds[kind] = statistics.median(runs) / n
                spread = f"{min(runs) / n:.4f} to {max(runs) / n:.4f}"
                against = f"{seconds['harness'] / seconds[kind]:6.1f} times the harness" if "harness" in seconds else ""
                print(f"{kind:14} {seconds[kind]:.4f} s a prompt ({spread}, {len(runs)} runs) {against}", flush=True)
            if "raw generate" in seconds:
                print(f"vllm / raw generate: {seconds['raw generate'] / seconds['vllm']:.2f} of its prompts a second")


if __name__ == "__main__":
    main()
