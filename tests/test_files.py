"""Files are replaced whole or not at all, and what the operating system refuses becomes one line with a remedy."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from toys import one_line

from hadahash import files
from hadahash.errors import StorageError


def test_write_and_read_back(tmp_path):
    path = tmp_path / "deep" / "er" / "value.json"
    files.write_json(path, {"name": "Grünes Ä", "values": [1, 2.5, None]})
    assert files.read_json(path) == {"name": "Grünes Ä", "values": [1, 2.5, None]}
    files.write_bytes(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert list(path.parent.iterdir()) == [path]


def test_a_failing_block_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "value.txt"
    files.write_text(path, "old")
    with pytest.raises(RuntimeError), files.replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["write", "flush", "rename"])
@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "The disk is full"), (errno.EDQUOT, "quota"), (errno.EIO, "Check the path")],
)
def test_a_full_disk_at_any_moment_leaves_the_old_file(
    tmp_path, monkeypatch, place, number, remedy
):
    path = tmp_path / "value.txt"
    files.write_text(path, "old")

    def fail(*_args: object, **_options: object) -> None:
        raise OSError(number, os.strerror(number))

    target = {"write": (Path, "write_bytes"), "flush": (os, "fsync"), "rename": (Path, "replace")}[
        place
    ]
    monkeypatch.setattr(*target, fail)
    with pytest.raises(StorageError, match=remedy) as caught:
        files.write_text(path, "new")
    assert str(path) in one_line(caught.value)
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_content_is_on_the_disk_before_the_name_changes(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append("flush"), fsync(handle)))
    monkeypatch.setattr(
        Path, "replace", lambda self, target: (events.append("rename"), replace(self, target))
    )
    files.write_text(tmp_path / "value.txt", "new")
    assert events == ["flush", "rename", "flush"]


def test_a_path_below_a_file_is_refused_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StorageError, match=r"Cannot write .*file/x.json: .*choose another folder"
    ) as caught:
        files.write_json(tmp_path / "file" / "x.json", 1)
    one_line(caught.value)


def test_very_long_names_and_permissions_of_the_umask(tmp_path):
    path = tmp_path / ("n" * 250)
    old = os.umask(0o027)
    try:
        files.write_text(path, "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_unreadable_and_damaged_json(tmp_path):
    with pytest.raises(StorageError, match=r"Cannot read .*none.json: No such file") as caught:
        files.read_json(tmp_path / "none.json")
    one_line(caught.value)
    for content in (b'{"a": ', b"\xff\xfe\x00", b""):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(StorageError, match=r"bad.json is damaged \(not valid JSON") as caught:
            files.read_json(tmp_path / "bad.json")
        one_line(caught.value)
