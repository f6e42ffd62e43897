"""What the documentation names exists."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_group_of_asks_has_an_answer_and_its_test_exists() -> None:
    page = (ROOT / "docs/what-users-ask.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|.*\|$", page, re.MULTILINE)
    assert rows == [str(number) for number in range(1, 24)]
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) == 23
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text("utf-8")]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
