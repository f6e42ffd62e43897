"""One table: tidy values for programs, sections in the paper's shape for people."""

from __future__ import annotations

import html
from dataclasses import dataclass

import pandas as pd

_STYLE = """<style>
body{font:15px/1.45 system-ui,sans-serif;color:#1b1b1b;background:#fff;margin:1rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;margin:.5rem 0 1rem}
th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid #ddd;white-space:nowrap}
thead th{border-bottom:2px solid #555}caption,h2{font-size:1rem;font-weight:600;text-align:left}
.note{color:#444;max-width:60rem}
</style>"""


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
            parts.append(f'<div class="scroll">{frame.to_html(index=False, border=0)}</div>')
        parts += [f'<p class="note">{html.escape(note)}</p>' for note in self._notes()]
        title = html.escape(self.caption)
        head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
        return f'<!doctype html><html lang="en"><head>{head}{_STYLE}</head><body>{"".join(parts)}</body></html>\n'

    def _notes(self) -> list[str]:
        kinds = sorted(set(self.tidy["provenance"]))
        return [*self.notes, f"Provenance of these numbers: {', '.join(kinds)}."]
