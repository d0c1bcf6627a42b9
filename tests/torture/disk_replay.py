"""What a disk may hold after a power cut: recorded calls, of which some were not flushed.

A write is certain after fsync of its file; a new, renamed or removed name after fsync of its
folder. Of all other calls before the cut any may be missing.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

_HEADER = struct.Struct("<c7xQqQQ")


class Call(NamedTuple):
    kind: (
        str  # Create, Write, Truncate, Sync, Directory sync, Rename, Unlink, Makedir, Acknowledged
    )
    inode: int
    offset: int
    path: str
    rest: bytes


def read_log(path: Path) -> list[Call]:
    data, at, calls = path.read_bytes(), 0, []
    while at < len(data):
        kind, inode, offset, first, second = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        name = data[at : at + first].decode()
        calls.append(
            Call(kind.decode(), inode, offset, name, data[at + first : at + first + second])
        )
        at += first + second
    return calls


class Entry(NamedTuple):
    is_folder: bool
    number: int


Place = tuple[int, str]  # number of a folder, and a name in it
Names = dict[Place, Entry]
Change = tuple[tuple[Place, Entry | None], ...]  # one atomic change of names

_ROOT = 0


@dataclass
class Disk:
    """What is certain, and what is not yet. Folders have numbers: names in them move with them."""

    root: Path
    names: Names = field(default_factory=dict)
    content: dict[int, bytearray] = field(default_factory=dict)
    new_names: list[tuple[int, Change]] = field(default_factory=list)  # (folder to flush, change)
    writes: dict[int, list[tuple[str, int, bytes]]] = field(default_factory=dict)
    current: Names = field(default_factory=dict)  # the names a program sees
    numbers: dict[int, int] = field(default_factory=dict)  # inode -> file; inodes are used again
    last: int = _ROOT

    def do(self, call: Call) -> None:
        if call.kind in "CMRUX":
            self._change_names(call)
        elif call.kind == "D":
            self._settle(self.folder(call.path))
        elif call.inode in self.numbers:
            self._change_content(self.numbers[call.inode], call)

    def new(self, *, is_folder: bool) -> Entry:
        self.last += 1
        if not is_folder:
            self.content[self.last] = bytearray()
        return Entry(is_folder, self.last)

    def folder(self, path: str | Path) -> int:
        number = _ROOT
        for name in Path(path).relative_to(self.root).parts:
            number = self.current[number, name].number
        return number

    def place(self, path: str | Path) -> Place:
        return self.folder(Path(path).parent), Path(path).name

    def _change_names(self, call: Call) -> None:
        if call.path == str(self.root):
            return  # its own name is not below it
        place = self.place(call.path)
        if call.kind == "R":
            target = self.place(call.rest.decode())
            self._rename(target[0], ((target, self.current[place]), (place, None)))
        elif call.kind in "UX":
            self._rename(place[0], ((place, None),))
        else:
            entry = self.new(is_folder=call.kind == "M")
            if call.kind == "C":
                self.numbers[call.inode] = entry.number
            self._rename(place[0], ((place, entry),))

    def _change_content(self, number: int, call: Call) -> None:
        if call.kind == "S":
            for each in self.writes.pop(number, ()):
                change(self.content[number], *each)
        else:
            writes = self.writes.setdefault(number, [])
            writes.append((call.kind, call.offset, call.rest))

    def _rename(self, folder: int, names: Change) -> None:
        self.new_names.append((folder, names))
        put(self.current, names)

    def _settle(self, folder: int) -> None:
        for where, names in self.new_names:
            if where == folder:
                put(self.names, names)
        self.new_names = [each for each in self.new_names if each[0] != folder]


def change(content: bytearray, kind: str, offset: int, data: bytes) -> None:
    if kind == "T":
        del content[offset:]
        content.extend(bytes(offset - len(content)))
    else:
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data


def put(names: Names, changes: Change) -> None:
    for place, entry in changes:
        if entry is None:
            names.pop(place, None)
        else:
            names[place] = entry


def tree(names: Names, folder: int = _ROOT, path: str = "") -> Iterator[tuple[str, Entry]]:
    """What is found below a folder: relative paths and entries."""
    for (where, name), entry in names.items():
        if where == folder:
            yield path + name, entry
            if entry.is_folder:
                yield from tree(names, entry.number, f"{path}{name}/")


class CrashState(NamedTuple):
    """Files after a power cut.

    Attributes:
        files: Content by path relative to the folder.
        folders: Relative paths of the folders.
        marks: Number of changes that were acknowledged before.
        description: The call before the cut, and what was lost.
    """

    files: dict[str, bytes]
    folders: list[str]
    marks: int
    description: str

    def write(self, target: Path) -> None:
        target.mkdir(parents=True)
        for name in self.folders:
            (target / name).mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(content)


def crash_states(
    calls: list[Call],
    folder: Path,
    first: Path,
    inodes: dict[int, Path],
    rng: np.random.Generator,
    positions: Container[int],
) -> Iterator[CrashState]:
    """States after calls: nothing, everything or a random part of what is uncertain is lost."""
    disk, marks, seen = _initial(folder, first, inodes), 0, set()
    for position, call in enumerate(calls):
        if call.kind == "A":
            marks += 1
        else:
            disk.do(call)
        if position not in positions:
            continue
        for what in ("all lost", "all kept", "data lost", "names lost", "some lost", "some lost"):
            files, folders = _after(disk, what, rng)
            key = hash((marks, tuple(sorted(files.items())), tuple(sorted(folders))))
            if key not in seen:
                seen.add(key)
                text = f"cut after call {position} ({call.kind} {Path(call.path).name}), {what}"
                yield CrashState(files, folders, marks, text)


def _initial(folder: Path, first: Path, inodes: dict[int, Path]) -> Disk:
    disk = Disk(folder)
    inode_of = {path: inode for inode, path in inodes.items()}
    for path in sorted(first.rglob("*")):
        own = folder / path.relative_to(first)
        place, entry = disk.place(own), disk.new(is_folder=path.is_dir())
        disk.names[place] = disk.current[place] = entry
        if not entry.is_folder:
            disk.numbers[inode_of[own]] = entry.number
            disk.content[entry.number] = bytearray(path.read_bytes())
    return disk


def _after(disk: Disk, what: str, rng: np.random.Generator) -> tuple[dict[str, bytes], list[str]]:
    names = dict(disk.names)
    for _, each in disk.new_names:
        kept = {"all lost": False, "names lost": False, "some lost": rng.random() < 0.5}
        if kept.get(what, True):
            put(names, each)
    found = list(tree(names))
    files = {
        path: bytes(_content(disk, entry.number, what, rng))
        for path, entry in found
        if not entry.is_folder
    }
    return files, [path for path, entry in found if entry.is_folder]


def _content(disk: Disk, number: int, what: str, rng: np.random.Generator) -> bytearray:
    content = bytearray(disk.content[number])
    for kind, offset, data in disk.writes.get(number, ()):
        if what in ("all lost", "data lost"):
            continue
        if what == "some lost":
            if rng.random() < 0.4:
                continue
            data = data[: rng.integers(len(data) + 1)] if rng.random() < 0.3 else data
        change(content, kind, offset, data)
    return content
