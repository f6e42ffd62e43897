"""Canonical JSON and the digests made of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

DIGEST_LENGTH = 12


def canonical_json(value: Any) -> str:
    """Serialise JSON-pure data so that equal values give equal text (sorted keys, no spaces)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any, length: int = DIGEST_LENGTH) -> str:
    """Hex digest of JSON-pure data, independent of key order."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
