"""What several tables of the class-accuracy instrument share."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pandas as pd

from poise.artefacts.context import Context, among, keys_of, mean_sd, percent, percent_sd
from poise.artefacts.tables.table import Table

SETTING = ["experiment", "model", "shots"]
RUN = [*SETTING, "dataset", "seed"]
NOT_MEASURED = "not measured"
FLOOR_NOTE = "The floor is the mean COBias that equal class accuracies would show at these class counts."


class Cells:
    """Text of one cell of a table: mean ± SD in percent, a COBias with its sampling floor.

    Parameters
    ----------
    summary
        As :func:`summarise` returns it.
    by
        Columns that, with ``metric`` and ``class``, say which row a cell shows.
    """

    def __init__(self, summary: pd.DataFrame, by: Sequence[str]) -> None:
        labels = summary["class"] if "class" in summary else [""] * len(summary)
        keys = zip(keys_of(summary, by), summary["metric"], labels, strict=True)
        self._found = dict(zip(keys, zip(summary["mean"], summary["sd"], strict=True), strict=True))

    def text(self, key: tuple[str, ...], metric: str, label: str = "", with_sd: bool = True) -> str:
        """Cell as printed; a dash where there is nothing."""
        none = (float("nan"), float("nan"))
        mean, sd = self._found.get((key, metric, label), none)
        floor, _ = self._found.get((key, "cobias_floor", ""), none)
        shown = percent_sd(mean, sd) if with_sd else percent(mean)
        return shown + floor_text(floor) if metric == "cobias" else shown


def floor_text(floor: float) -> str:
    """Sampling floor as it follows a COBias; nothing if unknown."""
    return "" if pd.isna(floor) else f" (floor {percent(floor)})"


def summarise(rows: pd.DataFrame, by: Sequence[str], metrics: Collection[str]) -> pd.DataFrame:
    """Mean and sample SD over seeds of several metrics, class accuracies by class."""
    return mean_sd(rows[rows["metric"].isin(metrics)], [*by, "metric", "class"])


def settings_with(rows: pd.DataFrame, methods: Collection[str]) -> pd.DataFrame:
    """Rows of the settings in which any of these methods was measured; of the first setting if none was."""
    found = rows[rows["method"].isin(methods)]
    wanted = set(keys_of(found if len(found) else rows.iloc[:1], SETTING))
    return rows[among(rows, SETTING, wanted)]


def setting_title(context: Context, setting: Sequence[str], provenance: str = "") -> str:
    """Heading of a setting's section."""
    experiment, model, shots = setting
    paper = " (paper)" if provenance == "paper" else ""
    return f"{context.model_title(model)}, {context.shots_title(experiment, model, shots)}{paper}"


def changes_from_icl(context: Context) -> pd.DataFrame:
    """COBias of each run minus that of ICL, with the interval of the paired bootstrap."""
    changes = context.metric("cobias_difference")
    return changes[changes["note"].isin(["minus icl", ""])]  # the note names another first method if there is one


def not_measured(caption: str, reason: str) -> Table:
    """Make a table that says that, and why, it has no numbers."""
    return Table(
        caption,
        pd.DataFrame({"note": [reason], "provenance": [NOT_MEASURED]}),
        (("", pd.DataFrame({"Values": [NOT_MEASURED], "Reason": [reason]})),),
    )
