"""Packing for models with sliding windows, against one plain full forward pass for each label, in float32.

Tiny models with random weights stand for the real ones, drawn wide enough that what a token sees moves its scores far
beyond the tolerance. They need no download. The real Gemma is asked where it is prepared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from poise.engines.attention import attention_masks, layer_windows
from poise.engines.base import LabelScores, Query
from poise.engines.transformers import TransformersEngine
from tests.conftest import ROOT

TOLERANCE_NATS = 1e-4
WINDOW = 16
SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "sliding_window": WINDOW, "initializer_range": 0.3,
}  # fmt: skip
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
CONFIGS: dict[str, transformers.PreTrainedConfig] = {
    "gemma3": transformers.Gemma3TextConfig(**SIZES, layer_types=MIXED, query_pre_attn_scalar=16),
    "gemma2": transformers.Gemma2Config(
        **SIZES, layer_types=MIXED, query_pre_attn_scalar=16, attn_logit_softcapping=1.0, final_logit_softcapping=30.0
    ),
    "mistral": transformers.MistralConfig(**SIZES),
}


@pytest.fixture(scope="module", params=CONFIGS)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TransformersEngine:
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(CONFIGS[request.param]).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({f"w{k}": k for k in range(97)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="w0").save_pretrained(folder)
    return TransformersEngine(folder, pack_tokens=48, threads=1)


@pytest.fixture(scope="module")
def queries() -> list[Query]:
    """Prompts around the window's length and far longer, with and without shared prefixes; labels of 1 to 4 tokens."""
    random = np.random.default_rng(0)

    def draw(n: int) -> tuple[int, ...]:
        return tuple(random.integers(1, 97, n).tolist())

    labels = ((5,), (6, 7), (6, 8, 9), (6, 8, 10, 11))
    short, long = draw(10), draw(70)
    branch = long + draw(8)
    prompts = [draw(n) for n in (1, 13, 14, 15, 16, 17, 40)]
    prompts += [short + draw(n) for n in (1, 2, 20)]
    prompts += [long + draw(n) for n in (1, 3, 16, 30)]
    prompts += [branch + draw(n) for n in (1, 25)] + [branch, branch]
    return [Query(prompt, labels[: 2 + k % 3]) for k, prompt in enumerate(prompts)]


@pytest.fixture(scope="module")
def truth(engine, queries) -> list[np.ndarray]:
    return [_truth(engine.model, query) for query in queries]


@torch.inference_mode()
def _truth(model: Any, query: Query) -> np.ndarray:
    found = []
    for label in query.label_ids:
        ids = torch.tensor([[*query.prompt_ids, *label]])
        logprobs = torch.log_softmax(model(ids, logits_to_keep=len(label) + 1).logits[0].double(), dim=-1)
        found.append(sum(float(logprobs[k, token]) for k, token in enumerate(label)))
    return np.array(found)


def _ask(engine: TransformersEngine, queries: Sequence[Query], regroup: bool = False) -> list[LabelScores]:
    answers: dict[int, LabelScores] = {}
    for batch in engine.micro_batches(queries, regroup):
        answers.update(zip(batch.members, engine.score(queries, batch), strict=True))
    return [answers[k] for k in range(len(queries))]


def _largest_difference(answers: Sequence[LabelScores], truth: Sequence[np.ndarray]) -> float:
    return max(float(np.abs(one.logprobs - other).max()) for one, other in zip(answers, truth, strict=True))


def test_packed_scores_equal_a_full_forward(engine, queries, truth) -> None:
    batches = engine.micro_batches(queries)
    assert engine.description()["packed"]
    assert max(batch.n_prefix for batch in batches) > 2 * WINDOW  # a cached prefix longer than the window
    assert sum(batch.n_prefix > WINDOW for batch in batches) >= 3  # which several packs follow
    assert max(len(batch.members) for batch in batches) >= 3
    assert _largest_difference(_ask(engine, queries), truth) <= TOLERANCE_NATS
    assert _largest_difference(_ask(engine, queries, regroup=True), truth) <= TOLERANCE_NATS
    assert _largest_difference(_ask(engine, queries[-3:-2]), truth[-3:-2]) <= TOLERANCE_NATS


@pytest.mark.parametrize("window", [WINDOW - 1, WINDOW + 1, None])
def test_a_wrong_window_is_noticed(engine, queries, truth, window, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: one token more or less moves scores a thousandfold beyond the tolerance."""
    wrong = {kind: found and window for kind, found in layer_windows(engine.model.config).items()}
    monkeypatch.setattr(engine, "_windows", wrong)
    assert _largest_difference(_ask(engine, queries), truth) > 1000 * TOLERANCE_NATS


def test_one_pass_for_each_node_gives_the_same(engine, queries, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = _ask(engine, queries)
    monkeypatch.setattr(engine, "_packable", False)
    for one, other in zip(packed, _ask(engine, queries), strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=TOLERANCE_NATS, rtol=0)
        assert one.greedy == other.greedy


@pytest.mark.parametrize("engine", ["gemma2"], indirect=True)
def test_a_soft_cap_on_attention_is_kept(engine, queries) -> None:
    uncapped = transformers.AutoModelForCausalLM.from_pretrained(
        engine.model.config._name_or_path, attn_logit_softcapping=None, attn_implementation="eager"
    ).eval()
    query = queries[6]
    assert _largest_difference(_ask(engine, [query]), [_truth(uncapped, query)]) > 1000 * TOLERANCE_NATS


def test_windows_by_layer_type() -> None:
    assert layer_windows(CONFIGS["gemma3"]) == {"sliding_attention": WINDOW, "full_attention": None}
    assert layer_windows(CONFIGS["mistral"]) == {"sliding_attention": WINDOW}
    assert layer_windows(transformers.LlamaConfig()) == {"full_attention": None}
    assert layer_windows(transformers.Qwen3Config()) == {"full_attention": None}  # a window that no layer uses
    assert layer_windows(transformers.Qwen3NextConfig()) == {}  # linear attention
    assert layer_windows(transformers.Llama4TextConfig()) == {}  # chunks
    assert layer_windows(transformers.MambaConfig()) == {}  # no attention at all


def test_masks_of_a_small_pack_by_hand() -> None:
    """Prefix at positions 0, 1; tokens a (2), b (3) after a, c (3) after a; a window of 3."""
    attends = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=bool)
    masks = attention_masks(
        {"full_attention": None, "sliding_attention": 3}, attends, np.array([2, 3, 3]), 2, torch.float32, "cpu"
    )
    assert isinstance(masks, dict)
    seen = {kind: (mask[0, 0] == 0).int().tolist() for kind, mask in masks.items()}
    assert seen == {
        "full_attention": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]],
        "sliding_attention": [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 1, 1, 0, 1]],
    }
    assert all(torch.isneginf(mask[mask != 0]).all() for mask in masks.values())


# --- the real Gemma 3 ---

PARAGRAPH = (
    "The Industrial Revolution was a period of major mechanization and innovation that began in Great Britain during "
    "the mid-18th century and later spread throughout much of the world. It was preceded by improvements in "
    "agriculture, which allowed fewer farmers to feed a growing population, and it drew many people from the "
    "countryside into the towns. Steam engines, first used to pump water out of mines, soon drove mills and "
    "locomotives, and the price of cotton cloth fell so far that ordinary families could afford it."
)


@pytest.fixture(scope="module")
def gemma() -> TransformersEngine:
    """The prepared model; absent by default, because its 240 MB are not part of the default study."""
    prepared = sorted((ROOT / "data/models").glob("gemma-3-270m.*/poise.json"))
    if not prepared:
        pytest.skip("gemma-3-270m is not prepared under data/models: using it means accepting the Gemma Terms of Use")
    return TransformersEngine(prepared[-1].parent, pack_tokens=16)


@pytest.mark.slow
@torch.inference_mode()
def test_gemma_reads_english(gemma) -> None:
    ids = gemma.encode(PARAGRAPH)
    assert ids[0] == gemma.tokenizer.bos_token_id == 2
    assert ids[1:] == gemma.encode(PARAGRAPH, special_tokens=False)
    assert gemma.encode("Hello, world!") == [2, 9259, 236764, 1902, 236888]
    logprobs = torch.log_softmax(gemma.model(torch.tensor([ids])).logits[0].double(), dim=-1)
    found = logprobs[:-1].gather(1, torch.tensor(ids[1:])[:, None]).mean()
    assert float(torch.exp(-found)) < 25  # 17; without the BOS token 74
    prompt = gemma.encode("The chemical symbol for gold is")
    answer = gemma.model(torch.tensor([prompt])).logits[0, -1].argmax()
    assert gemma.tokenizer.decode([int(answer)]) == " Au"


@pytest.mark.slow
def test_gemma_packed_scores_equal_a_full_forward(gemma) -> None:
    """Prompts on both sides of its window of 512, over one shared prefix and none."""
    labels = tuple(tuple(gemma.encode(label, special_tokens=False)) for label in (" good", " not bad at all"))
    ends = ["It was", "In sum, it was", "To the weavers of the north, it was"]
    texts = ["A joy.", *(f"{6 * PARAGRAPH} {end}" for end in ends)]
    queries = [Query(tuple(gemma.encode(f"{text}\nSentiment:")), labels) for text in texts]
    assert gemma.description()["packed"]
    assert min(len(query.prompt_ids) for query in queries) < 16
    assert max(batch.n_prefix for batch in gemma.micro_batches(queries)) > 512
    truth = [_truth(gemma.model, query) for query in queries]
    assert _largest_difference(_ask(gemma, queries), truth) <= TOLERANCE_NATS
