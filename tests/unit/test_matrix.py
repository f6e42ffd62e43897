"""Matrices of probabilities: files, `poise fit`, `apply` and `audit`, and every mistake in one line."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from poise import matrix
from poise.cli import main
from poise.cli import matrix as cli_matrix
from poise.errors import PoiseError
from poise.methods import DNIP
from tests.conftest import ROOT, Workplace

CLASSES = ["negative", "neutral", "positive"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and the current one, so that messages show bare names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def poise(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def planted(n: int = 600, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Probabilities that favour `neutral`, with ids, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    logits = rng.normal(size=(n, 3))
    logits[np.arange(n), y] += 1.5
    logits[:, 1] += 1.2
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    ids = [f"r{k:03}" for k in range(n)]
    frame = pd.DataFrame(P, columns=CLASSES)
    frame.insert(0, "id", ids)
    return frame, pd.DataFrame({"id": ids, "label": np.array(CLASSES)[y]})


def write_planted(folder: Path) -> None:
    frame, labels = planted()
    frame.to_csv(folder / "p.csv", index=False)
    labels.to_csv(folder / "l.csv", index=False)


# --- known values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "accuracy", "cobias", "single", "odd_rate", "class_accuracies"),
    [
        ("table1.csv", 74.84, 41.61, 25.78, 19.82, [0.85, 0.98, 0.97, 0.19]),
        ("table2.csv", 88.16, 6.91, 4.20, 7.14, [0.86, 0.98, 0.85, 0.84]),
    ],
)
def test_audit_of_the_papers_confusion_matrices(
    folder: Path, table: str, accuracy: float, cobias: float, single: float, odd_rate: float,
    class_accuracies: list[float],
) -> None:  # fmt: skip
    printed = pd.read_csv(ROOT / "data/reference/dnip" / table)
    counts = printed[printed["quantity"] == "count"]
    classes = list(dict.fromkeys(counts["true_class"]))
    rows = counts.loc[counts.index.repeat(counts["value"].astype(int))]
    one_hot = (rows["pred_class"].to_numpy()[:, np.newaxis] == classes).astype(int)
    pd.DataFrame(one_hot, columns=classes).to_csv("p.csv", index=False)
    rows[["true_class"]].rename(columns={"true_class": "label"}).to_csv("l.csv", index=False)

    done = poise("audit", "p.csv", "l.csv", "-o", "audit.csv")
    assert done.exit_code == 0
    assert done.stderr == ""
    assert "5000 labelled rows" in done.stdout
    for value in (accuracy, cobias, single, odd_rate):
        assert f"| {value:.2f} " in done.stdout
    tidy = pd.read_csv("audit.csv")
    measured = tidy.set_index("metric")["value"]
    np.testing.assert_allclose(
        100 * measured[["accuracy", "cobias", "cobias_single", "odd_rate"]],
        [accuracy, cobias, single, odd_rate],
        atol=0.005,
    )
    np.testing.assert_allclose(tidy[tidy["metric"] == "class_accuracy"]["value"], class_accuracies, atol=0.005)
    interval = tidy[tidy["metric"] == "cobias"].iloc[0]
    assert interval["low"] < interval["value"] < interval["high"]
    assert 0 < measured["cobias_floor"] < 0.03


# --- the three verbs -------------------------------------------------------------------------------------------------


def test_fit_apply_and_audit_through_the_real_command(workplace: Workplace) -> None:
    write_planted(workplace.folder)
    fitted = workplace.poise("fit", "p.csv", "l.csv", "-o", "w.json")
    assert (fitted.returncode, fitted.stderr) == (0, "")
    assert "600 labelled rows; labels: class names, joined by id" in fitted.stdout
    applied = workplace.poise("apply", "w.json", "p.csv", "-o", "corrected.csv")
    assert (applied.returncode, applied.stdout) == (0, "corrected.csv: 600 rows\n")
    audited = workplace.poise("audit", "p.csv", "l.csv", "--weights", "w.json", "-o", "audit.md")
    assert (audited.returncode, audited.stderr) == (0, "")
    assert audited.stdout == (workplace.folder / "audit.md").read_text()

    frame, labels = planted()
    P, y = frame[CLASSES].to_numpy(), labels["label"].to_numpy()
    dnip = DNIP(classes=CLASSES).fit(P, y)
    weights = json.loads((workplace.folder / "w.json").read_text())
    assert weights["classes"] == CLASSES
    assert weights["weights"] == dnip.weights_.tolist()
    assert weights["objective"] == dnip.objective_
    assert (weights["method"], weights["rows"], weights["certified"]) == ("dnip", 600, False)
    corrected = pd.read_csv(workplace.folder / "corrected.csv")
    assert list(corrected) == ["id", "prediction", *CLASSES]
    assert list(corrected["id"]) == list(frame["id"])
    assert (corrected["prediction"] == dnip.predict(P)).all()
    np.testing.assert_allclose(corrected[CLASSES], dnip.predict_proba(P), rtol=1e-12)


def test_the_planted_bias_is_seen_and_corrected(folder: Path) -> None:
    write_planted(folder)
    P = matrix.read_probabilities("p.csv")
    y = matrix.read_labels("l.csv", P)
    audit = matrix.audit(P, y, matrix.fit(P, y))
    assert audit.value("cobias") > 0.25
    assert audit.value("cobias", "after") < 0.05
    assert audit.value("cobias", "change") == audit.value("cobias", "after") - audit.value("cobias")
    change = audit.tidy[(audit.tidy["metric"] == "cobias") & (audit.tidy["state"] == "change")].iloc[0]
    assert change["low"] < change["value"] < change["high"] < 0
    assert audit.value("predicted", "before", "neutral") > audit.value("predicted", "after", "neutral")
    assert audit.value("accuracy", "after") > audit.value("accuracy")
    assert not ((audit.tidy["metric"] == "cobias_floor") & (audit.tidy["state"] == "change")).any()


def test_defaults_are_those_of_the_estimator() -> None:
    command = main.commands["fit"]
    given = {option.name: option.default for option in command.params if isinstance(option, click.Option)}
    dnip = DNIP().get_params()
    for name in ("n_levels", "beta", "tau", "objective", "solver"):
        assert given[name] == dnip[name]
    assert (given["seed"], given["mu"], dnip["mu"]) == (dnip["random_state"], "paper", 4000)
    assert cli_matrix.fit is command


def test_every_parameter_reaches_the_weights(folder: Path) -> None:
    write_planted(folder)
    options = "--method dnip --beta 1 --tau 0 --n-levels 10 --mu scaled --objective odd_rate --solver exact --seed 3"
    done = poise("fit", "p.csv", "l.csv", "-o", "w.json", *options.split())
    assert done.exit_code == 0
    assert "certified as the optimum), mu 252.632" in done.stdout
    weights = json.loads(Path("w.json").read_text())
    assert weights["certified"] is True
    assert weights["parameters"] == {
        "n_levels": 10, "beta": 1.0, "tau": 0.0, "mu": 4000 * 600 / 9500, "objective": "odd_rate",
        "solver": "exact", "seed": 3,
    }  # fmt: skip


def test_the_same_input_gives_the_same_bytes(folder: Path) -> None:
    write_planted(folder)
    written = []
    for turn in ("a", "b"):
        names = [f"{turn}.json", f"{turn}.csv.gz", f"{turn}.parquet", f"{turn}.md"]
        poise("fit", "p.csv", "l.csv", "-o", names[0])
        poise("apply", "a.json", "p.csv", "-o", names[1])
        poise("apply", "a.json", "p.csv", "-o", names[2])
        poise("audit", "p.csv", "l.csv", "--weights", "a.json", "-o", names[3])
        written.append([Path(name).read_bytes() for name in names])
    assert written[0] == written[1]


def test_corrected_tables_agree_in_every_format(folder: Path) -> None:
    write_planted(folder)
    poise("fit", "p.csv", "l.csv", "-o", "w.json")
    printed = pd.read_csv(io.StringIO(poise("apply", "w.json", "p.csv").stdout))
    for name, read in {
        "c.csv": pd.read_csv, "c.csv.gz": pd.read_csv, "c.parquet": pd.read_parquet,
        "c.tsv": lambda path: pd.read_csv(path, sep="\t"),
        "c.parquet.gz": lambda path: pd.read_parquet(io.BytesIO(gzip.decompress(Path(path).read_bytes()))),
    }.items():  # fmt: skip
        assert poise("apply", "w.json", "p.csv", "-o", name).exit_code == 0
        pd.testing.assert_frame_equal(read(name), printed)
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_reordered_columns_give_the_same_predictions_ties_included(folder: Path) -> None:
    frame = pd.DataFrame({"b": [0.4, 0.2, 0.0], "a": [0.4, 0.6, 0.0], "c": [0.2, 0.2, 0.0]})
    weights = matrix.Weights(("a", "b", "c"), (0.5, 0.5, 1.0), parameters={"n_levels": 2})
    for order in (["b", "a", "c"], ["a", "b", "c"], ["c", "b", "a"]):
        frame[order].to_csv("p.csv", index=False)
        P = matrix.read_probabilities("p.csv")
        corrected = matrix.apply(weights, P)
        assert list(corrected) == ["id", "prediction", "a", "b", "c"]
        assert list(corrected["id"]) == [1, 2, 3]
        assert list(corrected["prediction"]) == ["a", "a", "c"]  # 0.2 = 0.2 = 0.2: the first class
        audit = matrix.audit(P, matrix.Labels("l", np.array([0, 0, 0]) + order.index("a"), False, "order"), weights)
        assert audit.value("accuracy", "after") == 2 / 3
        assert audit.value("predicted", "after", "c") == 1


def test_weights_written_by_hand(folder: Path) -> None:
    Path("w.json").write_text('{"classes": ["a", "b"], "weights": [0.123, 4]}')
    Path("p.csv").write_text("b,a\n1,30\n1,40\n")
    done = poise("apply", "w.json", "p.csv")
    assert done.exit_code == 0
    assert list(pd.read_csv(io.StringIO(done.stdout))["prediction"]) == ["b", "a"]


# --- files and how they are read -------------------------------------------------------------------------------------


def test_ids_join_shuffled_labels_and_unlabelled_rows_are_only_scored(folder: Path) -> None:
    frame, labels = planted()
    frame.to_csv("p.csv", index=False)
    labels.loc[:49, "label"] = ""
    labels = labels.drop(index=range(50, 60)).sample(frac=1, random_state=0)
    labels.to_csv("l.csv", index=False)
    done = poise("fit", "p.csv", "l.csv", "-o", "w.json")
    assert "540 labelled rows; labels: class names, joined by id; unlabelled rows left out: 60" in done.stdout

    kept = frame.iloc[60:]
    kept.to_csv("kept.csv", index=False)
    planted()[1].iloc[60:].to_csv("kept_labels.csv", index=False)
    poise("fit", "kept.csv", "kept_labels.csv", "-o", "same.json")
    assert Path("w.json").read_bytes() == Path("same.json").read_bytes()
    assert "540 labelled rows" in poise("audit", "p.csv", "l.csv").stdout
    assert poise("apply", "w.json", "p.csv", "-o", "c.csv").stdout == "c.csv: 600 rows\n"


def _write_gz(frame: pd.DataFrame, name: str) -> None:
    frame.to_csv(name, index=False)


def _write_parquet_gz(frame: pd.DataFrame, name: str) -> None:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    Path(name).write_bytes(gzip.compress(buffer.getvalue()))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("x.csv.gz", _write_gz),
        ("x.tsv", lambda frame, name: frame.to_csv(name, index=False, sep="\t")),
        ("X.TSV.GZ", lambda frame, name: frame.to_csv(name, index=False, sep="\t", compression="gzip")),
        ("x.parquet", lambda frame, name: frame.to_parquet(name, index=False)),
        ("x.parquet", lambda frame, name: frame.set_index("id").to_parquet(name)),
        ("x.parquet.gz", _write_parquet_gz),
    ],
)
def test_formats(folder: Path, name: str, write: Callable[[pd.DataFrame, str], None]) -> None:
    frame, labels = planted(40)
    labels.loc[3, "label"] = None
    write(frame, name)
    P = matrix.read_probabilities(name)
    assert (P.classes, P.ids) == (tuple(CLASSES), tuple(frame["id"]))
    np.testing.assert_array_equal(P.array, frame[CLASSES])
    write(labels, f"labels-{name}")
    y = matrix.read_labels(f"labels-{name}", P)
    assert (y.indices[3], y.labelled.sum(), y.joined_by) == (-1, 39, "id")


def test_log_probabilities_and_logits(folder: Path) -> None:
    frame, _ = planted(50)
    logs = frame.assign(**{name: np.log(frame[name]) - 900.0 for name in CLASSES})
    logs.loc[0, "neutral"] = -np.inf
    logs.to_csv("log.csv", index=False)
    expected = frame[CLASSES].to_numpy().copy()
    expected[0, 1] = 0
    expected[0] /= expected[0].sum()
    np.testing.assert_allclose(matrix.read_probabilities("log.csv", log=True).array, expected, rtol=1e-12)

    logs.loc[1, CLASSES] = -np.inf
    logs.to_csv("log.csv", index=False)
    Path("w.json").write_text(json.dumps({"classes": CLASSES, "weights": [1, 1, 1]}))
    done = poise("apply", "w.json", "log.csv", "--log")
    assert done.stderr == "poise: warning: log.csv: 1 row has no probability above 0: read as uniform\n"
    assert list(pd.read_csv(io.StringIO(done.stdout)).loc[1, CLASSES]) == [1 / 3] * 3


def test_rows_need_no_normalisation_whatever_their_size(folder: Path) -> None:
    Path("p.csv").write_text("a,b\n2,6\n1e-320,3e-320\n1e308,1.5e308\n0,0\n")
    Path("l.csv").write_text("label\nb\nb\nb\na\n")
    P = matrix.read_probabilities("p.csv")
    assert P.zero_rows == 1
    corrected = matrix.apply(matrix.Weights(("a", "b"), (1.0, 1.0)), P)
    np.testing.assert_allclose(corrected["b"], [0.75, 0.75, 0.6, 0.5], rtol=1e-3)
    done = poise("audit", "p.csv", "l.csv")
    assert done.stderr == "poise: warning: p.csv: 1 row has no probability above 0: read as uniform\n"
    assert "| accuracy               | 100.00" in done.stdout


@pytest.mark.parametrize(
    ("classes", "labels", "indices", "how"),
    [
        (["a", "b", "c"], ["a", "c", ""], [0, 2, -1], "class names, joined by order; unlabelled rows left out: 1"),
        (["a", "b", "c"], ["0", "2", "1"], [0, 2, 1], "class indices (0 is 'a'), joined by order"),
        (["a", "b", "c"], ["0.0", "2.0", ""], [0, 2, -1], "class indices (0 is 'a'), joined by order; unl"),
        (["1", "2", "3"], ["1", "2", "1"], [0, 1, 0], "class names (not indices), joined by order"),
        (["2", "1", "0"], ["0", "1", "2"], [2, 1, 0], "class names (not indices), joined by order"),
    ],
)
def test_labels_are_names_or_indices(
    folder: Path, classes: list[str], labels: list[str], indices: list[int], how: str
) -> None:
    pd.DataFrame(np.eye(3), columns=classes).to_csv("p.csv", index=False)
    P = matrix.read_probabilities("p.csv")
    for end in ("\n", "\n\n"):  # blank lines at the end are no rows, one within the labels is
        Path("l.csv").write_text("label\n" + "\n".join(label or '""' for label in labels) + end)
        y = matrix.read_labels("l.csv", P)
        assert y.indices.tolist() == indices
        assert y.described(P).startswith(how)


def test_a_blank_line_among_labels_is_an_unlabelled_row(folder: Path) -> None:
    Path("p.csv").write_text("a,b\n1,0\n1,0\n\n0,1\n")
    Path("l.csv").write_text("label\na\n\nb\n")
    P = matrix.read_probabilities("p.csv")
    assert matrix.read_labels("l.csv", P).indices.tolist() == [0, -1, 1]


def test_other_columns_beside_label_and_ids_of_another_name(folder: Path) -> None:
    Path("p.csv").write_text("\ufeffa, b ,key\n1,0,x\n0,1,y\n", encoding="utf-8")
    Path("l.csv").write_text('text,key,label\n"one, two",y,b\nthree,x,a\n')
    done = poise("audit", "p.csv", "l.csv", "--id-column", "key")
    assert "Labels: class names, joined by id." in done.stdout
    assert "| accuracy               | 100.00" in done.stdout
    Path("w.json").write_text('{"classes": ["b", "a"], "weights": [1, 1]}')
    done = poise("apply", "w.json", "p.csv", "--id-column", "key")
    assert done.stdout.splitlines() == ["key,prediction,b,a", "x,a,0.0,1.0", "y,b,1.0,0.0"]


def test_the_authors_text_format(folder: Path) -> None:
    frame, labels = planted()
    y = labels["label"].map(CLASSES.index)
    lines = [
        f"{row[0]} {label} 1 {row[1]!r} {row[2]!r} {row[3]!r}"
        for row, label in zip(frame.to_numpy().tolist(), y, strict=True)
    ]
    Path("vectors.txt").write_text("\n".join(lines) + "\n")
    write_planted(folder)
    assert poise("fit", "vectors.txt", "--format", "dcs", "-o", "dcs.json").exit_code == 0
    poise("fit", "p.csv", "l.csv", "-o", "w.json")
    dcs, plain = matrix.read_weights("dcs.json"), matrix.read_weights("w.json")
    assert (dcs.classes, dcs.weights) == (("0", "1", "2"), plain.weights)
    assert poise("apply", "dcs.json", "vectors.txt", "--format", "dcs", "-o", "c.csv").exit_code == 0
    assert "600 labelled rows" in poise("audit", "vectors.txt", "--format", "dcs").stdout


def test_a_class_without_labelled_rows_is_a_warning(folder: Path) -> None:
    Path("p.csv").write_text("a,b,c\n1,0,0\n0,1,0\n")
    Path("l.csv").write_text("label\na\nb\n")
    warning = "poise: warning: l.csv: no labelled row of class 'c': left out of COBias\n"
    done = poise("fit", "p.csv", "l.csv", "-o", "w.json")
    assert (done.exit_code, done.stderr) == (0, warning)
    done = poise("audit", "p.csv", "l.csv", "--weights", "w.json")
    assert (done.exit_code, done.stderr) == (0, warning)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("| c "))
    assert line.count("–") == 3


# --- mistakes --------------------------------------------------------------------------------------------------------

GOOD_P, GOOD_L = "id,a,b\nx,0.9,0.1\ny,0.2,0.8\n", "id,label\nx,a\ny,b\n"
GOOD_W = '{"classes": ["a", "b"], "weights": [1, 0.5]}'

BAD_PROBABILITIES = [
    (None, "p.csv: file not found"),
    ("", "p.csv: the file is empty"),
    ("id,a,b\n", "p.csv: no rows below the header"),
    ("id,a,b\nx,0.9,lots\n", "p.csv: row 1, column 'b': found 'lots', expected a number of at least 0"),
    ("id,a,b\nx,0.9,\n", "p.csv: row 1, column 'b': found an empty cell, expected a number of at least 0"),
    (
        "id,a,b\nx,0.9,0.1\ny,-0.5,-1\n",
        "p.csv: row 2, column 'a': found '-0.5', expected a number of at least 0 (log-probabilities need --log)",
    ),
    ("id,a,b\nx,nan,0.1\n", "p.csv: row 1, column 'a': found 'nan', expected a number of at least 0"),
    ("id,a,b\nx,inf,0.1\n", "p.csv: row 1, column 'a': found 'inf', expected a number of at least 0"),
    ("id,a,b\nx,1,0\nx,0,1\n", "p.csv: row 2: duplicate id 'x' (first in row 1)"),
    ("id,a,b\n,1,0\n", "p.csv: row 1, column 'id': found an empty cell, expected an id"),
    ("id,a\nx,1\n", "p.csv: found 1 class column ('a'), expected at least 2, one a class"),
    ("a;b\n1;0\n", "p.csv: found 1 class column ('a;b'), expected at least 2, one a class"),
    ("id\nx\n", "p.csv: found 0 class columns, expected at least 2, one a class"),
    ("id,a,b\nx,1\n", "p.csv: row 1: found 2 fields, expected 3 ('id', 'a', 'b')"),
    ("id,a,b\nx,1,0,7\n", "p.csv: row 1: found 4 fields, expected 3 ('id', 'a', 'b')"),
    ("id,a,a\nx,1,0\n", "p.csv: column 3: a second column 'a', expected distinct names"),
    (",a,b\n0,1,0\n", "p.csv: column 1 has no name, expected 'id' or the name of a class in the header"),
    ("0.25,0.75\n0.5,0.5\n", "p.csv: the header holds numbers ('0.25', '0.75'), expected the names of the classes"),
    ('id,a,b\n"x,1,0\n', "p.csv: line 2: not readable: unexpected end of data"),
    (b"id,a,b\n\xff,1,0\n", "p.csv: line 2: not UTF-8 text, save it as UTF-8"),
]
BAD_LABELS = [
    (None, "l.csv: file not found"),
    ("id,label\nx,a\ny,c\n", "l.csv: row 2: unknown label 'c', expected one of 'a', 'b'"),
    ("id,label\nx,A\ny,B\n", "l.csv: row 1: unknown label 'A', expected one of 'a', 'b' or an index from 0 to 1"),
    ("id,label\nx,0\ny,2\n", "l.csv: row 2: unknown label '2', expected one of 'a', 'b' or an index from 0 to 1"),
    ("id,label\nx,a\ny,1\n", "l.csv: row 2: unknown label '1', expected one of 'a', 'b'"),
    ("id,label\nx,a\nz,b\n", "l.csv: row 2: id 'z' has no row in p.csv"),
    ("id,label\nx,a\nx,b\n", "l.csv: row 2: duplicate id 'x' (first in row 1)"),
    ("id,label\nx,\ny,\n", "l.csv: no row has a label, expected at least one"),
    (
        "label\na\nb\na\n",
        "l.csv: found 3 rows, expected 2 as in p.csv (joined by order: not both files have ids)",
    ),
    ("id,gold,text\nx,a,t\n", "l.csv: found columns 'id', 'gold', 'text', expected a column 'label'"),
    ("id\nx\n", "l.csv: found columns 'id', expected a column 'label'"),
]
BAD_WEIGHTS = [
    (None, "w.json: file not found"),
    ("", "w.json: the file is empty"),
    ("{", "w.json: not a weights file: not JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
    ("[]", "w.json: not a weights file: expected an object with 'classes' and 'weights'"),
    ('{"weights": [1, 1]}', "w.json: not a weights file: no list 'classes'"),
    ('{"classes": ["a", "b"]}', "w.json: not a weights file: no list 'weights'"),
    ('{"classes": ["a", "a"], "weights": [1, 1]}',
     "w.json: 'classes' must be at least 2 distinct names, found ['a', 'a']"),
    ('{"classes": ["a", "b"], "weights": [1]}', "w.json: found 1 weights, expected 2, one a class"),
    ('{"classes": ["a", "b"], "weights": [1, 0]}', "w.json: the weight of 'b' is 0, expected a number above 0"),
    ('{"classes": ["a", "b"], "weights": [1, "x"]}', "w.json: the weight of 'b' is 'x', expected a number above 0"),
    ('{"classes": ["a", "b"], "weights": [1, NaN]}', "w.json: the weight of 'b' is nan, expected a number above 0"),
    ('{"classes": ["a", "c", "d"], "weights": [1, 1, 1]}',
     "p.csv: classes differ from w.json: missing 'c', 'd'; unknown 'b'; expected 'a', 'c', 'd' in any order"),
]  # fmt: skip


def _put(name: str, content: str | bytes | None) -> None:
    if content is not None:
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def _fails(message: str, *arguments: str) -> None:
    before = sorted(Path().iterdir())
    done = poise(*arguments)
    assert done.exit_code == 2
    assert (done.stdout, done.stderr) == ("", f"poise: error: {message}\n")
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(("content", "message"), BAD_PROBABILITIES)
def test_bad_probabilities(folder: Path, content: str | bytes | None, message: str) -> None:
    _put("p.csv", content)
    _put("l.csv", GOOD_L)
    _put("w.json", '{"classes": ["a", "b"], "weights": [1, 1]}')
    _fails(message, "fit", "p.csv", "l.csv", "-o", "new.json")
    _fails(message, "apply", "w.json", "p.csv", "-o", "new.csv")
    _fails(message, "audit", "p.csv", "l.csv", "-o", "new.md")


@pytest.mark.parametrize(("content", "message"), BAD_LABELS)
def test_bad_labels(folder: Path, content: str | None, message: str) -> None:
    _put("p.csv", GOOD_P)
    _put("l.csv", content)
    _fails(message, "fit", "p.csv", "l.csv", "-o", "new.json")
    _fails(message, "audit", "p.csv", "l.csv", "-o", "new.md")


@pytest.mark.parametrize(("content", "message"), BAD_WEIGHTS)
def test_bad_weights(folder: Path, content: str | None, message: str) -> None:
    _put("p.csv", GOOD_P)
    _put("l.csv", GOOD_L)
    _put("w.json", content)
    _fails(message, "apply", "w.json", "p.csv", "-o", "new.csv")
    _fails(message, "audit", "p.csv", "l.csv", "--weights", "w.json", "-o", "new.md")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit p.csv -o new.json", "the file of labels is missing: expected PROBABILITIES LABELS"),
        ("fit p.csv l.csv -o p.csv", "p.csv: the output is one of the inputs, expected another name"),
        ("fit p.csv l.csv -o p.csv/new.json", "p.csv/new.json: cannot be written: p.csv is not a folder"),
        ("apply w.json p.csv -o p.csv/new.csv", "p.csv/new.csv: cannot be written: p.csv is not a folder"),
        ("audit p.csv l.csv -o p.csv/new.md", "p.csv/new.md: cannot be written: p.csv is not a folder"),
        ("apply w.json p.csv -o folder.csv", "folder.csv: cannot be written: Is a directory"),
        ("apply w.json folder.csv", "folder.csv: cannot be read: Is a directory"),
        (
            "apply w.json p.csv -o new.xlsx",
            "new.xlsx: unknown format '.xlsx', expected .csv, .tsv, .tab, .parquet (or .gz of these)",
        ),
        (
            "audit p.csv l.csv -o new.pdf",
            "new.pdf: unknown format '.pdf', expected .csv, .tsv, .tab, .parquet, .md (or .gz of these)",
        ),
        ("audit p.xlsx l.csv", "p.xlsx: unknown format '.xlsx', expected .csv, .tsv, .tab, .parquet (or .gz of these)"),
        ("audit p.csv.gz l.csv", "p.csv.gz: not a readable gzip file: Not a gzipped file (b'id')"),
        ("audit p.csv l.csv --id-column key", "p.csv: no column 'key' for the ids, found 'id', 'a', 'b'"),
        ("audit plus.csv l.csv --log", "plus.csv: row 1, column 'a': found 'inf', expected a log-probability"),
        ("apply taken.json taken.csv",
         "taken.csv: a class is called 'prediction', as a column of the output is: rename it"),
        ("audit short.txt --format dcs",
         "short.txt: row 1: found 4 fields, expected id, label, prediction and at least 2 probabilities"),
        ("audit ragged.txt --format dcs", "ragged.txt: row 2: found 6 fields, expected 5 as in row 1"),
        ("audit alien.txt --format dcs",
         "alien.txt: row 1: unknown label '7', expected one of '0', '1' or an index from 0 to 1"),
    ],
)  # fmt: skip
def test_other_mistakes(folder: Path, arguments: str, message: str) -> None:
    for name, content in {
        "p.csv": GOOD_P, "l.csv": GOOD_L, "w.json": GOOD_W, "p.csv.gz": GOOD_P, "plus.csv": "id,a,b\nx,inf,0\ny,0,0\n",
        "taken.csv": "a,prediction\n1,0\n", "taken.json": '{"classes": ["a", "prediction"], "weights": [1, 1]}',
        "short.txt": "1 0 0 0.5\n", "ragged.txt": "1 0 0 1 0\n2 0 0 1 0 0\n",
        "alien.txt": "1 7 0 1 0\n",
    }.items():  # fmt: skip
        _put(name, content)
    Path("folder.csv").mkdir()
    _fails(message, *arguments.split())


def test_nothing_to_fit(folder: Path) -> None:
    Path("p.csv").write_text("a,b\n0,0\n0,0\n")
    Path("l.csv").write_text("label\na\nb\n")
    done = poise("fit", "p.csv", "l.csv", "-o", "w.json")
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "poise: warning: p.csv: 2 rows have no probability above 0: read as uniform",
        "poise: error: p.csv: cannot fit: P holds no probability above zero",
    ]
    assert not Path("w.json").exists()


def test_an_unreadable_parquet_file_is_one_line(folder: Path) -> None:
    Path("p.parquet").write_bytes(b"PAR1 and no more")
    Path("l.csv").write_text(GOOD_L)
    done = poise("audit", "p.parquet", "l.csv")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("poise: error: p.parquet: not a readable Parquet file: ")


def test_numbers_missing_from_parquet(folder: Path) -> None:
    pd.DataFrame({"a": [0.5, None], "b": [0.5, 1.0]}).to_parquet("p.parquet")
    with pytest.raises(PoiseError, match="row 2, column 'a': found an empty cell, expected a number of at least 0"):
        matrix.read_probabilities("p.parquet")


def test_a_bad_mu_is_a_usage_error(folder: Path) -> None:
    done = poise("fit", "p.csv", "l.csv", "-o", "w.json", "--mu", "0")
    assert done.exit_code == 2
    assert "'0' is neither a number above 0 nor 'paper' or 'scaled'" in done.stderr
