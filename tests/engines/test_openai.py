"""The engine for OpenAI-compatible servers, against a scripted server on loopback."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poise.answers import read_answers
from poise.config.engines import OpenAIConfig
from poise.config.models import Model
from poise.engines.ask import Asked, ask, tokenise
from poise.engines.base import GenerationQuery, MicroBatch, Query
from poise.engines.openai import OpenAIEngine, label_scores
from poise.errors import PoiseError
from poise.prompts.text import Generation, PromptText, Request

KEY = "sk-canary-0123456789"
LABELS = (" negative", " neutral", " positive")
Reply = tuple[int, dict[str, Any]]


class Server:
    """Answers by a script: ``reply(body, n)`` gives status and JSON for the n-th request."""

    def __init__(self, reply: Callable[[dict[str, Any], int], Reply], port: int = 0) -> None:
        self.seen: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.running = self.most_running = 0
        lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    number = len(server.seen)
                    server.seen.append((self.path, body, {k.lower(): v for k, v in self.headers.items()}))
                    server.running += 1
                    server.most_running = max(server.most_running, server.running)
                status, answer = reply(body, number)
                data = json.dumps(answer).encode()
                with lock:
                    server.running -= 1
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                if status == 429:
                    self.send_header("Retry-After", "0.01")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(reply: Callable[[dict[str, Any], int], Reply], port: int = 0) -> Server:
        started.append(Server(reply, port))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between retries of a hundredth of the client's own."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.005)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.08)
    monkeypatch.setenv("TEST_KEY", KEY)


def _completion(text: str, top: dict[str, float] | None = None, usage: dict[str, Any] | None = None) -> Reply:
    logprobs = None if top is None else {"tokens": [text], "token_logprobs": [0.0], "top_logprobs": [top]}
    choice = {"index": 0, "text": text, "finish_reason": "length", "logprobs": logprobs}
    usage = usage or {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}
    return 200, {
        "id": "c",
        "object": "text_completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


def _chat(text: str, top: dict[str, float] | None = None, usage: dict[str, Any] | None = None) -> Reply:
    told = [{"token": token, "logprob": value, "bytes": None} for token, value in (top or {}).items()]
    content = [{"token": text, "logprob": 0.0, "bytes": None, "top_logprobs": told}]
    choice = {
        "index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop",
        "logprobs": None if top is None else {"content": content},
    }  # fmt: skip
    usage = usage or {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}
    return 200, {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


def _engine(port: int, chat: bool = False, model: dict[str, Any] | None = None, **settings: Any) -> OpenAIEngine:
    config = OpenAIConfig(
        base_url=f"http://127.0.0.1:{port}/v1", key_variable="TEST_KEY", **{"max_retries": 8, **settings}
    )
    source = {"kind": "api", "provider": "local", "id": "some/model"}
    described = {"name": "m", "title": "M", "source": source, "context_length": 4096, "chat": chat, **(model or {})}
    return OpenAIEngine(config, Model.model_validate(described))


def _texts(n: int, temperature: float = 0.0) -> list[GenerationQuery]:
    return [GenerationQuery((), Generation(8, temperature), 1000 + k, text=f"prompt {k}") for k in range(n)]


def _write(engine: OpenAIEngine, queries: list[GenerationQuery]) -> list[Any]:
    return [
        answer for batch in engine.generation_batches(queries) for answer in engine.generate(queries, batch)
    ]  # fmt: skip


def test_completions_are_sent_whole_and_come_back_in_order(serve: Callable[..., Server]) -> None:
    server = serve(lambda body, n: _completion(" about " + body["prompt"]))
    found = _write(_engine(server.port, model={"api_options": {"top_k": 3}}), _texts(40))
    assert [answer.text for answer in found] == [f" about prompt {k}" for k in range(40)]
    path, body, headers = server.seen[0]
    assert path == "/v1/completions"
    assert {"model": "some/model", "max_tokens": 8, "temperature": 0.0, "top_k": 3}.items() <= body.items()
    assert "seed" not in body
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (found[0].n_prompt_tokens, found[0].n_tokens, found[0].n_hidden_tokens) == (11, 2, 0)


def test_chats_are_one_user_turn_and_samples_have_their_own_seed(serve: Callable[..., Server]) -> None:
    server = serve(lambda body, n: _chat("1"))
    _write(_engine(server.port, chat=True), _texts(3, temperature=0.7))
    path, _, _ = server.seen[0]
    assert path == "/v1/chat/completions"
    bodies = sorted((body for _, body, _ in server.seen), key=lambda body: body["seed"])
    assert [body["messages"] for body in bodies] == [[{"role": "user", "content": f"prompt {k}"}] for k in range(3)]
    assert [body["seed"] for body in bodies] == [1000, 1001, 1002]
    assert {body["temperature"] for body in bodies} == {0.7}


def test_hidden_tokens_are_the_servers_count_or_those_of_the_thinking_block(serve: Callable[..., Server]) -> None:
    details = {"prompt_tokens": 5, "completion_tokens": 90, "total_tokens": 95}
    counted = {**details, "completion_tokens_details": {"reasoning_tokens": 80}}
    server = serve(lambda body, n: _chat("2", usage=counted))
    (answer,) = _write(_engine(server.port, chat=True), _texts(1))
    assert (answer.n_tokens, answer.n_hidden_tokens) == (90, 80)
    server = serve(lambda body, n: _chat("<think>so it is</think>\n\n2", usage=details))
    (answer,) = _write(_engine(server.port, chat=True), _texts(1))
    assert (answer.text, answer.n_tokens) == ("2", 90)
    assert 0 < answer.n_hidden_tokens < 90


def test_thinking_that_a_server_takes_out_of_the_answer_is_counted(serve: Callable[..., Server]) -> None:
    def reply(body: dict[str, Any], n: int) -> Reply:
        status, answer = _chat("2", usage={"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14})
        answer["choices"][0]["message"]["reasoning_content"] = "so it is"
        return status, answer

    (answer,) = _write(_engine(serve(reply).port, chat=True), _texts(1))
    assert (answer.text, answer.n_tokens, answer.n_hidden_tokens) == ("2", 9, 3)
    apart = {"prompt_tokens": 5, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 80}}
    server = serve(lambda body, n: _chat("2", usage={**apart, "total_tokens": 86}))
    (answer,) = _write(_engine(server.port, chat=True), _texts(1))
    assert (answer.n_tokens, answer.n_hidden_tokens) == (81, 80)


def test_seeds_are_small_enough_for_all_servers(serve: Callable[..., Server]) -> None:
    server = serve(lambda body, n: _completion("1"))
    _write(_engine(server.port), [GenerationQuery((), Generation(8, 0.7), 2**63 - 2, text="prompt")])
    assert server.seen[0][1]["seed"] == 2**31 - 2


def test_a_server_that_names_another_key_for_the_limit_gets_it(serve: Callable[..., Server]) -> None:
    def reply(body: dict[str, Any], n: int) -> Reply:
        if "max_tokens" in body:
            return 400, {"error": {"message": "max_tokens is not supported. Use 'max_completion_tokens' instead."}}
        return _chat(str(body["max_completion_tokens"]))

    server = serve(reply)
    engine = _engine(server.port, chat=True, concurrency=1)
    assert [answer.text for answer in _write(engine, _texts(5))] == ["8"] * 5
    assert len(server.seen) == 6  # only the first was refused


def _scores(engine: OpenAIEngine, labels: tuple[str, ...] = LABELS) -> Any:
    return engine.score([Query((), tuple((k,) for k in range(len(labels))), "text", labels)], MicroBatch((0,)))[0]


@pytest.mark.parametrize("chat", [False, True])
def test_scores_are_told_if_all_labels_are_among_the_most_probable(serve: Callable[..., Server], chat: bool) -> None:
    reply = _chat if chat else _completion
    top = {" positive": -0.5, " Neg": -9.0, " neutral": -2.0, "positive": -3.0, " neg": -1.5, " the": -4.0}
    server = serve(lambda body, n: reply(" positive", top))
    found = _scores(_engine(server.port, chat))
    # By hand: two tokens tell "positive", and two "negative", in either letter case.
    expected = [np.log(np.exp(-1.5) + np.exp(-9.0)), -2.0, np.log(np.exp(-0.5) + np.exp(-3.0))]
    np.testing.assert_allclose(found.logprobs, expected)
    assert (found.greedy, found.n_prompt_tokens, found.n_tokens) == (2, 11, 2)
    body = server.seen[0][1]
    assert (body.get("top_logprobs"), body["logprobs"]) == ((20, True) if chat else (None, 20))


@pytest.mark.parametrize("top", [{" positive": -0.1, " neutral": -3.0}, {" n": -1.0, " positive": -1.0}, None, {}])
def test_otherwise_the_text_is_a_hard_prediction(serve: Callable[..., Server], top: dict[str, float] | None) -> None:
    server = serve(lambda body, n: _completion(" Neutral, I think", top))
    found = _scores(_engine(server.port))
    assert np.isnan(found.logprobs).all()
    assert found.greedy == 1


def test_label_scores_by_hand() -> None:
    labels = [" 1", " 10", " 2"]
    scores, greedy = label_scores({" 1": -1.0, " 2": -2.0, " 10": -3.0, "?": -0.1}, labels)
    assert scores is not None
    assert scores.tolist() == [-1.0, -3.0, -2.0]  # "1" is a label itself, so it does not stand for 10
    assert greedy == -1  # the most probable token is no label
    assert label_scores({"very": -0.1, "negative": -1.0}, ["very negative", "very positive", "negative"])[0] is None
    assert label_scores({" ": -0.1, "yes": -1.0}, ["yes", "no"])[0] is None  # white space begins neither


def test_a_label_in_another_letter_case_is_the_same_answer() -> None:
    """As texts are parsed: the rare token in the label's own case must not stand for it alone."""
    scores, greedy = label_scores({"Positive": -0.01, " negative": -6.0, "positive": -7.0}, [" negative", " positive"])
    assert scores is not None
    np.testing.assert_allclose(scores, [-6.0, np.log(np.exp(-0.01) + np.exp(-7.0))])
    assert greedy == 1


def test_rough_tokens_tell_words_apart_and_grow_with_the_text() -> None:
    engine = _engine(1)
    for label, longer in (("great", "greatest"), ("1", "10"), ("Option_1", "Option_10")):
        short, long = engine.encode(label), engine.encode(longer)
        assert long[: len(short)] != short
    assert engine.encode("Label:") == engine.encode("Label: good")[: len(engine.encode("Label:"))]
    assert 100 <= len(engine.encode("a sentence of five words " * 20)) <= 200


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_or_broken_server_is_asked_again(serve: Callable[..., Server], status: int) -> None:
    server = serve(lambda body, n: (status, {"error": {"message": "later"}}) if n % 3 else _completion("1"))
    assert [answer.text for answer in _write(_engine(server.port), _texts(9))] == ["1"] * 9
    assert len(server.seen) > 9


def test_a_reply_without_an_answer_is_asked_again(serve: Callable[..., Server]) -> None:
    """Gateways report what went wrong behind them with status 200."""
    failed = 200, {"error": {"message": "provider failed", "code": 502}}
    server = serve(lambda body, n: _completion("1") if n else failed)
    assert [answer.text for answer in _write(_engine(server.port), _texts(1))] == ["1"]
    assert len(server.seen) == 2
    server = serve(lambda body, n: failed)
    with pytest.raises(PoiseError, match=r"a reply without an answer: .*provider failed.*answers so far are kept"):
        _write(_engine(server.port, max_retries=1), _texts(1))
    assert len(server.seen) == 2


def test_a_server_that_dies_and_comes_back_is_waited_for(serve: Callable[..., Server]) -> None:
    server = serve(lambda body, n: _completion("1"))
    engine = _engine(server.port, max_retries=60)
    queries = _texts(64)
    first, second = engine.generation_batches(queries)
    found = engine.generate(queries, first)
    server.stop()
    later = threading.Timer(0.6, lambda: serve(lambda body, n: _completion("2"), server.port))
    later.start()
    found += engine.generate(queries, second)
    later.join()
    assert [answer.text for answer in found] == ["1"] * 32 + ["2"] * 32


def _asked(engine: OpenAIEngine, folder: Path, n: int = 70) -> Asked:
    requests = [
        Request(PromptText("", (), f"text {k}"), LABELS, generation=Generation(8) if k % 2 else None) for k in range(n)
    ]
    return ask(engine, requests, tokenise(engine, requests, "sequence", 4096, "m"), folder / "parts", 0.0, "test")


def test_what_was_answered_before_the_end_is_not_asked_again(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(lambda body, n: _completion(" neutral") if n < 40 else (500, {"error": {"message": "broken"}}))
    with pytest.raises(PoiseError, match="run the same command again") as caught:
        _asked(_engine(server.port, max_retries=1), tmp_path)
    assert "\n" not in str(caught.value)
    assert f"127.0.0.1:{server.port}" in str(caught.value)
    again = serve(lambda body, n: _completion(" neutral"))
    found = _asked(_engine(again.port), tmp_path)
    assert found.n_resumed == 35
    assert len(again.seen) == 70 - 35
    assert found.responses["prompt_tokens"].tolist() == [11] * 70
    assert found.responses["logprobs"].isna().all()
    assert found.responses["greedy"].tolist() == [1, -1] * 35


def test_no_more_requests_at_once_than_configured(serve: Callable[..., Server]) -> None:
    def slow(body: dict[str, Any], n: int) -> Reply:
        time.sleep(0.02)
        return _completion("1")

    server = serve(slow)
    _write(_engine(server.port, concurrency=3), _texts(32))
    assert server.most_running == 3


def test_no_more_requests_a_minute_than_configured(serve: Callable[..., Server]) -> None:
    server = serve(lambda body, n: _completion("1"))
    started = time.monotonic()
    _write(_engine(server.port, requests_per_minute=1200), _texts(11))
    assert time.monotonic() - started > 0.45  # ten gaps of a twentieth of a second


def test_requests_that_are_sent_again_are_in_the_budget(serve: Callable[..., Server]) -> None:
    server = serve(lambda body, n: _completion("1") if n >= 4 else (429, {"error": {"message": "later"}}))
    started = time.monotonic()
    _write(_engine(server.port, requests_per_minute=120), _texts(1))
    assert len(server.seen) == 5
    assert time.monotonic() - started > 1.9  # four gaps of half a second; the server asks for a hundredth


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "check the key in $TEST_KEY"),
        (404, "check the model's id (some/model)"),
        (400, "engine.top_logprobs"),
        (402, "the request is refused; answers so far are kept"),
    ],
)
def test_mistakes_are_told_at_once_in_one_line(serve: Callable[..., Server], status: int, words: str) -> None:
    server = serve(lambda body, n: (status, {"error": {"message": "no"}}))
    with pytest.raises(PoiseError, match=re.escape(words)) as caught:
        _write(_engine(server.port), _texts(1))
    assert "\n" not in str(caught.value)
    assert len(server.seen) == 1


def test_a_missing_key_is_told_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(PoiseError, match="TEST_KEY is not set"):
        _engine(1)


def test_a_key_that_cannot_be_sent_is_told_without_it(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in (f"{KEY} and more", f"{KEY}é"):
        monkeypatch.setenv("TEST_KEY", wrong)
        with pytest.raises(PoiseError, match="TEST_KEY holds white space or letters that no key has") as caught:
            _engine(1)
        assert KEY not in str(caught.value)
    monkeypatch.setenv("TEST_KEY", f"{KEY}\n")  # what `export KEY=$(cat file)` and editors leave
    server = serve(lambda body, n: _completion("1"))
    _write(_engine(server.port), _texts(1))
    assert server.seen[0][2]["authorization"] == f"Bearer {KEY}"


def test_no_part_of_the_key_is_left_where_a_long_message_is_cut(serve: Callable[..., Server]) -> None:
    server = serve(lambda body, n: (401, {"error": {"message": "x" * (150 + n) + KEY}}))
    engine = _engine(server.port)
    for _ in range(35):
        with pytest.raises(PoiseError) as caught:
            _write(engine, _texts(1))
        assert KEY[:4] not in str(caught.value)


def test_the_key_is_written_nowhere(
    serve: Callable[..., Server], caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    """Also where the server repeats it in its error."""
    server = serve(lambda body, n: (401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}))
    engine = _engine(server.port)
    with caplog.at_level(logging.DEBUG), pytest.raises(PoiseError) as caught:
        _write(engine, _texts(2))
    shown = [str(caught.value), repr(engine), json.dumps(engine.description()), *capsys.readouterr()]
    shown += [record.getMessage() for record in caplog.records]
    assert "<key>" in str(caught.value)
    assert not [text for text in shown if KEY in text]
    assert caught.value.__cause__ is None


def test_a_class_accuracy_study_of_hard_predictions(
    serve: Callable[..., Server], demo_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the configuration to tidy metrics: unparsed rows are wrong, and the rows say that they are hard."""
    from poise import paths
    from poise.planfile import make_plan
    from poise.stages import correct, extract, measure
    from tests.conftest import ROOT

    words = ["terrible", "bad", "okay", "good", "great"]
    server = serve(lambda body, n: _completion(f" {words[n % 5]}\n" if n % 6 else " well", None))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    (tmp_path / "data").symlink_to(ROOT / "data")
    plan = make_plan(
        [
            "study=demo", "name=served", "model=[gpt-3.5-turbo-instruct]", "engine=openai", "dataset=[movies5]",
            "experiment=[class_accuracy]", "experiment.class_accuracy.datasets=[movies5]", "method=[icl,dnip]",
            "experiment.class_accuracy.rows={optimisation: 20, test: 30}", "seeds=[0]", "factor=[]", "probe=[]",
            f"engine.base_url=http://127.0.0.1:{server.port}/v1", "engine.key_variable=TEST_KEY",
            "model.gpt-3_5-turbo-instruct.price={input_usd_per_million: 1.5, output_usd_per_million: 2.0}",
        ]
    )  # fmt: skip
    (batch,) = plan.batches
    extract.extract(plan, batch.id)
    answers = read_answers(plan, plan.cells)
    test = next(answers[cell.id] for cell in plan.cells if cell.split == "test")
    assert test.hard
    assert set(test.predictions) <= {-1, 0, 1, 2, 3, 4}
    unparsed = test.predictions == -1
    assert unparsed.any()
    np.testing.assert_allclose(test.probabilities[unparsed], 0.2)
    assert (test.probabilities[~unparsed].max(axis=1) == 1).all()
    meta = json.loads((paths.batch_dir(batch.model, batch.id) / "meta.json").read_text())
    assert meta["billed_prompt_tokens"] == 11 * meta["requests"]
    assert meta["cost_usd"] == pytest.approx((11 * 1.5 + 2 * 2.0) * meta["requests"] / 1e6, abs=1e-6)
    for method in ("icl", "dnip"):
        correct.correct(plan, "class_accuracy", batch.model, "movies5", method)
    measure.measure(plan, "class_accuracy", batch.model, "movies5")
    from poise.files import read_parquet

    rows = read_parquet(paths.cell_metrics("served", "class_accuracy", batch.model, "movies5"))
    icl = rows[rows["method"] == "icl"].set_index("metric")["value"]
    assert icl["hard_predictions"] == 1
    assert icl["parse_failure_rate"] == pytest.approx(unparsed.mean())
    assert icl["accuracy"].max() == pytest.approx((test.predictions == test.labels).mean())
    everything = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [data for data in everything if KEY.encode() in data]
