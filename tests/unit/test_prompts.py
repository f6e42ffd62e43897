"""The exact text of every pointwise prompt, written out by hand."""

import hashlib
from pathlib import Path

import pytest
import yaml

from poise.config.data import Dataset
from poise.config.models import LabelTokens
from poise.config.prompts import ICLPrompt, OrdinalPrompt
from poise.prompts.render import Renderer
from poise.prompts.scale import label_position
from poise.prompts.text import Generation, PromptText, Request

CONF = Path(__file__).parents[2] / "conf" / "prompt"

AGNEWS = ICLPrompt(
    kind="icl",
    name="agnews",
    instruction="Please classify the news articles into the categories of World, Sports, Business, and Technology.\n\n",
    text_prefix="Article: ",
    label_prefix="Answer:",
    separator="\n\n====\n\n",
    label_words=["World", "Sports", "Business", "Technology"],
)
FIVE = ["very negative", "negative", "neutral", "positive", "very positive"]
SHOWN = [("Awful.", 0), ("It is a film.", 2), ("Superb!", 4)]


def dataset(prompt, classes=FIVE, task="Sentiment Classification", poles=("most negative", "most positive")):
    table = {"path": ["x.csv"]}
    return Dataset(
        name="toy",
        title="Toy",
        task=task,
        domain="none",
        ordered=True,
        source={"kind": "files"},
        tables={"train": table, "test": table},
        columns={"text": "text", "label": "label"},
        classes=list(classes),
        poles=poles,
        prompt=prompt,
    )


def ordinal(**changes):
    """The prompt that the study sends (conf/prompt/ordinal.yaml), with some options changed."""
    values = yaml.safe_load((CONF / "ordinal.yaml").read_text(encoding="utf-8"))
    return OrdinalPrompt.model_validate({**values, **changes})


def ask(prompt, text="Not bad.", demonstrations=SHOWN, data=None, prefix_space=True, **probe):
    (request,) = Renderer(
        prompt=prompt,
        dataset=data or dataset(prompt),
        demonstrations=demonstrations,
        label_tokens=LabelTokens(prefix_space=prefix_space),
        **probe,
    ).requests(text)
    return request


def test_the_dnip_papers_prompt():
    data = dataset(AGNEWS, classes=["world", "sports", "business", "technology"], poles=None)
    shown = [("Cup final. It was won.", 1), ("Chips. They shrink.", 3)]
    request = ask(AGNEWS, "Shares fall. A lot.", shown, data)
    assert request.prompt.text == (
        "Please classify the news articles into the categories of World, Sports, Business, and Technology.\n"
        "\n"
        "Article: Cup final. It was won.\n"
        "Answer: Sports\n"
        "\n"
        "====\n"
        "\n"
        "Article: Chips. They shrink.\n"
        "Answer: Technology\n"
        "\n"
        "====\n"
        "\n"
        "Article: Shares fall. A lot.\n"
        "Answer:"
    )
    assert request.labels == (" World", " Sports", " Business", " Technology")


def test_the_dnip_papers_prompt_without_instruction_and_demonstrations():
    prompt = ICLPrompt(kind="icl", name="rte", text_prefix="", label_prefix="answer:", label_words=["False", "True"])
    data = dataset(prompt, classes=["not entailment", "entailment"], poles=None)
    request = ask(prompt, "It rains.\nquestion: It is wet. True or False?", [], data)
    assert request.prompt.text == "It rains.\nquestion: It is wet. True or False?\nanswer:"


@pytest.mark.parametrize("brace", ["{", "}", "{task}", "{0}", "%s", "{{x}}"])
def test_texts_are_never_taken_for_templates(brace):
    for prompt in (ordinal(), AGNEWS):
        data = dataset(prompt, classes=FIVE if prompt.kind == "ordinal" else FIVE[:4])
        assert f": {brace}\n" in ask(prompt, brace, [("x", 0)], data).prompt.text


NATURAL = (
    "Please perform Sentiment Classification task. Given the sentence, assign a label from "
    "[1: very negative, 2: negative, 3: neutral, 4: positive, 5: very positive].\n"
    "Answer with ONLY a single number (1, 2, 3, 4, or 5). No explanation.\n"
    "\n"
)
REVERSED = (
    "Please perform Sentiment Classification task. Given the sentence, assign a label from "
    "[1: very positive, 2: positive, 3: neutral, 4: negative, 5: very negative].\n"
    "Answer with ONLY a single number (1, 2, 3, 4, or 5). No explanation.\n"
    "\n"
)


def test_natural_label_order():
    request = ask(ordinal())
    assert request.prompt.text == (
        NATURAL + "Sentence: Awful.\n"
        "Label: 1\n"
        "\n"
        "Sentence: It is a film.\n"
        "Label: 3\n"
        "\n"
        "Sentence: Superb!\n"
        "Label: 5\n"
        "\n"
        "Sentence: Not bad.\n"
        "Label:"
    )
    assert request.labels == (" 1", " 2", " 3", " 4", " 5")


def test_reversed_labels_change_header_and_demonstrations_together():
    request = ask(ordinal(), label_order="reversed")
    assert request.prompt.text == (
        REVERSED + "Sentence: Awful.\n"
        "Label: 5\n"
        "\n"
        "Sentence: It is a film.\n"
        "Label: 3\n"
        "\n"
        "Sentence: Superb!\n"
        "Label: 1\n"
        "\n"
        "Sentence: Not bad.\n"
        "Label:"
    )
    assert request.labels == (" 1", " 2", " 3", " 4", " 5")  # by prompt position; the reader maps them back


def test_demonstrations_after_the_query():
    expected = (
        NATURAL + "Sentence: Not bad.\n"
        "Label:\n"
        "\n"
        "Sentence: Awful.\n"
        "Label: 1\n"
        "\n"
        "Sentence: It is a film.\n"
        "Label: 3\n"
        "\n"
        "Sentence: Superb!\n"
        "Label: 5"
    )
    assert ask(ordinal(), placement="after").prompt.text == expected
    assert ask(ordinal(after_cue="repeat"), placement="after").prompt.text == expected + "\n\nLabel:"


def test_split_demonstrations_have_the_smaller_half_before():
    request = ask(ordinal(), placement="split")
    assert request.prompt.text == (
        NATURAL + "Sentence: Awful.\n"
        "Label: 1\n"
        "\n"
        "Sentence: Not bad.\n"
        "Label:\n"
        "\n"
        "Sentence: It is a film.\n"
        "Label: 3\n"
        "\n"
        "Sentence: Superb!\n"
        "Label: 5"
    )
    for n in range(8):
        prompt = ask(ordinal(), demonstrations=SHOWN[:1] * n, placement="split").prompt
        assert (len(prompt.before), len(prompt.after)) == (n // 2, n - n // 2)


def test_without_demonstrations_the_placement_changes_nothing():
    prompts = {
        ask(ordinal(after_cue=cue), demonstrations=[], placement=placement).prompt.text
        for cue in ("once", "repeat")
        for placement in ("before", "after", "split")
    }
    assert prompts == {NATURAL + "Sentence: Not bad.\nLabel:"}
    repeated = ask(ordinal(after_cue="repeat"), placement="before").prompt.text
    assert repeated == ask(ordinal(), placement="before").prompt.text


@pytest.mark.parametrize(
    ("label_format", "head", "labels"),
    [
        (
            "numeric",
            "[1: negative, 2: neutral, 3: positive].\nAnswer with ONLY a single number (1, 2, or 3). No explanation.",
            ("1", "2", "3"),
        ),
        (
            "letter",
            "[A: negative, B: neutral, C: positive].\nAnswer with ONLY a single letter (A, B, or C). No explanation.",
            ("A", "B", "C"),
        ),
        (
            "neutral_id",
            "[Option_1: negative, Option_2: neutral, Option_3: positive].\n"
            "Answer with ONLY one label (Option_1, Option_2, or Option_3). No explanation.",
            ("Option_1", "Option_2", "Option_3"),
        ),
        (
            "natural_language",
            "[negative, neutral, positive].\n"
            "Answer with ONLY one label (negative, neutral, or positive). No explanation.",
            ("negative", "neutral", "positive"),
        ),
    ],
)
def test_label_formats(label_format, head, labels):
    prompt = ordinal(label_format=label_format)
    data = dataset(prompt, classes=["negative", "neutral", "positive"])
    request = ask(prompt, demonstrations=[("Fine.", 2)], data=data)
    assert request.prompt.text == (
        f"Please perform Sentiment Classification task. Given the sentence, assign a label from {head}\n"
        "\n"
        f"Sentence: Fine.\nLabel: {labels[2]}\n"
        "\n"
        "Sentence: Not bad.\nLabel:"
    )
    assert request.labels == tuple(" " + label for label in labels)


def test_reversed_natural_language_shows_the_opposite_words():
    prompt = ordinal(label_format="natural_language", clarity="ordinal_explicit")
    data = dataset(prompt, classes=["negative", "neutral", "positive"])
    request = ask(prompt, demonstrations=[("Fine.", 2)], data=data, label_order="reversed")
    assert request.prompt.text == (
        "Please perform Sentiment Classification task. Given the sentence, assign a label from "
        "[positive, neutral, negative].\n"
        "Answer with ONLY one label (negative, neutral, or positive). No explanation.\n"
        "The labels are ordered from negative (most positive) to positive (most negative).\n"
        "\n"
        "Sentence: Fine.\nLabel: negative\n"
        "\n"
        "Sentence: Not bad.\nLabel:"
    )


@pytest.mark.parametrize(
    ("clarity", "order", "head"),
    [
        ("minimal", "natural", "Please perform Sentiment Classification task.\n\n"),
        ("minimal", "reversed", "Please perform Sentiment Classification task.\n\n"),
        ("explicit", "natural", NATURAL),
        (
            "ordinal_explicit",
            "natural",
            NATURAL[:-1] + "The labels are ordered from 1 (most negative) to 5 (most positive).\n\n",
        ),
        (
            "ordinal_explicit",
            "reversed",
            REVERSED[:-1] + "The labels are ordered from 1 (most positive) to 5 (most negative).\n\n",
        ),
    ],
)
def test_clarity(clarity, order, head):
    request = ask(ordinal(clarity=clarity), demonstrations=[], label_order=order)
    assert request.prompt.text == head + "Sentence: Not bad.\nLabel:"


def test_without_poles_the_end_classes_name_them():
    prompt = ordinal(clarity="ordinal_explicit")
    text = ask(prompt, data=dataset(prompt, poles=None)).prompt.text
    assert "ordered from 1 (most very negative) to 5 (most very positive)." in text


@pytest.mark.parametrize(
    ("mood", "line"),
    [
        (
            "imperative",
            "Please perform Hate Detection task. Given the sentence, assign a label from [1: non-hate, 2: hate].",
        ),
        (
            "interrogative",
            "What label from [1: non-hate, 2: hate] should be assigned to the sentence in this Hate Detection task?",
        ),
        (
            "indicative",
            "You are performing the Hate Detection task. Given the sentence, you assign a label from "
            "[1: non-hate, 2: hate].",
        ),
    ],
)
def test_moods_and_two_way_choices(mood, line):
    prompt = ordinal(mood=mood)
    data = dataset(prompt, classes=["non-hate", "hate"], task="Hate Detection", poles=None)
    request = ask(prompt, demonstrations=[], data=data)
    assert request.prompt.text == (
        line + "\nAnswer with ONLY a single number (1 or 2). No explanation.\n\nSentence: Not bad.\nLabel:"
    )
    assert request.labels == (" 1", " 2")


@pytest.mark.parametrize(
    ("separator", "connector", "expected", "label"),
    [
        ("colon", "newline", "Sentence: Fine.\nLabel: 4\n\nSentence: Not bad.\nLabel:", " 2"),
        ("colon", "space", "Sentence: Fine. Label: 4\n\nSentence: Not bad. Label:", " 2"),
        ("colon", "newline_tab", "Sentence: Fine.\n\tLabel: 4\n\nSentence: Not bad.\n\tLabel:", " 2"),
        ("space", "newline", "Sentence Fine.\nLabel 4\n\nSentence Not bad.\nLabel", " 2"),
        ("space", "space", "Sentence Fine. Label 4\n\nSentence Not bad. Label", " 2"),
        ("space", "newline_tab", "Sentence Fine.\n\tLabel 4\n\nSentence Not bad.\n\tLabel", " 2"),
        ("tab", "newline", "Sentence\tFine.\nLabel\t4\n\nSentence\tNot bad.\nLabel", "\t2"),
        ("tab", "space", "Sentence\tFine. Label\t4\n\nSentence\tNot bad. Label", "\t2"),
        ("tab", "newline_tab", "Sentence\tFine.\n\tLabel\t4\n\nSentence\tNot bad.\n\tLabel", "\t2"),
    ],
)
def test_separators_and_connectors(separator, connector, expected, label):
    request = ask(ordinal(separator=separator, connector=connector), demonstrations=[("Fine.", 3)])
    assert request.prompt.text == NATURAL + expected
    assert request.labels[1] == label
    # A demonstration reads exactly like a query with its label after it.
    query = ask(ordinal(separator=separator, connector=connector), "Fine.", []).prompt.query
    assert request.prompt.before == (query + label.replace("2", "4") + "\n\n",)


@pytest.mark.parametrize("separator", ["colon", "space", "tab"])
def test_labels_have_no_leading_space_in_chats_or_where_the_model_takes_none(separator):
    prompt = ordinal(separator=separator)
    bare = ("1", "2", "3", "4", "5")
    assert ask(prompt, chat=True).labels == bare
    assert ask(prompt, prefix_space=False).labels == bare
    assert ask(prompt, prefix_space=False, chat=True).labels == bare
    assert ask(prompt, chat=True).prompt.text == ask(prompt).prompt.text
    data = dataset(AGNEWS, classes=FIVE[:4])
    assert ask(AGNEWS, demonstrations=[], data=data, prefix_space=False).labels[0] == "World"
    assert ask(AGNEWS, demonstrations=[], data=data, chat=True).labels[0] == "World"


@pytest.mark.parametrize("n", range(2, 9))
def test_label_position_is_its_own_inverse(n):
    for order in ("natural", "reversed"):
        positions = [label_position(label, n, order) for label in range(n)]
        assert sorted(positions) == list(range(n))
        assert [label_position(position, n, order) for position in positions] == list(range(n))
    assert [label_position(label, n, "natural") for label in range(n)] == list(range(n))
    assert [label_position(label, n, "reversed") for label in range(n)] == list(range(n))[::-1]


def test_requests_are_the_same_exactly_when_the_same_is_sent():
    parts = PromptText("head ", ("one ", "two "), "query")
    request = Request(parts, (" a", " b"))
    assert request.id == Request(PromptText("head ", ("one ", "two "), "query"), (" a", " b")).id
    # The same text in other parts is the same request: one demonstration, asked about after or "split".
    after = ask(ordinal(), demonstrations=SHOWN[:1], placement="after")
    assert after.id == ask(ordinal(), demonstrations=SHOWN[:1], placement="split").id
    different = [
        request,
        Request(PromptText("head ", ("two ", "one "), "query"), (" a", " b")),
        Request(PromptText("head ", ("one ", "two "), "query "), (" a", " b")),
        Request(PromptText("head ", ("one ", "two "), "query", cue=" "), (" a", " b", "")),
        Request(parts, (" b", " a")),
        Request(parts, ("a", "b")),
        Request(parts, (" a", " b", " c")),
        Request(parts, (" a b",)),
        Request(parts, (" a", " b"), chat=True),
        Request(parts, (" a", " b"), replicate=1),
        Request(parts, (" a", " b"), replicate=2),
    ]
    assert len({item.id for item in different}) == len(different)


def test_requests_for_text_are_other_requests():
    asked = {
        ask(ordinal(), generation=generation, replicate=replicate).id
        for generation in (None, Generation(8), Generation(9), Generation(8, 0.7), Generation(8, 0.7, 0.9))
        for replicate in (0, 1)
    }
    assert len(asked) == 10
    sampled = ask(ordinal(), generation=Generation(8, 0.7), replicate=1)
    assert (sampled.generation, sampled.replicate) == (Generation(8, 0.7), 1)
    assert sampled.prompt == ask(ordinal()).prompt
    assert sampled.labels == (" 1", " 2", " 3", " 4", " 5")
    assert Generation(8, 1.0) == Generation(8, 1)
    assert ask(ordinal(), generation=Generation(8, 1)).id == ask(ordinal(), generation=Generation(8, 1.0)).id


@pytest.mark.parametrize(
    ("cardinality", "space", "choices", "labels"),
    [
        ("3_way", "1: negative, 2: neutral, 3: positive", "1, 2, or 3", (" 1", " 2", " 3")),
        ("2_way", "1: negative, 2: positive", "1 or 2", (" 1", " 2")),
    ],
)
def test_merged_scales(cardinality, space, choices, labels):
    merged = {
        "3_way": {"negative": FIVE[:2], "neutral": FIVE[2:3], "positive": FIVE[3:]},
        "2_way": {"positive": FIVE[3:], "negative": FIVE[:2]},  # whatever the order of the keys
    }
    data = dataset(ordinal()).model_copy(update={"merged": merged}).scaled(cardinality)
    request = ask(ordinal(), demonstrations=[("Superb!", len(labels) - 1)], data=data)
    assert request.prompt.text == (
        f"Please perform Sentiment Classification task. Given the sentence, assign a label from [{space}].\n"
        f"Answer with ONLY a single number ({choices}). No explanation.\n"
        "\n"
        f"Sentence: Superb!\nLabel: {len(labels)}\n"
        "\n"
        "Sentence: Not bad.\nLabel:"
    )
    assert request.labels == labels
    reversed_ = ask(ordinal(), demonstrations=[("Superb!", len(labels) - 1)], data=data, label_order="reversed")
    assert "Sentence: Superb!\nLabel: 1\n" in reversed_.prompt.text


def test_request_ids_do_not_change_from_run_to_run():
    """Ids name the answers on disk: whoever changes them throws those away (versions.EXTRACTION_VERSION)."""
    request = Request(PromptText("é ", ("one ",), "query"), (" a", " b"))
    sent = '["é one query",1,[" a"," b"],false,0]'
    assert request.id == hashlib.sha256(sent.encode()).hexdigest()[:16]


def dropped(prompt):
    """Texts of a prompt as its demonstrations are left out one by one."""
    texts = []
    while prompt.n_demonstrations:
        prompt = prompt.drop_demonstration()
        texts.append(prompt.text)
    return texts


def test_the_farthest_demonstration_goes_first():
    before = PromptText("<", ("1", "2", "3"), "?")
    assert dropped(before) == ["<23?", "<3?", "<?"]
    after = PromptText("<", (), "?", ("1", "2", "3"))
    assert dropped(after) == ["<?12", "<?1", "<?"]
    split = PromptText("<", ("1", "2"), "?", ("3", "4", "5"))
    assert dropped(split) == ["<12?34", "<2?34", "<2?3", "<?3", "<?"]
    assert before.text == "<123?"  # the prompt itself is immutable


def test_a_repeated_cue_goes_with_the_last_demonstration_after_the_query():
    prompt = ask(ordinal(after_cue="repeat"), demonstrations=SHOWN[:2], placement="after").prompt
    without = NATURAL + "Sentence: Not bad.\nLabel:"
    one = without + "\n\nSentence: Awful.\nLabel: 1\n\nLabel:"
    assert dropped(prompt) == [one, without]
    split = ask(ordinal(after_cue="repeat"), demonstrations=SHOWN[:2], placement="split").prompt
    assert dropped(split) == [
        without + "\n\nSentence: It is a film.\nLabel: 3\n\nLabel:",
        without,
    ]


def test_a_shortened_prompt_equals_one_rendered_with_fewer_demonstrations():
    for placement in ("before", "after"):
        full = ask(ordinal(), placement=placement).prompt
        fewer = SHOWN[1:] if placement == "before" else SHOWN[:-1]
        assert full.drop_demonstration() == ask(ordinal(), demonstrations=fewer, placement=placement).prompt
