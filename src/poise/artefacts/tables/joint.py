"""Corrections judged by both instruments on the same rows: accuracy, balance between classes and steadiness."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pandas as pd

from poise.artefacts.context import Context, among, keys_of, percent, percent_interval, percent_sd
from poise.artefacts.tables.common import FLOOR_NOTE, floor_text, not_measured, setting_title
from poise.artefacts.tables.position_common import SERIES, over_seeds
from poise.artefacts.tables.table import Table
from poise.config.methods import DNIPMethod, Method, PriorMatchingMethod

ICL = "icl"
ALL = "all"
NATURAL, REVERSED = "base", "label_order=reversed"
NO_CORRECTION = "no experiment of this study corrects the position instrument's answers: give one methods"
_RUN = [*SERIES, "dataset", "method"]
_SHARES = {"accuracy": "Accuracy (%)", "macro_f1": "Macro-F1 (%)"}
_PLAIN = {"spearman_rho": "ρ", "mae": "MAE"}
_FLIPS = {"p1": "P1 (%)", "p2a": "P2a (%)", "p2b": "P2b (%)", "p3a": "P3a (%)", "p3b": "P3b (%)"}
_CONDITIONS = {
    NATURAL: "Base",
    REVERSED: "Labels reversed",
    "demonstration_order=ascending": "Ascending",
    "demonstration_order=descending": "Descending",
    "demonstration_order=random": "Random",
    "placement=after": "After",
    "placement=split": "Split",
}
_AXES = {"class": "class", "label_token": "label token"}
_FITTED_ON = {
    "natural": "labelled rows, natural label order",
    "reversed": "labelled rows, reversed label order",
    "pooled": "labelled rows, both label orders",
}
# By kind of method: what it weights, what it looks at, whether it looks at the rows that it corrects.
_DESCRIBED = {
    "icl": ("–", "nothing", "no"),
    "linear_adapter": ("class", _FITTED_ON["natural"], "no"),
    "batch_calibration": ("class", "the test rows under each condition, unlabelled", "yes"),
    "contextual_calibration": ("class", "content-free inputs under each condition", "no"),
    "label_averaging": ("–", "nothing: averages the classes under both label orders", "no"),
    "demonstration_averaging": ("–", "nothing: averages the classes under two demonstration orders", "no"),
    "pride": ("label token", "the test rows under both label orders, unlabelled", "yes"),
}


def all_methods(context: Context) -> Table:
    """Every correction at the baseline setting: performance, COBias and flip rates side by side."""
    caption = "Corrections in both instruments: performance, COBias and flip rates, mean ± SD over demonstration seeds"
    rows = joint_rows(context)
    if rows.empty:
        return not_measured(caption, NO_CORRECTION)
    measures = [*_SHARES, *_PLAIN, "cobias", "cobias_floor", *_FLIPS]
    rows = rows[rows["measure"].isin(measures) & ((rows["condition"] == NATURAL) | rows["measure"].isin(_FLIPS))]
    tidy = summarise(rows, _RUN)
    methods = in_order(context, tidy["method"])
    described = {name: describe(context, name) for name in methods}
    sections = [("What each correction looks at", _descriptions(context, methods))]
    for title, part in _sections(context, tidy):
        cells = part.set_index(["method", "measure"])
        sections.append(
            (title, pd.DataFrame([_scores(context, name, cells) for name in in_order(context, part["method"])]))
        )
    for k, column in enumerate(("axis", "fitted_on", "transductive")):
        tidy[column] = [described[name][k] for name in tidy["method"]]
    return Table(
        caption,
        tidy,
        tuple(sections),
        (
            "Performance and COBias under the base condition: natural labels, base order, demonstrations before.",
            "All data sets: mean over the data sets of each seed, then mean ± SD over seeds; of one run, flip rates "
            "show their Wilson interval and COBias its bootstrap interval.",
            FLOOR_NOTE,
            "–: averaging merges the conditions that a flip rate compares, so none is left to count.",
            "A class axis weights what labels mean; a label-token axis weights the labels as the prompt lists them, so "
            "its weights change classes with the mapping.",
            "A transductive correction sees the test rows that it corrects.",
            "ρ is 0 where the prediction is constant; MAE in class steps.",
        ),
    )


def carry_over(context: Context) -> Table:
    """Whether balance learned under one label order holds under the other."""
    caption = (
        "Does balance learned under one label order carry over to the other? (%) mean ± SD over demonstration seeds"
    )
    rows = joint_rows(context)
    dnip = [
        name for name in in_order(context, rows["method"]) if isinstance(context.study.methods.get(name), DNIPMethod)
    ]
    if rows.empty or not dnip:
        return not_measured(caption, "no experiment of this study corrects the position instrument's answers by DNIP")
    rows = rows[rows["method"].isin([ICL, *dnip])]
    by_order = rows["condition"].isin([NATURAL, REVERSED]) & rows["measure"].isin(
        ["accuracy", "cobias", "cobias_floor"]
    )
    scores = rows[by_order | (rows["measure"] == "p1")]
    by = [*_RUN, "condition"]
    values = summarise(scores, by).assign(quantity="value")
    changes = summarise(changes_from_icl(scores), by).assign(quantity="change from icl")
    main = "dnip" if "dnip" in dnip else dnip[0]
    shares = rows[(rows["measure"] == "class_accuracy") & rows["method"].isin([ICL, main])]
    by_class = summarise(shares, [*by, "class"], with_all=False).assign(quantity="value")
    changed = dict(_sections(context, changes))
    sections = [
        (f"Label orders: {title}", _orders(context, part, changed[title])) for title, part in _sections(context, values)
    ]
    sizes = shares.drop_duplicates([*SERIES, "dataset", "class"])
    sections += [
        (f"Class accuracies: {title}", _classes(context, part, sizes)) for title, part in _sections(context, by_class)
    ]
    tidy = pd.concat([values, changes, by_class], ignore_index=True)
    described = {name: describe(context, name) for name in set(tidy["method"])}
    return Table(
        caption,
        tidy.assign(
            axis=[described[m][0] for m in tidy["method"]], fitted_on=[described[m][1] for m in tidy["method"]]
        ),
        tuple(sections),
        (
            "Change: against ICL under the same label order, run by run.",
            "A class axis gives each class one weight whatever its label; a label-token axis gives one to each label "
            "as the prompt lists them, so under the reversed order it goes to the opposite class.",
            FLOOR_NOTE,
            f"Class accuracies of ICL and {context.method_title(main)} under every condition. Demonstrations stand "
            "before the query, in base order and with natural labels, except where a column says otherwise.",
        ),
    )


def joint_rows(context: Context) -> pd.DataFrame:
    """Rows of the baseline setting where corrections were measured, with ``measure``: the metric without ``pfr_``."""
    rows = context.metrics[context.metrics["factor"] == ""]
    corrected = set(keys_of(rows[rows["method"] != ICL], SERIES))
    rows = rows[among(rows, SERIES, corrected)].dropna(subset=["value"])
    return rows.assign(measure=rows["metric"].str.removeprefix("pfr_"))


def summarise(rows: pd.DataFrame, by: Sequence[str], with_all: bool = True) -> pd.DataFrame:
    """Mean and SD over seeds, for each data set and over ``all`` of them.

    Parameters
    ----------
    rows
        As :func:`joint_rows` returns them.
    by
        Columns that, with ``measure``, say what one number is of; ``dataset`` is among them.
    with_all
        Whether to add the mean over data sets, where a series has several: of what all of them have.

    Returns
    -------
    frame
        ``by``, ``measure``, ``mean``, ``sd``, ``seeds``, ``datasets``, ``runs``, ``n``, ``provenance``, and ``low`` and
        ``high`` where one run is behind a number.
    """
    found = over_seeds(rows, by)
    bounds = rows.drop_duplicates([*by, "measure"])[[*by, "measure", "low", "high"]]
    found = found.merge(bounds, on=[*by, "measure"], how="left")
    found.loc[found["runs"] > 1, ["low", "high"]] = np.nan
    if not with_all:
        return found
    several = over_seeds(rows, [key for key in by if key != "dataset"])
    in_series = rows.groupby(SERIES, sort=False)["dataset"].agg(lambda names: "|".join(dict.fromkeys(names)))
    wanted = [in_series[key] for key in keys_of(several, SERIES)]
    complete = [
        "|" in every and set(have.split("|")) == set(every.split("|"))
        for have, every in zip(several["datasets"], wanted, strict=True)
    ]
    return pd.concat([several[complete].assign(dataset=ALL), found], ignore_index=True)


def changes_from_icl(rows: pd.DataFrame) -> pd.DataFrame:
    """Each run's numbers minus those of ICL on the same rows and condition; floors are no one's change."""
    same = [*SERIES, "dataset", "seed", "condition", "measure"]
    rows = rows[~rows["measure"].isin(["cobias_floor", "p1"])]
    icl = rows[rows["method"] == ICL]
    before = dict(zip(keys_of(icl, same), icl["value"], strict=True))
    value = [value - before.get(key, np.nan) for key, value in zip(keys_of(rows, same), rows["value"], strict=True)]
    return rows.assign(value=value, low=np.nan, high=np.nan)[rows["method"] != ICL].dropna(subset=["value"])


def in_order(context: Context, names: Collection[str]) -> list[str]:
    """Methods in the study's order, ICL first."""
    known = [ICL, *context.study.methods, *names]
    return [name for name in dict.fromkeys(known) if name in set(names)]


def describe(context: Context, name: str) -> tuple[str, str, str]:
    """Axis of a correction, what it was fitted on, and whether it is transductive."""
    method: Method | None = context.study.methods.get(name)
    if isinstance(method, DNIPMethod):
        return _AXES[method.axis], _FITTED_ON[method.fit_on], "no"
    if isinstance(method, PriorMatchingMethod):
        rows = _FITTED_ON["natural"]
        return "class", rows if method.prior == "labels" else rows.replace("labelled", "unlabelled"), "no"
    return _DESCRIBED.get(method.kind if method else name, ("–", "–", "–"))


def _descriptions(context: Context, methods: Sequence[str]) -> pd.DataFrame:
    rows = [(context.method_title(name), *describe(context, name)) for name in methods]
    return pd.DataFrame(rows, columns=["Correction", "Axis", "Fitted on", "Transductive"])


def _sections(context: Context, tidy: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of each series and data set with their heading, all data sets first."""
    for series, group in tidy.groupby(SERIES, sort=False):
        for dataset, part in group.groupby("dataset", sort=False):
            name = "all data sets" if dataset == ALL else context.dataset_title(str(dataset))
            yield f"{setting_title(context, series)}: {name}", part


def _scores(context: Context, method: str, cells: pd.DataFrame) -> dict[str, str]:
    """One method's row; a dash where a number does not exist."""
    row = {"Correction": context.method_title(method)}
    row |= {title: _share(cells, (method, measure)) for measure, title in _SHARES.items()}
    for measure, title in _PLAIN.items():
        mean, sd = _mean_sd(cells, (method, measure))
        row[title] = "–" if pd.isna(mean) else f"{mean:.3f}" if pd.isna(sd) else f"{mean:.3f} ± {sd:.3f}"
    row["COBias (%)"] = _share(cells, (method, "cobias")) + floor_text(_mean_sd(cells, (method, "cobias_floor"))[0])
    return row | {title: _share(cells, (method, measure)) for measure, title in _FLIPS.items()}


def _orders(context: Context, values: pd.DataFrame, changes: pd.DataFrame) -> pd.DataFrame:
    """Each variant under both label orders."""
    cells, changed = (frame.set_index(["method", "condition", "measure"]) for frame in (values, changes))
    rows = []
    for method in in_order(context, values["method"]):
        axis, fitted_on, _ = describe(context, method)
        row = {"Correction": context.method_title(method), "Axis": axis, "Fitted on": fitted_on}
        for measure, title in (("accuracy", "Accuracy"), ("cobias", "COBias")):
            for condition, order in ((NATURAL, "natural"), (REVERSED, "reversed")):
                floor = _mean_sd(cells, (method, condition, "cobias_floor"))[0] if measure == "cobias" else np.nan
                row[f"{title}, {order}"] = _share(cells, (method, condition, measure)) + floor_text(floor)
                row[f"{title} change, {order}"] = _signed(*_mean_sd(changed, (method, condition, measure)))
        row["P1"] = _share(cells, (method, "p1", "p1"))
        rows.append(row)
    return pd.DataFrame(rows)


def _classes(context: Context, part: pd.DataFrame, sizes: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of each class under each condition, ICL and DNIP in turn."""
    cells = part.set_index(["method", "class", "condition"])
    where = part.iloc[0]
    sizes = sizes[among(sizes, [*SERIES, "dataset"], {tuple(where[key] for key in [*SERIES, "dataset"])})]
    n_of = dict(zip(sizes["class"], sizes["n"], strict=True))
    conditions = [name for name in _CONDITIONS if name in set(part["condition"])]
    return pd.DataFrame(
        [
            {
                "Class": f"{name} (n {n_of[name]})",
                "Correction": context.method_title(method),
                **{_CONDITIONS[key]: _share(cells, (method, name, key)) for key in conditions},
            }
            for name in dict.fromkeys(part["class"])
            for method in in_order(context, part["method"])
        ]
    )


def _mean_sd(cells: pd.DataFrame, key: tuple[str, ...]) -> tuple[float, float]:
    if key not in cells.index:
        return float("nan"), float("nan")
    found = cells.loc[key]
    return float(found["mean"]), float(found["sd"])


def _share(cells: pd.DataFrame, key: tuple[str, ...]) -> str:
    """Mean ± SD in percent; of one run, its interval if it has one."""
    mean, sd = _mean_sd(cells, key)
    if not pd.isna(mean) and not pd.isna(cells.loc[key, "low"]):
        return percent_interval(mean, cells.loc[key, "low"], cells.loc[key, "high"])
    return percent_sd(mean, sd)


def _signed(mean: float, sd: float) -> str:
    """Change in percentage points with its sign."""
    if pd.isna(mean):
        return "–"
    return f"{100 * mean:+.1f}" if pd.isna(sd) else f"{100 * mean:+.1f} ± {percent(sd)}"
