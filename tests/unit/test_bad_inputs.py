"""What users may get wrong in a configuration, on the command line and in their files: one line each that says so.

Bad matrices of probabilities, labels and weights are in ``test_matrix.py``, damaged files of every format in
``test_datasets_tables.py``.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from poise.cli import main
from poise.planfile import load
from tests.conftest import ROOT

CONFIG = """\
# @package dataset.mine
name: mine
title: My reviews
task: Sentiment Classification
domain: product reviews
ordered: true
source: {kind: files, folder: own}
tables: {train: {path: [train.csv]}, test: {path: [test.csv]}}
columns: {text: text, label: label}
classes: [negative, neutral, positive]
prompt:
  kind: icl
  name: mine
  text_prefix: "Review: "
  label_prefix: "Sentiment:"
  label_words: [negative, neutral, positive]
"""
STUDY = [
    "study=demo", "name=mine", "dataset=[mine]", "engine=dummy", "seeds=[0]", "factor=[]", "method=[icl,dnip]",
    "experiment=[class_accuracy]", "experiment.class_accuracy.datasets=[mine]", "artefacts=[dnip_table3]",
]  # fmt: skip
WORDS = ["negative", "neutral", "positive"]
TRAIN = "text,label\n" + "".join(f"text {k},{WORDS[k % 3]}\n" for k in range(60))
TEST = "text,label\n" + "".join(f"other {k},{WORDS[k % 3]}\n" for k in range(30))
TWO_CLASSES = "text,label\n" + "".join(f"text {k},{WORDS[k % 2]}\n" for k in range(60))
BOMB = "hint: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{of}'] * 9)}]\n" for of, name in ("ab", "bc", "cd")
)


def edited(*pairs: str) -> str:
    """The configuration with texts replaced: old, new, old, new …"""
    text = CONFIG
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    return text


def in_label_words(words: str) -> str:
    return edited("label_words: [negative, neutral, positive]", f"label_words: {words}")


def archive(member: str, content: str) -> bytes:
    """A tar archive of one member, whose name it leaves as it is."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        info = tarfile.TarInfo(member)
        info.size = len(content.encode())
        tar.addfile(info, io.BytesIO(content.encode()))
    return stream.getvalue()


@dataclass(frozen=True)
class Input:
    """A configuration, two files and overrides; the verb that should refuse them, and words of its line."""

    says: tuple[str, ...] = ()
    at: str = "plan"
    config: str | bytes = CONFIG
    train: str | bytes | None = TRAIN
    train_file: str = "train.csv"
    test: str | bytes = TEST
    overrides: Sequence[str] = ()


PREPARE, EXTRACT = "prepare-dataset", "extract"
MINE = "conf/dataset/mine.yaml"
BAD = {
    # configuration files
    "a YAML tag that runs code": Input(
        ("mine.yaml", "constructor for the tag", "os.system", "line 3"),
        config=edited("title: My reviews", "title: !!python/object/apply:os.system ['touch pwned']")),
    "YAML aliases that multiply": Input((MINE, "aliases"), config=CONFIG + BOMB),
    "a YAML key twice": Input(("mine.yaml", "duplicate key title", "line 17"), config=CONFIG + "title: Again\n"),
    "tabs in YAML": Input(("mine.yaml", "'\\t'", "line 12"), config=edited("prompt:\n  kind", "prompt:\n\tkind")),
    "YAML that is a list": Input((MINE, "dataset.mine", "['a', 'b']"), config="# @package dataset.mine\n- a\n- b\n"),
    "a binary file as YAML": Input((MINE, "not UTF-8", "byte 3"), config=b"\0\1\xff\xfe"),
    "YAML in UTF-16": Input((MINE, "save it as UTF-8"), config=CONFIG.encode("utf-16")),
    "a reference to nothing": Input(("dataset.mine.title", "nope.no"), config=edited("My reviews", "${nope.no}")),
    "an unknown key": Input((MINE, "dataset.mine.colour: unknown key"), config=CONFIG + "colour: red\n"),
    "a missing key": Input(
        (MINE, "dataset.mine.classes: missing"), config=edited("classes: [negative, neutral, positive]\n", "")),
    "a word for a truth value": Input(
        (MINE, "dataset.mine.ordered", "'perhaps'", "boolean"), config=edited("ordered: true", "ordered: perhaps")),
    "a name with a path": Input(
        (MINE, "dataset.mine.name", "'../../up'"), config=edited("name: mine\ntitle", "name: ../../up\ntitle")),
    "another name than its key": Input(
        ("dataset.mine.name", "'other'", "expected 'mine'"), config=edited("name: mine\ntitle", "name: other\ntitle")),
    "control characters in a title": Input(
        (MINE, "dataset.mine.title", "control characters"),
        config=edited("My reviews", '"My\\u0007 rev\\niews"')),
    "a class twice": Input(
        (MINE, "classes must be distinct"),
        config=edited("classes: [negative, neutral", "classes: [negative, negative")),
    "one class only": Input(
        (MINE, "dataset.mine.classes", "['negative']", "at least 2"),
        config=CONFIG.replace("[negative, neutral, positive]", "[negative]")),
    "numbers for classes": Input(
        (MINE, "classes.0", "found 1", "string"),
        config=edited("classes: [negative, neutral, positive]", "classes: [1, 2, 3]")),
    "too few label words": Input((MINE, "must have 3 words, found 2"), config=in_label_words("[bad, good]")),
    "a line break in a label word": Input(
        (MINE, "label_words.0", r"'a\nb'"), config=in_label_words(r'["a\nb", ok, good]')),
    "a short checksum": Input(
        (MINE, "dataset.mine.source.sha256", "'abc'"),
        config=edited(
            "{kind: files, folder: own}",
            "{kind: package, package: x, version: '1', filename: x.whl, size_bytes: 1, licence: x, sha256: abc}")),
    "a branch for a revision": Input(
        (MINE, "dataset.mine.source.revision", "'dev'"),
        config=edited("{kind: files, folder: own}", "{kind: hub, repo: a/b, revision: dev}")),
    "a file that is not there": Input(("dataset mine", "file not found: own/train.csv"), train=None),
    "a path out of the folder": Input(
        ("dataset mine", "file not found: own/../../secret.csv"), config=edited("[train.csv]", "[../../secret.csv]")),
    # overrides
    "no number of rows": Input(
        ("rows.test=nan", "found nan", "integer"), overrides=["experiment.class_accuracy.rows.test=nan"]),
    "minus five rows": Input(
        ("rows.test", "found -5", "greater than 0"), overrides=["experiment.class_accuracy.rows.test=-5"]),
    "a negative seed": Input(("seeds.0", "found -1"), overrides=["seeds=[-1]"]),
    "a huge seed": Input(
        ("seeds.0", "99999999999999999999", "less than 4294967296"), overrides=["seeds=[99999999999999999999]"]),
    "half a seed": Input(("override seeds=[0.5]", "integer"), overrides=["seeds=[0.5]"]),
    "a seed twice": Input(("override seeds=[0,0]", "each once"), overrides=["seeds=[0,0]"]),
    "no seed": Input(("override seeds=[]", "at least 1"), overrides=["seeds=[]"]),
    "a beta that is no number": Input(("method.dnip.beta=nan", "found nan"), overrides=["method.dnip.beta=nan"]),
    "unknown shots": Input(("shots.0", "'many'"), overrides=["experiment.class_accuracy.shots=[many]"]),
    "an unknown engine": Input(("conf/engine/warp.yaml", "not found", "transformers"), overrides=["engine=warp"]),
    "an unknown method": Input(("conf/method/magic.yaml", "not found", "dnip"), overrides=["method=[icl,magic]"]),
    "an unknown artefact": Input(("artefacts", "dnip_table99", "dnip_table3"), overrides=["artefacts=[dnip_table99]"]),
    "an absolute name": Input(("override name=/tmp/x", "pattern"), overrides=["name=/tmp/x"]),
    "a name with a space": Input(("name", "'a b'"), overrides=["name='a b'"]),
    "a hidden name": Input(("name=.hidden", "pattern"), overrides=["name=.hidden"]),
    "a name like an option": Input(("name=-rf", "pattern"), overrides=["name=-rf"]),
    "a name that looks like demo": Input(("name=d\u0435mo",), overrides=["name=d\u0435mo"]),
    "a name of 300 letters": Input(("name", "at most 100"), overrides=["name=" + 300 * "a"]),
    "the name of the answers": Input(("name=responses", "choose another"), overrides=["name=responses"]),
    "the name of a study": Input(("name=position", "overwrite"), overrides=["name=position"]),
    "two equal signs": Input(("'a=b=c'", "key=value"), overrides=["a=b=c"]),
    "an open bracket": Input(("'seeds=[0'", "key=value"), overrides=["seeds=[0"]),
    # data
    "an empty file": Input(("own/train.csv", "empty"), PREPARE, train=""),
    "a header alone": Input(("own/train.csv", "no rows"), PREPARE, train="text,label\n"),
    "a missing column": Input(("own/train.csv", "no column 'text'", "'body'"), PREPARE, train="body" + TRAIN[4:]),
    "a row too long": Input(
        ("own/train.csv", "row 61", "fields found: 3, expected: 2"), PREPARE, train=TRAIN + "a,b,c\n"),
    "an open quote": Input(("own/train.csv", "row 61", "not readable as csv"), PREPARE, train=TRAIN + '"a,negative\n'),
    "bytes that are not UTF-8": Input(("line 62", "0xff", "UTF-8"), PREPARE, train=TRAIN.encode() + b"\xff,negative\n"),
    "a file in UTF-16": Input(("own/train.csv", "UTF-8"), PREPARE, train=TRAIN.encode("utf-16")),
    "NUL in a text": Input(("row 6", "NUL"), PREPARE, train=TRAIN.replace("text 5,", "te\0xt 5,")),
    "an unknown label": Input(("row 61", "'neutralish'", "'neutral'"), PREPARE, train=TRAIN + "hm,neutralish\n"),
    "no label": Input(("row 61", "unknown label ''"), PREPARE, train=TRAIN + "hm,\n"),
    "no text": Input(("own/train.csv", "row 61", "empty text"), PREPARE, train=TRAIN + ",neutral\n"),
    "a file of another format": Input(
        ("own/train.jsonl", "line 1", "JSON"), PREPARE,
        config=edited("train.csv", "train.jsonl"), train_file="train.jsonl"),
    "gz that is not": Input(
        ("own/train.csv.gz", "gzip"), PREPARE,
        config=edited("[train.csv]", "[train.csv.gz]"), train_file="train.csv.gz"),
    "a damaged gz": Input(
        ("own/train.csv.gz", "gzip"), PREPARE,
        config=edited("[train.csv]", "[train.csv.gz]"), train_file="train.csv.gz",
        train=gzip.compress(TRAIN.encode())[:-9]),
    "a spreadsheet": Input(
        (".xlsx", ".csv"), PREPARE, config=edited("[train.csv]", "[train.xlsx]"), train_file="train.xlsx"),
    "another format in a path from the root": Input(
        ("/etc/hostname", "unknown format"), PREPARE, config=edited("[train.csv]", "[/etc/hostname]")),
    "an archive without the member": Input(
        ("own/train.tar!there.csv", "archive"), PREPARE,
        config=edited("[train.csv]", "[train.tar, there.csv]"), train_file="train.tar",
        train=archive("../../here.csv", TRAIN)),
    "a conversion in a template": Input(
        ("columns.text", "{text}", "conversion"), PREPARE, config=edited("{text: text,", "{text: '{text!r}',")),
    "an attribute in a template": Input(
        ("no column 'text.__class__'",), PREPARE, config=edited("{text: text,", "{text: '{text.__class__}',")),
    "an id twice": Input(
        ("row 2", "duplicate id '1'"), PREPARE, config=edited("{text: text,", "{id: id, text: text,"),
        train="id,text,label\n1,a,negative\n1,b,positive\n", test="id,text,label\n1,c,neutral\n"),
    # what shows when prompts are made
    "training rows that are the test rows": Input(
        ("mine", "all 60 training rows", "test rows", "split: paper"), EXTRACT, test=TRAIN),
    "fewer rows than demonstrations": Input(
        ("mine", "5_shot needs 5 training rows, found 1"), EXTRACT, train="text,label\na,negative\n",
        overrides=["experiment.class_accuracy.shots=[5_shot]"]),
    "no demonstration of a class": Input(
        ("k_shot needs 1 training rows of class 2, found 0",), EXTRACT, train=TWO_CLASSES,
        overrides=["experiment.class_accuracy.shots=[k_shot]"]),
    "two labels of the same tokens": Input(
        ("label ' good' has the same tokens",), EXTRACT, config=in_label_words("[good, good, bad]")),
    "an empty label word": Input(
        ("label ' ' is a prefix", "another label word"), EXTRACT, config=in_label_words("['', ok, bad]")),
    "a cell of ten megabytes": Input(
        ("prompt", "10000019 tokens", "max_words"), EXTRACT, train=TRAIN + 10_000_000 * "x" + ",negative\n"),
    "a template of a book": Input(
        ("25018 tokens", "context of 8192"), EXTRACT, config=edited('"Review: "', f'"{5000 * "long "}"')),
}  # fmt: skip

GOOD = {
    "label words in other scripts": Input(config=in_label_words("[отрицательный, 中性, إيجابي]")),
    "classes in other scripts": Input(
        config=CONFIG.replace("negative", "отрицательный").replace("neutral", "中性"),
        train=TRAIN.replace("negative", "отрицательный").replace("neutral", "中性"),
        test=TEST.replace("negative", "отрицательный").replace("neutral", "中性")),
    "a byte-order mark": Input(train=TRAIN.encode("utf-8-sig")),
    "lines that end as on Windows": Input(train=TRAIN.replace("\n", "\r\n")),
    "control characters in texts": Input(train=TRAIN.replace("text 5,", "te\x07\x1b[31mxt 5,")),
    "texts in train and test": Input(test=TEST + TRAIN[len("text,label\n"):][:200].rsplit("\n", 1)[0] + "\n"),
    "a class absent from the optimisation rows": Input(train=TWO_CLASSES),
    "one class in the optimisation rows": Input(train=TWO_CLASSES.replace("neutral", "negative")),
    "one class in the test rows": Input(test=TEST.replace("neutral", "negative").replace("positive", "negative")),
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the project's configuration, where one may add to it."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(tmp_path / "conf"))
    return tmp_path


def put(name: str | Path, content: str | bytes) -> None:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def poise(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def steps(given: Input) -> dict[str, Result]:
    """Results of the verbs of a run up to the first that fails."""
    put("conf/dataset/mine.yaml", given.config)
    if given.train is not None:
        put(f"own/{given.train_file}", given.train)
    put("own/test.csv", given.test)
    done = {"plan": poise("plan", *STUDY, *given.overrides)}
    if done["plan"].exit_code:
        return done
    plan = "results/mine/plan.json"
    known = load(Path(plan))
    model, (batch,) = known.cells[0].model, known.batches
    at = ["--experiment", "class_accuracy", "--model", model, "--dataset", "mine"]
    for verb, options in (
        (PREPARE, ["--dataset", "mine"]), ("prepare-model", ["--model", model]), (EXTRACT, ["--batch", batch.id]),
        ("correct", [*at, "--method", "icl"]), ("correct", [*at, "--method", "dnip"]), ("measure", at),
        ("collect", ["--instrument", "class_accuracy"]), ("table", ["--artefact", "dnip_table3"]),
    ):  # fmt: skip
        done[verb] = poise(verb, "--plan", plan, *options)
        if done[verb].exit_code:
            break
    return done


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(project: Path, name: str) -> None:
    given = BAD[name]
    started = time.monotonic()
    done = steps(given)
    verb, last = list(done.items())[-1]
    assert (verb, last.exit_code) == (given.at, 2), last.stderr
    (line,) = last.stderr.splitlines()
    assert line.startswith("poise: error: ")
    assert [word for word in given.says if word not in line] == [], line
    assert not (project / "pwned").exists()
    made = {path.name for path in project.rglob("*") if "conf" not in path.parts and "own" not in path.parts}
    assert not made & {"responses.parquet", "index.parquet"}
    if verb == "plan":
        assert not made
    assert not [name for name in made if name.endswith((".tmp", ".part"))]
    assert time.monotonic() - started < 20  # none of them may keep a user waiting


def test_thirty_at_least() -> None:
    assert len(BAD) >= 30


@pytest.mark.parametrize("name", GOOD)
def test_odd_input_that_is_fine(project: Path, name: str) -> None:
    done = steps(GOOD[name])
    verb, last = list(done.items())[-1]
    assert (verb, last.exit_code, last.exception) == ("table", 0, None), last.stderr
    table = (project / "results/mine/tables/dnip_table3.md").read_text(encoding="utf-8")
    assert "My reviews" in table
    assert "\x1b" not in table


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no plan here; make one with: poise plan"),
        ("", "not a plan of this version"),
        ("{", "make it anew"),
        ("[]", "make it anew"),
        (json.dumps({"study": {}}), "make it anew"),
    ],
)
def test_a_plan_that_is_none(project: Path, content: str | None, says: str) -> None:
    if content is not None:
        put("plan.json", content)
    done = poise("collect", "--plan", "plan.json", "--instrument", "position")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("poise: error: plan.json: ")
    assert says in line
