"""Reading a label out of generated text."""

from __future__ import annotations

import pytest

from poise.prompts.parsing import parse_label

NUMBERS = ["1", "2", "3", "4", "5"]
LETTERS = ["A", "B", "C"]
WORDS = ["very negative", "negative", "neutral", "positive", "very positive"]
OPTIONS = [f"Option_{k}" for k in range(1, 12)]
PASSAGES = ["Passage A", "Passage B"]


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("3", NUMBERS, 2),
        (" 3\n\nSentence: 4", NUMBERS, 2),
        ("**4**", NUMBERS, 3),
        ("The label is 2.", NUMBERS, 1),
        ("5/5", NUMBERS, 4),
        ("10", NUMBERS, -1),
        ("10, or 2", NUMBERS, 1),
        ("4.5", NUMBERS, -1),
        ("4.5 rounds to 5.", NUMBERS, 4),
        ("3rd", NUMBERS, -1),
        ("x1", NUMBERS, -1),
        ("", NUMBERS, -1),
        ("none of them", NUMBERS, -1),
        ("3", [" 1", " 2", " 3 "], 2),
        ("b", LETTERS, 1),
        ("(C)", LETTERS, 2),
        ("Because", LETTERS, -1),
        ("a fine film: C", LETTERS, 0),  # the article: a documented consequence
        ("Very Negative", WORDS, 0),
        ("negative, not positive", WORDS, 1),
        ("very  positive", WORDS, 4),
        ("very\npositive", WORDS, 4),
        ("very-positive", WORDS, 4),
        ("very nega", WORDS, -1),
        ("nonnegative", WORDS, -1),
        ("POSITIVE!", WORDS, 3),
        ("neutral_positive", WORDS, -1),
        ("new york city", ["new", "new york", "york"], 1),
        ("new yorker", ["new", "new york", "york"], 0),
        ("option_10", OPTIONS, 9),
        ("Option_1", OPTIONS, 0),
        ("Option_12", OPTIONS, -1),
        ("OPTION_11.", OPTIONS, 10),
        ("1", OPTIONS, -1),
        ("passage b is more positive", PASSAGES, 1),
        ("Passage: A", PASSAGES, -1),
        ("Passage Beta", PASSAGES, -1),
        ("Schön", ["schön"], 0),
        ("scho\u0308n", ["schön"], 0),  # the same letter in two code points
        ("cafe\u0301s", ["cafe"], -1),
        ("e\u0323\u0302", ["e"], -1),
        ("STRASSE", ["straße"], 0),
        ("schönes", ["schön"], -1),
        ("हिन्दी", ["हिन्द"], -1),  # a vowel sign goes on with the word, though it is no letter
        ("हिन्दी।", ["हिन्दी"], 0),
        ("答案:负面。", ["负面", "正面"], 0),
        ("a+b", ["b", "a+b"], 1),
        ("c", ["."], -1),
    ],
)
def test_the_first_whole_label_counts(text: str, labels: list[str], expected: int) -> None:
    assert parse_label(text, labels) == expected


def test_a_blank_label_is_an_error() -> None:
    with pytest.raises(ValueError, match="blank"):
        parse_label("1", ["1", " "])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("not negative but positive", 3), ("negative: very negative", 0), ("neutral", 2), ("", -1), ("good", -1)],
)
def test_the_last_label_of_a_text(text: str, expected: int) -> None:
    assert parse_label(text, WORDS, last=True) == expected
