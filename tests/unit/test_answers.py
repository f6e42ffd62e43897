"""Answers cut back into cells: label positions become classes, parts come back in order, texts are parsed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from poise import paths
from poise.answers import class_probabilities, read_answers, read_choices, read_demonstrations
from poise.cells import Cell
from poise.config.compose import compose_study
from poise.errors import PoiseError
from poise.plan import Plan, expand
from poise.prompts.scale import label_position
from tests.conftest import ROOT
from tests.unit.planted_answers import plant


def test_probabilities_are_normalised_over_the_labels() -> None:
    found = class_probabilities(np.log(np.array([[0.2, 0.2, 0.1]], dtype=np.float32)), [0, 1, 2])
    np.testing.assert_allclose(found, [[0.4, 0.4, 0.2]], rtol=1e-6)
    assert found.dtype == np.float32


def test_a_reversed_mapping_puts_the_last_label_into_the_first_class() -> None:
    columns = [label_position(c, 3, "reversed") for c in range(3)]
    found = class_probabilities(np.log(np.array([[0.7, 0.2, 0.1]])), columns)
    np.testing.assert_allclose(found, [[0.1, 0.2, 0.7]], rtol=1e-6)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan whose batches lie in an empty folder: one setting under both label orders, and paradigms."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    overrides = [
        "study=demo", "name=answers", "dataset=[tweets3]", "seeds=[0]", "method=[icl]", "experiment=[position]",
        "factor=[demo_count,inference_paradigm]", "experiment.position.factors=[inference_paradigm]",
        "experiment.position.probes=[label_order]", "experiment.position.shots=[2_per_class]",
        "experiment.position.methods=[]", "experiment.position.content_free=[]", "experiment.position.rows.test=3",
        "experiment.position.floor_rows=2", "experiment.position.stochastic={temperature:0.7,top_p:1.0}",
    ]  # fmt: skip
    return expand(compose_study(overrides))


def _cell(plan: Plan, level: str = "", decoding: str = "scores", order: str = "natural", replicate: int = 0) -> Cell:
    wanted = (level, decoding, order, replicate)
    (found,) = (
        cell for cell in plan.cells if (cell.level, cell.decoding, cell.label_order, cell.replicate) == wanted
    )  # fmt: skip
    return found


def _choose(cell: Cell) -> list[list[int]]:
    return [[(row + part) % 2 for part in range(cell.parts)] for row in range(3)]


def test_scores_come_back_in_class_order_with_what_greedy_decoding_writes(plan: Plan) -> None:
    plant(
        plan, [0, 1, 2], lambda cell: [[k] + [0] * (cell.parts - 1) for k in range(3)], greedy={1: -1}, regrouped={0: 1}
    )
    for order, expected in (("natural", [0, 1, 2]), ("reversed", [2, 1, 0])):
        cell = _cell(plan, order=order)
        answers = read_answers(plan, [cell])[cell.id]
        assert answers.rows.tolist() == ["row0", "row1", "row2"]
        assert answers.labels.tolist() == [0, 1, 2]
        assert answers.predictions.tolist() == expected
        assert answers.greedy.tolist() == [expected[0], -1, expected[2]]
        np.testing.assert_allclose(answers.probabilities.max(axis=1), 0.8, rtol=1e-5)
        np.testing.assert_allclose(answers.label_mass, 0.5)
    base = read_answers(plan, [_cell(plan)])[_cell(plan).id]
    assert base.regrouped[0].argmax() == 1  # asked again with another answer
    assert np.isnan(base.regrouped[1:]).all()


@pytest.mark.parametrize(("order", "expected"), [("natural", [0, -1, 1]), ("reversed", [2, -1, 1])])
def test_one_row_without_scores_makes_labels_of_a_whole_cell(plan: Plan, order: str, expected: list[int]) -> None:
    """The labels written are 0, none and 1 by position: under the reversed order, classes 2, none and 1."""
    greedy, others = {1: -1, 2: 1}, {"natural": "reversed", "reversed": "natural"}
    plant(
        plan, [0, 1, 2], lambda cell: [[k] + [0] * (cell.parts - 1) for k in range(3)], greedy=greedy, regrouped=greedy
    )
    cell, other = _cell(plan, order=order), _cell(plan, order=others[order])
    path = paths.batch_dir(cell.model, plan.batch_of[cell.id].id) / "responses.parquet"
    responses = pd.read_parquet(path)
    assert not read_answers(plan, [cell])[cell.id].hard
    responses.loc[responses["request"] == f"{cell.id}-0-0", "logprobs"] = None
    responses.to_parquet(path)
    answers = read_answers(plan, [cell])[cell.id]
    assert answers.hard
    assert answers.predictions.tolist() == answers.greedy.tolist() == expected
    certain = [[float(k == c) for c in range(3)] for k in expected]
    np.testing.assert_allclose(answers.probabilities, [certain[0], [1 / 3] * 3, certain[2]], rtol=1e-6)
    assert np.isnan(answers.regrouped).all()
    assert read_choices(plan, [cell])[cell.id].choices.tolist() == [[0], [-1], [1]]
    assert not read_answers(plan, [other])[other.id].hard  # other cells of the batch keep their scores


def test_texts_are_read_as_hard_predictions(plan: Plan) -> None:
    plant(plan, [0, 1, 2], lambda cell: [[2], [-1], [0]] if cell.decoding != "scores" else _choose(cell))
    cell = _cell(plan, decoding="sampled", order="reversed")
    answers = read_answers(plan, [cell])[cell.id]
    assert answers.hard
    assert answers.predictions.tolist() == [0, -1, 2]
    np.testing.assert_allclose(answers.probabilities, [[1, 0, 0], [1 / 3] * 3, [0, 0, 1]], rtol=1e-6)
    assert np.isnan(answers.label_mass).all()


def test_a_tie_goes_to_the_lowest_class_under_either_order() -> None:
    even = np.log(np.full((1, 3), 1 / 3))
    for order in ("natural", "reversed"):
        columns = [label_position(c, 3, order) for c in range(3)]
        assert class_probabilities(even, columns).argmax(axis=1).tolist() == [0]


@pytest.mark.parametrize(("level", "n_parts"), [("pairwise", 12), ("listwise", 2), ("listwise_compare", 2)])
def test_choices_come_back_part_by_part_as_positions(plan: Plan, level: str, n_parts: int) -> None:
    plant(plan, [2, 0, 1], _choose, demonstrations=[0, 0, 1, 1, 2, 2])
    for order in ("natural", "reversed"):
        cell = _cell(plan, level, order=order)
        choices = read_choices(plan, [cell])[cell.id]
        assert choices.choices.tolist() == [[(row + part) % 2 for part in range(n_parts)] for row in range(3)]
        assert choices.labels.tolist() == [2, 0, 1]
        assert choices.rows.tolist() == ["row0", "row1", "row2"]
        assert np.isnan(choices.hidden_tokens).all()
        assert read_demonstrations(plan, [cell])[cell.id] == [0, 0, 1, 1, 2, 2]


def test_texts_are_parsed_and_their_tokens_counted(plan: Plan) -> None:
    plant(
        plan,
        [0, 1, 2],
        lambda cell: [[2], [-1], [0]] if cell.decoding != "scores" else _choose(cell),
        tokens={"greedy": (9, 6), "sampled": (4, 0)},
    )
    for cell, hidden, visible in (
        (_cell(plan, decoding="greedy"), 6, 3),
        (_cell(plan, decoding="sampled", replicate=1), 0, 4),
        (_cell(plan, decoding="sampled", order="reversed"), 0, 4),
    ):
        choices = read_choices(plan, [cell])[cell.id]
        assert choices.choices.tolist() == choices.greedy.tolist() == [[2], [-1], [0]]
        assert set(choices.hidden_tokens) == {hidden}
        assert set(choices.visible_tokens) == {visible}


def test_a_cell_without_demonstrations_has_none(plan: Plan) -> None:
    plant(plan, [0, 1, 2], _choose)
    assert read_demonstrations(plan, [_cell(plan)]) == {_cell(plan).id: []}


def test_an_incomplete_batch_is_one_clear_line(plan: Plan) -> None:
    plant(plan, [0, 1, 2], _choose)
    batch = plan.batch_of[_cell(plan).id]
    path = paths.batch_dir(batch.model, batch.id) / "responses.parquet"
    pd.read_parquet(path).iloc[1:].to_parquet(path)
    with pytest.raises(PoiseError, match="1 requests have no response; delete the folder and run again"):
        read_choices(plan, [_cell(plan)])


def test_a_batch_without_the_cell_is_one_clear_line(plan: Plan) -> None:
    plant(plan, [0, 1, 2], _choose)
    cell = _cell(plan)
    batch = plan.batch_of[cell.id]
    path = paths.batch_dir(batch.model, batch.id) / "index.parquet"
    index = pd.read_parquet(path)
    index[index["cell"] != cell.id].to_parquet(path)
    with pytest.raises(PoiseError, match=f"no rows of cell {cell.id}"):
        read_answers(plan, [cell])
