"""One look for all figures: colour-blind-safe (Okabe–Ito, cividis), legible when printed."""

from __future__ import annotations

STYLE = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "savefig.bbox": "tight",
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "poise",
}
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#777777"
VERMILION, SKY = "#D55E00", "#56B4E9"
SEQUENTIAL = "cividis"
