"""Labels are looked for in what a model wrote: where the last one stands, and which tokens to score there.

The DNIP authors' reading of a chain of thought (their Table 6): the class probabilities are those at the last label in
the generated tokens, or at the last token if there is none. Their code takes the distribution one token too late,
after the label; both places are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from poise.engines.base import TokenIds
from poise.engines.labels import LabelSpace, label_space, label_token_ids


@dataclass(frozen=True)
class LabelForm:
    """Labels as a text can hold them: at the start of a line, or after a space.

    Attributes
    ----------
    tokens
        Whole token sequence of each label.
    space
        What is scored of them.
    """

    tokens: tuple[TokenIds, ...]
    space: LabelSpace


@dataclass(frozen=True)
class Place:
    """The last label in some tokens.

    Attributes
    ----------
    start, end
        Its tokens are ``ids[start:end]``: its score is that of the labels after ``ids[:start]``, and one token too late
        after ``ids[:end]``. Without a label they hold the last token; both are 0 where there is no token.
    form
        The form it has; the first if there is no label.
    matched
        Whether there is a label.
    """

    start: int
    end: int
    form: LabelForm
    matched: bool


def label_forms(
    encode: Callable[[str, bool], list[int]], labels: Sequence[str], scoring: str, where: str
) -> tuple[LabelForm, LabelForm]:
    """Tokenise labels in both forms; the first is the form of ``labels`` themselves, with or without a space."""
    forms = []
    for tail, lead in (("\n", ""), (":", " ")):
        tokens = tuple(label_token_ids(encode, tail, lead + label.strip())[0] for label in labels)
        forms.append(LabelForm(tokens, label_space(labels, tokens, scoring, where)))
    on_a_line, spaced = forms
    return (spaced, on_a_line) if labels[0].startswith(" ") else (on_a_line, spaced)


def locate(ids: Sequence[int], forms: Sequence[LabelForm]) -> Place:
    """Find the label that ends last in some tokens; of several that end there the longest, then the first."""
    best: Place | None = None
    for form in forms:
        for label in form.tokens:
            start = _last(ids, label)
            end = start + len(label)
            if start >= 0 and (best is None or (end, -start) > (best.end, -best.start)):
                best = Place(start, end, form, True)
    return best or Place(max(len(ids) - 1, 0), len(ids), forms[0], False)


def _last(ids: Sequence[int], label: TokenIds) -> int:
    """Start of the last occurrence of a sequence, or -1."""
    for start in range(len(ids) - len(label), -1, -1):
        if tuple(ids[start : start + len(label)]) == label:
            return start
    return -1
