"""Tables as LaTeX: hard characters come out literally, each section is a table, notes and provenance stay."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from poise.artefacts.tables.table import Table, tex


def _table(*sections: tuple[str, pd.DataFrame], note: str = "A note_1 of 100 %.") -> Table:
    return Table("Flips & floors", pd.DataFrame({"provenance": ["measured", "paper"]}), sections, (note,))


def _hard() -> pd.DataFrame:
    return pd.DataFrame({"a_b": ["[1.0, 2] ± 3", "x<y|z>^2"], "n%": ["– −1 ≤ 2 ↓", '{q} ~ \\ "z" $5 #1\nnew']})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50 % of A&B_c", r"50 \% of A\&B\_c"),
        ("#1 costs $5 {or} more", r"\#1 costs \$5 \{or\} more"),
        (r"a\b ~ c^2", r"a\textbackslash{}b \textasciitilde{} c\textasciicircum{}2"),
        ("82.0 ± 2.0", r"82.0 $\pm$ 2.0"),
        ("p ≥ 0.1, −3 – 4", r"p $\geq$ 0.1, $-$3 – 4"),
        ("[0, 1]", "{[}0, 1{]}"),  # "[" after a line's end would be that line's option
        ("two\nlines\x07", "two lines"),
        ("日本 é", "日本 é"),
        (3.5, "3.5"),
    ],
)
def test_text_comes_out_literally(text: object, expected: str) -> None:
    assert tex(text) == expected


def test_a_table_has_booktabs_a_caption_a_label_and_its_provenance() -> None:
    page = _table(("First", _hard()), ("", pd.DataFrame({"x": ["1"]}))).latex("dnip_table3")
    assert page.count(r"\begin{longtable}") == page.count(r"\end{longtable}") == 2
    assert page.count(r"\toprule") == 4  # twice a table: where it starts, and where it goes on
    assert r"\caption{Flips \& floors: First} \label{tab:dnip_table3} \\" in page
    assert r"\caption{Flips \& floors} \label{tab:dnip_table3-2} \\" in page
    assert r"a\_b & n\% \\" in page
    assert r"{[}1.0, 2{]} $\pm$ 3 & – $-$1 $\leq$ 2 $\downarrow$ \\" in page
    assert r"A note\_1 of 100 \%.\par" in page
    assert r"Provenance of these numbers: measured, paper.\par" in page
    assert page.startswith("% Needs ")
    assert r"\input{dnip_table3.tex}" in page.splitlines()[0]


def test_wide_tables_are_turned_and_long_texts_wrapped() -> None:
    wide = pd.DataFrame({f"column {k}": ["12.3 ± 4.5"] for k in range(12)})
    long = pd.DataFrame({"n": ["1"], "Reason": ["because of a reason that takes more than one line, or even two"]})
    assert r"\begin{landscape}" in _table(("", wide)).latex("x")
    page = _table(("", long)).latex("x")
    assert r"\begin{landscape}" not in page
    (width,) = re.findall(r"\\begin\{longtable\}\{lp\{(0\.\d+)\\linewidth\}\}", page)
    assert 0.5 < float(width) < 1


def test_an_empty_table_is_one() -> None:
    assert r"\begin{longtable}" in _table(("", pd.DataFrame({"x": pd.Series([], dtype=str)}))).latex("x")


@pytest.mark.slow
def test_it_compiles(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("LaTeX's own verdict on a table was not asked: pdflatex is not installed")
    long = pd.DataFrame({"n": [str(k) for k in range(120)], "Reason": ["a long reason, " * 5] * 120})
    (tmp_path / "x.tex").write_text(_table(("", _hard()), ("Long", long)).latex("x"), encoding="utf-8")
    head = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs,longtable,lscape}"
    (tmp_path / "all.tex").write_text(head + "\n\\begin{document}\\input{x.tex}\\end{document}\n")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1500:].decode(errors="replace")
