"""What only the transformers engine has, on the real model: packing, its plain path. The rest: test_conformance.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from poise.engines.base import LabelScores, Query
from poise.engines.transformers import TransformersEngine
from poise.errors import PoiseError

pytestmark = pytest.mark.slow
TOLERANCE_NATS = 1e-4

SHOTS = 4 * "Review: A splendid, moving film.\nSentiment: great\n\nReview: Dull from start to end.\nSentiment: bad\n\n"
TEXTS = ["A joy.", "It drags on and on, and the jokes fall flat.", "Neither here nor there.", "A joy."]
LABELS = [" terrible", " bad", " okay", " good", " great", " so-so", " not bad at all", " not good"]


@pytest.fixture(scope="module")
def engine(model_dir: Path) -> TransformersEngine:
    return TransformersEngine(model_dir, pack_tokens=24)


def _query(engine: TransformersEngine, prompt: str, labels: Sequence[str] = LABELS) -> Query:
    ids = engine.encode(prompt)
    return Query(tuple(ids), tuple(tuple(engine.encode(label)) for label in labels))


@pytest.fixture(scope="module")
def queries(engine: TransformersEngine) -> list[Query]:
    """Prompts that share long, short and no prefixes; labels of one to five tokens."""
    shared = [_query(engine, f"{SHOTS}Review: {text}\nSentiment:") for text in TEXTS]
    other = [_query(engine, f"{text} Overall:") for text in TEXTS]
    numeric = [_query(engine, f"{SHOTS}Rate it.\nLabel:", [" 1", " 2", " 3", " 45"])]
    lone = [_query(engine, "Hello")]
    return [*shared, *other, *numeric, *lone]


def _ask(engine: TransformersEngine, queries: Sequence[Query], regroup: bool = False) -> list[LabelScores]:
    answers: dict[int, LabelScores] = {}
    for batch in engine.micro_batches(queries, regroup):
        answers.update(zip(batch.members, engine.score(queries, batch), strict=True))
    return [answers[k] for k in range(len(queries))]


@pytest.fixture(scope="module")
def answers(engine: TransformersEngine, queries: list[Query]) -> list[LabelScores]:
    return _ask(engine, queries)


def test_prefixes_are_shared_and_prompts_packed(engine, queries) -> None:
    batches = engine.micro_batches(queries)
    assert max(batch.n_prefix for batch in batches) >= len(engine.encode(SHOTS)) - 1
    assert max(len(batch.members) for batch in batches) >= 2


def test_greedy_is_what_generation_writes(engine, queries) -> None:
    for query in queries:
        longest = max(map(len, query.label_ids))
        ids = torch.tensor([query.prompt_ids])
        written = engine.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=longest, do_sample=False, pad_token_id=0
        )[0, len(query.prompt_ids) :].tolist()  # fmt: skip
        expected = [k for k, label in enumerate(query.label_ids) if written[: len(label)] == list(label)]
        assert _ask(engine, [query])[0].greedy == (expected[0] if expected else -1)


def test_plain_path_equals_the_packed_path(engine, queries, answers) -> None:
    engine._packable = False
    try:
        plain = _ask(engine, queries)
    finally:
        engine._packable = True
    for one, other in zip(answers, plain, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=TOLERANCE_NATS, rtol=0)
        assert one.greedy == other.greedy


def test_chat_template_wraps_one_user_turn(engine) -> None:
    text = engine.chat_text("How was it?")
    assert "<|im_start|>user\nHow was it?<|im_end|>" in text
    assert text.endswith("<|im_start|>assistant\n")


def test_chat_options_reach_the_template(engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.tokenizer.tokenizer, "chat_template", "{{ messages[0].content }} {{ thinking }}")
    monkeypatch.setattr(engine.tokenizer, "chat_options", {"thinking": "none"})
    assert engine.chat_text("How was it?") == "How was it? none"


def test_pickled_weights_are_refused_in_one_line(model_dir: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).symlink_to(model_dir / name)
    torch.save({"weight": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(PoiseError, match="cannot load the model") as caught:
        TransformersEngine(tmp_path)
    assert "safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_models_own_code_is_never_run(model_dir: Path, tmp_path: Path) -> None:
    """A folder that brings code gets the library's own class, or one line; its code would leave a trace."""
    import json

    for path in model_dir.iterdir():
        (tmp_path / path.name).symlink_to(path)
    config = json.loads((model_dir / "config.json").read_text())
    config |= {"model_type": "unheard_of", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}}
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    trace = tmp_path / "trace"
    (tmp_path / "code.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass C: ...\nclass M: ...\n")
    with pytest.raises(PoiseError, match="cannot load") as caught:
        TransformersEngine(tmp_path)
    assert "\n" not in str(caught.value)
    assert not trace.exists()
