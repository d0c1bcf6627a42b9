"""The items of a stored segment in SQLite.

Ids are looked up, and the items of a few hits are fetched, without reading all items. Columns can
mix strings, numbers and nulls, and SQLite files can be read from any language. Label set numbers
are also in a file of their own (.labels), so that a filter by label reads 4 bytes per item.
"""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock, RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..items import Id, Ids, Item, ItemTable, LabelSet, Ordinals
from .manifest import SegmentEntry, damaged
from .segment_files import MappedFile

_VALUES_PER_STATEMENT = 500
_MOST_KEPT = 4096  # items and ordinals of the latest requests
_ITEMS = "SELECT items.rowid, id, path, labels FROM items JOIN label_sets ON number = label_set"
_BEFORE = (
    "PRAGMA journal_mode = OFF",  # the file is new, and gets its name only when it is complete
    "PRAGMA synchronous = OFF",
    "BEGIN",
    "CREATE TABLE items "
    "(ordinal INTEGER PRIMARY KEY, id NOT NULL, path, label_set INTEGER NOT NULL)",
    "CREATE TABLE label_sets (number INTEGER PRIMARY KEY, labels TEXT NOT NULL)",
)
_COLUMNS = {
    name: f"SELECT {name} FROM items ORDER BY rowid"  # noqa: S608 - the names are these three
    for name in ("id", "path", "label_set")
}
_AFTER = ("CREATE UNIQUE INDEX by_id ON items (id)", "COMMIT")


class StoredItems:
    """Items in SQLite.

    A few items are fetched one by one, and the latest are kept: a search asks for the same items
    several times. Many are fetched by loading a column, which is then cached; not those that a
    search found, as all items would stay in memory after one large search.

    Statements use `rowid`, which is the ordinal in every format of the file.

    Attributes:
        id_type: int or str.
    """

    def __init__(
        self, opened: dict[str, MappedFile], entry: SegmentEntry, id_type: type[Id]
    ) -> None:
        """Open the items of a segment.

        Raises:
            StorageError: The file is not a database, or was removed since it was mapped.
        """
        self.id_type, self._count = id_type, entry.count
        self._file, self._labels = opened["items"], opened.get("labels")
        self._counts = entry.label_counts
        self._statements, self._loading = Lock(), RLock()
        self._kept: dict[int, Item] = {}  # by ordinal
        self._ordinals: dict[Id, int] = {}  # by id
        self._ids: Ids | None = None
        self._table: ItemTable | None = None
        self._sets: tuple[LabelSet, ...] | None = None
        self._numbers: NDArray[np.int32] | None = None
        try:
            uri = f"{self._file.path.absolute().as_uri()}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(
                uri, uri=True, check_same_thread=False, isolation_level=None
            )
            self._connection.execute("PRAGMA schema_version").fetchone()  # opens the file now
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise damaged(self._file.path, str(error)) from error

    def __len__(self) -> int:
        """Number of items, deleted ones included."""
        return self._count

    def ids_at(self, ordinals: Ordinals) -> Ids:
        """Ids of these ordinals."""
        if self._is_many(len(ordinals)):
            return self.all_ids()[ordinals]
        return self._id_array([item.id for item in self._fetch(ordinals.tolist())])

    def ordinals_of(self, ids: Ids) -> Ordinals:
        """Ordinals of these ids; -1 for unknown ids."""
        if self._is_many(len(ids)):
            return ItemTable(self.all_ids()).ordinals_of(ids)
        requested = ids.tolist()
        found = {each: self._ordinals.get(each, -1) for each in requested}
        missing = [_encode(each) for each, ordinal in found.items() if ordinal < 0]
        if missing:
            items = self._items("id", missing)
            new = {item.id: ordinal for ordinal, item in items.items()}
            found |= new
            _keep(self._kept, items)
            _keep(self._ordinals, new)
        return np.array([found[each] for each in requested], np.int64)

    def label_sets(self) -> Sequence[LabelSet]:
        """The distinct label sets."""
        with self._loading:
            if self._sets is None and self._counts is not None:
                self._sets = tuple(labels for labels, _ in self._counts)
            elif self._sets is None:
                rows = self._rows("SELECT labels FROM label_sets ORDER BY number")
                with self._checked():
                    self._sets = tuple(_labels(labels) for (labels,) in rows)
            return self._sets

    def set_numbers(self) -> NDArray[np.int32]:
        """For each ordinal, the number of its label set."""
        with self._loading:
            if self._numbers is None:
                self._numbers = self._load_set_numbers()
            return self._numbers

    def at(self, ordinals: Ordinals, *, load: bool = True) -> list[Item]:
        """The items of these ordinals; with `load`, many are fetched by loading all."""
        if self._table is not None or (load and len(ordinals) > self._few):
            return self.table().at(ordinals)
        return self._fetch(ordinals.tolist())

    def all_ids(self) -> Ids:
        """All ids in ascending order."""
        with self._loading:
            if self._ids is None:
                with self._checked():
                    self._ids = self._id_array(self._column("id"))
            return self._ids

    def table(self) -> ItemTable:
        """All items, in memory."""
        with self._loading:
            if self._table is None:
                paths = np.empty(self._count, object)
                with self._checked():
                    paths[:] = [_path(path) for path in self._column("path")]
                some = any(path is not None for path in paths)
                sets, numbers = tuple(self.label_sets()), self.set_numbers()
                self._table = ItemTable(self.all_ids(), paths if some else None, sets, numbers)
            return self._table

    def _load_set_numbers(self) -> NDArray[np.int32]:
        if self._labels is None:  # format 1
            with self._checked():
                numbers = np.array(self._column("label_set"), np.int32)
        else:
            numbers = self._labels.array(np.int32, 1)[:, 0]
        if numbers.min(initial=0) < 0 or numbers.max(initial=0) >= len(self.label_sets()):
            raise damaged(self._file.path, "a label set is missing")
        return numbers

    def _is_many(self, count: int) -> bool:
        return self._ids is not None or count > self._few

    @property
    def _few(self) -> int:
        """Up to this number, items are fetched one by one."""
        return max(1000, self._count // 50)

    def _fetch(self, ordinals: list[int]) -> list[Item]:
        """The items of a few ordinals."""
        found = {each: item for each in ordinals if (item := self._kept.get(each)) is not None}
        missing = [each for each in dict.fromkeys(ordinals) if each not in found]
        if missing:
            found |= self._items("items.rowid", missing)
            _keep(self._kept, found)
        with self._checked():
            return [found[each] for each in ordinals]

    def _items(self, column: str, values: list[Any]) -> dict[int, Item]:
        """Fetch items by their values in a column; the result is by ordinal."""
        rows = list(self._rows(f"{_ITEMS} WHERE {column} IN", values))
        with self._checked():
            ids = self._id_array([each for _, each, *_ in rows]).tolist()
            return {
                ordinal: Item(each, _path(path), _labels(labels))
                for each, (ordinal, _, path, labels) in zip(ids, rows, strict=True)
            }

    def _column(self, name: str) -> list[Any]:
        values = [value for (value,) in self._rows(_COLUMNS[name])]
        if len(values) != self._count:
            raise damaged(self._file.path, f"it has {len(values)} items, not {self._count}")
        return values

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Report content that `write_items` does not write as damage."""
        try:
            yield
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            reason = "an item is missing" if isinstance(error, KeyError) else str(error)
            raise damaged(self._file.path, " ".join(reason.split())) from error

    def _id_array(self, values: Sequence[Any]) -> Ids:
        if self.id_type is str:
            values = [_decode(value) for value in values]
        if not all(type(value) is self.id_type for value in values):
            raise TypeError(f"an id is not of type {self.id_type.__name__}")
        if self.id_type is int:
            return np.array(values, np.int64)
        array = np.empty(len(values), object)
        array[:] = values
        return array

    def _rows(self, query: str, values: Sequence[Any] | None = None) -> Iterator[Any]:
        """The rows of a query; with values, of `query (?, ?, ...)` for a part of them at a time."""
        self._file.content()
        if values is None:
            yield from self._execute(query, ())
            return
        for start in range(0, len(values), _VALUES_PER_STATEMENT):
            part = values[start : start + _VALUES_PER_STATEMENT]
            yield from self._execute(f"{query} ({', '.join('?' * len(part))})", part)

    def _execute(self, statement: str, values: Sequence[Any]) -> list[Any]:
        try:
            with self._statements, closing(self._connection.execute(statement, values)) as cursor:
                return cursor.fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise damaged(self._file.path, str(error)) from error


def write_items(path: Path, table: ItemTable) -> None:
    """Write items to a new SQLite file.

    Raises:
        OSError: The file cannot be written.
    """
    paths = [None] * len(table) if table.paths is None else table.paths.tolist()
    numbers = table.set_numbers().tolist()
    ids, paths = ([_encode(each) for each in column] for column in (table.ids.tolist(), paths))
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in _BEFORE:
                connection.execute(statement)
            sets = ((number, json.dumps(labels)) for number, labels in enumerate(table.sets))
            connection.executemany("INSERT INTO label_sets VALUES (?, ?)", sets)
            rows = zip(range(len(ids)), ids, paths, numbers, strict=True)
            connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", rows)
            for statement in _AFTER:
                connection.execute(statement)
    except sqlite3.Error as error:
        full = "full" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error


def _encode(value: Any) -> Any:
    """Strings that are not valid Unicode (some file names) are stored as bytes."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def _keep(kept: dict[Any, Any], new: dict[Any, Any]) -> None:
    """Keep new entries, instead of the old ones if there are too many."""
    if len(kept) + len(new) > _MOST_KEPT:
        kept.clear()
    if len(new) <= _MOST_KEPT:
        kept.update(new)


def _path(value: Any) -> str | None:
    path: str | None = _decode(value)
    if path is not None and not isinstance(path, str):
        raise TypeError("a path is not text")
    return path


@lru_cache(4096)
def _labels(text: Any) -> LabelSet:
    """The labels of a set; raises TypeError or ValueError if they are not valid."""
    labels = json.loads(text)
    if not isinstance(labels, list) or not all(type(label) in (int, str) for label in labels):
        raise TypeError("labels must be strings and integers")
    return tuple(labels)


def _decode(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value
