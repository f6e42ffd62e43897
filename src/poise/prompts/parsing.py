"""Generated text becomes a label, or a failure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from re import Match

FAILURE = -1


def parse_label(text: str, labels: Sequence[str], last: bool = False) -> int:
    """Find the label that an answer names: the one that occurs first in it, as a whole token, in any letter case.

    Where two labels start at the same place the longer one counts, so ``very negative`` is never read as ``negative``
    or ``very``. A token ends where letters, digits, underscores and combining marks end: ``10`` does not hold ``1``,
    nor ``Option_10`` ``Option_1``; a decimal number is one token (``4.5`` holds neither 4 nor 5). The words of a label
    may stand apart by any white space, or by a hyphen. The paper does not print its rule; this one is reconstructed.

    It has a consequence for letters: in a sentence the article ``a`` is label ``A``, so letters are only safe with
    models that answer with little else.

    Parameters
    ----------
    text
        The visible answer.
    labels
        Label texts; white space around them does not count.
    last
        Take the label that occurs last instead: a chain of thought names others before its answer.

    Returns
    -------
    int
        Index of the label; -1 if there is none.

    Raises
    ------
    ValueError
        If a label is blank.
    """
    pattern, folded = _pattern(tuple(labels)), _folded(text)
    found = max(pattern.finditer(folded), key=Match.start, default=None) if last else pattern.search(folded)
    return int(found.lastgroup.removeprefix("label")) if found and found.lastgroup else FAILURE


@cache
def _pattern(labels: tuple[str, ...]) -> re.Pattern[str]:
    words = [_folded(label).split() for label in labels]
    if not all(words):
        raise ValueError(f"labels must not be blank, found {list(labels)}")
    longest_first = sorted(range(len(labels)), key=lambda k: -len(" ".join(words[k])))
    options = "|".join(f"(?P<label{k}>{_surface(words[k])})" for k in longest_first)
    return re.compile(rf"(?<![\w{_marks()}])(?:{options})(?![\w{_marks()}])")


def _surface(words: Sequence[str]) -> str:
    """Pattern of a label's words; a digit at its ends must not go on as a decimal number."""
    before = r"(?<!\d\.)" if words[0][0].isdigit() else ""
    after = r"(?!\.\d)" if words[-1][-1].isdigit() else ""
    return before + r"(?:\s+|\s*-\s*)".join(map(re.escape, words)) + after


@cache
def _marks() -> str:
    """Combining marks, which regular expressions do not count as part of a word, as the inside of a character class."""
    return "".join(chr(k) for k in range(0x300, 0x20000) if unicodedata.category(chr(k)).startswith("M"))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
