"""Downloads: package files and hub repositories, each checked before anything reads it. Needs the network."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from poise.config.sources import HubSource, PackageFile
from poise.errors import PoiseError
from poise.files import replacing
from poise.hashing import file_sha256


def fetch_package(source: PackageFile, target: Path) -> None:
    """Download a package file from the Python package index; nothing of it is installed.

    pip is told the expected SHA-256, so that it refuses other bytes before it looks at them (it would ask the
    set-up script of a source package for its name and version); the file on disk is checked once more.

    Raises
    ------
    PoiseError
        If the download fails or the checksum differs.
    """
    if target.is_file() and file_sha256(target) == source.sha256:
        return
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text(f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                   "--no-deps", "--require-hashes", "--dest", folder,
                   "--requirement", str(requirements)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PoiseError(f"package {source.package} {source.version}: {_pip_reason(done.stderr)}")
        check_sha256(Path(folder) / source.filename, source.sha256)
        with replacing(target) as temporary:
            temporary.write_bytes((Path(folder) / source.filename).read_bytes())


def check_sha256(path: Path, expected: str) -> None:
    """Compare a file with its pinned checksum."""
    if not path.is_file():
        raise PoiseError(f"{path.name}: the download does not hold this file; check 'filename' in the configuration")
    found = file_sha256(path)
    if found != expected:
        raise PoiseError(f"{path}: sha256 is {found}, expected {expected}; delete the file, then check the source")


def fetch_hub(source: HubSource, repo_type: str, target: Path, patterns: list[str] | None = None) -> None:
    """Download a hub repository at its pinned revision into ``target``: safetensors, no code, no pickles.

    Each file is compared with the checksum that the revision's tree has of it.

    ``HF_ENDPOINT`` and ``HF_TOKEN`` are honoured as everywhere in the Hugging Face libraries.
    """
    from huggingface_hub import HfApi, snapshot_download

    try:
        snapshot_download(
            source.repo,
            revision=source.revision,
            repo_type=repo_type,
            local_dir=target,
            allow_patterns=patterns,
            ignore_patterns=[
                "*.py",
                "*.bin",
                "*.pt",
                "*.pth",
                "*.pkl",
                "*.h5",
                "*.msgpack",
                "*.onnx",
                "*.ot",
                "onnx/*",
                "original/*",
            ],
        )
        tree = list(HfApi().list_repo_tree(source.repo, recursive=True, revision=source.revision, repo_type=repo_type))
    except Exception as error:  # of the hub's client, of the HTTP library beneath it, of the disk
        reason = " ".join(str(error).split())[:200]
        terms = "; accept its terms on its hub page and set HF_TOKEN" if _is_refusal(error) else ""
        raise PoiseError(f"hub {source.repo} @ {source.revision[:12]}: download failed: {reason}{terms}") from error
    for entry in tree:
        path = target / entry.path
        if path.is_file():
            large = getattr(entry, "lfs", None)
            expected = large.sha256 if large else entry.blob_id
            found = file_sha256(path) if large else _git_sha1(path)
            if found != expected:
                path.unlink()
                raise PoiseError(
                    f"hub {source.repo} @ {source.revision[:12]}: {entry.path}: checksum is {found}, "
                    f"expected {expected}; the download was damaged, run again"
                )


def _git_sha1(path: Path) -> str:
    """Git's name for the content of a file."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _is_refusal(error: BaseException | None) -> bool:
    """Whether the hub wants to know who asks: the status is 401 or 403."""
    while error is not None:
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            return True
        error = error.__cause__ or error.__context__
    return False


def _pip_reason(stderr: str) -> str:
    mismatch = re.search(r"Expected sha256 (\w+)\s+Got\s+(\w+)", stderr)
    if mismatch:
        return f"sha256 is {mismatch[2]}, expected {mismatch[1]}; check the pinned sha256 or the index"
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR")]
    return f"pip could not download it: {errors[0] if errors else ' '.join(stderr.split())[-200:]}"
