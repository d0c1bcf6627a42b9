"""Files are replaced atomically, and errors of the operating system are one line with a remedy."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from toys import one_line

from hadahash import files
from hadahash.errors import StorageError, UsageError


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


def test_saving_does_not_change_the_umask_of_other_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask of the process was set"))
    files.write_text(tmp_path / "value.txt", "new")
    assert (tmp_path / "value.txt").read_text() == "new"


def test_a_symbolic_link_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "value.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    files.write_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["value.txt"]


def test_json_is_ascii_and_keeps_names_that_are_not_unicode(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    files.write_json(tmp_path / "x.json", {name: [name]})
    assert (tmp_path / "x.json").read_bytes().isascii()
    assert files.read_json(tmp_path / "x.json") == {name: [name]}


@pytest.mark.parametrize("read", [files.read_json, files.read_toml])
def test_only_regular_files_are_read(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    for name, text in (
        ("pipe", "it is a pipe or a device"),
        ("zero", "it is a pipe or a device"),
        ("loop", "leads back to itself"),
        ("folder", "It is a folder"),
        ("n" * 300, "too long"),
        ("none", "Check the path"),
    ):
        with pytest.raises(StorageError, match=text) as caught:
            read(tmp_path / name)
        one_line(caught.value)


def test_writing_to_names_that_are_invalid_is_a_one_line_error(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    for name in ("n" * 300, "loop", "folder"):
        with pytest.raises(StorageError, match="Cannot write") as caught:
            files.write_text(tmp_path / name, "x")
        one_line(caught.value)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000])
def test_hostile_json_is_damage(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(StorageError, match=r"x\.json is damaged") as caught:
        files.read_json(tmp_path / "x.json")
    one_line(caught.value)


def test_hostile_toml_is_a_one_line_error(tmp_path):
    (tmp_path / "x.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(UsageError, match=r"x\.toml is not valid TOML") as caught:
        files.read_toml(tmp_path / "x.toml")
    one_line(caught.value)


def test_a_file_without_permission_names_the_permission_to_read():
    text = str(files.storage_error("read", "x", PermissionError(errno.EACCES, "Permission denied")))
    assert "no permission to read it" in text and "write" not in text


def test_a_locked_folder_is_refused_until_it_is_free(tmp_path):
    with files.locked(tmp_path / "run"):
        with (
            pytest.raises(UsageError, match="Another process is writing") as caught,
            files.locked(tmp_path / "run"),
        ):
            pass
        one_line(caught.value)
    with files.locked(tmp_path / "run"):
        pass


def test_file_systems_without_locks_are_used_without_one(tmp_path, monkeypatch):
    def refuse(*_args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with files.locked(tmp_path):
        files.write_text(tmp_path / "value.txt", "new")
    assert (tmp_path / "value.txt").read_text() == "new"
