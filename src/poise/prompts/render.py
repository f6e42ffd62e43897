"""Templates and demonstrations become prompts: both papers' forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poise.config.data import Dataset
from poise.config.prompts import ICLPrompt, OrdinalPrompt, Prompt
from poise.config.schema import LabelTokens
from poise.prompts.text import PromptText, Request

Demonstration = tuple[str, int]

_SEPARATORS = {"colon": ": ", "space": " ", "tab": "\t"}
_CONNECTORS = {"newline": "\n", "space": " ", "newline_tab": "\n\t"}
_BLANK_LINE = "\n\n"


@dataclass(frozen=True)
class Renderer:
    """Turns query texts into requests for one cell: fixed template, demonstrations and probe condition."""

    prompt: Prompt
    dataset: Dataset
    demonstrations: Sequence[Demonstration]
    label_tokens: LabelTokens
    label_order: str = "natural"
    placement: str = "before"
    chat: bool = False

    def request(self, text: str) -> Request:
        """Build the request that asks for the class of one text."""
        if isinstance(self.prompt, ICLPrompt):
            prompt = _icl(self.prompt, self.demonstrations, text)
            space, surfaces = " ", self.prompt.label_words
        else:
            prompt = self._ordinal(self.prompt, text)
            space = _SEPARATORS[self.prompt.separator].removeprefix(":")
            surfaces = label_surfaces(self.prompt, self.dataset.classes)
        leading = space if self.label_tokens.prefix_space and not self.chat else ""
        return Request(prompt, tuple(leading + surface for surface in surfaces), self.chat)

    def _ordinal(self, config: OrdinalPrompt, text: str) -> PromptText:
        surfaces = label_surfaces(config, self.dataset.classes)
        separator, connector = _SEPARATORS[config.separator], _CONNECTORS[config.connector]

        def block(sentence: str, label: str) -> str:
            return f"Sentence{separator}{sentence}{connector}Label{label}"

        blocks = [
            block(sentence, separator + surfaces[label_position(label, len(surfaces), self.label_order)])
            for sentence, label in self.demonstrations
        ]
        open_label = separator.rstrip()
        n_before = {"before": len(blocks), "split": len(blocks) // 2, "after": 0}[self.placement]
        after = tuple(_BLANK_LINE + item for item in blocks[n_before:])
        return PromptText(
            head=header(config, self.dataset, self.label_order) + _BLANK_LINE,
            before=tuple(item + _BLANK_LINE for item in blocks[:n_before]),
            query=block(text, open_label),
            after=after,
            cue=f"{_BLANK_LINE}Label{open_label}" if after and config.after_cue == "repeat" else "",
        )


def _icl(config: ICLPrompt, demonstrations: Sequence[Demonstration], text: str) -> PromptText:
    """Render the DNIP paper's form: instruction, labelled blocks, the query up to where its label goes."""

    def block(content: str, label: str) -> str:
        return f"{config.text_prefix}{content}{config.joiner}{config.label_prefix}{label}"

    return PromptText(
        head=config.instruction,
        before=tuple(
            block(content, " " + config.label_words[label]) + config.separator for content, label in demonstrations
        ),
        query=block(text, ""),
    )


def label_surfaces(config: OrdinalPrompt, classes: Sequence[str]) -> list[str]:
    """Label texts by prompt position: 1 2 3, A B C, Option_1 …, or the class names themselves."""
    if config.label_format == "natural_language":
        return list(classes)
    pattern = {"numeric": "{n}", "letter": "{letter}", "neutral_id": "Option_{n}"}[config.label_format]
    return [pattern.format(n=k + 1, letter=chr(ord("A") + k)) for k in range(len(classes))]


def label_position(label: int, n_classes: int, label_order: str) -> int:
    """Prompt position of a class, or class of a position: the mapping is its own inverse (E.1)."""
    return n_classes - 1 - label if label_order == "reversed" else label


def header(config: OrdinalPrompt, dataset: Dataset, label_order: str) -> str:
    """Render the task header: instruction and label space, answer constraint, direction of the scale."""
    surfaces = label_surfaces(config, dataset.classes)
    n = len(surfaces)
    if config.clarity == "minimal":
        return config.minimal_instruction.format(task=dataset.task)
    names = [dataset.classes[label_position(k, n, label_order)] for k in range(n)]
    if config.label_format == "natural_language":
        space = ", ".join(names)
    else:
        space = ", ".join(f"{surface}: {name}" for surface, name in zip(surfaces, names, strict=True))
    low, high = dataset.poles or (f"most {dataset.classes[0]}", f"most {dataset.classes[-1]}")
    if label_order == "reversed":
        low, high = high, low
    fields = {
        "task": dataset.task,
        "space": space,
        "choices": f"{', '.join(surfaces[:-1])}{',' if n > 2 else ''} or {surfaces[-1]}",
        "first": surfaces[0],
        "last": surfaces[-1],
        "low": low,
        "high": high,
    }
    lines = [
        config.instruction[config.mood].format(**fields),
        config.constraint[config.label_format].format(**fields),
    ]
    if config.clarity == "ordinal_explicit":
        lines.append(config.order_statement.format(**fields))
    return "\n".join(lines)
