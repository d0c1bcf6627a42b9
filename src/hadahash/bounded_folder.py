"""Folders of caches that are limited in size: the least recently used entries give way."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from .environment import size_limit, user_cache

T = TypeVar("T")
_KEPT = 0.8  # of the limit, after entries were removed


class Entry(NamedTuple):
    """An entry of a cache.

    Attributes:
        used: Time of the last use in nanoseconds.
        size: Bytes.
        path: Its file or folder.
    """

    used: int
    size: int
    path: Path


def prune(entries: Iterable[Entry], limit: int, *, idle_seconds: float = 0) -> int:
    """Remove the least recently used entries if all together exceed a limit.

    Args:
        entries: The entries.
        limit: Largest size of all in bytes; somewhat less is kept.
        idle_seconds: Entries that were used in this time are kept whatever their size, because
            another process may be about to read them.

    Returns:
        The size of the entries that are left.
    """
    ordered = sorted(entries)
    total = sum(entry.size for entry in ordered)
    if total <= limit:
        return total
    latest = time.time_ns() - int(idle_seconds * 1e9)
    for used, size, path in ordered:
        if total <= _KEPT * limit or (idle_seconds and used > latest):
            break
        _remove(path)
        total -= size
    return total


def user_cache_of(
    name: str, variable: str, default: int, make: Callable[[Path, int], T]
) -> T | None:
    """Return the cache that the environment asks for.

    Args:
        name: Name of its folder in the folder of caches.
        variable: Environment variable with the largest size, or off.
        default: The size in bytes where the variable is not set.
        make: Makes the cache from its folder and its size.

    Returns:
        The cache; None if it is off.

    Raises:
        UsageError: The variable is neither a size nor off.
    """
    limit = size_limit(variable, default)
    return make(user_cache() / name, limit) if limit else None


class BoundedFolder:
    """A folder of files, one per entry, for this user only. Several processes may use it.

    A process counts what it writes itself; when that exceeds the limit, all files are counted.

    Args:
        folder: The folder; it is created when the first file is written.
        limit: Largest size of all files in bytes.
        block: A file counts as a multiple of this number of bytes.
    """

    def __init__(self, folder: Path, limit: int, *, block: int = 1) -> None:
        self.folder, self.limit, self._block = folder, limit, block
        self._lock = threading.Lock()
        self._size: int | None = None  # None before the files were counted

    def path(self, name: str) -> Path:
        """Return the file of an entry, for example ab/cdef."""
        return self.folder / name

    def write(self, name: str, data: bytes) -> None:
        """Write a file, atomically; the least recently used ones are removed if it is too much.

        Args:
            name: Its name below the folder, in a folder of two characters; other files in the
                folder are never removed.
            data: The content.

        Raises:
            OSError: It cannot be written.
        """
        path = self.path(name)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(path)
        except OSError:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
        with self._lock:
            self._size = self.size() if self._size is None else self._size + self._blocks(len(data))
            if self._size > self.limit:
                self._size = prune(self._entries(), self.limit)

    def touch(self, name: str) -> None:
        """Note that a file was used."""
        with suppress(OSError):
            os.utime(self.path(name))

    def size(self) -> int:
        """Return the size of all files in bytes."""
        return sum(entry.size for entry in self._entries())

    def _entries(self) -> Iterator[Entry]:
        for path in self.folder.glob("??/*"):
            with suppress(OSError):
                status = path.stat()
                yield Entry(status.st_mtime_ns, self._blocks(status.st_size), path)

    def _blocks(self, size: int) -> int:
        return -(-size // self._block) * self._block


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
