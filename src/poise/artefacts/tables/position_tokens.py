"""Phase 0b: tokens that a model writes, beside its sampling noise (position paper, Supplementary Table 9)."""

from __future__ import annotations

import pandas as pd

from poise.artefacts.context import Context, keys_of, mean_sd, percent, percent_sd, reference
from poise.artefacts.tables.common import NOT_MEASURED, not_measured
from poise.artefacts.tables.position import baseline_runs, setting_titles
from poise.artefacts.tables.table import Table

_SETTING = ["experiment", "model", "dataset", "shots"]
_TOKENS = {"hidden_tokens": "Hidden tokens", "visible_tokens": "Visible tokens"}
_UNPARSED = {"text_parse_failure_rate": "Unparsed (%)"}
_RATES = {"pfr_noise": "PFR noise (%)", "pfr_total": "PFR total (%)"}


def hidden_tokens(context: Context) -> Table:
    """Mean hidden and visible tokens of an answer by decoding, and the flip rates of sampled text."""
    caption = "Hidden tokens of an answer beside the flip rates of sampled text"
    context = baseline_runs(context)
    shown = context.metrics[context.metrics["metric"].isin([*_TOKENS, *_UNPARSED, *_RATES])]
    if not shown["metric"].isin(_TOKENS).any():
        reason = "no experiment of this study lets a model write text (the key stochastic of an experiment)"
        return not_measured(caption, reason)
    # Flip rates belong to sampled text, whatever their contrast is called.
    is_rate = shown["metric"].isin(_RATES)
    shown = shown.assign(decoding=shown["condition"].where(~is_rate, "sampled"))
    summary = mean_sd(shown, [*_SETTING, "decoding", "metric"])
    rows = []
    groups = {key: rows.set_index("metric") for key, rows in summary.groupby([*_SETTING, "decoding"], sort=False)}
    order = {key: place for place, key in enumerate(dict.fromkeys(keys_of(shown, _SETTING)))}
    for key in sorted(groups, key=lambda key: (order[key[:-1]], key[-1])):
        experiment, model, dataset, shots, decoding = key
        found = groups[key]
        row = {**setting_titles(context, experiment, model, dataset, shots), "Decoding": decoding}
        for metric, title in {**_TOKENS, **_UNPARSED, **_RATES}.items():
            if metric in found.index:
                mean, sd = found.loc[metric, ["mean", "sd"]]
                row[title] = _count(mean, sd) if metric in _TOKENS else percent_sd(mean, sd)
        rows.append({**row, "Seeds": str(found["runs"].max())})
    paper = reference("position/table2.csv", list(context.study.models), [])
    paper = paper[paper["measure"].isin(["noise", "total"])]
    for name, group in paper.groupby("model", sort=False):
        printed = group.set_index("measure")["pfr"].astype(float)
        row = {"Model": f"{context.model_title(str(name))} (paper)", "Data set": "SST-5", "Decoding": "sampled"}
        row |= {title: percent(printed[metric.removeprefix("pfr_")]) for metric, title in _RATES.items()}
        rows.append(row)
    wide = pd.DataFrame(rows)
    columns = [*wide.columns.drop("Seeds"), "Seeds"]
    tidy = summary.rename(columns={"runs": "seeds"})
    printed_rows = paper.assign(
        metric="pfr_" + paper["measure"], mean=paper["pfr"].astype(float), decoding="sampled", dataset="sst5"
    )[["model", "dataset", "decoding", "metric", "mean", "provenance"]]
    lost = [
        {"model": name, "provenance": NOT_MEASURED, "note": "no text of this model was measured"}
        for name in context.study.models
        if name not in set(shown["model"])
    ]
    frames = [frame for frame in (tidy, printed_rows, pd.DataFrame(lost)) if len(frame)]
    return Table(
        caption,
        pd.concat(frames, ignore_index=True),
        (("", wide[columns].fillna("–")),),
        (
            "Mean tokens an answer, ± SD over demonstration seeds. Hidden: written but not part of the visible answer, "
            "as the thinking of a reasoning model. Visible: the answer itself. Unparsed: answers that name no label.",
            "Noise compares two samples of the same prompt, Total natural and reversed label order.",
            "The paper's token counts are in a supplement that is not in the text at hand; its text gives 156 to 512 "
            "hidden tokens an answer for the four models whose Total does not exceed their Noise significantly.",
        ),
    )


def _count(mean: float, sd: float) -> str:
    return f"{mean:.1f}" if pd.isna(sd) else f"{mean:.1f} ± {sd:.1f}"
