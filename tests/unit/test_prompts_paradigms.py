"""Pairwise and listwise prompts, written out by hand after the position paper's G.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from poise.config.data import Dataset
from poise.config.models import LabelTokens
from poise.config.prompts import ListwisePrompt, PairwisePrompt
from poise.prompts.render import Renderer
from poise.prompts.text import Request

CONF = Path(__file__).parents[2] / "conf" / "prompt"
FIVE = ["very negative", "negative", "neutral", "positive", "very positive"]
MERGED = {
    "3_way": {"negative": FIVE[:2], "neutral": FIVE[2:3], "positive": FIVE[3:]},
    "2_way": {"negative": FIVE[:2], "positive": FIVE[3:]},
}
# Two of each class, in an order that is no class's.
SHOWN = [("b1", 1), ("e1", 4), ("a1", 0), ("a2", 0), ("d1", 3), ("c1", 2), ("b2", 1), ("e2", 4), ("c2", 2), ("d2", 3)]
QUERY = "Not bad."


def of(name: str) -> PairwisePrompt | ListwisePrompt:
    """The prompt that the study sends, as it is in conf/prompt."""
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    return (PairwisePrompt if values["kind"] == "pairwise" else ListwisePrompt).model_validate(values)


def movies(prompt: PairwisePrompt | ListwisePrompt, **changes: Any) -> Dataset:
    table = {"path": ["x.csv"]}
    values = {
        "name": "movies",
        "title": "Movies",
        "task": "Sentiment Classification",
        "domain": "none",
        "ordered": True,
        "source": {"kind": "files"},
        "tables": {"train": table, "test": table},
        "columns": {"text": "text", "label": "label"},
        "classes": FIVE,
        "merged": MERGED,
        "attribute": "sentiment",
        "poles": ["most negative", "most positive"],
        "comparatives": ["more negative", "more positive"],
        "prompt": prompt,
        **changes,
    }
    return Dataset.model_validate(values)


def ask(
    name: str,
    shown: list[tuple[str, int]],
    text: str = QUERY,
    data: Dataset | None = None,
    prefix_space: bool = True,
    **options: Any,
) -> list[Request]:
    prompt = of(name)
    tokens = LabelTokens(prefix_space=prefix_space)
    return Renderer(prompt, data or movies(prompt), shown, tokens, **options).requests(text)


PAIRWISE_HEAD = (
    "Please perform Sentiment Classification task. Given two Passages, compare their sentiments with labels from "
    "['very negative', 'negative', 'neutral', 'positive', 'very positive'].\n"
)


def test_pairwise() -> None:
    (forward, backward) = ask("pairwise", [("Superb!", 4)])
    assert forward.prompt.text == (
        PAIRWISE_HEAD + "Passage A: Not bad.\n"
        "Passage B: Superb!\n"
        "Which Passage is more positive in terms of its sentiment? Output Passage A or Passage B:"
    )
    assert backward.prompt.text == (
        PAIRWISE_HEAD + "Passage A: Superb!\n"
        "Passage B: Not bad.\n"
        "Which Passage is more positive in terms of its sentiment? Output Passage A or Passage B:"
    )
    assert forward.labels == backward.labels == (" Passage A", " Passage B")


def test_pairwise_reversed_asks_for_the_other_direction() -> None:
    (forward, backward) = ask("pairwise", [("Superb!", 4)], label_order="reversed")
    assert forward.prompt.text == (
        PAIRWISE_HEAD + "Passage A: Not bad.\n"
        "Passage B: Superb!\n"
        "Which Passage is more negative in terms of its sentiment? Output Passage A or Passage B:"
    )
    assert "Passage A: Superb!\nPassage B: Not bad.\nWhich Passage is more negative in" in backward.prompt.text
    assert forward.labels == (" Passage A", " Passage B")


def test_pairwise_asks_forward_then_backward_for_each_demonstration_in_order() -> None:
    slots = [tuple(request.prompt.text.split("\n")[1:3]) for request in ask("pairwise", SHOWN)]
    expected = []
    for demonstration, _ in SHOWN:
        expected += [
            (f"Passage A: {QUERY}", f"Passage B: {demonstration}"),
            (f"Passage A: {demonstration}", f"Passage B: {QUERY}"),
        ]
    assert slots == expected
    assert len(slots) == 20  # 2 · D


def test_pairwise_on_a_scale_without_words_for_its_direction() -> None:
    data = movies(of("pairwise"), classes=["bad", "fair", "good"], merged=None, comparatives=None, attribute="taste")
    for order, direction in (("natural", "more good"), ("reversed", "more bad")):
        text = ask("pairwise", [("x", 0)], data=data, label_order=order)[0].prompt.text
        assert "compare their tastes with labels from ['bad', 'fair', 'good']." in text
        assert f"Which Passage is {direction} in terms of its taste?" in text


def test_listwise() -> None:
    (first, second) = ask("listwise", SHOWN)
    head = (
        "Please perform Sentiment Classification task. Below are sentences ordered by sentiment from most negative to "
        "most positive. Insert the new sentence into this ordered scale and return only its position (1-5).\n"
    )
    assert first.prompt.text == (
        head + "Sentence: a1\nSentence: b1\nSentence: c1\nSentence: d1\nSentence: e1\nSentence: Not bad.\nPosition:"
    )
    assert second.prompt.text == first.prompt.text.translate(str.maketrans({"1": "2"})).replace("(2-5)", "(1-5)")
    assert first.labels == second.labels == (" 1", " 2", " 3", " 4", " 5")


def test_listwise_reversed_lists_from_the_top() -> None:
    (first, second) = ask("listwise", SHOWN, label_order="reversed")
    assert first.prompt.text == (
        "Please perform Sentiment Classification task. Below are sentences ordered by sentiment from most positive to "
        "most negative. Insert the new sentence into this ordered scale and return only its position (1-5).\n"
        "Sentence: e1\n"
        "Sentence: d1\n"
        "Sentence: c1\n"
        "Sentence: b1\n"
        "Sentence: a1\n"
        "Sentence: Not bad.\n"
        "Position:"
    )
    assert "Sentence: e2\nSentence: d2\nSentence: c2\nSentence: b2\nSentence: a2\n" in second.prompt.text
    assert first.labels == (" 1", " 2", " 3", " 4", " 5")


COMPARE_QUERY = (
    "New passage: Not bad.\n"
    "Which reference (1-5) is closest in sentiment to the new passage? "
    "Answer with ONLY a single number (1, 2, 3, 4, or 5). No explanation.\n"
    "Label:"
)


def test_listwise_compare() -> None:
    (first, second) = ask("listwise_compare", SHOWN)
    assert first.prompt.text == (
        "Please perform a Sentiment Classification task. Given the sentence, assign a label from "
        "[1: very negative, 2: negative, 3: neutral, 4: positive, 5: very positive].\n"
        "Given 5 reference passages ordered by sentiment from very negative to very positive:\n"
        "Sentence: a1\nLabel: 1\n\n"
        "Sentence: b1\nLabel: 2\n\n"
        "Sentence: c1\nLabel: 3\n\n"
        "Sentence: d1\nLabel: 4\n\n"
        "Sentence: e1\nLabel: 5\n\n" + COMPARE_QUERY
    )
    assert "Sentence: d2\nLabel: 4\n\nSentence: e2\nLabel: 5\n\nNew passage: Not bad.\n" in second.prompt.text
    assert first.labels == (" 1", " 2", " 3", " 4", " 5")


def test_listwise_compare_reversed_turns_texts_and_scale_round_but_no_label() -> None:
    (first, _) = ask("listwise_compare", SHOWN, label_order="reversed")
    assert first.prompt.text == (
        "Please perform a Sentiment Classification task. Given the sentence, assign a label from "
        "[1: very positive, 2: positive, 3: neutral, 4: negative, 5: very negative].\n"
        "Given 5 reference passages ordered by sentiment from very positive to very negative:\n"
        "Sentence: e1\nLabel: 1\n\n"
        "Sentence: d1\nLabel: 2\n\n"
        "Sentence: c1\nLabel: 3\n\n"
        "Sentence: b1\nLabel: 4\n\n"
        "Sentence: a1\nLabel: 5\n\n" + COMPARE_QUERY
    )
    assert first.labels == (" 1", " 2", " 3", " 4", " 5")


def test_listwise_on_merged_scales() -> None:
    data = movies(of("listwise")).scaled("3_way")
    shown = [("down", 0), ("up", 2), ("middle", 1)]
    (request,) = ask("listwise", shown, data=data)
    assert request.prompt.text.endswith(
        "return only its position (1-3).\nSentence: down\nSentence: middle\nSentence: up\nSentence: Not bad.\nPosition:"
    )
    assert request.labels == (" 1", " 2", " 3")
    (request,) = ask("listwise_compare", shown, data=data, label_order="reversed")
    assert "[1: positive, 2: neutral, 3: negative].\nGiven 3 reference passages ordered by" in request.prompt.text
    assert "from positive to negative:\nSentence: up\nLabel: 1\n\nSentence: middle\nLabel: 2\n\n" in request.prompt.text
    assert "Which reference (1-3) is closest" in request.prompt.text
    two = movies(of("listwise")).scaled("2_way")
    (request,) = ask("listwise_compare", [("up", 1), ("down", 0)], data=two)
    assert "ONLY a single number (1 or 2)." in request.prompt.text
    assert request.labels == (" 1", " 2")


@pytest.mark.parametrize("name", ["pairwise", "listwise", "listwise_compare"])
@pytest.mark.parametrize("brace", ["{", "}", "{task}", "{text}", "{label}", "{slot}", "{0}", "%s", "{{x}}", "a\0b"])
def test_texts_are_never_taken_for_templates(name: str, brace: str) -> None:
    shown = [(f"<{brace}|{label}>", label) for label in range(5)]
    for request in ask(name, shown, f"<{brace}>"):
        assert f": <{brace}>\n" in request.prompt.text
        assert f": <{brace}|" in request.prompt.text
        clean = request.prompt.text.replace(brace, "")
        assert not set("{}\0") & set(clean)


@pytest.mark.parametrize("name", ["listwise", "listwise_compare"])
def test_unequal_groups_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"\[2, 2, 2, 2, 1\].*as many of each"):
        ask(name, [*SHOWN[:-3], ("c2", 2), ("d2", 3)])
    with pytest.raises(ValueError, match=r"\[1, 0, 0, 0, 0\]"):
        ask(name, [("a1", 0)])
    with pytest.raises(ValueError, match="one at least"):
        ask(name, [])


@pytest.mark.parametrize("name", ["pairwise", "listwise", "listwise_compare"])
def test_labels_start_the_reply_of_a_chat(name: str) -> None:
    spaced = ask(name, SHOWN)
    for options in ({"chat": True}, {"prefix_space": False}):
        bare = ask(name, SHOWN, **options)
        assert [request.prompt for request in bare] == [request.prompt for request in spaced]
        assert [request.labels for request in bare] == [
            tuple(label.lstrip() for label in request.labels) for request in spaced
        ]


@pytest.mark.parametrize("name", ["pairwise", "listwise", "listwise_compare"])
def test_each_request_is_one_of_its_own(name: str) -> None:
    orders = ("natural", "reversed")
    ids = [request.id for order in orders for request in ask(name, SHOWN, label_order=order)]
    assert len(set(ids)) == len(ids)
    assert all(request.prompt.n_demonstrations == 0 for request in ask(name, SHOWN))  # none may be dropped
