"""A page with the exact text of every prompt of the position instrument, shown on invented sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from poise.cells import BASE_CONDITION, Setting, conditions, n_shots, settings
from poise.config.data import Dataset
from poise.config.models import LabelTokens
from poise.config.prompts import OrdinalPrompt, PairwisePrompt, Prompt
from poise.config.schema import Experiment, Study
from poise.datasets.sampling import demonstration_places, merge_labels
from poise.errors import PoiseError
from poise.prompts.render import Renderer
from poise.prompts.scale import label_position
from poise.prompts.text import Request

# Invented for this page; no data set's text.
_SENTENCES = {
    "very negative": "I left before the second reel and still felt cheated.",
    "negative": "The jokes are tired and the middle sags.",
    "neutral": "It follows a postman through one week in spring.",
    "positive": "A pleasant evening, helped along by a witty lead.",
    "very positive": "Every scene glows; I would watch it again tomorrow.",
}
_QUERY = "The ending surprised me, though not always kindly."

_INTRODUCTION = """\
# The prompts of the position instrument

The exact text of every prompt of study `{study}`, made from `conf/`. Not edited by hand: `make docs` renews it, and
`poise prompts study=demo` prints the page of another study, or of one with changes of your own.

## How to read this page

- The paper's listings are lost (Supplements D, E, F, I) or flattened to one line (G). The texts marked `reconstructed`
  are ours, rebuilt from its descriptions; [What was decided](#what-was-decided) lists the choices.
- A block holds what is sent, from the first character to the last: no line break follows the last one, and no prompt
  ends in white space. A chat model gets it as one user turn in its chat template; another model reads on after it.
- Sentences are invented. One demonstration of each class is shown; the study sends {shots}, and *differs* says where a
  level changes that. *Random* is one shuffle of those that are shown.
- Below each text are the labels that are scored after it, with the class that each stands for. The white space before a
  label belongs to the label in raw text and is left out in a chat, where the label starts the reply. Where answers are
  written instead of scored (models behind an API, Phase 0b), the same text is sent and the reply is searched for them.
- *Differs* names the configuration keys that are not at the baseline, then the paper's section that describes it.
"""

_DECISIONS = """\
## What was decided

| piece | the paper | ours |
| --- | --- | --- |
| header | what it holds (E.1, F.3); the wording only in G.1's listings | the wording of listwise-compare's header and constraint, as two lines |
| constraint | "a single number" (G.1) | "a single letter", "one label" for the other formats, with their labels |
| label space | the class of each label under both orders (3.2) | labels always count up; reversed, the classes behind them change places |
| blocks | `Sentence:` and `Label:` on separate lines (F.1, F.5) | a blank line between blocks and after the header |
| cue | the query ends `Label:` (G.3) | a separator that is white space belongs to the label: the query then ends `Label` |
| natural language, reversed | labels are mapped by place (E.1) | demonstrations carry the opposite words; the header lists the words from the top class down; the constraint keeps its order |
| minimal | "only a short task instruction" (F.3) | the header's first sentence; no mapping is shown, so only the demonstrations tell that it is reversed |
| ordinal-explicit | "states the direction of the ordered scale" (F.3) | a third line of the header |
| mood | asks the model for a label, describes it as performing the task (F.6) | one question; the baseline's two sentences with "you" as their subject |
| base order | not said | the order of the demonstration file, which *random* shuffles with the demonstration seed |
| after, split | the query follows the header, or the first half (E.3) | `Label:` stays with the query; an odd number leaves the smaller half before. `after_cue: repeat` says the cue again at the end, for models that read on |
| merged scales | merged before prompt construction, demonstrations relabelled (F.2) | merged classes take the shorter name; the demonstrations are those of the five classes |
| pairwise | on one line (G.1); "more negative under the reversed probe" | line breaks; reversed, the question changes, the list of classes does not |
| listwise | on one line (G.1); the opposite direction under the reversed probe | a sentence a line |
| listwise-compare | on one line (G.1) | line breaks; the last line `Label:` is ours, for models that read on; reversed, the references are listed from the top class down, so that a label is always a place |
| joint configurations | lost with Supplement I | the best level of each prompt factor in the paper's Table 4 |
"""  # noqa: E501 - a row of a Markdown table is one line

# Probes by what they vary, and factors by name: title, place in the paper, what is varied.
_PROBES = {
    "label_order": (
        "Label order (probe 1)",
        "E.1",
        "Header and demonstrations change together. A predicted place is mapped back to its class.",
    ),
    "demonstration_order": (
        "Demonstration order (probe 2)",
        "E.2",
        "The same blocks in another order: by class upwards, downwards, or shuffled.",
    ),
    "placement": (
        "Demonstration placement (probe 3)",
        "E.3",
        "Where the demonstrations stand relative to the query; the cue is said once, or repeated at the end.",
    ),
}
_FACTORS = {
    "label_format": ("F.1", "What the labels look like, in the header and in each block."),
    "scale_cardinality": ("F.2", "Classes are merged and the demonstrations relabelled, on data sets of five classes."),
    "demo_count": ("3.1, Table 3", "How many demonstrations of each class. Without any, only probe 1 applies."),
    "prompt_clarity": ("F.3", "How much the header says."),
    "separator": ("F.4", "What stands between `Sentence` or `Label` and its value."),
    "connector": ("F.5", "What stands between the sentence and the label of a block."),
    "instruction_mood": ("F.6", "The grammatical form of the instruction."),
    "inference_paradigm": (
        "G.1",
        "Other ways to ask, on data sets of three classes or more; only probe 1 applies. Pairwise asks twice for each "
        "demonstration (the first is shown), listwise and listwise-compare once for each group of one a class.",
    ),
    "configuration": ("5.2.2", "Several factors at once."),
}


@dataclass(frozen=True)
class Listing:
    """One prompt as it is sent.

    Attributes
    ----------
    title
        Short name within its section.
    differs
        What is not at the baseline, as ``key: value``.
    request
        The prompt and the labels scored after it.
    classes
        The class that each label stands for; none for answers that are no classes.
    reconstructed
        Whether the paper's own text is not public.
    """

    title: str
    differs: tuple[str, ...]
    request: Request
    classes: tuple[str, ...]
    reconstructed: bool


@dataclass(frozen=True)
class Section:
    """The prompts of one probe, factor or correction, and where the paper describes them."""

    title: str
    source: str
    text: str
    listings: tuple[Listing, ...]


@dataclass(frozen=True)
class _Shown:
    """A setting of an experiment, on the data set that it is shown for; ``main`` is the baseline's."""

    study: Study
    experiment: Experiment
    dataset: Dataset
    setting: Setting
    main: str

    @property
    def shots(self) -> str:
        """How many demonstrations the setting has."""
        return self.setting.shots or self.experiment.shots[0]

    def listings(self, title: str, text: str = _QUERY, **condition: str) -> Iterator[Listing]:
        """Render the prompt for one text: of several, those of the first demonstration or group."""
        setting, prompt = self.setting, self.setting.prompt
        dataset = self.dataset.scaled(setting.cardinality)
        shown = merge_labels(demonstrations(self.dataset), self.dataset, setting.cardinality)
        shown = shown if n_shots(self.shots) else shown.iloc[:0]
        rearranged = condition.get("demonstration_order", "base")
        shown = shown.iloc[demonstration_places(list(shown["label"]), rearranged, self.experiment.seeds[0])]
        order = condition.get("label_order", "natural")
        requests = Renderer(
            prompt,
            dataset,
            list(zip(shown["text"], shown["label"], strict=True)),
            LabelTokens(),
            label_order=order,
            placement=condition.get("placement", "before"),
        ).requests(text)
        n = len(dataset.classes)
        classes = tuple(dataset.classes[label_position(k, n, order)] for k in range(n))
        titles = [title]
        if isinstance(prompt, PairwisePrompt):
            titles, classes = [f"{title}, text as {answer}" for answer in prompt.answers], ()
        differs = tuple(self._differences(text, condition))
        for name, request in zip(titles, requests, strict=False):
            yield Listing(name, differs, request, classes, prompt.reconstructed)

    def by_label_order(self, title: str = "", text: str = _QUERY) -> Iterator[Listing]:
        """Render the prompt under every label order that the experiment asks for."""
        asked = conditions(self.study, self.experiment, self.setting.prompt, self.shots)
        for order in dict.fromkeys(condition["label_order"] for condition in asked):
            yield from self.listings(", ".join(filter(None, (title, f"{order} labels"))), text, label_order=order)

    def _differences(self, text: str, condition: Mapping[str, str]) -> Iterator[str]:
        base, setting = self.experiment.prompt, self.setting
        if self.dataset.name != self.main:
            yield f"dataset: {self.dataset.name}"
        yield from _changed_keys(base, setting.prompt) if base else ()
        if setting.shots:
            yield f"shots: {setting.shots}"
        if setting.cardinality:
            yield f"cardinality: {setting.cardinality}"
        if text != _QUERY:
            yield f"text: {text or '(empty)'}"
        yield from (f"{key}: {value}" for key, value in condition.items() if value != BASE_CONDITION[key])


def _changed_keys(base: Prompt, prompt: Prompt) -> list[str]:
    if base.kind != prompt.kind:
        return [f"prompt: {prompt.name}"]
    old, new = base.model_dump(), prompt.model_dump()
    return [f"{key}: {value}" for key, value in new.items() if value != old[key]]


def demonstrations(dataset: Dataset) -> pd.DataFrame:
    """One invented text of each class, in a base order that is neither rising nor falling: ``text``, ``label``."""
    n = len(dataset.classes)
    labels = [*range(1, n, 2), *range(0, n, 2)]
    names = [dataset.classes[label] for label in labels]
    return pd.DataFrame(
        {"text": [_SENTENCES.get(name, f"An invented text of the class {name}.") for name in names], "label": labels}
    )


def prompt_sections(study: Study) -> list[Section]:
    """List every prompt of a study's position experiments.

    Each is shown for the data set that has most classes, of those that it is used on.

    Raises
    ------
    PoiseError
        If the study has no position experiment.
    """
    experiments = [item for item in study.experiment.values() if item.instrument == "position"]
    if not experiments:
        raise PoiseError(f"study {study.name}: no position experiment, so no prompts to list; see conf/experiment")
    names = dict.fromkeys(name for experiment in experiments for name in experiment.datasets)
    main = max(names, key=lambda name: len(study.datasets[name].classes))
    shown = [
        _Shown(study, experiment, study.datasets[name], setting, main)
        for experiment in experiments
        for name in experiment.datasets
        for setting in settings(study, experiment, study.datasets[name])
    ]
    shown.sort(key=lambda item: -len(item.dataset.classes))
    base = next(item for item in shown if item.dataset.name == main)
    return [
        Section("Baseline", "3.2, E.1", "Every factor at its baseline level.", tuple(base.listings("natural labels"))),
        *(_probe_section(base, name) for name in base.experiment.probes),
        *filter(None, (_factor_section(shown, name) for name in study.factors)),
        *_content_free_section(shown),
        *_dataset_section(shown),
    ]


def _probe_section(base: _Shown, name: str) -> Section:
    probe = base.study.probes[name]
    prompt = base.setting.prompt
    listings = [item for level in probe.levels for item in base.listings(level, **{probe.field: level})]
    if probe.field == "placement" and isinstance(prompt, OrdinalPrompt):
        cue = "repeat" if prompt.after_cue == "once" else "once"
        other = replace(base, setting=replace(base.setting, prompt=prompt.model_copy(update={"after_cue": cue})))
        listings += [
            item for level in probe.levels[1:] for item in other.listings(f"{level}, cue: {cue}", placement=level)
        ]
    title, source, text = _PROBES[probe.field]
    return Section(title, source, text, tuple(listings))


def _factor_section(shown: list[_Shown], name: str) -> Section | None:
    """List the levels of a factor, each for the first data set that has it; None if no experiment varies it."""
    levels: dict[str, _Shown] = {}
    for item in shown:
        if item.setting.factor == name:
            levels.setdefault(item.setting.level, item)
    if not levels:
        return None
    factor = next(iter(levels.values())).study.factors[name]
    titles = {key: level.title for key, level in factor.levels.items() if level is not None}
    listings = [item for key in levels for item in levels[key].by_label_order(titles[key])]
    source, text = _FACTORS.get(name, ("", ""))
    if name != "configuration":
        text = f"{text} The baseline's level is *{titles[factor.baseline]}*.".strip()
    return Section(factor.title, source, text, tuple(listings))


def _content_free_section(shown: list[_Shown]) -> Iterator[Section]:
    bases: dict[str, _Shown] = {}
    for item in shown:
        for text in () if item.setting.factor else item.experiment.content_free:
            bases.setdefault(text, item)
    listings = [item for text, base in bases.items() for item in base.by_label_order(text or "(empty)", text)]
    if listings:
        text = "The baseline with a query that has no content, asked once under every condition that is corrected."
        yield Section("Contextual calibration", "G.3", text, tuple(listings))


def _dataset_section(shown: list[_Shown]) -> Iterator[Section]:
    others: dict[str, _Shown] = {}
    for item in shown:
        if item.dataset.name != item.main and not item.setting.factor:
            others.setdefault(item.dataset.title, item)
    listings = [listing for title, item in others.items() for listing in item.by_label_order(title)]
    if listings:
        yield Section("Other data sets", "Table 1", "The baseline on the other data sets.", tuple(listings))


def prompt_page(study: Study) -> str:
    """Write the prompts of a study's position experiments as a Markdown page.

    Raises
    ------
    PoiseError
        If the study has no position experiment.
    """
    sections = prompt_sections(study)
    experiments = [item for item in study.experiment.values() if item.instrument == "position"]
    shots = ", ".join(sorted({f"`{shots}`" for item in experiments for shots in item.shots}))
    head, how = _INTRODUCTION.format(study=study.name, shots=shots).split("\n## ", 1)
    contents = [
        f"- [{section.title}]({_anchor(section.title)}): "
        + " · ".join(f"[{item.title}]({_anchor(_heading(section, item))})" for item in section.listings)
        for section in sections
    ]
    blocks = [head, "## Contents\n\n" + "\n".join(contents) + "\n", "## " + how, _DECISIONS]
    seen: dict[str, str] = {}
    for section in sections:
        blocks.append(f"## {section.title}\n\n{section.text}\n")
        for item in section.listings:
            heading = _heading(section, item)
            first = seen.setdefault(item.request.id, heading)
            body = _body(item) if first == heading else f"The text of [{first}]({_anchor(first)}).\n"
            blocks.append(f"### {heading}\n\n{_difference(item, section.source)}\n\n{body}")
    return "\n".join(blocks)


def _heading(section: Section, listing: Listing) -> str:
    return f"{section.title}: {listing.title}"


def _anchor(heading: str) -> str:
    """Link to a heading, as GitHub names it."""
    return "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _difference(listing: Listing, source: str) -> str:
    differs = ", ".join(f"`{item}`" for item in listing.differs) or "nothing, it is the baseline"
    mark = " · `reconstructed`" if listing.reconstructed else ""
    return f"*Differs*: {differs}{f' · {source}' if source else ''}{mark}"


def _body(listing: Listing) -> str:
    labels = listing.request.labels
    bare = [label.lstrip() for label in labels]
    space = {"": "", " ": ", each after a space", "\t": ", each after a tab"}[labels[0].removesuffix(bare[0])]
    names = (
        [f"`{label}` = {name}" for label, name in zip(bare, listing.classes, strict=True)] if listing.classes else []
    )
    scored = ", ".join(names or [f"`{label}`" for label in bare])
    query = listing.request.prompt.query
    written = query.replace("\t", "\\t").replace("\n", "\\n")
    tabs = f"\nWith tabs and line breaks written out, the query is `{written}`.\n" if "\t" in query else ""
    return f"```text\n{listing.request.prompt.text}\n```\n\nScored after it{space}: {scored}.\n{tabs}"
