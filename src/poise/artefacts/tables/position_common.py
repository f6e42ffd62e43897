"""Settings of the position instrument, level minus baseline, means over data sets and seeds: for tables and figures.

Every number goes the same way: :func:`settings` gives one value a run, :func:`residuals` pairs runs with their
baseline, :func:`per_seed_means` averages over data sets seed by seed, :func:`over_seeds` takes mean and SD of those.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from poise.artefacts.context import Context, among, keys_of

PERFORMANCE = {"accuracy": "Acc.↑", "macro_f1": "F1↑", "spearman_rho": "ρ↑", "mae": "MAE↓"}
FLIPS = {"p1": "P1↓", "p2a": "P2a↓", "p2b": "P2b↓", "p3a": "P3a↓", "p3b": "P3b↓"}
MEASURES = {**PERFORMANCE, **FLIPS}
SEMANTIC = "p1_semantic"
SERIES = ["experiment", "model", "shots"]
SETTING = [*SERIES, "factor", "level", "method"]
CONFIGURATION = "configuration"
PARADIGM = "inference_paradigm"
_RUN = [*SETTING, "dataset", "seed"]


def settings(context: Context) -> pd.DataFrame:
    """All settings of the position instrument, one value a row.

    Parameters
    ----------
    context
        Holds the tidy metrics of the position instrument.

    Returns
    -------
    frame
        ``experiment, model, shots, factor, level, method`` (:data:`SETTING`), ``dataset, seed, measure, value, low,
        high, n, worst_case, provenance``. Baseline rows have factor and level ``""``. ``measure`` is one of
        :data:`MEASURES`, ``p2``, ``p3``, ``noise``, ``total`` or ``p1_semantic``; shares are fractions, MAE is in
        class steps. ``shots`` is the baseline's number of demonstrations, also where a level changes it, so it says
        which baseline a row compares with. ``worst_case`` is the flip rate with unparsed rows as flips, NaN for
        performance. Values that are undefined are left out.
    """
    rows = context.metrics
    flips = rows["metric"].str.fullmatch(r"pfr_\w+")
    scores = rows["metric"].isin(PERFORMANCE) & (rows["condition"] == "base")
    rows = rows.assign(measure=rows["metric"].str.removeprefix("pfr_").str.removesuffix("_worst"))[flips | scores]
    is_worst = rows["metric"].str.endswith("_worst")
    worst = rows[is_worst].rename(columns={"value": "worst_case"})[[*_RUN, "measure", "worst_case"]]
    rows = rows[~is_worst].merge(worst, on=[*_RUN, "measure"], how="left", validate="one_to_one")
    rows = rows.dropna(subset=["value"])
    columns = [*_RUN, "measure", "value", "low", "high", "n", "worst_case", "provenance"]
    return rows.assign(shots=_baseline_shots(rows))[columns].reset_index(drop=True)


def _baseline_shots(rows: pd.DataFrame) -> pd.Series:
    """Levels may set the number of demonstrations; an experiment that varies factors has one number at its baseline."""
    known: dict[tuple[str, str], str] = {}
    for experiment, model, shots in keys_of(rows[rows["factor"] == ""], SERIES):
        known.setdefault((experiment, model), shots)
    found = [
        known.get((experiment, model), shots) if factor else shots
        for experiment, model, shots, factor in keys_of(rows, [*SERIES, "factor"])
    ]
    return pd.Series(found, index=rows.index, dtype=object)


def at_baseline(values: pd.DataFrame) -> pd.DataFrame:
    """Rows of the baseline setting: no factor changed, no correction."""
    return values[(values["factor"] == "") & (values["method"] == "icl")]


def residuals(values: pd.DataFrame, baseline: pd.DataFrame, on: Sequence[str] = tuple(SERIES)) -> pd.DataFrame:
    """Each run minus its baseline, for the runs that both have (position paper, §5).

    Parameters
    ----------
    values, baseline
        Rows as :func:`settings` returns them. The baseline has one row for each ``on``, data set, seed and measure.
    on
        Columns besides data set and seed that say which baseline belongs to a row: the same experiment, model and
        number of demonstrations unless models are compared.

    Returns
    -------
    frame
        Rows of ``values`` with ``value`` the difference, in the unit of the measure and unrounded, and ``baseline``
        what was subtracted. ``p1_semantic`` compares with the baseline's ``p1`` where that has no other meaning.
    """
    keys = [*on, "dataset", "seed", "measure"]
    meanings = baseline[baseline["measure"] == "p1"].assign(measure=SEMANTIC)
    subtracted = pd.concat([baseline, meanings[~among(meanings, keys, set(keys_of(baseline, keys)))]])
    subtracted = subtracted[[*keys, "value"]].rename(columns={"value": "baseline"})
    rows = values.merge(subtracted, on=keys, validate="many_to_one")
    return rows.assign(value=rows["value"] - rows["baseline"]).drop(columns=["low", "high"])


def per_seed_means(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Mean over the data sets of each seed.

    Columns ``by``, ``measure``, ``seed``, ``value``, ``worst_case`` and, of residuals, ``baseline``.
    """
    averaged = [column for column in ("value", "worst_case", "baseline") if column in rows]
    return rows.groupby([*by, "measure", "seed"], sort=False)[averaged].mean().reset_index()


def over_seeds(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Mean and sample SD (ddof 1) over seeds of the means over data sets.

    Parameters
    ----------
    rows
        As :func:`settings` or :func:`residuals` returns them.
    by
        Columns that, with ``measure``, say what one number is of.

    Returns
    -------
    frame
        ``by``, ``measure``, ``mean``, ``sd`` (NaN for one seed), ``seeds`` and ``datasets`` (names with ``|``),
        ``runs`` (data sets x seeds), ``n`` (rows behind all runs), ``worst_case`` and, of residuals, ``baseline``
        (both averaged the same way), ``provenance``.
    """
    keys = [*by, "measure"]
    seeds = per_seed_means(rows, by)
    found = seeds.drop(columns="seed").groupby(keys, sort=False).mean().rename(columns={"value": "mean"})
    found["sd"] = seeds.groupby(keys, sort=False)["value"].std()
    grouped = rows.groupby(keys, sort=False)
    found["seeds"] = grouped["seed"].agg(lambda group: "|".join(str(seed) for seed in sorted(set(group))))
    found["datasets"] = grouped["dataset"].agg(lambda group: "|".join(dict.fromkeys(group)))
    found["runs"] = grouped.size().astype("Int64")
    found["n"] = grouped["n"].sum()
    found["provenance"] = grouped["provenance"].first()
    return found.reset_index()


def same_runs(values: pd.DataFrame, rows: pd.DataFrame, on: Sequence[str] = tuple(SERIES)) -> pd.DataFrame:
    """Rows of ``values`` for the series, data sets and seeds that ``rows`` have: the baseline that belongs to them."""
    keys = [*on, "dataset", "seed"]
    return values[among(values, keys, set(keys_of(rows, keys)))]


def model_series(values: pd.DataFrame, first: str) -> pd.DataFrame:
    """Baseline rows of the one experiment that compares most models with ``first``; empty if none compares any.

    Models compare only within an experiment and a number of demonstrations; of equal ones the first with most runs.
    """
    rows = at_baseline(values)
    best, found = (1, 0), rows.iloc[:0]
    for _, group in rows.groupby(["experiment", "shots"], sort=False):
        models = set(group["model"])
        size = (len(models), len(set(keys_of(group, ["model", "dataset", "seed"]))))
        if first in models and len(models) > 1 and size > best:
            best, found = size, group
    return found


def distinct_series(rows: pd.DataFrame) -> pd.DataFrame:
    """Tidy rows without the series (all seeds of a setting) that another experiment has too, with the same values."""
    keys = ["experiment", "model", "dataset", "shots"]
    content = {
        key: set(
            keys_of(group[group["value"].notna()], ["seed", "method", "condition", "metric", "class", "value", "n"])
        )
        for key, group in rows.groupby(keys, sort=False)
    }
    kept: list[tuple[object, ...]] = []
    for key in sorted(content, key=lambda key: -len(content[key])):
        if not any(key[1:] == other[1:] and content[key] <= content[other] for other in kept):
            kept.append(key)
    return rows[among(rows, keys, set(kept))]


def model_residuals(values: pd.DataFrame, first: str) -> pd.DataFrame:
    """Each other model's baseline minus that of model ``first``, as rows of factor ``model``, the level its name."""
    rows = model_series(values, first)
    is_first = rows["model"] == first
    found = residuals(rows[~is_first], rows[is_first], on=("experiment", "shots"))
    return found.assign(factor="model", level=found["model"])


def factor_residuals(values: pd.DataFrame) -> pd.DataFrame:
    """Each level of each factor, and each correction of the baseline, minus its own experiment's baseline."""
    changed = (values["factor"] != "") | (values["method"] != "icl")
    return residuals(values[changed], at_baseline(values))
