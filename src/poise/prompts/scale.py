"""A data set's scale as prompts name it: labels by position, classes behind them, the words for its ends."""

from __future__ import annotations

from collections.abc import Sequence

from poise.config.data import Dataset


def label_surfaces(label_format: str, classes: Sequence[str]) -> list[str]:
    """Label texts by prompt position: 1 2 3, A B C, Option_1 …, or the class names themselves."""
    if label_format == "natural_language":
        return list(classes)
    pattern = {"numeric": "{n}", "letter": "{letter}", "neutral_id": "Option_{n}"}[label_format]
    return [pattern.format(n=k + 1, letter=chr(ord("A") + k)) for k in range(len(classes))]


def label_position(label: int, n_classes: int, label_order: str) -> int:
    """Prompt position of a class, or class of a position: the mapping is its own inverse (E.1)."""
    return n_classes - 1 - label if label_order == "reversed" else label


def placeholders(dataset: Dataset, label_format: str, label_order: str) -> dict[str, str]:
    """Values of the placeholders that templates may hold (``poise.config.prompts.PLACEHOLDERS``)."""
    classes = dataset.classes
    n = len(classes)
    surfaces = label_surfaces(label_format, classes)
    names = [classes[label_position(k, n, label_order)] for k in range(n)]
    low, high = dataset.poles or (f"most {classes[0]}", f"most {classes[-1]}")
    less, more = dataset.comparatives or (f"more {classes[0]}", f"more {classes[-1]}")
    if label_order == "reversed":
        low, high, more = high, low, less
    if label_format == "natural_language":
        space = ", ".join(names)
    else:
        space = ", ".join(f"{surface}: {name}" for surface, name in zip(surfaces, names, strict=True))
    return {
        "task": dataset.task,
        "attribute": dataset.attribute,
        "classes": ", ".join(f"'{name}'" for name in classes),
        "space": space,
        "choices": f"{', '.join(surfaces[:-1])}{',' if n > 2 else ''} or {surfaces[-1]}",
        "n": str(n),
        "first": surfaces[0],
        "last": surfaces[-1],
        "first_class": names[0],
        "last_class": names[-1],
        "low": low,
        "high": high,
        "more": more,
    }
