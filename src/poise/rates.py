"""How fast a model answered so far, as its finished batches say. Light: the plan is cut by it."""

from __future__ import annotations

import json
from typing import Any

from poise import paths


def finished_batches(model: str, engine: str) -> list[dict[str, Any]]:
    """``meta.json`` of the finished, uninterrupted batches of a model and a kind of engine, in a fixed order."""
    found = []
    for path in sorted(paths.RESPONSES.glob(f"{model}/*/meta.json")):
        try:
            meta = json.loads(path.read_text(encoding="utf-8"))
            if meta["engine"] == engine and meta["resumed_requests"] == 0 and meta["seconds"] > 0:
                found.append(meta)
        except (KeyError, TypeError, ValueError):
            continue  # of an older version: it measures nothing here
    return found


def requests_per_second(model: str, engine: str) -> float | None:
    """Requests that a model answered in a second, over all its finished batches; None before the first."""
    metas = finished_batches(model, engine)
    seconds = sum(meta["seconds"] for meta in metas)
    return sum(meta["requests"] for meta in metas) / seconds if seconds else None
