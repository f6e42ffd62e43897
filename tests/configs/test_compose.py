"""Every file of ``conf/`` composes, what is wrong is one line, identities hold what affects output only."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from poise import paths, planfile
from poise.config.compose import compose_study, expand_sweeps
from poise.config.prompts import ICLPrompt
from poise.config.schema import Study
from poise.datasets.tables import prepare
from poise.errors import PoiseError
from poise.hashing import digest
from poise.plan import Plan, expand

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
FILES = sorted(CONF.glob("*/*.yaml"))

# Names that a user of the configuration makes up: their parent's comment explains them.
NAMED = {"contrasts", "levels", "factor", "instruction", "minimal_instruction", "constraint", "tables", "experiment"}


def of_group(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory: no batches on disk, no data; the project's own configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_CONF", str(CONF))
    monkeypatch.delenv("POISE_DATA", raising=False)


@pytest.fixture(scope="module")
def demo() -> Study:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POISE_CONF", str(CONF))
        return compose_study(["study=demo"])


def changed(study: Study, **parts: object) -> Study:
    """Return the study with values replaced, by dotted key (``__`` for the dot)."""
    raw = study.model_dump(mode="json")
    for key, value in parts.items():
        *folders, leaf = key.split("__")
        at = raw
        for folder in folders:
            at = at[folder]
        assert leaf in at, f"{key} is no key of this study"
        at[leaf] = value
    return Study.model_validate(raw)


def ids(plan: Plan) -> set[str]:
    return {cell.id for cell in plan.cells}


def the_error(overrides: list[str]) -> str:
    with pytest.raises(PoiseError) as caught:
        planfile.make_plan(overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- every file composes ---


def test_no_group_is_forgotten() -> None:
    assert {path.parent.name for path in FILES} == {
        "study", "model", "dataset", "prompt", "probe", "factor", "engine", "method", "experiment",
    }  # fmt: skip


@pytest.mark.parametrize("name", of_group("study"))
def test_every_study_composes_and_expands(name: str) -> None:
    plan = expand(compose_study([f"study={name}"]))
    assert plan.study.name == name
    assert plan.study.artefacts
    assert set(plan.batch_of) == ids(plan)


@pytest.mark.parametrize("name", of_group("dataset"))
def test_every_dataset_composes(name: str) -> None:
    raw = yaml.safe_load((CONF / "dataset" / f"{name}.yaml").read_text(encoding="utf-8"))
    position = name if raw["ordered"] else "tweets3"
    members = ",".join(dict.fromkeys([name, position]))
    study = compose_study(
        [
            f"dataset=[{members}]",
            "experiment=[class_accuracy,position]",
            f"experiment.class_accuracy.datasets=[{name}]",
            f"experiment.position.datasets=[{position}]",
        ]
    )
    dataset = study.datasets[name]  # the file's name is the data set's
    plan = expand(study, content={name: "0"})
    assert {cell.dataset for cell in plan.cells if cell.experiment == "class_accuracy"} == {name}
    assert {cell.dataset for cell in plan.cells if cell.experiment == "position"} == {position}
    if dataset.prompt.kind == "icl":
        assert len(dataset.prompt.label_words) == len(dataset.classes)


@pytest.mark.parametrize("name", of_group("model"))
def test_every_model_composes(name: str) -> None:
    study = compose_study([f"model=[{name}]", "engine=dummy"])
    model = study.models[name]
    assert {cell.model for cell in expand(study).cells} == {name}
    assert model.gguf is None or model.source.kind != "hub"


@pytest.mark.parametrize("name", of_group("prompt"))
def test_every_prompt_composes(name: str) -> None:
    raw = yaml.safe_load((CONF / "prompt" / f"{name}.yaml").read_text(encoding="utf-8"))
    classes = [f"class {k}" for k in range(len(raw.get("label_words", "12345")))]
    study = compose_study(
        [
            "experiment=[class_accuracy]",
            f"prompt@dataset.movies5.prompt={name}",
            f"dataset.movies5.classes={classes}",
            "dataset.movies5.label_thresholds=null",
            "dataset.movies5.merged=null",
        ]
    )
    prompt = study.datasets["movies5"].prompt
    assert prompt.name == name
    if isinstance(prompt, ICLPrompt):
        # A space is put before each label: one at the prompt's end would be tokenised apart from it.
        assert prompt.label_prefix == prompt.label_prefix.strip()
        assert prompt.separator.startswith("\n")
        assert prompt.instruction == "" or prompt.instruction.endswith("\n\n")


@pytest.mark.parametrize("name", of_group("probe"))
def test_every_probe_composes(name: str) -> None:
    study = compose_study(
        [
            f"probe=[{name}]",
            "experiment=[position]",
            f"experiment.position.probes=[{name}]",
            "experiment.position.methods=[]",
        ]
    )
    probe = study.probes[name]
    asked = {getattr(cell, probe.field) for cell in expand(study).cells if cell.experiment == "position"}
    assert asked == set(probe.levels)


@pytest.mark.parametrize("name", of_group("factor"))
def test_every_factor_composes(name: str) -> None:
    study = compose_study([f"factor=[{name}]", "experiment=[factors]", "experiment.factors.shots=[5_per_class]",
                           "experiment.factors.datasets=[movies5]"])  # fmt: skip
    levels = {(cell.factor, cell.level) for cell in expand(study).cells}
    assert levels == {("", ""), *((name, level) for level in study.factors[name].changes)}


@pytest.mark.parametrize("name", of_group("engine"))
def test_every_engine_composes(name: str) -> None:
    assert compose_study([f"engine={name}"]).engine.kind == name


@pytest.mark.parametrize("name", of_group("method"))
def test_every_method_composes(name: str) -> None:
    study = compose_study(
        [f"method=[{name}]", "experiment=[class_accuracy,joint]", "experiment.joint.datasets=[tweets3]"]
    )
    used = [study.methods_of(experiment) for experiment in study.experiment.values()]
    assert [name] in used  # in one instrument at least
    assert all(names in ([name], []) for names in used)


@pytest.mark.parametrize("name", of_group("experiment"))
def test_every_experiment_composes(name: str) -> None:
    study = compose_study([f"experiment=[{name}]", f"experiment.{name}.datasets=[tweets3]"])
    assert list(study.experiment) == [name]
    assert expand(study).cells


def test_every_prompt_of_a_dataset_is_a_file() -> None:
    for name in of_group("dataset"):
        raw = yaml.safe_load((CONF / "dataset" / f"{name}.yaml").read_text(encoding="utf-8"))
        assert raw["defaults"][0]["/prompt@prompt"] in of_group("prompt")


# --- every key is explained ---


def keys_of(path: Path) -> list[tuple[str, str, bool]]:
    """Every key of a YAML file with its parent and whether its line carries a comment."""
    text = path.read_text(encoding="utf-8")
    lines = [re.sub(r'"(\\.|[^"])*"|(?<![\w])\'[^\']*\'', "", line) for line in text.splitlines()]
    commented = [re.search(r"\s#\s*\S", line) is not None for line in lines]
    found: list[tuple[str, str, bool]] = []

    def walk(node: yaml.Node, parent: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if (parent, key.value) != ("", "defaults"):
                    found.append((parent, key.value, commented[key.start_mark.line]))
                    walk(value, key.value)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                walk(item, parent)

    walk(yaml.compose(text), "")
    return found


def explained(path: Path) -> set[str]:
    """Names of the keys that a file, or the files that it points to, explain."""
    pointer = re.search(r"[Kk]eys are explained in (.*)", path.read_text(encoding="utf-8"))
    names = {key for _, key, comment in keys_of(path) if comment}
    for target in re.findall(r"[\w./-]+\.yaml", pointer[1]) if pointer else []:
        pointed = ROOT / target if target.startswith("conf/") else path.parent / target
        names |= {key for _, key, comment in keys_of(pointed) if comment}
    return names


@pytest.mark.parametrize("path", [CONF / "config.yaml", *FILES], ids=lambda path: str(path.relative_to(CONF)))
def test_every_key_is_explained(path: Path) -> None:
    known = explained(path)
    bare = [
        f"{parent}.{key}" if parent else key
        for parent, key, _ in keys_of(path)
        if key not in known and not (parent in NAMED and parent in known)
    ]
    assert not bare, f"{path.relative_to(ROOT)}: keys without a comment: {bare}"


def test_a_key_without_a_comment_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text('a: 1 # said\nb: "# not a comment"\nc: {d: 2} # said\n', encoding="utf-8")
    assert explained(path) == {"a", "c", "d"}


# --- what is wrong is said in one line ---


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Copy the configuration, and change one piece of one file of it."""

    def change(file: str, old: str, new: str) -> None:
        conf = tmp_path / "conf"
        shutil.copytree(CONF, conf)
        text = (conf / file).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (conf / file).write_text(text.replace(old, new), encoding="utf-8")
        monkeypatch.setenv("POISE_CONF", str(conf))

    return change


def test_unknown_key_in_a_file(edit: Callable[[str, str, str], None]) -> None:
    edit("dataset/movies5.yaml", "ordered: true", "colour: red\nordered: true")
    assert the_error([]) == "conf/dataset/movies5.yaml: key dataset.movies5.colour: unknown key"


def test_missing_key_in_a_file(edit: Callable[[str, str, str], None]) -> None:
    edit("dataset/r8.yaml", "ordered: false\n", "")
    assert the_error([]) == "conf/dataset/r8.yaml: key dataset.r8.ordered: missing"


def test_wrong_type_in_a_file(edit: Callable[[str, str, str], None]) -> None:
    edit("method/dnip.yaml", "n_levels: 30", "n_levels: many")
    message = the_error([])
    assert message.startswith("conf/method/dnip.yaml: key method.dnip.n_levels: found 'many', expected: ")
    assert "integer" in message


def test_unknown_key_in_an_override() -> None:
    assert "key dataset.movies5.colour: unknown key" in the_error(["+dataset.movies5.colour=red"])


def test_wrong_type_in_an_override() -> None:
    message = the_error(["method.dnip.n_levels=many"])
    assert "method.dnip.n_levels: found 'many', expected: " in message
    assert "integer" in message


def test_number_in_quotes_is_not_a_number() -> None:
    assert "method.dnip.beta: found '2.7', expected:" in the_error(["method.dnip.beta='2.7'"])


def test_value_outside_its_choices() -> None:
    message = the_error(["engine.dtype=float8"])
    assert "engine.dtype: found 'float8', expected:" in message
    assert "'float32', 'bfloat16' or 'float16'" in message


def test_unknown_study() -> None:
    message = the_error(["study=demmo"])
    assert "conf/study/demmo.yaml: file not found; study must be one of: " in message
    assert message.endswith(", ".join(of_group("study")))


def test_unknown_member_of_a_group() -> None:
    message = the_error(["dataset=[imdb]"])
    assert "conf/dataset/imdb.yaml: file not found; dataset must be one of: " in message
    assert all(name in message for name in of_group("dataset"))


@pytest.mark.parametrize("override", ["sedes=[0]", "experiment.position.rows.tests=5", "colour.of.it=red"])
def test_unknown_override(override: str) -> None:
    message = the_error([override])
    assert f"override {override.split('=')[0]}" in message
    assert "no such key in conf/" in message


def test_override_without_a_value() -> None:
    message = the_error(["seeds"])
    assert "override 'seeds'" in message
    assert "missing EQUAL" in message or "expected key=value" in message


def test_file_that_is_not_yaml(edit: Callable[[str, str, str], None]) -> None:
    edit("method/icl.yaml", "title: ICL", "title: a: b")
    assert "method/icl.yaml" in the_error([])


def test_missing_value() -> None:
    message = the_error(["experiment.class_accuracy.datasets=???"])
    assert message.startswith("conf")
    assert "experiment.class_accuracy.datasets" in message
    assert "issing" in message


def test_reference_to_what_the_study_lacks() -> None:
    message = the_error(["experiment.class_accuracy.datasets=[r8,sst5]"])
    assert "experiment.class_accuracy.datasets: ['sst5'] not in this study, which has " in message
    assert "['movies5', 'r8', 'tweets3']" in message


def test_label_words_must_match_the_classes() -> None:
    message = the_error(["dataset.movies5.prompt.label_words=[bad,good]"])
    assert "conf/dataset/movies5.yaml: key dataset.movies5: prompt.label_words must have 5 words, found 2" in message


def test_unordered_dataset_in_the_position_experiment() -> None:
    message = the_error(["experiment.position.datasets=[r8]"])
    assert "experiment.position.datasets: r8 is not ordered" in message


def test_missing_file_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POISE_DATA", str(tmp_path / "mine"))
    message = the_error(
        ["dataset=[sst5,tweets3]", "experiment=[class_accuracy,position]", "experiment.class_accuracy.datasets=[sst5]"]
    )
    assert message == f"dataset sst5: file not found: {tmp_path}/mine/sst5/full/train.jsonl.gz"


def test_missing_model_of_your_own(tmp_path: Path) -> None:
    source = f"{{kind: files, folder: {tmp_path}/weights}}"
    message = the_error(["model=[gpt2-xl]", "~model.gpt2-xl.source", f"+model.gpt2-xl.source={source}"])
    assert message == f"model gpt2-xl: source.folder {tmp_path}/weights: no files here"


def test_plan_of_unknown_study() -> None:
    with pytest.raises(PoiseError, match=r"study 'nope': neither a configuration \(demo, demo_full.*\) nor a plan at"):
        planfile.resolve("nope")


# --- the plan is canonical ---


def reversed_keys(value: object) -> object:
    """Plain data with every mapping's keys in the opposite order; lists keep theirs."""
    if isinstance(value, dict):
        return {key: reversed_keys(item) for key, item in reversed(value.items())}
    if isinstance(value, list):
        return [reversed_keys(item) for item in value]
    return value


def test_order_of_keys_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planfile.make_plan(["study=demo"])
    shuffled = tmp_path / "shuffled"
    for path in [CONF / "config.yaml", *FILES]:
        text = path.read_text(encoding="utf-8")
        raw = yaml.safe_load(text)
        other = reversed_keys(raw)
        assert list(other) != list(raw)
        package = re.match(r"# @package.*\n", text)
        target = shuffled / path.relative_to(CONF)
        target.parent.mkdir(parents=True, exist_ok=True)
        body = yaml.safe_dump(other, sort_keys=False, allow_unicode=True)
        target.write_text((package[0] if package else "") + body, encoding="utf-8")
    monkeypatch.setenv("POISE_CONF", str(shuffled))
    again = planfile.make_plan(["study=demo"])
    assert digest(again.to_json()) == digest(plan.to_json())
    assert [cell.id for cell in again.cells] == [cell.id for cell in plan.cells]
    assert [batch.id for batch in again.batches] == [batch.id for batch in plan.batches]


def test_round_trip_through_json(demo: Study) -> None:
    plan = expand(demo, ["study=demo"])
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert again.to_json() == plan.to_json()
    assert again.prompts == plan.prompts
    assert ids(expand(again.study)) == ids(plan)


def test_frozen_plan_loads_as_it_was(demo: Study) -> None:
    plan = expand(demo)
    path = planfile.freeze(plan)
    assert planfile.load(path) == plan
    assert planfile.freeze(planfile.load(path)) == path


@pytest.mark.parametrize("damage", [b"", b"\xff{"])
def test_a_damaged_latest_plan_is_written_anew(demo: Study, damage: bytes) -> None:
    path = planfile.freeze(expand(demo))
    latest = paths.plan_file("demo")
    latest.write_bytes(damage)
    planfile.freeze(expand(demo))
    assert latest.read_bytes() == path.read_bytes()


def test_overrides_without_a_name_get_a_suffix_of_their_own() -> None:
    names = {
        compose_study(overrides).name
        for overrides in (
            ["study=demo"],
            ["study=demo", "seeds=[0]"],
            ["study=demo", "seeds=[1]"],
            ["study=demo", "seeds=[1]", "engine.dtype=bfloat16"],
        )
    }
    assert "demo" in names
    assert sorted(re.sub(r"[0-9a-f]{6}$", "x", name) for name in names) == [
        "demo",
        "demo-x",
        "demo-x",
        "demo-x",
    ]
    assert compose_study(["study=demo", "seeds=[1]", "name=more"]).name == "more"
    assert (
        compose_study(["seeds=[1]", "engine.dtype=bfloat16", "study=demo"]).name
        == compose_study(["study=demo", "engine.dtype=bfloat16", "seeds=[1]"]).name
    )


def test_sweeps_are_split_into_plain_overrides() -> None:
    assert expand_sweeps(["study=demo", "method.dnip.tau=0.2,1", "seeds=[0,1]"]) == [
        ["study=demo", "method.dnip.tau=0.2", "seeds=[0,1]"],
        ["study=demo", "method.dnip.tau=1", "seeds=[0,1]"],
    ]
    assert compose_study(expand_sweeps(["method.dnip.tau=0.2,1"])[1]).methods["dnip"].tau == 1.0


# --- what is in an identity ---


def test_models_of_one_source_never_share_a_cell(demo: Study) -> None:
    name = "smollm2-135m-instruct"
    twin = demo.models[name].model_copy(update={"name": "twin"})
    study = demo.model_copy(update={"model": {**demo.model, "twin": twin}})
    plan = expand(study)
    mine, twins = ({cell.id for cell in plan.cells if cell.model == model} for model in (name, "twin"))
    assert mine == ids(expand(demo))
    assert len(twins) == len(mine)
    assert not mine & twins


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("engine__pack_tokens", 64),
        ("engine__flush_seconds", 1.0),
        ("engine__batch_requests", 10),
        ("engine__batch_minutes", 1),
        ("title", "another"),
        ("dataset__movies5__title", "another"),
        ("dataset__movies5__domain", "another"),
        ("dataset__movies5__source__licence", "another"),
        ("model__smollm2-135m-instruct__title", "another"),
        ("method__dnip__beta", 1.0),
        ("artefacts", []),
    ],
)
def test_what_affects_no_answer_changes_no_cell(demo: Study, key: str, value: object) -> None:
    assert ids(expand(changed(demo, **{key: value}))) == ids(expand(demo))


# What is changed, and the (experiment, data set) pairs whose cells it must change; all others must stay.
ACCURACY = {("class_accuracy", "r8"), ("class_accuracy", "movies5")}
EVERYTHING = {*ACCURACY, ("position", "tweets3")}


@pytest.mark.parametrize(
    ("key", "value", "affected"),
    [
        ("engine__dtype", "bfloat16", EVERYTHING),
        ("model__smollm2-135m-instruct__chat", True, EVERYTHING),
        ("model__smollm2-135m-instruct__label_tokens__scoring", "mean", EVERYTHING),
        ("model__smollm2-135m-instruct__context_length", 512, EVERYTHING),
        ("model__smollm2-135m-instruct__source__sha256", "0" * 64, EVERYTHING),
        (
            "dataset__movies5__prompt__label_words",
            ["terrible", "bad", "fine", "good", "great"],
            {("class_accuracy", "movies5")},
        ),
        ("dataset__movies5__prompt__separator", "\n", {("class_accuracy", "movies5")}),
        ("dataset__movies5__label_thresholds", [-2.0, -0.5, 0.5, 2.5], {("class_accuracy", "movies5")}),
        ("dataset__r8__max_words", 25, {("class_accuracy", "r8")}),
        ("dataset__tweets3__classes", ["bad", "neutral", "good"], {("position", "tweets3")}),
        ("experiment__position__prompt__separator", "tab", {("position", "tweets3")}),
        ("experiment__position__seeds", [7, 8, 9], {("position", "tweets3")}),
        ("experiment__position__shots", ["2_per_class"], {("position", "tweets3")}),
        (
            "experiment__class_accuracy__split",
            "paper",
            {("class_accuracy", "r8"), ("class_accuracy", "movies5")},
        ),
    ],
)
def test_what_affects_answers_changes_exactly_their_cells(
    demo: Study, key: str, value: object, affected: set[tuple[str, str]]
) -> None:
    before, after = (
        {pair: {cell.id for cell in plan.cells if (cell.experiment, cell.dataset) == pair} for pair in EVERYTHING}
        for plan in (expand(demo), expand(changed(demo, **{key: value})))
    )
    for pair in EVERYTHING:
        if pair in affected:
            assert not before[pair] & after[pair], pair
        else:
            assert before[pair] == after[pair], pair


def test_chat_options_are_part_of_an_identity(demo: Study) -> None:
    model = "model__smollm2-135m-instruct__chat"
    plans = [
        expand(changed(demo, **{model: True, f"{model}_options": options})) for options in ({}, {"thinking": False})
    ]
    assert not ids(plans[0]) & ids(plans[1])


def test_bytes_of_local_files_are_their_revision() -> None:
    study = compose_study(
        ["dataset=[sst5,tweets3]", "experiment=[class_accuracy,position]", "experiment.class_accuracy.datasets=[sst5]"]
    )
    one, other = (expand(study, content={"sst5": content}) for content in ("a", "b"))
    assert one.dataset_digests["sst5"] != other.dataset_digests["sst5"]
    assert one.dataset_digests["tweets3"] == other.dataset_digests["tweets3"]
    assert {cell.dataset for cell in one.cells if cell.id in ids(other)} == {"tweets3"}


def test_place_of_local_files_is_not_part_of_an_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = [
        "dataset=[sst5,tweets3]",
        "experiment=[class_accuracy,position]",
        "experiment.class_accuracy.datasets=[sst5]",
    ]
    plans = []
    for place in ("/here", "/there"):
        monkeypatch.setenv("POISE_DATA", place)
        plans.append(expand(compose_study(overrides), content={"sst5": "a"}))
    assert ids(plans[0]) == ids(plans[1])


# --- batches ---


def test_a_new_seed_asks_only_for_itself(demo: Study) -> None:
    first = expand(demo)
    more = changed(demo, experiment__class_accuracy__seeds=[0, 1, 2, 3], experiment__position__seeds=[0, 1, 2, 3])
    second = expand(more, finished=first.batches)
    new = [batch for batch in second.batches if batch not in first.batches]
    assert set(first.batches) <= set(second.batches)
    assert len(new) == 1
    assert {second.cell_by_id[cell].seed for cell in new[0].cells} == {3}
    assert set(new[0].cells) == ids(second) - ids(first)
    # Taking the seed away again leaves nothing to ask; asking for it again neither.
    assert expand(demo, finished=second.batches).batches == first.batches
    assert expand(more, finished=second.batches).batches == second.batches


def test_a_seed_less_keeps_the_finished_batch(demo: Study) -> None:
    first = expand(demo)
    fewer = changed(demo, experiment__class_accuracy__seeds=[0], experiment__position__seeds=[0])
    assert set(expand(fewer, finished=first.batches).batches) <= set(first.batches)
    assert set(expand(fewer).batches) - set(first.batches)  # without it: smaller batches of its own


def test_a_pending_batch_is_resumed_only_if_all_of_it_is_wanted(demo: Study) -> None:
    first = expand(demo)
    more = changed(demo, experiment__class_accuracy__seeds=[0, 1, 2, 3])
    resumed = expand(more, pending=first.batches)
    assert set(first.batches) <= set(resumed.batches)
    fewer = changed(demo, experiment__class_accuracy__seeds=[0])
    abandoned = [batch for batch in first.batches if not set(batch.cells) <= ids(expand(fewer))]
    assert abandoned
    again = expand(fewer, pending=first.batches)
    assert not set(abandoned) & set(again.batches)
    assert set(again.batch_of) == ids(again)


def test_a_finished_batch_goes_before_a_pending_one(demo: Study) -> None:
    seed0 = changed(demo, experiment__class_accuracy__seeds=[0], experiment__position__seeds=[0])
    finished = expand(seed0).batches
    pending = expand(demo).batches
    plan = expand(demo, finished=finished, pending=pending)
    assert set(finished) <= set(plan.batches)
    assert not {cell for batch in plan.batches if batch not in finished for cell in batch.cells} & {
        cell for batch in finished for cell in batch.cells
    }


def test_batches_hold_every_cell_once_and_one_model_each(demo: Study) -> None:
    twin = demo.models["smollm2-135m-instruct"].model_copy(update={"name": "twin"})
    plan = expand(demo.model_copy(update={"model": {**demo.model, "twin": twin}}))
    held = [cell for batch in plan.batches for cell in batch.cells]
    assert sorted(held) == sorted(ids(plan))
    assert all({plan.cell_by_id[cell].model for cell in batch.cells} == {batch.model} for batch in plan.batches)
    assert all(batch.id == digest(sorted(batch.cells)) for batch in plan.batches)


def test_batches_on_disk_are_found_again(demo: Study) -> None:
    plan = expand(demo)
    planfile.freeze(plan)
    assert [finished for _, finished in planfile.batches_on_disk()] == [False] * len(plan.batches)
    more = planfile.make_plan(["study=demo", "name=more", "seeds=[0,1,2,3]"])
    assert set(plan.batches) <= set(more.batches)


# --- the data set of one's own in data/README.md ---


def test_the_readmes_own_dataset_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    conf = tmp_path / "conf"
    shutil.copytree(CONF, conf)
    monkeypatch.setenv("POISE_CONF", str(conf))
    (conf / "dataset" / "mine.yaml").write_text(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0], "utf-8")
    command = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[0].split("\nmake")[0]
    overrides = shlex.split(command.replace("\\\n", " "))[2:]
    folder = tmp_path / "data" / "local" / "mine"
    folder.mkdir(parents=True)
    (folder / "train.csv").write_text('text,label\n"So, so",1\nFine,2\nAwful,0\n', encoding="utf-8")
    (folder / "test.csv").write_text("label,text\n0,Broken\n2,Lovely\n", encoding="utf-8")
    plan = planfile.make_plan(overrides)
    assert plan.study.name == "mine"
    assert {cell.dataset for cell in plan.cells} == {"mine"}
    dataset = plan.study.datasets["mine"]
    rows = prepare(dataset, planfile.source_file(dataset.source, ""))
    assert rows["text"].tolist() == ["So, so", "Fine", "Awful", "Broken", "Lovely"]
    assert rows["label"].tolist() == [1, 2, 0, 0, 2]
    (folder / "test.csv").write_text("label,text\n0,Broken\n1,Lovely\n", encoding="utf-8")
    again = planfile.make_plan(overrides)
    assert not {cell.id for cell in plan.cells} & {cell.id for cell in again.cells}
