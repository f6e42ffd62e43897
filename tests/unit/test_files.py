"""Files are written whole or not at all, with the same bytes each time, and damage is noticed."""

import errno
import hashlib
import os
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from poise.errors import PoiseError
from poise.files import read_parquet, replacing, write_json, write_parquet, write_text

FRAME = pd.DataFrame(
    {
        "id": [f"row {k}" for k in range(40)],
        "text": ["naïve 日本語"] * 40,
        "label": range(40),
        "logprobs": [[-0.5 * k, -1.0 / (k + 1)] for k in range(40)],
    }
)


def names(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    target = tmp_path / "new" / "file.txt"
    with replacing(target) as temporary:
        assert temporary.parent == target.parent  # a rename within one file system
        assert temporary.suffix == ".txt"
        temporary.write_text("half")
        assert not target.exists()
        temporary.write_text("whole")
    assert target.read_text() == "whole"
    assert names(tmp_path / "new") == ["file.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_an_error_leaves_the_old_file_and_no_temporary(tmp_path, error):
    target = tmp_path / "file.txt"
    target.write_text("old")

    def fail():
        with replacing(target) as temporary:
            temporary.write_text("half of the n")
            raise error

    with pytest.raises(error):
        fail()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["file.txt"]


def test_folders_too(tmp_path):
    def write(fail):
        with replacing(tmp_path / "model.abc123") as temporary:
            (temporary / "deep").mkdir(parents=True)
            (temporary / "deep" / "weights").write_text("w")
            if fail:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        write(fail=True)
    assert names(tmp_path) == []
    write(fail=False)
    assert names(tmp_path) == ["deep", "model.abc123", "weights"]


def test_what_a_killed_process_of_the_same_number_left_is_no_hindrance(tmp_path):
    target = tmp_path / "model"
    with replacing(target) as temporary:
        temporary.mkdir()
    target.rmdir()
    assert str(os.getpid()) in temporary.name  # so that two processes never share a temporary name
    temporary.mkdir()
    (temporary / "stale").write_text("half")
    with replacing(target) as again:
        again.mkdir()
    assert again == temporary
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("writer", ["text", "parquet"])
def test_a_full_disk_leaves_the_old_file_whole(tmp_path, monkeypatch, writer):
    target = tmp_path / ("a.txt" if writer == "text" else "a.parquet")
    write = {"text": lambda: write_text(target, "new" * 99), "parquet": lambda: write_parquet(target, FRAME)}[writer]
    write()
    before = target.read_bytes()

    def full(path, *args, **kwargs):
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", lambda _, path, **options: full(path, options))
    with pytest.raises(PoiseError, match="no space left on the disk; make room, then run the same command again"):
        write()
    assert target.read_bytes() == before
    assert names(tmp_path) == [target.name]
    target.unlink()
    with pytest.raises(PoiseError, match="no space left on the disk"):
        write()
    assert names(tmp_path) == []


def test_json_is_canonical_utf8(tmp_path):
    write_json(tmp_path / "a.json", {"b": "é", "a": [1, None]})
    assert (tmp_path / "a.json").read_bytes() == '{\n "a": [\n  1,\n  null\n ],\n "b": "é"\n}\n'.encode()


def test_parquet_comes_back_equal_and_its_bytes_are_the_same_each_time(tmp_path):
    digests = set()
    for name in ("a.parquet", "b.parquet"):
        write_parquet(tmp_path / name, FRAME.copy())
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1
    write_parquet(tmp_path / "c.parquet", FRAME.set_axis(range(5, 45)))
    assert (tmp_path / "c.parquet").read_bytes() == (tmp_path / "a.parquet").read_bytes()
    found = read_parquet(tmp_path / "a.parquet")
    found["logprobs"] = [list(row) for row in found["logprobs"]]
    pd.testing.assert_frame_equal(found, FRAME)


def one_line(path):
    with pytest.raises(PoiseError) as error:
        read_parquet(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def test_unreadable_parquet_is_one_line(tmp_path):
    path = tmp_path / "a.parquet"
    assert one_line(path).endswith("file not found")
    for content in (b"", b"PAR1", b"hello, this is no parquet file"):
        path.write_bytes(content)
        assert "not a readable Parquet file" in one_line(path)
    write_parquet(path, FRAME)
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        assert "delete it and run again" in one_line(path)


def test_a_flipped_byte_never_changes_a_number_unnoticed(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, FRAME)
    content = path.read_bytes()
    intact = read_parquet(path)
    noticed = 0
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")  # a description of the columns follows
    for position in range(4, pages, 3):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        try:
            found = read_parquet(path)
        except PoiseError:
            noticed += 1
        else:
            pd.testing.assert_frame_equal(found, intact)
    assert noticed > 0.8 * len(range(4, pages, 3))


def test_a_flipped_byte_in_the_description_is_one_line_at_worst(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, FRAME)
    content = path.read_bytes()
    unreadable = 0
    for position in range(len(content) - 8 - int.from_bytes(content[-8:-4], "little"), len(content), 13):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with suppress(PoiseError):
            read_parquet(path)
            continue
        unreadable += 1
    assert unreadable > 20
