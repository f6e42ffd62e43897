"""Labels beside points, placed where they hide neither each other nor the points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from poise.artefacts.figures.style import GREY

_RADII = (5.0, 9.0, 15.0, 25.0, 36.0, 50.0)  # points between a mark and its label
_ANGLES = np.radians(np.arange(0, 360, 15))
_PASSES = 4  # each pass looks again at every label, given where all others stand
_MARK = 3.5  # half a mark's width, in points


Labels = tuple[NDArray[np.float64], Sequence[str]]


def place_labels(panels: Sequence[Axes], labels: Sequence[Labels], size: float = 7) -> None:
    """Write a label beside each point of finished panels, with a thin line to those that stand further off.

    Places are chosen greedily and then improved in turn: always the same ones for the same points. Call it last: a
    later change of a panel's size or limits would leave the labels where they no longer fit.

    Parameters
    ----------
    panels
        Panels of one figure, with their limits and marks.
    labels
        For each panel its points in data units (one a row), and texts for the first of them; points without a text
        are only kept free, as far as possible: marks, and places on lines.
    size
        Font size in points.
    """
    figure = panels[0].get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # fixes the panels' sizes
    for panel, (points, texts) in zip(panels, labels, strict=True):
        if len(texts):
            _place(panel, points, texts, size)


def along(*ends: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Places on lines that a label should not hide; ``ends`` are x and y where they start, x and y where they end."""
    known = np.isfinite(ends).all(axis=0)
    x0, y0, x1, y1 = (values[known] for values in ends)
    return [place for t in np.linspace(0, 1, 9) for place in zip(x0 + t * (x1 - x0), y0 + t * (y1 - y0), strict=True)]


def _place(axes: Axes, points: NDArray[np.float64], texts: Sequence[str], size: float) -> None:
    figure = axes.figure
    scale = figure.dpi / 72
    marks = axes.transData.transform(points) / scale
    box = axes.get_window_extent()
    frame = np.array([box.x0, box.y0, box.x1, box.y1]) / scale
    labelled = range(len(texts))
    sizes = {k: _size(axes, texts[k], size) / scale for k in labelled}
    candidates = {k: _boxes(marks[k], sizes[k]) for k in labelled}
    alone = {k: _cost(candidates[k], marks, frame) for k in labelled}
    crowd = {k: int((np.hypot(*(marks - marks[k]).T) < 40).sum()) for k in labelled}
    order = sorted(labelled, key=lambda k: (-crowd[k], k))
    chosen: dict[int, int] = {}
    for k in order * _PASSES:
        others = np.array([candidates[j][place] for j, place in chosen.items() if j != k]).reshape(-1, 4)
        chosen[k] = int((alone[k] + 40 * _overlap(candidates[k], others)).argmin())
    for k in labelled:
        left, bottom, right, top = candidates[k][chosen[k]]
        line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
        axes.annotate(
            texts[k], points[k], ((left + right) / 2 - marks[k][0], (bottom + top) / 2 - marks[k][1]),
            textcoords="offset points", ha="center", va="center", fontsize=size, in_layout=False, zorder=5,
            arrowprops=line if chosen[k] >= 2 * len(_ANGLES) else None,
        )  # fmt: skip


def _size(axes: Axes, text: str, size: float) -> NDArray[np.float64]:
    """Width and height of a text in pixels."""
    probe = axes.text(0, 0, text, fontsize=size)
    box = probe.get_window_extent()
    probe.remove()
    return np.array([box.width, box.height])


def _boxes(mark: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Boxes (left, bottom, right, top) around a mark, the nearest first."""
    found = []
    for radius, angle in product(_RADII, _ANGLES):
        way = np.array([np.cos(angle), np.sin(angle)])
        centre = mark + way * (radius + size / 2)
        found.append([*(centre - size / 2), *(centre + size / 2)])
    return np.array(found)


def _cost(boxes: NDArray[np.float64], marks: NDArray[np.float64], frame: NDArray[np.float64]) -> NDArray[np.float64]:
    """Badness of each box but for other labels: over a mark, out of the frame, far away."""
    sizes = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    outside = sizes - _overlap(boxes, frame[None])
    hidden = _overlap(boxes, np.column_stack([marks - _MARK, marks + _MARK]))
    return 10 * hidden + 40 * outside + 3 * np.repeat(np.arange(len(_RADII)), len(_ANGLES))


def _overlap(boxes: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Area of each box that others cover, summed over these."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    covered: NDArray[np.float64] = np.clip(high - low, 0, None).prod(axis=2).sum(axis=1)
    return covered
