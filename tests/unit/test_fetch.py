"""Downloads by the real clients of pip and the hub, from a folder and a loopback server; models made of packages."""

import hashlib
import json
import re
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from poise.config.compose import compose_study
from poise.config.schema import Study
from poise.config.sources import HubSource, PackageSource
from poise.datasets.fetch import check_sha256, fetch_hub, fetch_package
from poise.errors import PoiseError
from poise.plan import expand
from poise.stages import fetch
from poise.workflow import Workflow
from tests.conftest import ROOT

WHEEL = "toydata-1.0-py3-none-any.whl"
REVISION = "0123456789abcdef0123456789abcdef01234567"


def one_line(error):
    message = str(error.value)
    assert "\n" not in message
    return message


def make_wheel(folder, name, member, content):
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/{member}", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of packages that pip takes for its index, with one wheel in it."""
    folder = tmp_path / "index"
    folder.mkdir()
    make_wheel(folder, "toydata", "rows.csv", "text,label\none,neg\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return folder


def package(index, **changes):
    content = (index / WHEEL).read_bytes()
    values = {
        "kind": "package",
        "package": "toydata",
        "version": "1.0",
        "filename": WHEEL,
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": len(content),
        "licence": "none",
    }
    return PackageSource.model_validate({**values, **changes})


def test_a_package_file_arrives_as_it_is_and_only_once(index, tmp_path):
    target = tmp_path / "downloads" / WHEEL
    fetch_package(package(index), target)
    assert target.read_bytes() == (index / WHEEL).read_bytes()
    assert [path.name for path in target.parent.iterdir()] == [WHEEL]
    source = package(index)
    (index / WHEEL).unlink()
    fetch_package(source, target)  # already there and intact: the index is not asked
    target.write_bytes(b"damaged")
    with pytest.raises(PoiseError):
        fetch_package(source, target)


def test_a_damaged_file_is_replaced(index, tmp_path):
    target = tmp_path / WHEEL
    target.write_bytes(b"damaged")
    fetch_package(package(index), target)
    assert target.read_bytes() == (index / WHEEL).read_bytes()


def test_another_checksum_is_one_line_with_both(index, tmp_path):
    found, expected = package(index).sha256, "0" * 64
    with pytest.raises(PoiseError) as error:
        fetch_package(package(index, sha256=expected), tmp_path / "downloads" / WHEEL)
    assert one_line(error).startswith(f"package toydata 1.0: sha256 is {found}, expected {expected}")
    assert not (tmp_path / "downloads").exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"package": "no-such-toy"},
            "package no-such-toy 1.0: pip could not download it: Could not find a version",
        ),
        ({"version": "2.0"}, "package toydata 2.0: pip could not download it: Could not find a version"),
        ({"filename": "toydata.zip"}, "toydata.zip: the download does not hold this file; check 'filename'"),
    ],
)
def test_what_is_not_there_is_one_line(index, tmp_path, changes, expected):
    with pytest.raises(PoiseError) as error:
        fetch_package(package(index, **changes), tmp_path / "downloads" / WHEEL)
    assert one_line(error).startswith(expected)
    assert not (tmp_path / "downloads").exists()


def test_check_sha256_names_file_and_both_digests(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, example 1
    check_sha256(path, known)
    with pytest.raises(PoiseError) as error:
        check_sha256(path, "f" * 64)
    assert all(part in one_line(error) for part in (str(path), known, "f" * 64))


# --- a model that is cut over several packages ---

PIECES = {"toypart1": b"GGUF, the first ", "toypart2": b"half and the second"}


@pytest.fixture(scope="module")
def demo():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POISE_CONF", str(ROOT / "conf"))
        return compose_study(["study=demo", "artefacts=[dnip_table1]"])


@pytest.fixture
def cut_model(index, demo, tmp_path, monkeypatch):
    """Plan of a study with a toy model in two packages; ``change`` alters its source before planning."""
    monkeypatch.chdir(tmp_path)
    parts = []
    for name, piece in PIECES.items():
        make_wheel(index, name, "data/piece", piece)
        filename = f"{name}-1.0-py3-none-any.whl"
        known = hashlib.sha256((index / filename).read_bytes()).hexdigest()
        parts.append({"package": name, "version": "1.0", "filename": filename, "sha256": known, "size_bytes": 1,
                      "member": f"{name}/data/piece"})  # fmt: skip
    joined = hashlib.sha256(b"".join(PIECES.values())).hexdigest()

    def make(change=None):
        source = {"kind": "packages", "parts": parts, "sha256": joined, "licence": "none"}
        if change is not None:
            change(source)
        raw = demo.model_dump(mode="json")
        toy = {"name": "toy", "title": "Toy", "source": source, "gguf": "toy.gguf", "context_length": 8}
        return expand(Study.model_validate({**raw, "model": {"toy": toy}}))

    return make


@pytest.fixture
def converted(monkeypatch):
    """Bytes of the GGUF files that were to be converted, by name."""
    found = {}

    def convert(gguf, folder):
        found[gguf.name] = gguf.read_bytes()
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(fetch, "convert_gguf", convert)
    return found


def test_parts_are_downloaded_one_by_one_and_joined_in_order(cut_model, converted):
    plan = cut_model()
    wanted = Workflow(plan).model_inputs(type("Wildcards", (), {"model": "toy"}))
    assert wanted == ["data/downloads/toypart1-1.0-py3-none-any.whl", "data/downloads/toypart2-1.0-py3-none-any.whl"]
    for path in wanted:
        fetch.download(plan, path.rsplit("/", 1)[1])
    fetch.prepare_model(plan, "toy")
    assert converted == {"toy.gguf": b"GGUF, the first half and the second"}


def test_a_source_of_packages_knows_its_bytes(cut_model):
    def other_sum(source):
        source["sha256"] = "0" * 64

    assert cut_model().model_digests != cut_model(other_sum).model_digests


def test_a_part_that_is_not_there_is_one_line(cut_model, converted):
    plan = cut_model()
    fetch.download(plan, "toypart1-1.0-py3-none-any.whl")
    with pytest.raises(PoiseError) as error:
        fetch.prepare_model(plan, "toy")
    name = "toypart2-1.0-py3-none-any.whl"
    assert one_line(error) == f"data/downloads/{name}: not there; get it with: poise download --file {name}"
    assert not converted


def test_a_wrong_checksum_of_a_part_is_one_line(cut_model):
    def change(source):
        source["parts"][1]["sha256"] = "0" * 64

    plan = cut_model(change)
    with pytest.raises(PoiseError) as error:
        fetch.download(plan, "toypart2-1.0-py3-none-any.whl")
    assert one_line(error).startswith("package toypart2 1.0: sha256 is ")


def test_parts_in_another_order_are_one_line(cut_model, converted):
    found = hashlib.sha256(b"half and the secondGGUF, the first ").hexdigest()
    expected = hashlib.sha256(b"GGUF, the first half and the second").hexdigest()
    plan = cut_model(lambda source: source["parts"].reverse())
    for name in PIECES:
        fetch.download(plan, f"{name}-1.0-py3-none-any.whl")
    with pytest.raises(PoiseError) as error:
        fetch.prepare_model(plan, "toy")
    assert one_line(error).startswith(
        f"model toy: its 2 parts joined have sha256 {found}, expected {expected}; check the order of 'source.parts'"
    )
    assert not converted
    assert not list(Path("data/models").glob("**/*"))


def test_a_part_without_its_member_is_one_line(cut_model, converted):
    def change(source):
        source["parts"][0]["member"] = "toypart1/piece"

    plan = cut_model(change)
    for name in PIECES:
        fetch.download(plan, f"{name}-1.0-py3-none-any.whl")
    with pytest.raises(PoiseError) as error:
        fetch.prepare_model(plan, "toy")
    assert one_line(error) == (
        "toypart1-1.0-py3-none-any.whl: not a zip archive with a file 'toypart1/piece' inside; "
        "check 'member' in the configuration"
    )


def test_a_file_that_no_source_wants_is_one_line(cut_model):
    with pytest.raises(PoiseError, match=r"^other\.whl: no data set or model of this plan wants this file$"):
        fetch.download(cut_model(), "other.whl")


def test_a_data_set_cannot_be_cut_over_packages(demo):
    raw = demo.model_dump(mode="json")
    raw["dataset"]["r8"]["source"] = {"kind": "packages", "parts": [], "sha256": "0" * 64, "licence": "none"}
    with pytest.raises(ValueError, match="does not match any of the expected tags"):
        Study.model_validate(raw)


FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "tokenizer/vocab.txt": b"a\nb\n",
    "modeling_toy.py": b"raise SystemExit",
    "pytorch_model.bin": b"pickle",
    "old/weights.pt": b"pickle",
    "data/train.csv": b"text,label\none,neg\n",
    "data/test.csv": b"text,label\ntwo,pos\n",
}


class Hub(BaseHTTPRequestHandler):
    """The little of the hub that a snapshot download needs."""

    asked: list[str]
    broken = False
    refusal = 0  # status for everything, if not 0
    altered = ""  # a file that arrives with other bytes than the tree says

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.asked.append(self.path)
        if self.refusal:
            self.answer(self.refusal, b"", {})
            return
        tree = re.match(rf"/api/(models|datasets)/owner/toy/tree/{REVISION}\?", self.path)
        file = re.match(rf"/(datasets/)?owner/toy/resolve/{REVISION}/(.+)", self.path)
        if tree:
            entries = [
                {"type": "file", "path": name, "size": len(content), **self.checksum(name, content)}
                for name, content in FILES.items()
            ]
            self.answer(200, json.dumps(entries).encode(), {"Content-Type": "application/json"})
        elif file and file[2] in FILES:
            content = FILES[file[2]]
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            content = content if file[2] != self.altered else content[::-1]
            self.answer(200, content, {"ETag": etag, "X-Repo-Commit": REVISION}, cut=self.broken)
        else:
            self.answer(404, b"", {})

    def checksum(self, name, content):
        git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        if not name.endswith((".safetensors", ".bin", ".pt")):
            return {"oid": git}
        sha256 = hashlib.sha256(content).hexdigest()
        return {"oid": git, "lfs": {"oid": sha256, "size": len(content), "pointerSize": 100}}

    def answer(self, status, content, headers, cut=False):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:1] if cut else content)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub on this machine; what it was asked for is in ``asked``."""
    from huggingface_hub import constants

    handler = type("Handler", (Hub,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", address)  # what HF_ENDPOINT sets when the library is imported
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client waits between its tries
    yield handler
    server.shutdown()
    server.server_close()


def hub_source(repo="owner/toy"):
    return HubSource(kind="hub", repo=repo, revision=REVISION)


def arrived(folder):
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix(): (folder / path).read_bytes() for path in files if path.parts[0] != ".cache"}


def test_a_hub_model_arrives_without_code_and_pickles(hub, tmp_path):
    fetch_hub(hub_source(), "model", tmp_path / "model")
    wanted = {"config.json", "model.safetensors", "tokenizer/vocab.txt", "data/train.csv", "data/test.csv"}
    assert arrived(tmp_path / "model") == {name: FILES[name] for name in wanted}
    assert not [path for path in hub.asked if path.endswith((".py", ".bin", ".pt"))]


def test_of_a_hub_data_set_only_the_tables_arrive(hub, tmp_path):
    fetch_hub(hub_source(), "dataset", tmp_path / "data", ["data/train.csv", "data/test.csv"])
    assert arrived(tmp_path / "data") == {name: FILES[name] for name in ("data/train.csv", "data/test.csv")}
    assert all("/datasets/owner/toy/" in path for path in hub.asked if "owner" in path)


def test_an_unknown_repository_is_one_line(hub, tmp_path):
    with pytest.raises(PoiseError) as error:
        fetch_hub(hub_source("owner/other"), "model", tmp_path / "model")
    assert one_line(error).startswith("hub owner/other @ 0123456789ab: download failed: ")
    assert "404" in one_line(error)


@pytest.mark.parametrize("status", [401, 403])
def test_a_hub_that_refuses_is_one_line_with_the_way_in(hub, tmp_path, status):
    hub.refusal = status
    with pytest.raises(PoiseError) as error:
        fetch_hub(hub_source(), "model", tmp_path / "model")
    assert one_line(error).endswith("; accept its terms on its hub page and set HF_TOKEN")
    hub.refusal = 500
    with pytest.raises(PoiseError) as error:
        fetch_hub(hub_source(), "model", tmp_path / "model")
    assert "HF_TOKEN" not in one_line(error)


def test_a_download_that_breaks_off_is_one_line_and_no_file(hub, tmp_path):
    hub.broken = True
    with pytest.raises(PoiseError) as error:
        fetch_hub(hub_source(), "model", tmp_path / "model")
    assert one_line(error).startswith("hub owner/toy @ 0123456789ab: download failed: ")
    assert arrived(tmp_path / "model") == {}
    hub.broken = False
    fetch_hub(hub_source(), "model", tmp_path / "model")  # and the next try succeeds
    assert arrived(tmp_path / "model")["model.safetensors"] == b"weights"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_other_bytes_than_the_revision_has_are_one_line_and_no_file(hub, tmp_path, name):
    hub.altered = name
    with pytest.raises(PoiseError) as error:
        fetch_hub(hub_source(), "model", tmp_path / "model")
    assert one_line(error).startswith(f"hub owner/toy @ 0123456789ab: {name}: checksum is ")
    assert not (tmp_path / "model" / name).exists()


def test_an_unreachable_hub_is_one_line(hub, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the discard port: nobody listens
    with pytest.raises(PoiseError) as error:
        fetch_hub(hub_source(), "model", tmp_path / "model")
    assert one_line(error).startswith("hub owner/toy @ 0123456789ab: download failed: ")
    assert "refused" in one_line(error)


def test_a_damaged_gguf_file_is_one_line(tmp_path):
    from poise.engines.gguf import convert_gguf

    for content in (b"", b"no model", b"GGUF\x03\x00\x00\x00" + b"\x05" * 40):
        (tmp_path / "toy.gguf").write_bytes(content)
        with pytest.raises(PoiseError, match=r"^toy\.gguf: not a readable GGUF model: ") as error:
            convert_gguf(tmp_path / "toy.gguf", tmp_path / "model")
        one_line(error)
    assert not (tmp_path / "model").exists()
