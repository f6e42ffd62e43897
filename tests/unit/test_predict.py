"""Classifying new texts: prompts of the study, weights from a file or the study, errors. The dummy engine answers."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from poise import paths
from poise.answers import read_answers
from poise.cli import main
from poise.engines.dummy import DummyEngine
from poise.errors import PoiseError
from poise.files import read_parquet
from poise.planfile import make_plan
from poise.stages import correct
from poise.stages.extract import extract
from poise.stages.predict import Texts, find_cell, predict, read_texts
from tests.conftest import ROOT

MODEL, DATASET = "smollm2-135m-instruct", "movies5"
SMALL = [
    "experiment=[class_accuracy]", "experiment.class_accuracy.datasets=[movies5]", "seeds=[0,1]", "method=[icl,dnip]",
    "experiment.class_accuracy.rows={optimisation: 60, test: 20}",
]  # fmt: skip
DUMMY = ["engine=dummy", "engine.class_bias=[0, 0, 0, 0, 1.5]"]
TEXTS = 'id,text\na,"A good, good film."\nb,"Dull, and bad."\nc,"A good, good film."\n'


@pytest.fixture
def folder(demo_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "texts.csv").write_text(TEXTS)
    return tmp_path


def _run(*arguments: str, study: str = "demo") -> Any:
    return CliRunner().invoke(
        main, ["predict", "--study", study, "--model", MODEL, "--dataset", DATASET, *arguments]
    )  # fmt: skip


def _table(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text[text.index("id,") :]), dtype={"id": str})


@pytest.mark.parametrize("name", ["texts.tsv", "texts.jsonl", "texts.parquet", "texts.csv.gz"])
def test_formats_are_read_alike(folder: Path, name: str) -> None:
    rows = pd.read_csv("texts.csv")
    writers = {
        "texts.tsv": lambda: rows.to_csv(name, sep="\t", index=False),
        "texts.jsonl": lambda: rows.to_json(name, orient="records", lines=True),
        "texts.parquet": lambda: rows.to_parquet(name),
        "texts.csv.gz": lambda: rows.to_csv(name, index=False),
    }
    writers[name]()
    expected = read_texts(Path("texts.csv"), "text")
    found = read_texts(Path(name), "text")
    assert (found.ids, found.texts) == (expected.ids, expected.texts) == (("a", "b", "c"), tuple(rows["text"]))


def test_without_ids_rows_are_numbered(folder: Path) -> None:
    Path("plain.csv").write_text("review\nGood.\nBad.\n")
    assert read_texts(Path("plain.csv"), "review") == Texts("plain.csv", ("1", "2"), ("Good.", "Bad."))


def test_a_run_that_is_stopped_goes_on_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = "id,text\n" + "".join(f"{k},Review number {k} of many.\n" for k in range(200))
    (folder / "many.csv").write_text(many)
    arguments = ["many.csv", *SMALL, *DUMMY, "engine.flush_seconds=1e-9"]
    whole = _run(*arguments, "-o", "whole.csv")
    assert whole.exit_code == 0, whole.output
    asked: list[int] = []
    answer = DummyEngine.score

    def stops_after_two(self: DummyEngine, queries: Any, batch: Any) -> Any:
        if len(asked) == 2:
            raise PoiseError("stopped")
        asked.append(len(batch.members))
        return answer(self, queries, batch)

    monkeypatch.setattr(DummyEngine, "score", stops_after_two)
    assert _run(*arguments, "-o", "cut.csv").exit_code == 2
    assert not (folder / "cut.csv").exists()

    def counts(self: DummyEngine, queries: Any, batch: Any) -> Any:
        asked.append(len(batch.members))
        return answer(self, queries, batch)

    monkeypatch.setattr(DummyEngine, "score", counts)
    done = _run(*arguments, "-o", "cut.csv")
    assert done.exit_code == 0, done.output
    assert sum(asked) == 200  # nothing was asked twice
    assert (folder / "cut.csv").read_bytes() == (folder / "whole.csv").read_bytes()
    assert not list((folder / "results" / "predict").glob("*"))


def test_a_table_with_a_probability_for_each_class(folder: Path) -> None:
    done = _run("texts.csv", *SMALL, *DUMMY, "-o", "out.csv")
    assert done.exit_code == 0, done.output
    found = _table((folder / "out.csv").read_text())
    classes = make_plan(["study=demo"]).study.datasets[DATASET].classes
    assert list(found) == ["id", "prediction", *classes]
    assert found["id"].tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(found[classes].sum(axis=1), 1, atol=1e-5)
    assert found["prediction"].tolist() == found[classes].idxmax(axis=1).tolist()
    assert found.loc[0, classes].tolist() == found.loc[2, classes].tolist()  # equal texts
    record = json.loads((folder / "out.json").read_text())
    assert (record["provenance"], record["model"], record["weights"]) == ("synthetic", MODEL, None)
    assert not list((folder / "results" / "predict").glob("*"))


def test_prompts_are_those_of_the_studys_test_rows(folder: Path) -> None:
    """A test row's text, asked anew, gets the probabilities that the extraction gave it, for each seed."""
    plan = make_plan(["study=demo", *SMALL, *DUMMY])
    for batch in plan.batches:
        extract(plan, batch.id)
    rows = read_parquet(paths.prepared_dataset(DATASET, plan.dataset_digests[DATASET])).set_index("id")
    for seed in (0, 1):
        cell = find_cell(plan, MODEL, DATASET, "class_accuracy", None, seed)
        answers = read_answers(plan, [cell])[cell.id]
        texts = Texts("t", tuple(answers.rows), tuple(rows.loc[answers.rows, "text"]))
        found = predict(plan, cell, texts).table
        np.testing.assert_array_equal(found.iloc[:, 2:].to_numpy(dtype=np.float32), answers.probabilities)


def test_the_studys_own_weights(folder: Path) -> None:
    plan = make_plan(["study=demo", "name=fitted", *SMALL, *DUMMY])
    for batch in plan.batches:
        extract(plan, batch.id)
    correct.correct(plan, "class_accuracy", MODEL, DATASET, "dnip")
    done = _run("texts.csv", "name=fitted", *SMALL, *DUMMY, "--method", "dnip", "--seed", "1")
    assert done.exit_code == 0, done.output
    found = _table(done.output)
    fits = json.loads(
        paths.predictions("fitted", "class_accuracy", MODEL, DATASET, "dnip").with_suffix(".json").read_text()
    )
    weights = next(fit["weights"] for fit in fits if fit["seed"] == 1)
    weighted = found.iloc[:, 2:7].to_numpy() * weights
    assert found["corrected"].tolist() == [found.columns[2 + k] for k in weighted.argmax(axis=1)]


def test_weights_of_a_file(folder: Path) -> None:
    classes = make_plan(["study=demo"]).study.datasets[DATASET].classes
    weights = {"classes": classes[::-1], "weights": [1e-6, 1e-6, 1e-6, 1e-6, 1.0]}  # in another order: the first wins
    (folder / "w.json").write_text(json.dumps(weights))
    done = _run("texts.csv", *SMALL, *DUMMY, "--weights", "w.json")
    assert done.exit_code == 0, done.output
    assert set(_table(done.output)["corrected"]) == {classes[0]}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["texts.csv", "--column", "words"], "texts.csv: no column 'words', found 'id', 'text'; name it with --column"),
        (["empty.csv"], "empty.csv: row 2, column 'text': the text is empty"),
        (["none.csv"], "none.csv: file not found"),
        (["texts.csv", "--seed", "9"], "--seed 9: not in study demo"),
        (["texts.csv", "--shots", "4_shot"], "--shots 4_shot: not in study demo"),
        (["texts.csv", "--method", "dnip"], "has no fit of it at results/demo"),
        (["texts.csv", "--method", "dnip", "--weights", "w.json"], "--weights and --method: give one of them"),
        (["texts.csv", "--weights", "w.json"], "w.json: weights for the classes 'x', 'y', expected those of movies5"),
        (["texts.csv", "--weights", "w.json", "-o", "w.csv"], "w.json: the output is one of the inputs"),
        (["texts.csv", "-o", "out.txt"], "out.txt: unknown format '.txt'"),
        (["none.jsonl"], "none.jsonl: file not found"),
        (["texts.csv", "engine=dummy", "--model", "other"], "--model other: not in study demo"),
    ],
)
def test_mistakes_are_one_line(folder: Path, arguments: list[str], line: str) -> None:
    (folder / "w.json").write_text('{"classes": ["x", "y"], "weights": [1, 1]}')
    (folder / "empty.csv").write_text("text\nfine\n\n  \nfine\n".replace("\n\n", "\n"))
    done = _run(*arguments)
    assert done.exit_code == 2
    assert line in done.output
    assert done.output.count("\n") == 1


def test_what_is_not_prepared_is_told_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(ROOT / "conf"))
    (tmp_path / "texts.csv").write_text(TEXTS)
    done = _run("texts.csv")
    assert done.exit_code == 2
    assert "not prepared yet; run snakemake --cores 1 data/prepared/movies5" in done.output
    assert "poise.json --config study=demo" in done.output  # the model's folder
    other = _run("texts.csv", "name=other", "seeds=[7]").output  # a study that only a plan can tell of
    assert "run poise plan --quiet study=demo name=other 'seeds=[7]' && snakemake" in other
    dummy = _run("texts.csv", "engine=dummy").output
    assert "data/models" not in dummy  # no weights are read


def test_the_pages_commands(folder: Path) -> None:
    """Each command of docs/predict.md about its own texts, answered by the dummy engine."""
    page = (ROOT / "docs" / "predict.md").read_text()
    _write_page_texts(page)
    commands = [shlex.split(line) for line in page.splitlines() if line.startswith("poise predict")]
    assert len(commands) == 4
    plain = commands[0][1:]
    done = CliRunner().invoke(main, [*plain, "engine=dummy"])
    assert done.exit_code == 0, done.output
    assert _table((folder / "predictions.csv").read_text())["id"].tolist() == ["a", "b"]
    for command in commands[1:]:  # their options are known; what they need is not here
        done = CliRunner().invoke(main, [*command[1:], "--seed", "99"])
        assert done.exit_code == 2
        assert re.match(r"poise: error: (--seed 99: not in study|study 'mine')", done.output)


def _write_page_texts(page: str) -> None:
    rows = re.findall(r"^\| ([ab]) \| ([^|]+) \|$", page, re.MULTILINE)
    pd.DataFrame(rows, columns=["id", "text"]).to_csv("texts.csv", index=False)


def _printed(page: str) -> pd.DataFrame:
    """The page's predictions."""
    block = re.search(r"```text\n(id,prediction.*?)```", page, re.DOTALL)
    assert block is not None
    return _table(block[1])


@pytest.mark.slow
def test_the_real_model_answers_as_in_an_extraction(folder: Path) -> None:
    """The page's example on SmolLM2; a test row's probabilities within 1e-6 of the study's."""
    plan = make_plan(["study=demo", *SMALL, "seeds=[0]", "experiment.class_accuracy.rows={optimisation: 5, test: 4}"])
    for batch in plan.batches:
        extract(plan, batch.id)
    cell = find_cell(plan, MODEL, DATASET, "class_accuracy", None, 0)
    answers = read_answers(plan, [cell])[cell.id]
    rows = read_parquet(paths.prepared_dataset(DATASET, plan.dataset_digests[DATASET])).set_index("id")
    found = predict(plan, cell, Texts("t", tuple(answers.rows), tuple(rows.loc[answers.rows, "text"]))).table
    np.testing.assert_allclose(found.iloc[:, 2:].to_numpy(dtype=float), answers.probabilities, atol=1e-6)
    page = (ROOT / "docs" / "predict.md").read_text()
    _write_page_texts(page)
    done = _run("texts.csv", "-o", "predictions.csv")
    assert done.exit_code == 0, done.output
    assert "measured" in done.output
    printed, measured = _printed(page), _table((folder / "predictions.csv").read_text())
    assert measured["prediction"].tolist() == printed["prediction"].tolist()
    np.testing.assert_allclose(measured.iloc[:, 2:], printed.iloc[:, 2:], atol=1e-3)  # printed with four decimals
