"""What a disk may hold after a power cut: recorded calls, of which some were not flushed.

A write is certain after fsync of its file; a new, renamed or removed name after fsync of its
folder. Of all other calls before the cut any may be missing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
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


Names = tuple[tuple[str, int | None], ...]  # one atomic change of names


@dataclass
class Disk:
    """What is certain, and what is not yet."""

    names: dict[str, int] = field(default_factory=dict)
    content: dict[int, bytearray] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    new_names: list[tuple[str, Names]] = field(default_factory=list)  # (folder, change)
    writes: dict[int, list[tuple[str, int, bytes]]] = field(default_factory=dict)
    current: dict[str, int] = field(default_factory=dict)  # the names a program sees
    numbers: dict[int, int] = field(default_factory=dict)  # inode -> file; inodes are used again

    def do(self, call: Call) -> None:
        folder = str(Path(call.path).parent)
        if call.kind == "C":
            number = 1 + max(self.content, default=0)
            self.numbers[call.inode], self.content[number] = number, bytearray()
            self._rename(folder, ((call.path, number),))
        elif call.kind in "WT" and call.inode in self.numbers:
            writes = self.writes.setdefault(self.numbers[call.inode], [])
            writes.append((call.kind, call.offset, call.rest))
        elif call.kind == "S" and call.inode in self.numbers:
            number = self.numbers[call.inode]
            for each in self.writes.pop(number, ()):
                change(self.content[number], *each)
        elif call.kind == "D":
            self._settle(call.path)
        elif call.kind == "R":
            new = call.rest.decode()
            self._rename(folder, ((new, self.current[call.path]), (call.path, None)))
        elif call.kind == "U":
            self._rename(folder, ((call.path, None),))
        elif call.kind == "M":
            self.folders.add(call.path)

    def _rename(self, folder: str, names: Names) -> None:
        self.new_names.append((folder, names))
        put(self.current, names)

    def _settle(self, folder: str) -> None:
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


def put(names: dict[str, int], changes: Names) -> None:
    for path, number in changes:
        if number is None:
            names.pop(path, None)
        else:
            names[path] = number


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
) -> Iterator[CrashState]:
    """States after each call: nothing, everything or a random part of what is uncertain is lost."""
    disk, marks, seen = _initial(folder, first, inodes), 0, set()
    for position, call in enumerate(calls):
        if call.kind == "A":
            marks += 1
        else:
            disk.do(call)
        for what in ("all lost", "all kept", "data lost", "names lost", "some lost", "some lost"):
            files = _after(disk, what, rng)
            relative = {str(Path(path).relative_to(folder)): data for path, data in files.items()}
            key = hash((marks, tuple(sorted(relative.items()))))
            if key not in seen:
                seen.add(key)
                folders = [str(Path(path).relative_to(folder)) for path in disk.folders]
                text = f"cut after call {position} ({call.kind} {Path(call.path).name}), {what}"
                yield CrashState(relative, folders, marks, text)


def _initial(folder: Path, first: Path, inodes: dict[int, Path]) -> Disk:
    disk = Disk()
    for number, (inode, path) in enumerate(inodes.items(), 1):
        disk.numbers[inode] = number
        disk.names[str(path)] = disk.current[str(path)] = number
        disk.content[number] = bytearray((first / path.relative_to(folder)).read_bytes())
    return disk


def _after(disk: Disk, what: str, rng: np.random.Generator) -> dict[str, bytes]:
    names = dict(disk.names)
    for _, each in disk.new_names:
        kept = {"all lost": False, "names lost": False, "some lost": rng.random() < 0.5}
        if kept.get(what, True):
            put(names, each)
    return {path: bytes(_content(disk, number, what, rng)) for path, number in names.items()}


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
