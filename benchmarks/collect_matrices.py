"""Gather real class-probability matrices of finished studies into one small file, for the solver tests.

python benchmarks/collect_matrices.py tests/data/real_matrices.npz results/demo/plan.json [more plans …]

Each cell of optimisation rows, and the base cell of each position run, gives one matrix: answers of a model, no text.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from poise.answers import read_answers
from poise.planfile import load


def main(target: Path, plans: list[Path]) -> None:
    arrays: dict[str, np.ndarray] = {}
    for path in plans:
        plan = load(path)
        cells = [c for c in plan.cells if c.split == "optimisation" or (c.placement == "before" and c.regrouped_rows)]
        for cell, answers in zip(cells, read_answers(plan, cells).values(), strict=True):
            name = f"{cell.model}|{cell.dataset}|{cell.shots}|{cell.seed}|{cell.split}"
            arrays[f"{name}|P"] = answers.probabilities
            arrays[f"{name}|y"] = answers.labels.astype(np.int8)
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(target, **arrays)
    print(f"{len(arrays) // 2} matrices, {target.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
