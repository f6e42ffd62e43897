"""What a user sees of a whole run: its last words, and the report in a real browser, on a desk and on a phone."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Workplace
from tests.workflow.test_own_data import STUDY, mine  # noqa: F401

ARTEFACTS = ["dnip_table3", "dnip_table10", "dnip_figure8", "position_table2", "position_figure1"]
MENU = "#app > div > nav"
SCREENS = [(1280, 800), (390, 844)]

pytestmark = pytest.mark.slow


def _snakemake(place: Workplace, *arguments: str) -> str:
    done = place.snakemake("--config", "study=mine", *arguments, POISE_CONF=str(place.folder / "conf"))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def measured(mine: Workplace) -> tuple[Workplace, str]:  # noqa: F811
    """A small study that is measured, and what its run said."""
    study = [*STUDY, "seeds=[0]", f"artefacts=[{','.join(ARTEFACTS)}]", "title=A *starred* title_"]
    done = mine.poise("plan", *study, POISE_CONF=str(mine.folder / "conf"))
    assert done.returncode == 0, done.stderr
    dry = _snakemake(mine, "-n")
    assert "Study mine:" not in dry
    return mine, _snakemake(mine)


@pytest.fixture(scope="module")
def chromium() -> str:
    """Path of a Chromium; installed where that is possible."""
    pytest.importorskip("playwright", reason="the report was not opened in a browser: playwright is not installed")
    if shutil.which("chromium") is None and shutil.which("apt-get") and os.geteuid() == 0:
        command = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
        subprocess.run(command, capture_output=True, check=False)
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("the report was not opened in a browser: chromium is not here and cannot be installed")
    return found


class Browser:
    """One window on the report, which notes every error and every request to the network."""

    def __init__(self, page: Any, width: int) -> None:
        self.page, self.width = page, width
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.route(
            lambda url: url.startswith(("http:", "https:", "ws:")),
            lambda route: (self.requests.append(route.request.url), route.abort()),
        )

    def menu(self, *names: str) -> None:
        """Go from the start through the menu."""
        self.page.locator(f"{MENU} a").filter(has=self.page.locator("svg")).nth(1).click()
        for name in names:
            self.page.locator(f"{MENU} li a").get_by_text(name, exact=True).click()

    def open(self, title: str, link: int = 0) -> None:
        """Open the entry of this title in the list, or what is told of it (link 1)."""
        row = self.page.locator(f"{MENU} tbody tr").filter(has_text=title)
        link_of_row = row.locator("a").nth(link)
        box = link_of_row.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= self.width - box["width"], "the link is out of the screen"
        link_of_row.click()


@pytest.fixture
def browsers(chromium: str) -> Iterator[list[Browser]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        windows = []
        for width, height in SCREENS:
            windows.append(Browser(browser.new_page(viewport={"width": width, "height": height}), width))
        yield windows
        browser.close()


def _looks_right(window: Browser, report: Path) -> None:
    page = window.page
    page.goto(report.as_uri())
    heading = page.get_by_text("Poise: is the classifier fair, is it steady?")
    heading.wait_for()
    box = heading.bounding_box()
    assert box is not None
    assert box["y"] >= 0, "the start of the description is above the screen"
    assert page.get_by_text("A *starred* title_").count() == 1
    assert page.get_by_text("dnip_table10: this study has no data set").count() == 1

    for category, table, word in (
        ("Class accuracy (DNIP paper)", "Test accuracy and COBias", "ICL+DNIP"),
        ("Position (position paper)", "Position sensitivity", "P1 label order"),
    ):
        window.menu(category, "Tables")
        window.open(table)
        frame = page.frame_locator("iframe")
        frame.get_by_text(word).first.wait_for()
        shown = frame.locator("body").evaluate(
            """body => ({
                sizes: [...body.querySelectorAll('th,td,p')].map(e => parseFloat(getComputedStyle(e).fontSize)),
                wide: document.documentElement.scrollWidth - innerWidth,
                loose: [...body.querySelectorAll('table')].filter(t => !t.closest('.scroll')).length,
                width: innerWidth, height: innerHeight,
            })"""
        )
        assert min(shown["sizes"]) >= 12
        assert shown["wide"] <= 0, "the page is wider than its frame"
        assert shown["loose"] == 0
        assert shown["width"] >= 380, "too narrow to read"
        assert shown["height"] >= 300, "too low to read"
        window.open(table, link=1)
        told = page.locator(MENU).inner_text()
        assert "paper, Table" in told
        assert "synthetic" in told

    window.menu("Class accuracy (DNIP paper)", "Figures")
    window.open("Pairwise class-accuracy differences")
    picture = page.locator("#app > div > .grow img")
    picture.wait_for()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 500
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert window.errors == []
    assert window.requests == []


def test_a_run_ends_with_a_summary_and_its_report_is_readable(
    measured: tuple[Workplace, str], browsers: list[Browser]
) -> None:
    place, said = measured
    assert said.count("Study mine:") == 1
    assert "3 of 3 made: results/mine/tables/*.md" in said
    assert "missing  dnip_table10: this study has no data set for this table" in said
    assert r"\toprule" in (place.folder / "results/mine/tables/dnip_table3.tex").read_text()
    log = (place.folder / "logs/mine/tables/dnip_table3.log").read_text()
    for word in ("table artefact=dnip_table3", "numpy ", "done in "):
        assert word in log

    report = place.folder / "results/mine/report.html"
    style = str(ROOT / "workflow/report/style.css")
    printed = _snakemake(place, "--report", str(report), "--report-stylesheet", style)
    assert "Study mine:" not in printed
    assert "Missing metadata" not in printed
    for window in browsers:
        _looks_right(window, report)

    done = place.poise("summary", "mine")
    assert done.returncode == 0, done.stderr
    assert "report   results/mine/report.html\n" in done.stdout


def test_a_run_that_fails_says_which_step_and_why_at_its_end(mine: Workplace) -> None:  # noqa: F811
    path = mine.folder / "mine/train.csv"
    path.write_text(path.read_text().replace("neutral\n", "meh\n", 1))
    assert mine.poise("plan", *STUDY, POISE_CONF=str(mine.folder / "conf")).returncode == 0
    done = mine.snakemake("--config", "study=mine", POISE_CONF=str(mine.folder / "conf"))
    assert done.returncode != 0
    end = (done.stdout + done.stderr).split("The run stopped before its end.")[1]
    assert "prepare_dataset: mine: mine/train.csv: row 2: unknown label 'meh'" in end
    assert "log: logs/prepare/mine." in end
    assert "What is finished is kept. To go on:  snakemake " in end
