"""Templates and demonstrations become requests: the class-accuracy form and the position paper's pointwise prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poise.config.data import Dataset
from poise.config.models import LabelTokens
from poise.config.prompts import ChainOfThoughtPrompt, ICLPrompt, ListwisePrompt, OrdinalPrompt, PairwisePrompt, Prompt
from poise.prompts.paradigms import listwise, pairwise
from poise.prompts.scale import label_position, label_surfaces, placeholders
from poise.prompts.text import Generation, PromptText, Request

Demonstration = tuple[str, int]

_SEPARATORS = {"colon": ": ", "space": " ", "tab": "\t"}
_CONNECTORS = {"newline": "\n", "space": " ", "newline_tab": "\n\t"}
_BLANK_LINE = "\n\n"


@dataclass(frozen=True)
class Renderer:
    """Turns query texts into requests for one cell: fixed template, demonstrations and probe condition.

    ``reasons`` has one sentence for each demonstration of a chain of thought.
    """

    prompt: Prompt
    dataset: Dataset
    demonstrations: Sequence[Demonstration]
    label_tokens: LabelTokens
    label_order: str = "natural"
    placement: str = "before"
    chat: bool = False
    generation: Generation | None = None
    replicate: int = 0
    reasons: Sequence[str] = ()

    def requests(self, text: str) -> list[Request]:
        """Build what has to be asked to class one text: one request, or several whose answers are aggregated.

        Pairwise: for each demonstration one with the text in slot A, then one with it in slot B. Listwise: one for each
        group of one demonstration a class.
        """
        located = isinstance(self.prompt, ChainOfThoughtPrompt)
        leading = self._label_space() if self.label_tokens.prefix_space and not self.chat and not located else ""
        labels = tuple(leading + surface for surface in prompt_labels(self.prompt, self.dataset.classes))
        return [
            Request(prompt, labels, self.chat, self.replicate, self.generation, located)
            for prompt in self._prompts(text)
        ]

    def _prompts(self, text: str) -> list[PromptText]:
        if isinstance(self.prompt, ICLPrompt):
            return [_icl(self.prompt, self.demonstrations, text)]
        if isinstance(self.prompt, ChainOfThoughtPrompt):
            return [_chain_of_thought(self.prompt, self.demonstrations, self.reasons, text)]
        if isinstance(self.prompt, PairwisePrompt):
            return pairwise(self.prompt, self.dataset, self.demonstrations, text, self.label_order)
        if isinstance(self.prompt, ListwisePrompt):
            return listwise(self.prompt, self.dataset, self.demonstrations, text, self.label_order)
        return [self._ordinal(self.prompt, text)]

    def _label_space(self) -> str:
        """White space between the cue and the label, which belongs to the label's first token."""
        return _SEPARATORS[self.prompt.separator].removeprefix(":") if isinstance(self.prompt, OrdinalPrompt) else " "

    def _ordinal(self, config: OrdinalPrompt, text: str) -> PromptText:
        surfaces = label_surfaces(config.label_format, self.dataset.classes)
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


def prompt_labels(prompt: Prompt, classes: Sequence[str]) -> Sequence[str]:
    """Answers that a prompt offers, in prompt order."""
    if isinstance(prompt, ICLPrompt):
        return prompt.label_words
    if isinstance(prompt, ChainOfThoughtPrompt):
        return prompt.answer.label_words
    if isinstance(prompt, PairwisePrompt):
        return prompt.answers
    return label_surfaces(prompt.label_format if isinstance(prompt, OrdinalPrompt) else "numeric", classes)


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


def _chain_of_thought(
    config: ChainOfThoughtPrompt, demonstrations: Sequence[Demonstration], reasons: Sequence[str], text: str
) -> PromptText:
    """Render the DNIP paper's form with a reason before each label; the query ends where the model's reason goes."""
    answer = config.answer

    def block(content: str, rest: str) -> str:
        return f"{answer.text_prefix}{content}{answer.joiner}{answer.label_prefix}{rest}"

    return PromptText(
        head=answer.instruction,
        before=tuple(
            block(content, f" {config.instruction} {reason}{config.closing}{answer.label_words[label]}")
            + answer.separator
            for (content, label), reason in zip(demonstrations, reasons, strict=True)
        ),
        query=block(text, f" {config.instruction}" if config.in_query else ""),
    )


def header(config: OrdinalPrompt, dataset: Dataset, label_order: str) -> str:
    """Render the task header: instruction and label space, answer constraint, direction of the scale."""
    fields = placeholders(dataset, config.label_format, label_order)
    if config.clarity == "minimal":
        return config.minimal_instruction[config.mood].format(**fields)
    lines = [config.instruction[config.mood], config.constraint[config.label_format]]
    if config.clarity == "ordinal_explicit":
        lines.append(config.order_statement)
    return "\n".join(line.format(**fields) for line in lines)
