"""Figures of the class-accuracy instrument."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from poise.artefacts.context import Context
from poise.artefacts.figures.style import SEQUENTIAL
from poise.artefacts.tables.imbalance import count_matrix, first_runs

_STAGES = (("icl", "before (ICL)"), ("dnip", "after DNIP"))


def confusion_matrices(context: Context) -> Figure:
    """Test confusion matrices before and after DNIP, first seed (DNIP paper, Figure 7)."""
    counts = context.metric("count")
    runs = {method: list(first_runs(counts[counts["method"] == method])) for method, _ in _STAGES}
    n_rows = len(runs["icl"])
    largest = max(len(count_matrix(rows)) for _, rows in runs["icl"])
    side = max(3.4, 0.55 * largest + 1.2)
    figure, axes = plt.subplots(n_rows, 2, figsize=(2 * side + 1.2, n_rows * side), squeeze=False)
    for column, (method, title) in enumerate(_STAGES):
        for row, ((_, dataset, shots, seed), rows) in enumerate(runs[method]):
            matrix = count_matrix(rows)
            counted = matrix.to_numpy()
            totals = counted.sum(axis=1, keepdims=True)
            shares = counted / np.maximum(totals, 1)
            sns.heatmap(
                pd.DataFrame(shares, matrix.index, matrix.columns), annot=matrix.astype(int), fmt="d", vmin=0, vmax=1,
                cmap=SEQUENTIAL, square=True, linewidths=0.5, ax=axes[row, column], annot_kws={"fontsize": 8},
                cbar=column == 1, cbar_kws={"label": "share of the true class", "shrink": 0.8},
            )  # fmt: skip
            accuracy = np.trace(counted) / totals.sum()
            axes[row, column].set(xlabel="predicted class", ylabel="true class" if column == 0 else "")
            name = f"{context.dataset_title(dataset)}, {title}\n"
            axes[row, column].set_title(
                f"{name}{shots.replace('_', '-')}, seed {seed}, accuracy {100 * accuracy:.1f} %"
            )
            axes[row, column].tick_params(axis="x", rotation=45)
            axes[row, column].tick_params(axis="y", rotation=0)
            plt.setp(axes[row, column].get_xticklabels(), ha="right", rotation_mode="anchor")
    models = " · ".join(context.model_title(name) for name in dict.fromkeys(counts["model"]))
    figure.suptitle(
        f"Test confusion matrices: counts, coloured by share of the true class\n{models} · {_provenance(counts)}"
    )
    return figure


def pairwise_differences(context: Context) -> Figure:
    """Absolute class-accuracy differences for every pair, mean over seeds (DNIP paper, Figure 8)."""
    accuracies = context.metric("class_accuracy")
    columns = list(accuracies.groupby(["model", "dataset", "shots"], sort=False))
    sizes = [rows["class"].nunique() for _, rows in columns]
    widths = [max(2.6, 0.38 * size + 1.6) for size in sizes]
    figure, axes = plt.subplots(
        2, len(columns), figsize=(sum(widths) + 1, 2 * max(widths) + 0.6), squeeze=False, width_ratios=widths
    )
    for column, ((_, dataset, shots), rows) in enumerate(columns):
        for row, (method, title) in enumerate(_STAGES):
            chosen = rows[rows["method"] == method]
            matrix = _differences(chosen)
            off_diagonal = matrix.to_numpy()[~np.eye(len(matrix), dtype=bool)]
            last = column == len(columns) - 1
            sns.heatmap(
                matrix * 100, vmin=0, vmax=100, cmap=SEQUENTIAL, square=True, ax=axes[row, column], cbar=last,
                annot=len(matrix) <= 8, fmt=".0f", annot_kws={"fontsize": 7},
                cbar_kws={"label": "|difference| (points)", "shrink": 0.8},
            )  # fmt: skip
            axes[row, column].set(xlabel="", ylabel="")
            axes[row, column].set_title(
                f"{context.dataset_title(str(dataset))}, {title}\n"
                f"{str(shots).replace('_', '-')}, mean of pairs {100 * np.nanmean(off_diagonal):.1f}"
            )
            axes[row, column].tick_params(axis="x", rotation=45)
            axes[row, column].tick_params(axis="y", rotation=0)
            plt.setp(axes[row, column].get_xticklabels(), ha="right", rotation_mode="anchor")
    n_seeds = accuracies["seed"].nunique()
    models = " · ".join(context.model_title(name) for name in dict.fromkeys(accuracies["model"]))
    figure.suptitle(
        f"Pairwise class-accuracy differences, mean over {n_seeds} seeds\n{models} · {_provenance(accuracies)}"
    )
    return figure


def _differences(rows: pd.DataFrame) -> pd.DataFrame:
    classes = list(dict.fromkeys(rows["class"]))
    by_seed = rows.pivot_table(index="seed", columns="class", values="value", dropna=False)[classes].to_numpy()
    gaps = np.abs(by_seed[:, :, None] - by_seed[:, None, :]).mean(axis=0)
    return pd.DataFrame(gaps, classes, classes)


def _provenance(rows: pd.DataFrame) -> str:
    return ", ".join(sorted(set(rows["provenance"])))
