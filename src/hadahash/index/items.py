"""Items of an index apart from their codes: id, path and labels, in the order of ids.

Ids are int64, or Python strings in an object array: the memory of an id depends on its own length
only, and trailing NULs and surrogates are preserved. The position of an item in ascending order of
ids is its ordinal.
"""

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
LabelSet = tuple[Label, ...]
Ids = NDArray[Any]  # int64 (n,), or object (n,) of str
Ordinals = NDArray[np.int64]  # -1 where there is no such item
Mask = NDArray[np.bool_]

_MAX_DIGITS = 19  # of a 64-bit integer


class Item(NamedTuple):
    """An item of an index.

    Attributes:
        id: The item's id.
        path: Path of its image, or None.
        labels: Its labels in ascending order, numbers before strings.
    """

    id: Id
    path: str | None
    labels: LabelSet


class Items(Protocol):
    """The items of one segment: in memory (`ItemTable`) or on disk (`StoredItems`)."""

    @property
    def id_type(self) -> type[Id]:
        """Type of the ids, int or str."""
        ...

    def __len__(self) -> int:
        """Number of items, deleted ones included."""
        ...

    def ids_at(self, ordinals: Ordinals) -> Ids:
        """Ids of these ordinals."""
        ...

    def ordinals_of(self, ids: Ids) -> Ordinals:
        """Ordinals of these ids; -1 for unknown ids."""
        ...

    def label_sets(self) -> Sequence[LabelSet]:
        """The distinct label sets."""
        ...

    def set_numbers(self) -> NDArray[np.int32]:
        """For each ordinal, the number of its label set."""
        ...

    def at(self, ordinals: Ordinals, *, load: bool = True) -> list[Item]:
        """The items of these ordinals; with `load`, many are fetched by loading all."""
        ...

    def all_ids(self) -> Ids:
        """All ids in ascending order."""
        ...

    def table(self) -> ItemTable:
        """All items, in memory."""
        ...


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Items in memory. Label sets are stored once; each item holds the number of its set.

    Attributes:
        ids: Ids in ascending order, (n,).
        paths: (n,) of str or None; None if no item has a path.
        sets: The distinct label sets.
        numbers: Number of each item's label set, int32 (n,); None if all are 0.
    """

    ids: Ids
    paths: NDArray[np.object_] | None = None
    sets: tuple[LabelSet, ...] = ((),)
    numbers: NDArray[np.int32] | None = None

    @property
    def id_type(self) -> type[Id]:
        """Type of the ids, int or str."""
        return id_type_of(self.ids)

    def __len__(self) -> int:
        """Number of items."""
        return len(self.ids)

    def ids_at(self, ordinals: Ordinals) -> Ids:
        """Ids of these ordinals."""
        return self.ids[ordinals]

    def ordinals_of(self, ids: Ids) -> Ordinals:
        """Ordinals of these ids; -1 for unknown ids."""
        return find_sorted(self.ids, ids)

    def label_sets(self) -> Sequence[LabelSet]:
        """The distinct label sets."""
        return self.sets

    def set_numbers(self) -> NDArray[np.int32]:
        """For each ordinal, the number of its label set."""
        return self._set_numbers

    def at(self, ordinals: Ordinals, *, load: bool = True) -> list[Item]:
        """The items of these ordinals; all are in memory."""
        paths = [None] * len(ordinals) if self.paths is None else self.paths[ordinals].tolist()
        sets = [self.sets[number] for number in self._set_numbers[ordinals].tolist()]
        return [Item(*row) for row in zip(self.ids[ordinals].tolist(), paths, sets, strict=True)]

    def all_ids(self) -> Ids:
        """All ids in ascending order."""
        return self.ids

    def table(self) -> ItemTable:
        """This table."""
        return self

    def take(self, ordinals: Ordinals | Mask) -> ItemTable:
        """A table of the items that a mask or a list of ordinals selects."""
        paths = None if self.paths is None else self.paths[ordinals]
        numbers = None if self.numbers is None else self.numbers[ordinals]
        return ItemTable(self.ids[ordinals], paths, self.sets, numbers)

    @cached_property
    def _set_numbers(self) -> NDArray[np.int32]:
        return np.zeros(len(self), np.int32) if self.numbers is None else self.numbers


def item_table(ids: Ids, *, paths: Any = None, labels: Any = None) -> ItemTable:
    """Items in the given order.

    Args:
        ids: As `id_array` makes them.
        paths: One path per item, or None.
        labels: As for `Index.build`.

    Returns:
        The table.

    Raises:
        UsageError: The numbers of ids, paths and labels differ, or a label is invalid.
    """
    if paths is not None:
        paths = _paths(paths, len(ids))
    if labels is None:
        return ItemTable(ids, paths)
    return ItemTable(ids, paths, *_number_label_sets(labels, len(ids)))


def concatenate(tables: Sequence[ItemTable]) -> ItemTable:
    """All items of the tables, one table after the other. Unused label sets are dropped."""
    ids = np.concatenate([table.ids for table in tables])
    paths = None
    if any(table.paths is not None for table in tables):
        columns = (
            np.full(len(table), None, object) if table.paths is None else table.paths
            for table in tables
        )
        paths = np.concatenate(list(columns))
    if all(table.numbers is None for table in tables):
        return ItemTable(ids, paths)
    known: dict[LabelSet, int] = {}
    parts = []
    for table in tables:
        numbers = table.set_numbers()
        used = np.flatnonzero(np.bincount(numbers, minlength=len(table.sets)))
        new = np.zeros(len(table.sets), np.int32)
        for number in used.tolist():
            new[number] = known.setdefault(table.sets[number], len(known))
        parts.append(new[numbers])
    return ItemTable(ids, paths, tuple(known) or ((),), np.concatenate(parts))


# ---- ids -----------------------------------------------------------------------------------------


def id_array(ids: Any) -> Ids:
    """Ids as int64 (n,), or as an object array (n,) of str. A single id makes one row.

    Args:
        ids: Strings or integers: one, a sequence or an array.

    Returns:
        The array.

    Raises:
        UsageError: The ids are of an unsupported or mixed type, or not one-dimensional.
    """
    array = ids if isinstance(ids, np.ndarray) else _array(ids)
    array = np.atleast_1d(array)
    if array.size == 0:
        return array.astype(np.int64 if array.dtype.kind in "iu" else object).ravel()
    if array.ndim != 1 or array.dtype.kind not in "iuUTO":
        raise UsageError(
            f"Ids must be strings or integers in one dimension, got {array.dtype} {array.shape}."
        )
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise UsageError(f"Integer ids must fit into signed 64 bits, got {array.max()}.")
    return array.astype(np.int64) if array.dtype.kind in "iu" else _strings(array)


def _array(ids: Any) -> NDArray[Any]:
    """Python values as an array; strings as objects, so that numpy does not strip trailing NULs."""
    if isinstance(ids, str):
        return np.array([ids], object)
    values = ids if isinstance(ids, (list, tuple)) else np.asarray(ids).tolist()
    if isinstance(values, list | tuple) and any(isinstance(value, str) for value in values):
        array = np.empty(len(values), object)
        array[:] = values
        return array
    return np.asarray(ids)


def _strings(array: NDArray[Any]) -> Ids:
    """Ids that are not an integer array as an object array of plain `str`."""
    values = array.tolist()
    wrong = [value for value in values if not isinstance(value, str)]
    if wrong:
        raise UsageError(f"Ids must be all strings or all integers, got {wrong[0]!r} among them.")
    strings = np.empty(len(values), object)
    strings[:] = values
    return strings


def id_type_of(ids: Ids) -> type[Id]:
    """Type of the ids in an array of `id_array`, int or str."""
    return int if ids.dtype.kind == "i" else str


def empty_ids(id_type: type[Id] | None) -> Ids:
    """An array of no ids."""
    return np.zeros(0, object if id_type is str else np.int64)


def missing_id(id_type: type[Id] | None) -> Id:
    """The id that pads rows of hits."""
    return "" if id_type is str else -1


def find_sorted(ids: Ids, requested: Ids) -> Ordinals:
    """Positions of the requested ids in an ascending array of ids; -1 for unknown ids."""
    if len(ids) == 0:
        return np.full(len(requested), -1)
    positions = np.searchsorted(ids, requested).clip(max=len(ids) - 1)
    return np.where(ids[positions] == requested, positions, -1)


def quote_ids(ids: Ids) -> str:
    """The first ids, for an error message."""
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return ", ".join(repr(each) for each in ids[:3].tolist()) + more


def check_ids_exist(requested: Ids, found: Mask) -> None:
    """Refuse unknown ids.

    Raises:
        UsageError: One of the ids was not found.
    """
    if not found.all():
        raise UsageError(f"The index does not have {quote_ids(requested[~found])}.")


def parse_id(text: str, id_type: type[Id] | None) -> Id:
    """Parse an id; used by the command line and the service.

    Args:
        text: The id as text.
        id_type: `Index.id_type` of the index it belongs to; None for an empty index.

    Returns:
        The text itself, or for an index of integer ids its value.

    Raises:
        UsageError: The ids are integers and the text is not one: an optional minus sign and ASCII
            digits, with a value of at most 64 bits.

    Example:
        >>> parse_id("12", int), parse_id("12", str), parse_id("cat/1.jpg", None)
        (12, '12', 'cat/1.jpg')
    """
    if id_type is not int:
        return text
    if not _is_number(text):
        raise UsageError(f"The ids of this index are integers of 64 bits, got {text[:80]!r}.")
    return int(text)


# ---- labels --------------------------------------------------------------------------------------


def parse_labels(texts: Iterable[str]) -> list[Label]:
    """Parse the labels of a filter; used by all interfaces.

    The text "7" may mean the label 7 or the label "7", so it matches both.

    Args:
        texts: Labels as text.

    Returns:
        The texts, followed by the values of those that are integers of at most 64 bits.

    Example:
        >>> parse_labels(["cat", "7"])
        ['cat', '7', 7]
    """
    texts = list(texts)
    return [*texts, *(int(text) for text in texts if _is_number(text))]


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        return False
    return -(2**63) <= int(text) < 2**63


def label_set(labels: Any) -> frozenset[Label]:
    """One label, or a collection of labels, as a set.

    Raises:
        UsageError: A label is neither a string nor an integer.
    """
    many = labels if isinstance(labels, Iterable) and not isinstance(labels, str) else [labels]
    return frozenset(_label(label) for label in many)


def sets_with(sets: Sequence[LabelSet], labels: Collection[Label]) -> Mask:
    """Which label sets contain at least one of the labels."""
    requested = set(labels)
    return np.fromiter((not requested.isdisjoint(each) for each in sets), bool, len(sets))


def _paths(paths: Any, count: int) -> NDArray[np.object_]:
    values = [None if path is None else str(path) for path in paths]
    if len(values) != count:
        raise UsageError(f"{count} items need {count} paths, got {len(values)}.")
    array = np.empty(count, object)
    array[:] = values
    return array


def _number_label_sets(labels: Any, count: int) -> tuple[tuple[LabelSet, ...], NDArray[np.int32]]:
    """The distinct label sets, and the number of each item's set."""
    if len(labels) != count:
        raise UsageError(f"{count} items need {count} labels, got {len(labels)}.")
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iuU":
        values, numbers = np.unique(labels, return_inverse=True)
        singles = tuple((value,) for value in values.tolist())
        return singles or ((),), np.asarray(numbers, np.int32)
    if isinstance(labels, np.ndarray) and labels.ndim == 2:
        if labels.dtype.kind not in "biuf" or not ((labels == 0) | (labels == 1)).all():
            raise UsageError(f"A label matrix (n, C) must contain only 0 and 1 ({labels.dtype}).")
        labels = [np.flatnonzero(row).tolist() for row in labels]
    known: dict[LabelSet, int] = {}
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
    raise UsageError(f"A label must be a string or an integer, got {label!r}.")
