"""One table: tidy values for programs, sections in the paper's shape for people."""

from __future__ import annotations

import html
from dataclasses import dataclass

import pandas as pd

_STYLE = """<style>
body{font:15px/1.45 system-ui,sans-serif;color:#1b1b1b;background:#fff;margin:1rem;overflow-wrap:anywhere}
.scroll{overflow-x:auto}table{border-collapse:collapse;margin:.5rem 0 1rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid #ddd;white-space:nowrap}
td.text{white-space:normal;overflow-wrap:normal;min-width:16rem;max-width:32rem}
thead th{border-bottom:2px solid #555}h2{font-size:1rem;font-weight:600}
.note{color:#444;max-width:60rem}
</style>"""
_VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1">'
_LONG = 40  # characters; a longer text in a cell is wrapped
# Sizes of type, with how many characters fill a line of them; upright, then turned.
_TEX_SIZES = (("small", 76), ("footnotesize", 86), ("scriptsize", 96))
_TEX_SIZES_TURNED = (("small", 120), ("footnotesize", 135), ("scriptsize", 150), ("tiny", 190))
# What LaTeX takes for a command, and signs that its fonts lack outside of mathematics.
_TEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        **{sign: f"{{{sign}}}" for sign in "[]"},  # after a line's end it would be an option of it
        **{sign: f"${sign}$" for sign in "<>|"},
        **{sign: f"$\\{name}$" for sign, name in {
            "±": "pm", "×": "times", "·": "cdot", "≥": "geq", "≤": "leq", "≠": "neq", "≈": "approx", "✓": "surd",
            "→": "rightarrow", "↑": "uparrow", "↓": "downarrow",
            "Δ": "Delta", "α": "alpha", "β": "beta", "κ": "kappa", "μ": "mu", "ρ": "rho", "σ": "sigma", "τ": "tau",
            "∞": "infty",
        }.items()},
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$",
        '"': r"\textquotedbl{}", "²": "$^2$", "\n": " ", "\t": " ", "\r": " ",
        **{chr(code): None for code in [*range(9), 11, 12, *range(14, 32), 127]},
    }
)  # fmt: skip
_TEX_HEAD = r"""% Needs \usepackage[T1]{fontenc} and \usepackage{booktabs,longtable,lscape}. Then: \input{NAME.tex}
% Other scripts than Latin: compile with LuaLaTeX or XeLaTeX, and a font that has them."""


@dataclass(frozen=True)
class Table:
    """A finished table.

    Attributes
    ----------
    caption
        One line; the registry's title and what it is about.
    tidy
        Full precision, one observation a row, with a ``provenance`` column.
    sections
        (heading, frame of text) in reading order.
    notes
        What a reader must know, a sentence each.
    """

    caption: str
    tidy: pd.DataFrame
    sections: tuple[tuple[str, pd.DataFrame], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert "provenance" in self.tidy.columns

    def markdown(self) -> str:
        """Render for Markdown."""
        parts = [f"**{self.caption}**"]
        for heading, frame in self.sections:
            parts += [f"### {heading}"] if heading else []
            parts.append(frame.to_markdown(index=False, disable_numparse=True))
        parts += [f"- {note}" for note in self._notes()]
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        """Render as a page of its own, for the report."""
        parts = [f"<p><strong>{html.escape(self.caption)}</strong></p>"]
        for heading, frame in self.sections:
            parts += [f"<h2>{html.escape(heading)}</h2>"] if heading else []
            parts.append(f'<div class="scroll" tabindex="0">{_html_table(frame)}</div>')
        parts += [f'<p class="note">{html.escape(note)}</p>' for note in self._notes()]
        title = html.escape(self.caption)
        head = f'<meta charset="utf-8">{_VIEWPORT}<title>{title}</title>'
        return f'<!doctype html><html lang="en"><head>{head}{_STYLE}</head><body>{"".join(parts)}</body></html>\n'

    def latex(self, name: str) -> str:
        """Render for LaTeX: a ``longtable`` in the style of booktabs for each section, labelled ``tab:{name}``."""
        parts = [_TEX_HEAD.replace("NAME", name)]
        for number, (heading, frame) in enumerate(self.sections, start=1):
            caption = f"{self.caption}: {heading}" if heading else self.caption
            label = f"tab:{name}" if number == 1 else f"tab:{name}-{number}"
            parts.append(_latex_table(frame, caption, label))
        parts += [r"{\noindent\footnotesize", *(f"{tex(note)}\\par" for note in self._notes()), "}"]
        return "\n".join(parts) + "\n"

    def _notes(self) -> list[str]:
        kinds = sorted(set(self.tidy["provenance"]))
        return [*self.notes, f"Provenance of these numbers: {', '.join(kinds)}."]


def tex(text: object) -> str:
    """Text as LaTeX prints it literally."""
    return str(text).translate(_TEX)


def _longest(frame: pd.DataFrame) -> list[int]:
    """Characters of the longest cell of each column, its name included."""
    columns = (frame.iloc[:, k].astype(str).str.len().max() for k in range(frame.shape[1]))
    return [max(len(str(name)), 0 if pd.isna(n) else int(n)) for name, n in zip(frame.columns, columns, strict=True)]


def _html_table(frame: pd.DataFrame) -> str:
    rows = ["".join(f"<th>{html.escape(str(name))}</th>" for name in frame.columns)]
    starts = ['<td class="text">' if n > _LONG else "<td>" for n in _longest(frame)]
    for values in frame.itertuples(index=False, name=None):
        cells = (f"{start}{html.escape(str(value))}</td>" for start, value in zip(starts, values, strict=True))
        rows.append("".join(cells))
    head, *body = (f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"


def _latex_table(frame: pd.DataFrame, caption: str, label: str) -> str:
    longest = _longest(frame)
    n_long = sum(n > _LONG for n in longest)
    others = sum(n + 2 for n in longest if n <= _LONG)
    needed = others + _LONG * n_long
    upright = needed <= _TEX_SIZES[-1][1]
    sizes = _TEX_SIZES if upright else _TEX_SIZES_TURNED
    size, n_fit = next((item for item in sizes if needed <= item[1]), sizes[-1])
    width = max(0.1, 0.97 - others / n_fit) / max(1, n_long)
    columns = "".join(rf"p{{{width:.2f}\linewidth}}" if n > _LONG else "l" for n in longest)
    shown = frame.map(tex).set_axis([tex(name) for name in frame.columns], axis="columns")
    table = shown.to_latex(
        index=False, escape=False, longtable=True, column_format=columns, caption=tex(caption), label=label
    )
    table = f"\\begingroup\\{size}\\setlength{{\\tabcolsep}}{{3pt}}\n{table}\\endgroup"
    return table if upright else f"\\begin{{landscape}}\n{table}\n\\end{{landscape}}"
