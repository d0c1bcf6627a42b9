"""What an index knows of its items besides their codes: id, path and labels, in the order of ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

Id = int | str
Label = int | str
Ids = NDArray[Any]  # int64 (n,) or str (n,)
Ranks = NDArray[np.int64]  # places in the order of ids; -1 where there is no such item
Mask = NDArray[np.bool_]


class Item(NamedTuple):
    """One item of an index."""

    id: Id
    path: str | None
    labels: tuple[Label, ...]


class Items(Protocol):
    """The items of one segment, ranked by id: in memory (`ItemTable`) or on disk (`store.StoredItems`)."""

    @property
    def ids_are(self) -> type[Id]: ...
    def __len__(self) -> int: ...
    def ids_at(self, ranks: Ranks) -> Ids: ...
    def ranks_of(self, ids: Ids) -> Ranks: ...
    def with_labels(self, labels: Collection[Label]) -> Mask: ...
    def at(self, ranks: Ranks) -> list[Item]: ...
    def table(self) -> ItemTable: ...


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Items in memory. Few sets of labels are shared by many items, so each item holds the number of its set."""

    ids: Ids  # ascending
    paths: NDArray[np.object_] | None = None  # (n,) of str or None
    label_sets: tuple[tuple[Label, ...], ...] = ((),)
    set_numbers: NDArray[np.int32] | None = None  # (n,), into label_sets; None: all 0

    @property
    def ids_are(self) -> type[Id]:
        return str if self.ids.dtype.kind == "U" else int

    def __len__(self) -> int:
        return len(self.ids)

    def ids_at(self, ranks: Ranks) -> Ids:
        return self.ids[ranks]

    def ranks_of(self, ids: Ids) -> Ranks:
        if len(self) == 0:
            return np.full(len(ids), -1)
        places = np.searchsorted(self.ids, ids).clip(max=len(self) - 1)
        return np.where(self.ids[places] == ids, places, -1)

    def with_labels(self, labels: Collection[Label]) -> Mask:
        """Which items carry at least one of the labels."""
        wanted = np.array([not set(labels).isdisjoint(each) for each in self.label_sets])
        return wanted[self._numbers]

    def at(self, ranks: Ranks) -> list[Item]:
        paths = [None] * len(ranks) if self.paths is None else self.paths[ranks].tolist()
        sets = [self.label_sets[number] for number in self._numbers[ranks].tolist()]
        return [Item(*row) for row in zip(self.ids[ranks].tolist(), paths, sets, strict=True)]

    def table(self) -> ItemTable:
        return self

    def take(self, ranks: Ranks | Mask) -> ItemTable:
        paths = None if self.paths is None else self.paths[ranks]
        numbers = None if self.set_numbers is None else self.set_numbers[ranks]
        return ItemTable(self.ids[ranks], paths, self.label_sets, numbers)

    @cached_property
    def _numbers(self) -> NDArray[np.int32]:
        return np.zeros(len(self), np.int32) if self.set_numbers is None else self.set_numbers


def item_table(ids: Ids, *, paths: Any = None, labels: Any = None) -> ItemTable:
    """Items in the order given. `labels`: what `Index.build` takes."""
    if paths is not None:
        paths = _paths(paths, len(ids))
    if labels is None:
        return ItemTable(ids, paths)
    return ItemTable(ids, paths, *_label_sets(labels, len(ids)))


def joined(tables: Sequence[ItemTable]) -> ItemTable:
    """All items of the tables, one table after the other."""
    ids = np.concatenate([table.ids for table in tables])
    paths = None
    if any(table.paths is not None for table in tables):
        absent = (
            np.full(len(table), None, object) if table.paths is None else table.paths
            for table in tables
        )
        paths = np.concatenate(list(absent))
    if all(table.set_numbers is None for table in tables):
        return ItemTable(ids, paths)
    known: dict[tuple[Label, ...], int] = {}
    numbers = []
    for table in tables:
        new = np.array([known.setdefault(each, len(known)) for each in table.label_sets], np.int32)
        numbers.append(new[table._numbers])
    return ItemTable(ids, paths, tuple(known), np.concatenate(numbers))


def id_array(ids: Any) -> Ids:
    """Ids as int64 or str (n,); one id alone is one row."""
    array = np.atleast_1d(np.asarray(ids))
    if array.size == 0:
        return array.astype(np.int64 if array.dtype.kind in "iu" else str).ravel()
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise UsageError(
            f"Ids must be strings, or whole numbers, in one row, got {array.dtype} {array.shape}."
        )
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise UsageError(
            f"Ids that are numbers must fit into 64 bits with sign, got {array.max()}."
        )
    return array if array.dtype.kind == "U" else array.astype(np.int64)


def label_set(labels: Any) -> frozenset[Label]:
    """One label, or a collection of them, as a set."""
    many = labels if isinstance(labels, Iterable) and not isinstance(labels, str) else [labels]
    return frozenset(_label(label) for label in many)


def _paths(paths: Any, count: int) -> NDArray[np.object_]:
    array = np.empty(count, object)
    values = [None if path is None else str(path) for path in paths]
    if len(values) != count:
        raise UsageError(f"{count} items need {count} paths, got {len(values)}.")
    array[:] = values
    return array


def _label_sets(labels: Any, count: int) -> tuple[tuple[tuple[Label, ...], ...], NDArray[np.int32]]:
    if len(labels) != count:
        raise UsageError(
            f"{count} items need {count} labels, got {len(labels)}. Give both in the same order."
        )
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iuU":
        values, numbers = np.unique(labels, return_inverse=True)
        return tuple((value,) for value in values.tolist()), numbers.astype(np.int32)
    if isinstance(labels, np.ndarray) and labels.ndim == 2:
        if labels.dtype.kind not in "biuf" or not ((labels == 0) | (labels == 1)).all():
            raise UsageError(
                f"A label matrix (n, C) must hold only 0 and 1, got other values ({labels.dtype})."
            )
        labels = [np.flatnonzero(row).tolist() for row in labels]
    known: dict[tuple[Label, ...], int] = {}
    sets = (
        tuple(sorted(label_set(label), key=lambda label: (isinstance(label, str), label)))
        for label in labels
    )
    found = np.fromiter((known.setdefault(each, len(known)) for each in sets), np.int32, count)
    return tuple(known) or ((),), found


def _label(label: Any) -> Label:
    if isinstance(label, (int, np.integer)) and not isinstance(label, bool):
        return int(label)
    if isinstance(label, str):
        return str(label)
    raise UsageError(f"A label is a string or a whole number, got {label!r}.")
