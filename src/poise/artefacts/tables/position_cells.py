"""How residuals and full means of the position paper's factor tables are printed, and what stands beside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from poise.artefacts.context import Context, among, keys_of, percent
from poise.artefacts.tables.common import NOT_MEASURED
from poise.artefacts.tables.position_common import MEASURES, SEMANTIC, SERIES
from poise.metrics import wilson_interval

Text = Callable[[str, pd.Series], str]
_FRACTIONS = ("spearman_rho", "mae")

RESIDUAL_NOTE = (
    "All residuals are ×100: percentage points, but hundredths of ρ and of a class step for MAE. Arrows say what is "
    "better. A residual is the mean over seeds of the mean over data sets, from unrounded values and only from data "
    "sets and seeds that both sides have; – where there is none."
)
MEAN_NOTE = (
    "Accuracy, F1 and flip rates in %, ρ as it is, MAE in class steps: mean ± SD (ddof 1) over demonstration seeds of "
    "the mean over data sets; the SD of one seed is –. The CSV file also has the worst case (rows without an answer "
    "as flips) and the number of rows."
)
SUPPLEMENT_NOTE = (
    "No printed figures stand beside these: the paper has them in a supplement that is not in the text at hand; its "
    "residuals are in {table}."
)
SEMANTIC_NOTE = (
    "Natural-language labels: P1 uses the paper's mapping, under which an answer by meaning counts as a flip when the "
    "demonstrations' words are swapped; the line of the semantic mapping reads the answer's word as it stands."
)
RECONSTRUCTED_NOTE = "The prompts are reconstructed: the paper's listings are not public."


def signed(x100: float) -> str:
    """Residual as printed: two decimals with sign; a dash if there is none."""
    if pd.isna(x100):
        return "–"
    text = f"{round(x100, 9):+.2f}"  # the float noise of a difference is far below nine decimals
    return "0.00" if float(text) == 0 else text


def residual_text(_: str, row: pd.Series) -> str:
    """Cell of a residual table."""
    return signed(100 * row["mean"])


def mean_text(measure: str, row: pd.Series) -> str:
    """Cell of a table of full means: mean ± SD."""
    mean, sd = row["mean"], row["sd"]
    if measure in _FRACTIONS:
        return f"{mean:.3f} ± " + ("–" if pd.isna(sd) else f"{sd:.3f}")
    return f"{percent(mean)} ± {percent(sd)}"


def wide(
    context: Context,
    summary: pd.DataFrame,
    by: Sequence[str],
    titles: Mapping[tuple[Any, ...], Mapping[str, str]],
    text: Text,
    measures: Collection[str] = tuple(MEASURES),
) -> pd.DataFrame:
    """One line for each key of ``titles``, a column a measure, then the data sets and seeds behind it.

    Parameters
    ----------
    summary
        As :func:`~poise.artefacts.tables.position_common.over_seeds` returns it for ``by``.
    titles
        First columns of each line, in order, by the values of ``by``.
    text
        What stands in a cell.
    measures
        Those shown. A line of the semantic mapping follows where P1 was also measured with it.
    """
    groups = {key: group.set_index("measure") for key, group in summary.groupby(list(by), sort=False)}
    lines = []
    for key, first in titles.items():
        found = groups[key]
        cells = {MEASURES[m]: text(m, found.loc[m]) if m in found.index else "–" for m in measures}
        lines.append({**first, **cells, "Data sets (seeds)": coverage(context, found)})
        if "p1" in measures and SEMANTIC in found.index:
            *heads, last = first
            name = {**{head: first[head] for head in heads}, last: f"{first[last]}, semantic mapping"}
            only = {MEASURES[m]: text(m, found.loc[SEMANTIC]) if m == "p1" else "–" for m in measures}
            lines.append({**name, **only, "Data sets (seeds)": coverage(context, found.loc[[SEMANTIC]])})
    return pd.DataFrame(lines)


def coverage(context: Context, found: pd.DataFrame) -> str:
    """Data sets behind the numbers of a line and how many seeds; how many runs where not each has all seeds."""
    widest = found.loc[found["runs"].idxmax()]
    names, seeds = widest["datasets"].split("|"), widest["seeds"].split("|")
    full = len(names) * len(seeds)
    runs = f"{len(seeds)}" if widest["runs"] == full else f"{widest['runs']} of {full} runs"
    return f"{', '.join(context.dataset_title(name) for name in names)} ({runs})"


def printed(rows: pd.DataFrame, titles: Mapping[tuple[str, str], Mapping[str, str]]) -> pd.DataFrame:
    """Printed residuals as a section, a line for each (factor, level) of ``titles`` that the paper has."""
    values = {
        (*key, measure): text for *key, measure, text in keys_of(rows, ["factor", "level", "measure", "residual_x100"])
    }
    known = set(keys_of(rows, ["factor", "level"]))
    return pd.DataFrame(
        [
            {**first, **{title: signed(float(values[(*key, m)] or "nan")) for m, title in MEASURES.items()}}
            for key, first in titles.items()
            if key in known
        ]
    )


def tidy_residuals(
    summary: pd.DataFrame, paper: pd.DataFrame, missing: Sequence[Mapping[str, str]] = ()
) -> pd.DataFrame:
    """Residuals x100 at full precision, measured, printed and missing, one a row."""
    measured = summary.rename(columns={"mean": "residual_x100", "sd": "sd_x100"})
    if len(measured):
        measured[["residual_x100", "sd_x100"]] *= 100
    known = paper.assign(residual_x100=pd.to_numeric(paper["residual_x100"])).dropna(subset="residual_x100")
    lost = pd.DataFrame([{**row, "provenance": NOT_MEASURED} for row in missing])
    frames = [frame for frame in (measured, known.drop(columns="better"), lost) if len(frame)]
    found = pd.concat(frames, ignore_index=True)
    last = ["measure", "residual_x100", "sd_x100", "baseline", "datasets", "seeds", "runs", "n", "provenance", "note"]
    last = [column for column in last if column in found]
    return found[[*(c for c in found if c not in last and c != "worst_case"), *last]]


def semantic_notes(summary: pd.DataFrame) -> list[str]:
    """What the line of the semantic mapping is, if there is one."""
    return [SEMANTIC_NOTE] if SEMANTIC in set(summary["measure"]) else []


def floor_notes(context: Context, baseline: pd.DataFrame) -> list[str]:
    """Numerical floor of each model's baseline: flips between the same requests asked in two groupings, pooled.

    Parameters
    ----------
    baseline
        Baseline rows of the table, as :func:`~poise.artefacts.tables.position_common.settings` returns them.
    """
    floors = context.metric("flip_floor")
    floors = floors[floors["factor"] == ""]
    floors = floors[among(floors, [*SERIES, "dataset", "seed"], set(keys_of(baseline, [*SERIES, "dataset", "seed"])))]
    notes = []
    for model in dict.fromkeys(baseline["model"]):
        rows = floors[floors["model"] == model]
        title = context.model_title(model)
        if rows.empty:
            notes.append(f"Numerical floor of the flip rates of {title}: not measured, no row was asked twice.")
            continue
        n, k = int(rows["n"].sum()), round(float((rows["value"] * rows["n"]).sum()))
        notes.append(
            f"Numerical floor of the flip rates of {title} at the baseline: {percent(k / n)} % of {n} rows asked again "
            f"in another grouping flip (95 % interval to {percent(wilson_interval(k, n)[1])} %); rates and changes of "
            "that size are numerical noise."
        )
    return notes
