"""The position paper's other paradigms: pairwise and listwise prompts (G.1)."""

from __future__ import annotations

from collections.abc import Sequence

from poise.config.data import Dataset
from poise.config.prompts import ListwisePrompt, PairwisePrompt
from poise.prompts.scale import label_position, label_surfaces, placeholders
from poise.prompts.text import PromptText

_BLANK_LINE = "\n\n"


def pairwise(
    config: PairwisePrompt, dataset: Dataset, demonstrations: Sequence[tuple[str, int]], text: str, label_order: str
) -> list[PromptText]:
    """Compare a text with each demonstration: with the text as Passage A (forward), then as Passage B (backward).

    Reversed labels ask which passage is further *down* the scale.
    """
    fields = placeholders(dataset, "numeric", label_order)
    head = config.instruction.format(**fields) + "\n"
    question = "\n" + config.question.format(**fields)

    def compare(first: str, second: str) -> PromptText:
        slots = zip("AB", (first, second), strict=True)
        passages = (config.passage.replace("{slot}", slot).replace("{text}", passage) for slot, passage in slots)
        return PromptText(head=head, before=(), query="\n".join(passages) + question)

    return [
        compare(*pair) for demonstration, _ in demonstrations for pair in ((text, demonstration), (demonstration, text))
    ]


def listwise(
    config: ListwisePrompt, dataset: Dataset, demonstrations: Sequence[tuple[str, int]], text: str, label_order: str
) -> list[PromptText]:
    """Place a text in each group of one demonstration a class, listed from the class of label 1 to that of the last.

    Group j holds the j-th demonstration of each class.
    """
    fields = placeholders(dataset, "numeric", label_order)
    surfaces = label_surfaces("numeric", dataset.classes)
    head = config.instruction.format(**fields) + "\n"
    # Texts may hold braces: they are put in after the placeholders.
    query = config.query.replace("{text}", "\0").format(**fields).replace("\0", text)
    prompts = []
    for group in demonstration_groups(demonstrations, len(surfaces)):
        listed = [group[label_position(k, len(surfaces), label_order)] for k in range(len(surfaces))]
        items = [
            config.item.replace("{label}", surface).replace("{text}", item)
            for surface, item in zip(surfaces, listed, strict=True)
        ]
        gap = _BLANK_LINE if config.labelled else "\n"
        prompts.append(PromptText(head=head + "".join(item + gap for item in items), before=(), query=query))
    return prompts


def demonstration_groups(demonstrations: Sequence[tuple[str, int]], n_classes: int) -> list[list[str]]:
    """Group j: the text of the j-th demonstration of each class, lowest class first.

    Raises
    ------
    ValueError
        If the classes have unequal numbers of demonstrations, or none.
    """
    by_class = [[text for text, label in demonstrations if label == k] for k in range(n_classes)]
    counts = [len(texts) for texts in by_class]
    if len(set(counts)) != 1 or not counts[0]:
        raise ValueError(f"found {counts} demonstrations of the classes, expected as many of each and one at least")
    return [list(group) for group in zip(*by_class, strict=True)]
