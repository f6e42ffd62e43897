"""What an optimisation costs, by solver (DNIP paper, Table 4)."""

from __future__ import annotations

import pandas as pd

from poise.artefacts.context import Context, reference
from poise.artefacts.tables.common import RUN, SETTING, not_measured
from poise.artefacts.tables.table import Table
from poise.config.methods import DNIPMethod

_ALL_TERMS = {"error", "bias", "pmi"}
_GROUP = [*SETTING, "dataset", "method"]
_SOLVERS = {"heat_bath": "heat bath", "metropolis": "Metropolis", "exact": "branch and bound"}
_EXACT = 1e-9  # objectives closer than this are equal


def optimisation_seconds(context: Context) -> Table:
    """Seconds, evaluations, objective and proven gap of each DNIP solver (DNIP paper, Table 4)."""
    caption = "Optimisation time of each DNIP solver, with the objective it reaches"
    solvers = {
        name: method
        for name, method in context.study.methods.items()
        if isinstance(method, DNIPMethod)
        and method.objective == "cobias"
        and set(method.terms) == _ALL_TERMS
        and method.rows is None
    }
    if context.only(solvers).metric("objective").empty:
        return not_measured(caption, "no experiment of this study fits DNIP to all of its optimisation rows")
    runs = _runs(context, solvers)
    summary = _summary(runs)
    paper = reference("dnip/table4.csv", [], list(runs["dataset"].unique()))
    paper = paper.rename(columns={"time_s": "seconds"}).astype({"seconds": float, "variable_space": int})
    return Table(
        caption,
        pd.concat([runs.drop(columns="problem"), paper], ignore_index=True),
        (("", _wide(context, summary, paper)),),
        (
            "Seconds: median over the demonstration seeds, each fit timed once, on this machine and with whatever else "
            "ran on it (a method's first fit also loads compiled code). Only ratios of one run compare, not these "
            "seconds with the paper's.",
            "Speed-up: how many times faster than the paper's annealing, as we run it, in the same setting.",
            "Evaluations: candidate weight vectors whose objective was computed, median. Objective: Z (Eq. 5) on the "
            "optimisation rows, mean; lower is better.",
            "Certified: runs that the solver itself proved optimal. Gap: largest distance over the runs from the best "
            "lower bound that any solver proved on the same problem; a dash where there is none.",
            *(["The paper names no model for its seconds."] if len(paper) else []),
        ),
    )


def _runs(context: Context, solvers: dict[str, DNIPMethod]) -> pd.DataFrame:
    """One row a fit; ``problem`` tells apart what is minimised."""
    keys = [*RUN, "method"]
    context = context.only(solvers)
    runs = context.metric("objective")[[*keys, "value", "n", "note", "provenance"]]
    runs = runs.rename(columns={"value": "objective", "n": "rows"})
    for metric, column in (
        ("fit_seconds", "seconds"),
        ("evaluations", "evaluations"),
        ("objective_lower_bound", "lower_bound"),
    ):
        found = context.metric(metric)[[*keys, "value"]].rename(columns={"value": column})
        runs = runs.merge(found, on=keys, how="left")
    runs["certified"] = runs.pop("note") == "certified"
    configs = [solvers[name] for name in runs["method"]]
    runs["solver"] = [config.solver for config in configs]
    n_classes = [len(context.study.datasets[name].classes) for name in runs["dataset"]]
    runs["variable_space"] = [n * config.n_levels for n, config in zip(n_classes, configs, strict=True)]
    runs["problem"] = [f"{c.n_levels} {c.beta} {c.tau} {c.mu}" for c in configs]
    best = runs.groupby([*RUN, "problem"])["lower_bound"].transform("max")
    gap = runs["objective"] - best
    return runs.assign(best_lower_bound=best, gap=gap.where(gap.abs() > _EXACT, gap * 0))


def _summary(runs: pd.DataFrame) -> pd.DataFrame:
    summary = runs.groupby([*_GROUP, "solver", "variable_space"], sort=False).agg(
        rows=("rows", "max"),
        seconds=("seconds", "median"),
        evaluations=("evaluations", "median"),
        objective=("objective", "mean"),
        certified=("certified", "sum"),
        runs=("certified", "size"),
        gap=("gap", "max"),
    )
    summary = summary.reset_index()
    annealing = summary[summary["solver"] == "metropolis"].groupby([*SETTING, "dataset"])["seconds"].max()
    paper_like = summary[[*SETTING, "dataset"]].merge(
        annealing.rename("annealing").reset_index(), on=[*SETTING, "dataset"], how="left"
    )
    return summary.assign(speed_up=paper_like["annealing"].to_numpy() / summary["seconds"].to_numpy())


def _wide(context: Context, summary: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for dataset, group in summary.groupby("dataset", sort=False):
        for found in group.itertuples():
            rows.append(
                {
                    "Data set": context.dataset_title(str(dataset)),
                    "Model": context.model_title(found.model),
                    "Demonstrations": context.shots_title(found.experiment, found.model, found.shots),
                    "Solver": f"{context.method_title(found.method)} ({_SOLVERS[found.solver]})",
                    "Variable space N·K": str(found.variable_space),
                    "Rows M": str(found.rows),
                    "Seconds": _significant(found.seconds),
                    "Speed-up": _significant(found.speed_up),
                    "Evaluations": "–" if pd.isna(found.evaluations) else f"{found.evaluations:,.0f}",
                    "Objective": f"{found.objective:.4f}",
                    "Certified": f"{found.certified} of {found.runs}",
                    "Gap": "–" if pd.isna(found.gap) else "0" if found.gap == 0 else f"{found.gap:.2g}",
                }
            )
        for row in paper[paper["dataset"] == dataset].itertuples():
            rows.append(
                {
                    "Data set": context.dataset_title(str(dataset)),
                    "Solver": "Simulated annealing (paper)",
                    "Variable space N·K": str(row.variable_space),
                    "Seconds": f"{row.seconds:.0f}",
                }
            )
    return pd.DataFrame(rows).fillna("–")


def _significant(value: float) -> str:
    """Three significant digits, never in scientific notation."""
    if pd.isna(value):
        return "–"
    decimals = max(0, 2 - len(f"{value:.0f}") + 1) if value >= 1 else 3
    return f"{value:,.{decimals}f}"
