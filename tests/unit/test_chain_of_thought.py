"""Written answers: the prompt of a chain of thought, its cells, what is measured of texts read at two places."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from poise import paths
from poise.cells import Cell, corrected
from poise.config.compose import compose_study
from poise.config.models import LabelTokens
from poise.config.prompts import ICLPrompt
from poise.config.schema import Reasoning, Study, chain_of_thought
from poise.datasets.sampling import draw_demonstrations
from poise.engines.check import check_labels
from poise.errors import PoiseError
from poise.files import read_parquet, write_parquet
from poise.plan import Plan, expand
from poise.prompts.render import Renderer
from poise.prompts.requests import build_requests
from poise.prompts.text import Generation, Request
from poise.stages.measure import collect, measure
from tests.conftest import ROOT

ANSWER = ICLPrompt(
    kind="icl", name="toy", instruction="Classify.\n\n", text_prefix="Review: ", label_prefix="Answer:",
    separator="\n\n====\n\n", label_words=["bad", "good"],
)  # fmt: skip
REASONING = Reasoning(
    instruction="Think.", closing=" Final answer:\n", template="It seems {label}.", max_new_tokens=5,
    sentences={"toy": {"r1": "It bores."}, "other": {"r2": "No."}},
)  # fmt: skip
SHOWN = [("Dull.", 0), ("Fun.", 1)]
MODEL = "smollm2-135m-instruct"


def _study(*overrides: str) -> Study:
    return compose_study(
        ["study=demo", "name=written", "dataset=[movies5]", "method=[icl]", "engine=dummy", "factor=[]",
         "experiment=[chain_of_thought,answer_token]", "experiment.chain_of_thought.seeds=[0]", *overrides]
    )  # fmt: skip


def _cells(plan: Plan, experiment: str) -> list[Cell]:
    return [cell for cell in plan.cells if cell.experiment == experiment]


# --- the prompt ---


def _request(reasoning: Reasoning = REASONING, dataset: str = "toy") -> Request:
    prompt = chain_of_thought(ANSWER, reasoning, dataset)
    reasons = [prompt.reason(row, label) for row, (_, label) in zip(("r1", "r2"), SHOWN, strict=True)]
    data = _study().datasets["movies5"]
    (request,) = Renderer(
        prompt, data, SHOWN, LabelTokens(), generation=Generation(5), reasons=reasons
    ).requests("So so.")  # fmt: skip
    return request


def test_demonstrations_show_a_reason_and_the_query_ends_where_the_models_own_goes() -> None:
    request = _request()
    assert request.prompt.text == (
        "Classify.\n\n"
        "Review: Dull.\nAnswer: Think. It bores. Final answer:\nbad\n\n====\n\n"
        "Review: Fun.\nAnswer: Think. It seems good. Final answer:\ngood\n\n====\n\n"
        "Review: So so.\nAnswer:"
    )
    assert request.located
    assert request.labels == ("bad", "good")  # as after a line break, whatever the model's convention after a cue
    assert request.prompt.n_demonstrations == 2


def test_the_instruction_can_stand_in_the_query_too() -> None:
    asked = _request(REASONING.model_copy(update={"in_query": True}))
    assert asked.prompt.text.endswith("Review: So so.\nAnswer: Think.")


def test_sentences_are_those_of_the_data_set() -> None:
    assert "It seems bad. Final answer:\nbad" in _request(dataset="other").prompt.text
    assert "No. Final answer:\ngood" in _request(dataset="other").prompt.text


def test_looking_for_labels_is_part_of_a_requests_identity() -> None:
    located = _request()
    plain = Request(located.prompt, located.labels, generation=located.generation)
    assert plain.id != located.id
    assert len({located.id, plain.id, _request(REASONING.model_copy(update={"closing": " So:\n"})).id}) == 3


@pytest.mark.parametrize("template", ["no place", "{label} and {class}", "{}"])
def test_a_template_names_the_label_alone(template: str) -> None:
    with pytest.raises(ValueError, match="template must hold"):
        Reasoning(instruction="x", closing="x", template=template, max_new_tokens=1)


@pytest.mark.parametrize("name", ["movies5", "r8"])
def test_each_demonstration_of_the_demo_has_a_reason_in_our_own_words(demo_plan: Plan, name: str) -> None:
    raw = yaml.safe_load((ROOT / "conf/experiment/chain_of_thought.yaml").read_text(encoding="utf-8"))
    sentences = dict(raw["reasoning"]["sentences"][name])
    rows = read_parquet(paths.prepared_dataset(name, demo_plan.dataset_digests[name]))
    dataset = demo_plan.study.datasets[name]
    for seed in demo_plan.study.seeds:
        shown = draw_demonstrations(rows, dataset, "1_shot", seed, "clean", name).iloc[0]
        assert not _runs_of_words(shown["text"], 4) & _runs_of_words(sentences.pop(shown["id"]), 4)
    assert not sentences


def _runs_of_words(text: str, n: int) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return set(zip(*(words[k:] for k in range(n)), strict=False))


# --- cells ---


def test_chain_of_thought_asks_the_plain_prompt_and_one_sampled_text() -> None:
    plan = expand(_study("experiment.chain_of_thought.rows.test=7"))
    asked = [(cell.prompt, cell.decoding, cell.split, cell.rows) for cell in _cells(plan, "chain_of_thought")]
    assert asked == [
        ("chain_of_thought/movies5", "scores", "test", 7),
        ("chain_of_thought/movies5/reasoning", "sampled", "test", 7),
    ]
    assert plan.corrections == []
    assert corrected(plan.study, plan.study.experiment["answer_token"], MODEL) == []


def test_answer_token_asks_greedy_texts_of_the_same_prompt() -> None:
    plan = expand(_study())
    asked = [(cell.prompt, cell.decoding) for cell in _cells(plan, "answer_token")]
    assert asked == [("answer_token/movies5", "scores"), ("answer_token/movies5", "greedy")]


def test_a_model_that_answers_in_text_has_its_plain_answers_written() -> None:
    plan = expand(_study("model=[qwen3-8b-thinking]"))
    assert [cell.decoding for cell in _cells(plan, "answer_token")] == ["greedy"]
    assert [cell.decoding for cell in _cells(plan, "chain_of_thought")] == ["greedy", "sampled"]


def _ids(*overrides: str) -> list[str]:
    return [cell.id for cell in _cells(expand(_study(*overrides)), "chain_of_thought")]


def test_a_sentence_that_changes_changes_the_chain_of_thought_only() -> None:
    key = "experiment.chain_of_thought.reasoning.sentences"
    plain, thinking = _ids()
    assert _ids(f"{key}.movies5.8853='It drags.'") == [plain, _ids(f"{key}.movies5.8853='It drags.'")[1]]
    assert _ids(f"{key}.movies5.8853='It drags.'")[1] != thinking
    assert _ids(f"{key}.r8.4725='It earns.'") == [plain, thinking]


@pytest.mark.parametrize("change", ["max_new_tokens=9", "temperature=0.5", "closing=' So: '", "in_query=true",
                                    "template='So {label}.'"])  # fmt: skip
def test_what_affects_the_text_is_in_the_identity(change: str) -> None:
    plain, thinking = _ids()
    other_plain, other = _ids(f"experiment.chain_of_thought.reasoning.{change}")
    assert other_plain == plain
    assert other != thinking


def test_another_template_takes_one_override() -> None:
    study = _study("prompt@experiment.answer_token.prompt=sst5")
    assert expand(study).prompts["answer_token/movies5"].name == "sst5"


# --- what does not fit is said in one line ---


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["prompt@experiment.answer_token.prompt=ordinal"], "answer_token.prompt: the written instrument needs an icl"),
        (["prompt@experiment.answer_token.prompt=rte"], "label_words must have 5 words for movies5, found 2"),
        (
            ["experiment.chain_of_thought.instrument=class_accuracy"],
            "chain_of_thought.reasoning: chain of thought is for the written instrument",
        ),
        (
            ["method=[icl,dnip]", "experiment.answer_token.methods=[dnip]"],
            "dnip is not for the written instrument: written answers have no probabilities to correct",
        ),
    ],
)
def test_errors(overrides: list[str], message: str) -> None:
    with pytest.raises(PoiseError, match=message):
        _study(*overrides)


def test_labels_are_checked_in_both_forms(model_dir: Path) -> None:
    words = "[super,superb,okay,bad,great]"  # apart after a space, where the plain prompt has them
    study = compose_study(
        ["study=demo", "name=x", "dataset=[movies5]", "method=[icl]", "factor=[]", "experiment=[chain_of_thought]",
         f"dataset.movies5.prompt.label_words={words}"]
    )  # fmt: skip
    with pytest.raises(PoiseError, match=r"label 'super' is a prefix \(in tokens\) of 'superb'"):
        check_labels(expand(study))


# --- rows and reasons ---


def test_demonstrations_say_where_their_reason_is_from(demo_plan: Plan) -> None:
    rows = {"movies5": read_parquet(paths.prepared_dataset("movies5", demo_plan.dataset_digests["movies5"]))}
    overrides = ["experiment.chain_of_thought.seeds=[0,5]", "experiment.chain_of_thought.rows.test=2"]
    plan = expand(_study(*overrides))
    cells = _cells(plan, "chain_of_thought")
    made = build_requests(plan, cells, rows)
    shown = made.demonstrations.set_index("cell")["reason"].to_dict()
    by_seed = {(cell.seed, cell.decoding): shown[cell.id] for cell in cells}
    assert by_seed == {(0, "scores"): "", (0, "sampled"): "sentence", (5, "scores"): "", (5, "sampled"): "template"}
    asked = [request for request in made.requests.values() if request.located]
    assert len(asked) == 4
    assert {request.generation for request in asked} == {Generation(31, 1.0, 1.0)}
    sentence = plan.study.experiment["chain_of_thought"].reasoning.sentences["movies5"]["8853"]  # type: ignore[union-attr]
    assert sum(sentence in request.prompt.text for request in asked) == 2


# --- metrics ---

LABELS = [0, 0, 1, 1, 2, 3, 4, 4]


def _peak(chosen: int) -> np.ndarray:
    scores = np.full(5, np.log(0.01), dtype=np.float32)
    scores[chosen] = np.log(0.4)
    return scores


def _answer(cell: Cell, plain: int, written: int, after: int, text_only: bool) -> dict[str, Any]:
    words = ["terrible", "bad", "okay", "good", "great"]
    row: dict[str, Any] = {"logprobs": None, "label_mass": np.nan, "greedy": -1, "text": None, "n_tokens": None,
                           "n_hidden_tokens": None, "logprobs_after": None, "matched": None}  # fmt: skip
    if cell.decoding == "scores":
        return {**row, "logprobs": _peak(plain), "greedy": plain}
    found = f"maybe okay, then {words[written]}" if written >= 0 else "nothing"
    row |= {"text": found if cell.decoding == "sampled" else found.removeprefix("maybe okay, then "), "n_tokens": 5,
            "n_hidden_tokens": 0}  # fmt: skip
    if cell.decoding == "sampled" and not text_only:
        row |= {"logprobs": _peak(max(written, 0)), "logprobs_after": _peak(after), "matched": written >= 0}
    return row


def _plant(plan: Plan, plain: list[int], written: list[int], after: list[int], text_only: bool = False) -> None:
    for batch in plan.batches:
        index, responses, shown = [], [], []
        for cell in (plan.cell_by_id[name] for name in batch.cells):
            reason = "template" if cell.decoding == "sampled" else ""
            shown.append((cell.id, 0, "d0", 1, reason))
            for k, label in enumerate(LABELS):
                request = f"{cell.id}-{k}"
                index.append((cell.id, f"row{k}", label, 0, request))
                responses.append({"request": request, **_answer(cell, plain[k], written[k], after[k], text_only)})
        folder = paths.batch_dir(batch.model, batch.id)
        types = {"text": "string", "n_tokens": "Int32", "n_hidden_tokens": "Int32", "matched": "boolean"}
        frame = pd.DataFrame(responses)
        write_parquet(folder / "responses.parquet", frame.astype(types))
        write_parquet(folder / "regrouped.parquet", frame.astype(types).iloc[:0])
        write_parquet(
            folder / "index.parquet", pd.DataFrame(index, columns=["cell", "row", "label", "part", "request"])
        )
        write_parquet(
            folder / "demonstrations.parquet",
            pd.DataFrame(shown, columns=["cell", "rank", "row", "label", "reason"]),
        )


PLAIN = [0, 0, 1, 0, 2, 3, 4, 4]  # one wrong
WRITTEN = [0, -1, 1, 1, 3, 3, -1, 4]  # five right; the unmatched are scored as class 0: row 1 is then right
AFTER = [1, 1, 1, 1, 1, 1, 1, 1]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(experiment: str, text_only: bool = False) -> pd.DataFrame:
        monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
        monkeypatch.chdir(tmp_path)
        plan = expand(_study())
        _plant(plan, PLAIN, WRITTEN, AFTER, text_only)
        for name in ("chain_of_thought", "answer_token"):
            measure(plan, name, MODEL, "movies5")
        collect(plan, "written")
        rows = read_parquet(paths.metrics("written", "written"))
        return rows[rows["experiment"] == experiment]

    return run


def _values(rows: pd.DataFrame, metric: str) -> dict[str, float]:
    return rows[rows["metric"] == metric].set_index("condition")["value"].to_dict()


def test_both_readings_are_measured_against_the_plain_prompt_on_the_same_rows(measured: Any) -> None:
    rows = measured("chain_of_thought")
    thought, off = "chain_of_thought", "chain_of_thought_off_by_one"
    assert _values(rows, "accuracy") == {"base": 7 / 8, thought: 6 / 8, off: 2 / 8}
    assert _values(rows, "accuracy_difference") == {thought: -1 / 8, off: -5 / 8}
    assert _values(rows, "label_match_rate") == {thought: 6 / 8, off: 6 / 8}
    # Class accuracies: plain 1, 1/2, 1, 1, 1; off by one 0, 1, 0, 0, 0; COBias is the mean over ten pairs.
    cobias = _values(rows, "cobias")
    assert cobias["base"] == pytest.approx(4 * 0.5 / 10)
    assert cobias[off] == pytest.approx(4 / 10)
    change = rows[(rows["metric"] == "cobias_difference") & (rows["condition"] == off)].iloc[0]
    assert change["value"] == pytest.approx(0.2)
    assert change["low"] <= change["value"] <= change["high"]
    assert set(_values(rows, "cobias_floor")) == {"base", thought, off}
    template = rows[rows["metric"] == "template_reasons"].iloc[0]
    assert (template["value"], template["n"]) == (1, 1)
    assert set(rows["method"]) == {"icl"}
    assert set(rows["provenance"]) == {"synthetic"}


def test_written_labels_are_counted_with_a_column_for_none(measured: Any) -> None:
    rows = measured("answer_token")
    assert _values(rows, "accuracy") == {"base": 7 / 8, "answer_token": 5 / 8}
    assert _values(rows, "parse_failure_rate") == {"answer_token": 2 / 8}
    counts = rows[(rows["metric"] == "count") & (rows["condition"] == "answer_token")]
    matrix = counts.pivot_table(index="class", columns="pred_class", values="value")
    assert matrix["no label"].to_dict() == {
        "very negative": 1, "negative": 0, "neutral": 0, "positive": 0, "very positive": 1,
    }  # fmt: skip
    assert matrix.to_numpy().sum() == len(LABELS)
    assert "no label" not in set(rows[rows["condition"] == "base"]["pred_class"])


def test_texts_without_tokens_are_read_by_their_last_label(measured: Any) -> None:
    rows = measured("chain_of_thought", text_only=True)
    assert _values(rows, "accuracy") == {"base": 7 / 8, "chain_of_thought": 5 / 8}  # okay comes first, and is not read
    assert _values(rows, "label_match_rate") == {"chain_of_thought": 6 / 8}
    note = rows[(rows["metric"] == "accuracy") & (rows["condition"] == "chain_of_thought")]["note"].item()
    assert "last label of the text" in note


def test_nothing_of_it_is_among_the_metrics_of_class_accuracy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    monkeypatch.chdir(tmp_path)
    collect(expand(_study()), "class_accuracy")
    assert read_parquet(paths.metrics("written", "class_accuracy")).empty
