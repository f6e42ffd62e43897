"""The page of all prompts: complete, exact, and the one that is committed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from poise.cli import main
from poise.config.compose import compose_study
from poise.config.schema import Study
from poise.prompts.listings import Section, prompt_page, prompt_sections
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "prompts.md"
POSTMAN = "It follows a postman through one week in spring."
HEADER = (
    "Please perform Sentiment Classification task. Given the sentence, assign a label from "
    "[1: very negative, 2: negative, 3: neutral, 4: positive, 5: very positive].\n"
    "Answer with ONLY a single number (1, 2, 3, 4, or 5). No explanation.\n\n"
)
SHOWN = {  # base order; each label under the natural order
    "The jokes are tired and the middle sags.": 2,
    "A pleasant evening, helped along by a witty lead.": 4,
    "I left before the second reel and still felt cheated.": 1,
    POSTMAN: 3,
    "Every scene glows; I would watch it again tomorrow.": 5,
}
QUERY = "Sentence: The ending surprised me, though not always kindly.\nLabel:"


@pytest.fixture(scope="module")
def study() -> Study:
    return compose_study(["study=position"])


@pytest.fixture(scope="module")
def sections(study: Study) -> dict[str, Section]:
    return {section.title: section for section in prompt_sections(study)}


@pytest.fixture(scope="module")
def page(study: Study) -> str:
    return prompt_page(study)


def text_of(section: Section, title: str) -> str:
    (listing,) = [item for item in section.listings if item.title == title]
    return listing.request.prompt.text


def blocks(order: list[int]) -> str:
    texts = {label: text for text, label in SHOWN.items()}
    return "".join(f"Sentence: {texts[label]}\nLabel: {label}\n\n" for label in order)


def test_the_committed_page_is_fresh(page: str) -> None:
    assert PAGE.read_text(encoding="utf-8") == page, (
        "docs/prompts.md is not what conf/ says: renew it with `make docs` (poise prompts --output docs/prompts.md)"
    )


def test_baseline_and_demonstration_orders(sections: dict[str, Section]) -> None:
    orders = sections["Demonstration order (probe 2)"]
    base = [*SHOWN.values()]
    assert text_of(sections["Baseline"], "natural labels") == HEADER + blocks(base) + QUERY
    assert text_of(orders, "base") == HEADER + blocks(base) + QUERY
    assert text_of(orders, "ascending") == HEADER + blocks([1, 2, 3, 4, 5]) + QUERY
    assert text_of(orders, "descending") == HEADER + blocks([5, 4, 3, 2, 1]) + QUERY
    shuffled = [int(label) for label in re.findall(r"Label: (\d)", text_of(orders, "random"))]
    assert sorted(shuffled) == [1, 2, 3, 4, 5]
    assert shuffled not in (base, [1, 2, 3, 4, 5], [5, 4, 3, 2, 1])


def test_placements_with_the_cue_once_and_repeated(sections: dict[str, Section]) -> None:
    section = sections["Demonstration placement (probe 3)"]
    base = [*SHOWN.values()]
    after = HEADER + QUERY + "\n\n" + blocks(base).rstrip()
    split = HEADER + blocks(base[:2]) + QUERY + "\n\n" + blocks(base[2:]).rstrip()
    assert text_of(section, "before") == HEADER + blocks(base) + QUERY
    assert text_of(section, "after") == after
    assert text_of(section, "split") == split
    assert text_of(section, "after, cue: repeat") == after + "\n\nLabel:"
    assert text_of(section, "split, cue: repeat") == split + "\n\nLabel:"


def test_every_level_of_every_factor_file_is_listed_under_both_label_orders(sections: dict[str, Section]) -> None:
    files = sorted((ROOT / "conf" / "factor").glob("*.yaml"))
    assert files
    for file in files:
        factor = yaml.safe_load(file.read_text(encoding="utf-8"))
        titles = [item.title for item in sections[factor["title"]].listings]
        for key, level in factor["levels"].items():
            if key == factor["baseline"]:
                continue
            for order in ("natural", "reversed"):
                name = f"{level['title']}, {order} labels"
                assert name in titles or f"{name}, text as Passage B" in titles, f"{file.name}: {name} is not listed"


def test_moods_describe_or_ask(sections: dict[str, Section]) -> None:
    """F.6: the interrogative asks the model for a label, the indicative describes it as performing the task."""
    section = sections["Instruction mood"]
    space = "[1: very negative, 2: negative, 3: neutral, 4: positive, 5: very positive]"
    rest = HEADER.split("\n", 1)[1] + blocks([*SHOWN.values()]) + QUERY
    assert text_of(section, "Interrogative, natural labels") == (
        f"What label from {space} should be assigned to the sentence in this Sentiment Classification task?\n{rest}"
    )
    assert text_of(section, "Indicative, natural labels") == (
        "You are performing the Sentiment Classification task. Given the sentence, you assign a label from "
        f"{space}.\n{rest}"
    )


def test_a_minimal_header_in_the_indicative_mood(sections: dict[str, Section]) -> None:
    text = text_of(sections["Joint configuration"], "P2a (random to ascending), natural labels")
    assert text.startswith("You are performing the Sentiment Classification task.\n\nSentence: ")
    assert f"Sentence: {POSTMAN}\nLabel: neutral\n" in text


def test_merged_scales_relabel_the_demonstrations(sections: dict[str, Section]) -> None:
    """F.2: two classes merge at each end; the 2-way scale has no neutral example."""
    section = sections["Scale cardinality"]
    for title, labels in (
        ("3-way, natural labels", "1 3 1 2 3"),
        ("3-way, reversed labels", "3 1 3 2 1"),
        ("2-way, natural labels", "1 2 1 2"),
        ("2-way, reversed labels", "2 1 2 1"),
    ):
        text = text_of(section, title)
        assert " ".join(re.findall(r"Label: (\d)", text)) == labels, title
        assert (POSTMAN in text) == title.startswith("3")


def test_contextual_calibration_changes_the_query_only(sections: dict[str, Section]) -> None:
    section = sections["Contextual calibration"]
    base = HEADER + blocks([*SHOWN.values()])
    assert text_of(section, "N/A, natural labels") == base + "Sentence: N/A\nLabel:"
    reversed_ = text_of(sections["Label order (probe 1)"], "reversed")
    assert text_of(section, "N/A, reversed labels") == reversed_.replace(QUERY, "Sentence: N/A\nLabel:")


def test_blocks_of_the_page_are_the_texts_sent(page: str, sections: dict[str, Section]) -> None:
    found = re.findall(r"```text\n(.*?)\n```\n", page, flags=re.DOTALL)
    sent = [item.request.prompt.text for section in sections.values() for item in section.listings]
    assert found == list(dict.fromkeys(sent))
    for text in sent:
        assert text == text.rstrip(), "the page says that no prompt ends in white space"
        assert "{" not in text
        assert "```" not in text


def test_what_differs_and_where_the_paper_says_so(page: str) -> None:
    wanted = {
        "Label order (probe 1): reversed": "`label_order: reversed` · E.1",
        "Label format: Letter, reversed labels": "`label_format: letter`, `label_order: reversed` · F.1",
        "Scale cardinality: 2-way, natural labels": "`cardinality: 2_way` · F.2",
        "Demonstrations per class: 3-shot, natural labels": "`shots: 3_per_class` · 3.1, Table 3",
        "Inference paradigm: Listwise, natural labels": "`prompt: listwise` · G.1",
        "Contextual calibration: N/A, natural labels": "`text: N/A` · G.3",
        "Other data sets: Hate, natural labels": "`dataset: hate` · Table 1",
    }
    for heading, differs in wanted.items():
        assert f"### {heading}\n\n*Differs*: {differs} · `reconstructed`\n" in page


def test_tabs_are_written_out_and_labels_follow_their_separator(page: str) -> None:
    tab = page.split("### Separator: Tab, natural labels\n")[1].split("\n### ")[0]
    assert f"\nSentence\t{POSTMAN}\nLabel\t3\n" in tab
    assert "Scored after it, each after a tab: `1` = very negative, " in tab
    assert r"`Sentence\tThe ending surprised me, though not always kindly.\nLabel`" in tab
    reversed_ = page.split("### Label order (probe 1): reversed\n")[1].split("\n### ")[0]
    assert "each after a space: `1` = very positive, `2` = positive, `3` = neutral" in reversed_
    assert "Scored after it, each after a space: `Passage A`, `Passage B`.\n" in page


def test_links_lead_to_headings(page: str) -> None:
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), flags=re.MULTILINE)
    anchors = [re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert len(set(anchors)) == len(anchors)
    links = re.findall(r"\]\(#([^)]*)\)", page)
    assert set(links) <= set(anchors)
    assert set(anchors) - set(links) <= {"the-prompts-of-the-position-instrument", "contents", "how-to-read-this-page"}


def test_the_verb_prints_or_writes_the_page_of_any_study(page: str, tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(main, ["prompts"]).output == page
    target = tmp_path / "deep" / "page.md"
    done = run(main, ["prompts", "study=joint", "--output", str(target)])
    assert (done.exit_code, done.output) == (0, "")
    text = target.read_text(encoding="utf-8")
    assert "study `joint`" in text
    assert "after, cue: once" in text  # its own prompts repeat the cue
    changed = run(main, ["prompts", "study=joint", "experiment.joint.prompt.constraint.numeric='Just {choices}.'"])
    assert "\nJust 1, 2, 3, 4, or 5.\n" in changed.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["study=dnip"], "study dnip: no position experiment"),
        (["study=nope"], "conf/study/nope.yaml: file not found"),
        (["study=joint", "--output", "/dev/null/page.md"], "/dev/null"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(main, ["prompts", *arguments])
    assert done.exit_code == 2
    (line,) = done.output.strip().splitlines()
    assert line.startswith("poise: error: ")
    assert words in line
