"""Versions of the code that makes numbers, for digests.

Extraction is dear, so its version is a number that a person raises when answers change; a test guards it. The cheap
stages take the digest of their source: any edit there reruns them, and nothing else.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

EXTRACTION_VERSION = 2

_PACKAGE = Path(__file__).parent
_READING = ("answers.py", "prompts/parsing.py", "prompts/scale.py", "stages/conditions.py")
_SOURCES = {
    "methods": (*_READING, "methods", "stages/correct.py", "stages/fitting.py"),
    "metrics": (
        *_READING, "methods/aggregation.py", "methods/averaging.py", "metrics", "stages/imbalance.py",
        "stages/measure.py", "stages/measure_class_accuracy.py", "stages/measure_position.py",
        "stages/measure_written.py", "stages/stochastic.py", "stages/tidy.py",
    ),
    "selection": (*_READING, "metrics", "stages/measure_position.py", "stages/select.py"),
    "tables": ("artefacts/context.py", "artefacts/tables", "stages/artefacts.py"),
    "figures": ("artefacts/context.py", "artefacts/figures", "artefacts/tables", "stages/artefacts.py"),
}  # fmt: skip


@cache
def source_digest(stage: str) -> str:
    """Digest of the source files whose edits must rerun a stage (``methods``, ``metrics``, ``tables``, ``figures``)."""
    state = hashlib.sha256()
    for name in _SOURCES[stage]:
        path = _PACKAGE / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            state.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return state.hexdigest()[:12]
