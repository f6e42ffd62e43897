"""Extraction is dear: its code and its version number change together, or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import tokenize
from pathlib import Path

from poise import versions
from tests.conftest import ROOT

RECORD = Path(__file__).parent / "extraction_code.json"
CODE = [
    "answers.py", "cells.py", "datasets/sampling.py", "datasets/tables.py", "engines/ask.py", "engines/attention.py",
    "engines/decode.py", "engines/dummy.py", "engines/generation.py", "engines/gguf.py", "engines/labels.py",
    "engines/located.py", "engines/openai.py", "engines/packing.py", "engines/tokenizer.py", "engines/transformers.py",
    "engines/vllm.py", "prompts/paradigms.py", "prompts/render.py", "prompts/requests.py", "prompts/scale.py",
    "prompts/text.py",
]  # fmt: skip
_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
}


def _code_digest() -> str:
    """Digest of the tokens that matter: no comments, no layout, no docstrings."""
    state = hashlib.sha256()
    for name in CODE:
        source = (ROOT / "src/poise" / name).read_bytes()
        starts_line = True
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            if token.type in _SILENT:
                starts_line = starts_line or token.type in (
                    tokenize.NEWLINE,
                    tokenize.INDENT,
                    tokenize.DEDENT,
                )
                continue
            if not (starts_line and token.type == tokenize.STRING and token.string.lstrip("rR").startswith('"""')):
                state.update(token.string.encode())
            starts_line = False
    return state.hexdigest()[:16]


def test_extraction_code_and_version_change_together() -> None:
    record = json.loads(RECORD.read_text())
    found = {"version": versions.EXTRACTION_VERSION, "digest": _code_digest()}
    assert found == record, (
        f"the code that makes answers changed. If any number can change, raise EXTRACTION_VERSION in "
        f"src/poise/versions.py; either way write {json.dumps(found)} into {RECORD.name}"
    )


def test_an_edit_of_a_cheap_stage_changes_its_digest_only() -> None:
    names = ("methods", "metrics", "tables", "figures")
    assert len({versions.source_digest(name) for name in names}) == len(names)
