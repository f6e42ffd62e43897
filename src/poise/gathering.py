"""Which files the metrics of an instrument are gathered from: directly or, where they are many, in parts. Light."""

from __future__ import annotations

from pathlib import Path

from poise import paths
from poise.artefacts.registry import TIMING
from poise.plan import Plan

MOST = 200  # files that one job reads


def sources(plan: Plan, instrument: str) -> list[Path]:
    """Files with all metrics of an instrument, in plan order: one for each experiment, model and data set.

    Those of ``timing`` are the seconds of each correction.
    """
    study = plan.study.name
    if instrument == TIMING:
        return [paths.timings(study, *correction) for correction in plan.corrections]
    names = {experiment.name for experiment in plan.experiments(instrument)}
    return [paths.cell_metrics(study, *group) for group in plan.groups if group[0] in names]


def part_sources(plan: Plan, instrument: str, part: int) -> list[Path]:
    """Files that one part gathers."""
    return sources(plan, instrument)[part * MOST : (part + 1) * MOST]


def inputs(plan: Plan, instrument: str) -> list[Path]:
    """Files that the whole is gathered from: its sources or, if they are more than ``MOST``, its parts."""
    found = sources(plan, instrument)
    if len(found) <= MOST:
        return found
    return [paths.metrics_part(plan.study.name, instrument, part) for part in range(-(-len(found) // MOST))]
