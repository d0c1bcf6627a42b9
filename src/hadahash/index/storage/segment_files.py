"""The files of a stored segment: codes and arrays memory-mapped, items in SQLite, each checked before its first use."""

from __future__ import annotations

import errno
import json
import mmap
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import HadaHashError, StorageError
from ...native import search as native
from ..items import Id, Ids, Item, ItemTable, Label, Mask, Ranks

_AT_ONCE = 500  # values in one SQL statement
_BEFORE = (
    "PRAGMA journal_mode = OFF",  # the file is new, and takes its name only when it is whole
    "PRAGMA synchronous = OFF",
    "BEGIN",
    "CREATE TABLE items (rank INTEGER PRIMARY KEY, id NOT NULL, path, label_set INTEGER NOT NULL)",
    "CREATE TABLE label_sets (number INTEGER PRIMARY KEY, labels TEXT NOT NULL)",
)
_AFTER = ("CREATE UNIQUE INDEX by_id ON items (id)", "COMMIT")


def damaged(path: Path, reason: str) -> StorageError:
    return StorageError(f"{path} is damaged ({reason}). Restore it or build the index again.")


def row_width(bits: int) -> int:
    """Bytes of one code in a .codes file."""
    return 4 if bits <= 32 else 8 * -(-bits // 64)


class StoredFile:
    """A file of the manifest, mapped into memory; its size is compared at once, its content when it is asked for."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        self.path, self._crc32, self._checked, self._lock = (
            folder / entry["name"],
            entry["crc32"],
            False,
            Lock(),
        )
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            if size != entry["bytes"]:
                raise damaged(self.path, f"it has {size} bytes, not {entry['bytes']}")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def check(self) -> mmap.mmap:
        """The content; the first time it is compared with its checksum."""
        with self._lock:
            if not self._checked and zlib.crc32(self._map) != self._crc32:
                raise damaged(self.path, "its checksum does not match")
            self._checked = True
        return self._map

    def array(self, dtype: Any, columns: int) -> NDArray[Any]:
        try:
            return np.frombuffer(self.check(), dtype).reshape(-1, columns)
        except ValueError as error:
            raise damaged(self.path, str(error)) from error

    def mask(self, count: int) -> Mask:
        return np.unpackbits(self.array(np.uint8, 1)[:, 0], count=count, bitorder="little").view(
            bool
        )


class StoredCodes:
    """The table of a segment, made when it is first searched."""

    def __init__(
        self, count: int, bits: int, opened: dict[str, StoredFile], *, by_quarters: bool
    ) -> None:
        self._count, self._opened, self._by_quarters, self._lock = (
            count,
            opened,
            by_quarters,
            Lock(),
        )
        self._dtype: type[np.unsignedinteger[Any]] = (
            np.uint32 if row_width(bits) == 4 else np.uint64
        )
        self._columns = max(1, row_width(bits) // 8)
        self._table: native.Table | None = None

    def __len__(self) -> int:
        return self._count

    def load(self) -> native.Table:
        with self._lock:
            if self._table is None:
                self._table = self._load()
            return self._table

    def _load(self) -> native.Table:
        rows = self._opened["codes"].array(self._dtype, self._columns)
        if not {"ranks", "runs", "centres"} <= set(self._opened):
            return native.Table(rows)
        ranks = self._opened["ranks"].array(np.uint32, 1)[:, 0]
        centres = self._opened["centres"].array(self._dtype, self._columns)
        listed = self._opened["runs"].array(np.int64, 3)
        try:
            runs = native.runs_of(centres, listed, rows, by_quarters=self._by_quarters)
            return native.Table(rows, ranks=ranks, runs=runs)
        except HadaHashError as error:
            raise damaged(self._opened["runs"].path, str(error)) from error


class StoredItems:
    """Items in SQLite: a few are fetched by themselves, many at once by reading all of them, which are then kept."""

    def __init__(self, file: StoredFile, count: int, kind: type[Id]) -> None:
        self.ids_are, self._file, self._count, self._lock = kind, file, count, Lock()
        self._all: ItemTable | None = None
        try:
            uri = f"{file.path.absolute().as_uri()}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(
                uri, uri=True, check_same_thread=False, isolation_level=None
            )
            self._connection.execute(
                "PRAGMA schema_version"
            ).fetchone()  # opens the file now: later it may be gone
        except sqlite3.Error as error:
            raise damaged(file.path, str(error)) from error

    def __len__(self) -> int:
        return self._count

    def ids_at(self, ranks: Ranks) -> Ids:
        distinct, inverse = np.unique(ranks, return_inverse=True)
        if self._many(len(distinct)):
            return self.table().ids[ranks]
        found = dict(self._rows("SELECT rank, id FROM items WHERE rank IN", distinct.tolist()))
        return self._ids([found[rank] for rank in distinct.tolist()])[inverse]

    def ranks_of(self, ids: Ids) -> Ranks:
        if self._many(len(ids)):
            return self.table().ranks_of(ids)
        wanted = [_written(each) for each in ids.tolist()]
        found = dict(self._rows("SELECT id, rank FROM items WHERE id IN", wanted))
        return np.array([found.get(each, -1) for each in wanted], np.int64)

    def with_labels(self, labels: Collection[Label]) -> Mask:
        return self.table().with_labels(labels)

    def at(self, ranks: Ranks) -> list[Item]:
        if self._many(len(ranks)):
            return self.table().at(ranks)
        query = "SELECT rank, id, path, labels FROM items JOIN label_sets ON number = label_set WHERE rank IN"
        found = {rank: rest for rank, *rest in self._rows(query, ranks.tolist())}
        rows = (found[rank] for rank in ranks.tolist())
        return [
            Item(_read(each), _read(path), tuple(json.loads(labels))) for each, path, labels in rows
        ]

    def table(self) -> ItemTable:
        if self._all is None:
            self._all = self._load()
        return self._all

    def _many(self, count: int) -> bool:
        return self._all is not None or count > max(1000, self._count // 50)

    def _load(self) -> ItemTable:
        sets = [
            tuple(json.loads(labels))
            for (labels,) in self._rows("SELECT labels FROM label_sets ORDER BY number")
        ]
        ids, paths, numbers = zip(
            *self._rows("SELECT id, path, label_set FROM items ORDER BY rank"), strict=True
        )
        held = np.empty(len(paths), object)
        held[:] = [_read(path) for path in paths]
        kept = None if all(path is None for path in paths) else held
        return ItemTable(self._ids(ids), kept, tuple(sets), np.array(numbers, np.int32))

    def _ids(self, values: Sequence[Any]) -> Ids:
        if self.ids_are is int:
            return np.array(values, np.int64)
        return np.array([_read(value) for value in values], str)

    def _rows(self, query: str, values: Sequence[Any] | None = None) -> Iterator[Any]:
        """The rows of a query; with values, of the query for each of them, some at a time."""
        self._file.check()
        parts = (
            [()]
            if values is None
            else (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))
        )
        for part in parts:
            marks = "" if values is None else f" ({', '.join('?' * len(part))})"
            try:
                with self._lock, closing(self._connection.execute(query + marks, part)) as cursor:
                    rows = cursor.fetchall()
            except sqlite3.Error as error:
                raise damaged(self._file.path, str(error)) from error
            yield from rows


def write_items(path: Path, table: ItemTable) -> None:
    """Items as a SQLite file of their own; OSError where it cannot be written."""
    paths = [None] * len(table) if table.paths is None else table.paths.tolist()
    numbers = [0] * len(table) if table.set_numbers is None else table.set_numbers.tolist()
    ids, paths = ([_written(each) for each in column] for column in (table.ids.tolist(), paths))
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in _BEFORE:
                connection.execute(statement)
            sets = ((number, json.dumps(labels)) for number, labels in enumerate(table.label_sets))
            connection.executemany("INSERT INTO label_sets VALUES (?, ?)", sets)
            connection.executemany(
                "INSERT INTO items VALUES (?, ?, ?, ?)",
                zip(range(len(ids)), ids, paths, numbers, strict=True),
            )
            for statement in _AFTER:
                connection.execute(statement)
    except sqlite3.Error as error:
        full = "full" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error


def _written(value: Any) -> Any:
    """Strings that are not valid Unicode (odd file names) are stored as bytes."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def _read(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value
