"""What the cells of a batch ask: demonstrations in the order and the place of their condition, equal requests once."""

from __future__ import annotations

import random
from dataclasses import replace

import pandas as pd
import pytest

from poise.config.compose import compose_study
from poise.plan import Plan, expand
from poise.prompts.requests import RequestList, build_requests

LABELS = [3, 0, 4, 1, 2, 0, 3, 2, 1, 4]  # of the training rows t0 to t9, two of each class
SEED = 7
SHOWN = {  # by the cell's order, in the table's order within a class
    "base": ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9"],
    "ascending": ["t1", "t5", "t3", "t8", "t4", "t7", "t0", "t6", "t2", "t9"],
    "descending": ["t2", "t9", "t0", "t6", "t4", "t7", "t3", "t8", "t1", "t5"],
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    overrides = [
        "study=demo", "name=asked", "dataset=[movies5]", "method=[icl]", "factor=[]", "experiment=[position]",
        f"seeds=[{SEED}]", "experiment.position.datasets=[movies5]", "experiment.position.shots=[2_per_class]",
        "experiment.position.methods=[]", "experiment.position.content_free=[]", "experiment.position.floor_rows=1",
    ]  # fmt: skip
    return expand(compose_study(overrides))


@pytest.fixture(scope="module")
def rows() -> dict[str, pd.DataFrame]:
    train = pd.DataFrame({"table": "train", "id": [f"t{n}" for n in range(10)], "label": LABELS})
    test = pd.DataFrame({"table": "test", "id": ["u0", "u1", "u2"], "label": [4, 0, 2]})
    both = pd.concat([train, test], ignore_index=True)
    return {"movies5": both.assign(text="Text of " + both["id"] + ".")}


@pytest.fixture(scope="module")
def made(plan: Plan, rows: dict[str, pd.DataFrame]) -> RequestList:
    return build_requests(plan, plan.cells, rows)


def _shown(order: str) -> list[str]:
    if order != "random":
        return SHOWN[order]
    shuffled = SHOWN["base"].copy()
    random.Random(SEED).shuffle(shuffled)
    return shuffled


def test_demonstrations_stand_in_the_order_of_their_condition(plan: Plan, made: RequestList) -> None:
    table = made.demonstrations.groupby("cell")
    orders = {cell.demonstration_order for cell in plan.cells}
    assert orders == {"base", "ascending", "descending", "random"}
    for cell in plan.cells:
        shown = table.get_group(cell.id).sort_values("rank")
        assert list(shown["row"]) == _shown(cell.demonstration_order), cell.condition
        assert list(shown["label"]) == [LABELS[int(row[1:])] for row in shown["row"]]


def test_prompts_show_them_so_before_or_after_the_text_asked_about(plan: Plan, made: RequestList) -> None:
    asked = made.index.set_index(["cell", "row"])["request"]
    for cell in plan.cells:
        text = made.requests[asked[cell.id, "u1"]].prompt.text
        places = {row: text.index(f"Text of {row}.") for row in [*SHOWN["base"], "u1"]}
        before, after = {"before": (10, 0), "after": (0, 10), "split": (5, 5)}[cell.placement]
        shown = _shown(cell.demonstration_order)
        assert sorted(places, key=places.__getitem__) == [*shown[:before], "u1", *shown[10 - after :]], cell.condition


def test_every_row_of_a_cell_has_a_request_and_those_for_the_floor_are_asked_again(
    plan: Plan, made: RequestList
) -> None:
    assert made.index.groupby("cell", sort=False)["row"].apply(set).to_dict() == {
        cell.id: {"u0", "u1", "u2"} for cell in plan.cells
    }
    assert dict(zip(made.index["row"], made.index["label"], strict=True)) == {"u0": 4, "u1": 0, "u2": 2}
    assert len(made.requests) == 3 * len(plan.cells)  # no two conditions ask the same
    (base,) = (cell for cell in plan.cells if cell.condition == "base")
    assert list(made.regrouped) == list(made.index[made.index["cell"] == base.id]["request"][:1])  # its floor_rows


def test_equal_requests_of_two_cells_are_kept_once(plan: Plan, rows: dict[str, pd.DataFrame]) -> None:
    cell = plan.cells[0]
    made = build_requests(plan, [cell, replace(cell, id="fewer", rows=2)], rows)
    assert len(made.requests) == 3
    of_cell = made.index.groupby("cell")["request"].apply(set)
    assert of_cell["fewer"] < of_cell[cell.id] == set(made.requests)
