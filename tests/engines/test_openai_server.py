"""The engine for OpenAI-compatible servers against a real one: vLLM's own, on loopback, with the real model."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from poise.config.engines import OpenAIConfig, TransformersConfig
from poise.config.models import Model
from poise.engines.ask import ask, tokenise
from poise.engines.base import Engine, GenerationQuery, Query, open_engine
from poise.prompts.text import Generation, PromptText, Request

pytest.importorskip("vllm", reason="make test-vllm runs this")
pytestmark = pytest.mark.slow

SHOTS = "Review: A splendid, moving film.\nSentiment: great\n\nReview: Dull from start to end.\nSentiment: bad\n\n"
LABELS = (" bad", " great")
GREEDY = Generation(6)


class Server:
    """vLLM's server with one model."""

    def __init__(self, model_dir: Path, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model_dir), "--port",
            str(self.port), "--host", "127.0.0.1", "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager",
            "--served-model-name", "smollm2", "--max-num-seqs", "16", "--block-size", "32",
        ]  # fmt: skip
        self.log = log
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        with self.log.open("ab") as log:
            # A session of its own: the engine and its workers outlive the server when that alone is killed.
            self.process = subprocess.Popen(
                self.command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, seconds: float = 240) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.5)
        raise AssertionError(self.log.read_text()[-3000:])

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(model_dir, tmp_path_factory.mktemp("server") / "log.txt")
    try:
        server.wait()
        yield server
    finally:
        server.kill()


def _model(api: bool) -> Model:
    source = {"kind": "api", "provider": "local", "id": "smollm2"} if api else {"kind": "files", "folder": "."}
    described = {"name": "m", "title": "M", "source": source, "context_length": 1024, "max_new_tokens": 4}
    return Model.model_validate(described)


@pytest.fixture(scope="module")
def served(server: Server) -> Engine:
    config = OpenAIConfig(base_url=f"http://127.0.0.1:{server.port}/v1", max_retries=60, concurrency=4)
    return open_engine(config, _model(api=True), Path())


@pytest.fixture(scope="module")
def local(model_dir: Path) -> Engine:
    return open_engine(TransformersConfig(), _model(api=False), model_dir)


def _write(engine: Engine, prompts: list[str], how: Generation) -> list[str]:
    queries = [GenerationQuery(tuple(engine.encode(text)), how, k, text=text) for k, text in enumerate(prompts)]
    texts: dict[int, str] = {}
    for batch in engine.generation_batches(queries):
        for k, answer in zip(batch.members, engine.generate(queries, batch), strict=True):
            assert 0 < answer.n_tokens <= how.max_new_tokens + 1
            texts[k] = answer.text
    return [texts[k] for k in range(len(prompts))]


PROMPTS = [f"{SHOTS}Review: film {k}\nSentiment:" for k in range(6)]


def test_greedy_texts_equal_a_local_engines(served: Engine, local: Engine) -> None:
    assert _write(served, PROMPTS, GREEDY) == _write(local, PROMPTS, GREEDY)


def test_samples_are_seeded(served: Engine) -> None:
    how = Generation(6, temperature=0.7)
    first = _write(served, PROMPTS, how)
    assert first == _write(served, PROMPTS, how)
    assert first != _write(served, PROMPTS, GREEDY)


def test_label_scores_are_the_sums_of_first_tokens_that_tell_a_label(served: Engine, model_dir: Path) -> None:
    """Against the model's own full softmax, in plain transformers: its 20 most probable tokens, read by hand."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    queries = [Query((), ((0,), (1,)), text, LABELS) for text in PROMPTS]
    n_told = 0
    for batch in served.micro_batches(queries):
        for k, answer in zip(batch.members, served.score(queries, batch), strict=True):
            with torch.no_grad():
                logits = model(**tokenizer(PROMPTS[k], return_tensors="pt")).logits[0, -1]
            best = logits.double().softmax(-1).topk(20)
            expected = dict.fromkeys(LABELS, 0.0)
            for probability, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                piece = tokenizer.decode([token]).strip().lower()
                for label in LABELS:
                    expected[label] += probability if piece and label.strip().startswith(piece) else 0.0
            if all(expected.values()):
                n_told += 1
                np.testing.assert_allclose(answer.logprobs, np.log(list(expected.values())), atol=1e-3)
            else:
                assert np.isnan(answer.logprobs).all()
            assert answer.n_prompt_tokens == len(tokenizer(PROMPTS[k])["input_ids"])
    assert n_told >= 3


def test_a_server_that_is_killed_and_comes_back(server: Server, served: Engine, tmp_path: Path) -> None:
    """The run goes on by itself, and the answers are those of a run without a kill."""
    requests = [
        Request(PromptText(SHOTS, (), f"Review: number {k}\nSentiment:"), LABELS, generation=GREEDY) for k in range(64)
    ]
    tokenised = tokenise(served, requests, "sequence", 1024, "m")
    whole = ask(served, requests, tokenised, tmp_path / "whole", 0.0, "whole").responses

    def kill_and_restart() -> None:
        server.kill()
        server.start()

    timer = threading.Timer(0.5, kill_and_restart)
    timer.start()
    again = ask(served, requests, tokenised, tmp_path / "again", 0.0, "again").responses
    assert not timer.is_alive(), "the run ended before the kill"
    server.wait()
    assert again["text"].tolist() == whole["text"].tolist()
