"""``study=dnip`` is the first paper's grid: its models, data sets, shots, seeds, draws, prompts and conventions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from poise.artefacts.registry import ARTEFACTS
from poise.config.compose import compose_study
from poise.config.schema import Study
from poise.plan import Plan, expand
from poise.prompts.render import Renderer

CONF = Path(__file__).parents[2] / "conf"
MODELS = ["gpt2-xl", "gemma-2-2b", "llama-2-7b", "llama-2-13b", "llama-2-70b"]
# Data set, number of classes, test rows drawn (None: the whole split)
DATASETS = {
    "agnews": (4, 5000), "dbpedia": (14, 5000), "sst5": (5, None), "trec": (6, None), "rte": (2, None),
    "ddi": (5, None), "pubmedqa": (3, None),
}  # fmt: skip
SPLITS = ["test", "optimisation", "content_free"]
SEEDS = [0, 1, 2]


@pytest.fixture(scope="module")
def plan() -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POISE_CONF", str(CONF))
        study = compose_study(["study=dnip"])
    return expand(study, content=dict.fromkeys(study.datasets, "0"))  # whatever the files hold


@pytest.fixture(scope="module")
def study(plan: Plan) -> Study:
    return plan.study


def test_the_grid_is_the_papers(plan: Plan) -> None:
    grid = Counter((c.experiment, c.model, c.dataset, c.shots, c.seed, c.split) for c in plan.cells)
    one_shot = {
        ("class_accuracy", model, dataset, "1_shot", seed, split)
        for model in MODELS for dataset in DATASETS for seed in SEEDS for split in SPLITS
    }  # fmt: skip
    more = {
        ("more_shots", "llama-2-13b", dataset, shots, seed, split)
        for dataset in DATASETS for shots in ("5_shot", "k_shot") for seed in SEEDS for split in SPLITS[:2]
    }  # fmt: skip
    written = {  # the plain prompt and the written answer
        *(("chain_of_thought", "gemma-2-2b", name, "1_shot", seed, "test") for name in DATASETS for seed in SEEDS),
        ("answer_token", "llama-2-13b", "ddi", "1_shot", 0, "test"),
    }  # fmt: skip
    assert set(grid) == one_shot | more | written
    assert {key: n for key, n in grid.items() if n > 1} == dict.fromkeys(written, 2)
    plain = 7 * 3  # chain of thought's plain prompts are those of class_accuracy
    assert len(plan.cells) == 5 * 7 * 3 * 3 + 7 * 2 * 3 * 2 + 2 * len(written)
    assert len({cell.id for cell in plan.cells}) == len(plan.cells) - plain


def test_written_answers_are_the_papers(plan: Plan, study: Study) -> None:
    thinking = study.experiment["chain_of_thought"].reasoning
    assert thinking is not None
    assert (thinking.max_new_tokens, thinking.temperature, thinking.top_p) == (31, 1.0, 1.0)
    assert {cell.decoding for cell in plan.cells if cell.experiment == "answer_token"} == {"scores", "greedy"}
    assert plan.prompts["answer_token/ddi"].name == "ddi_answer_token"
    assert plan.prompts["class_accuracy/ddi"].name == "ddi"


def test_draws_are_the_papers(plan: Plan, study: Study) -> None:
    assert {cell.split_mode for cell in plan.cells} == {"paper"}
    assert {cell.rows for cell in plan.cells if cell.split != "content_free"} == {None}
    assert {cell.condition for cell in plan.cells} == {"base"}
    for name, (n_classes, n_test) in DATASETS.items():
        dataset = study.datasets[name]
        assert len(dataset.classes) == n_classes
        assert dataset.test_rows == n_test
        assert dataset.on_duplicate_text == "keep"  # row numbers of the draws are the file's
        assert dataset.train_rows == (10_000 if name in ("agnews", "dbpedia", "ddi") else None)
    assert study.datasets["agnews"].test_draw == "first"


def test_one_batch_for_each_model_and_data_set(plan: Plan) -> None:
    members = [[plan.cell_by_id[name] for name in batch.cells] for batch in plan.batches]
    scored = [cells for cells in members if cells[0].decoding == "scores" and cells[0].experiment != "answer_token"]
    held = [{(cell.model, cell.dataset) for cell in cells} for cells in scored]
    assert all(len(pairs) == 1 for pairs in held)
    assert len(held) == 5 * 7 + 7  # Llama-2-13B: 1-shot apart from more shots
    assert len(members) == len(held) + 5  # written answers: four batches of chains of thought, one of answer tokens


@pytest.mark.parametrize("model", MODELS)
def test_label_tokens_are_the_authors(study: Study, model: str) -> None:
    config = study.models[model]
    assert not config.chat
    assert config.label_tokens.prefix_space is (model != "gemma-2-2b")
    assert config.label_tokens.scoring == ("first" if model == "gpt2-xl" else "mean")
    request = Renderer(
        study.datasets["agnews"].prompt, study.datasets["agnews"], [("A demonstration.", 2)], config.label_tokens
    ).requests("A query.")[0]
    assert request.prompt.text == (
        "Please classify the news articles into the categories of World, Sports, Business, and Technology.\n\n"
        "Article: A demonstration.\nAnswer: Business\n\n====\n\nArticle: A query.\nAnswer:"
    )
    space = "" if model == "gemma-2-2b" else " "
    assert request.labels == tuple(space + word for word in ("World", "Sports", "Business", "Technology"))


def test_every_table_and_figure_of_the_paper_is_wanted(study: Study) -> None:
    wanted = [*(f"dnip_table{k}" for k in range(1, 17)), *(f"dnip_figure{k}" for k in range(1, 9)), "dnip_methods"]
    assert sorted(study.artefacts) == sorted(wanted)
    assert set(wanted) == {name for name in ARTEFACTS if name.startswith("dnip_")}


def test_methods_are_the_papers(plan: Plan, study: Study) -> None:
    methods = study.methods.values()
    dnip = [method for method in methods if method.kind == "dnip"]
    assert {(m.beta, m.tau, m.n_levels, m.mu, m.random_state) for m in dnip} == {(2.7, 0.2, 30, "paper", 1)}
    assert {"icl", "batch_calibration", "linear_adapter"} <= {method.kind for method in methods}
    assert {m.objective for m in dnip} == {"cobias", "cobias_single", "odd_rate"}
    assert {m.solver for m in dnip} == {"heat_bath", "metropolis", "exact"}
    assert {m.rows for m in dnip} == {None, 10, 100, 500, 1000}  # Table 16; its 0 is icl
    assert len({tuple(m.terms) for m in dnip}) == 7  # Figure 3
    assert study.methods_of(study.experiment["class_accuracy"]) == list(study.methods)
    assert study.experiment["more_shots"].methods == ["icl", "dnip"]
    assert len(plan.corrections) == 5 * 7 * len(study.methods) + 7 * 2


def test_the_second_ddi_prompt_asks_after_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POISE_CONF", str(CONF))
    study = compose_study(["study=dnip", "prompt@dataset.ddi.prompt=ddi_answer_token"])
    prompt = study.datasets["ddi"].prompt
    assert prompt.kind == "icl"
    assert prompt.reconstructed
    assert len(prompt.label_words) == 5
