"""The contract of every index: what it is asked and what it answers.

An engine is one file: a class that derives from `Index`, is registered under its name, and has the methods marked as
abstract here. `Index` checks what a caller gives before an engine sees it. `LocalIndex` (local.py) has most of them
for engines that keep their codes in memory or in a folder of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..codes import Codes
from ..errors import UsageError
from ..registry import Registry
from .items import Id, Ids, Item, ItemTable, Label, Mask, id_array, item_table, label_set

FEWEST_BITS, MOST_BITS = 8, 512
_FIRST_WITHIN = 64  # hits that `within` makes room for at first


@dataclass(frozen=True, eq=False)
class Hits:
    """What a search found: one row a query, nearest first, ties in the order of ids.

    Where fewer than k items qualify, the rest of the row has the id -1 (or "" where ids are strings) and the distance -1.
    """

    ids: Ids  # (q, k)
    distances: NDArray[np.int32]  # (q, k)
    certain: Mask  # (q,): this row is proven to be what comparing with every code would give

    def __len__(self) -> int:
        return len(self.distances)

    @property
    def exact(self) -> bool:
        """The certificate: every row is proven to be what comparing with every code would give."""
        return bool(self.certain.all())

    @property
    def counts(self) -> NDArray[np.int64]:
        """(q,): how many items each row holds, without the padding"""
        return np.asarray(np.count_nonzero(self.distances >= 0, axis=1))


class Filter(NamedTuple):
    """Which items may be found: those with one of the labels, and one of the ids; None: any."""

    labels: frozenset[Label] | None
    ids: Ids | None


class Search(NamedTuple):
    """A search as an engine sees it: checked."""

    packed: NDArray[np.uint8]  # (q, ceil(bits / 8))
    k: int
    radius: int  # `bits` when any distance will do
    filter: Filter
    probes: int | None
    threads: int | None


class Index(ABC):
    """Codes that can be searched. `Index.build` makes one, `Index.open` opens one from a folder.

    >>> from hadahash.codes import pack
    >>> codes = Codes(packed=pack([[1] * 8, [-1] * 8, [1] * 7 + [-1]]), bits=8, ids=["a", "b", "c"])
    >>> index = Index.build(codes, labels=["cat", "dog", "dog"])
    >>> hits = index.search(codes[[0]], k=2)
    >>> hits.ids.tolist(), hits.distances.tolist(), hits.exact
    ([['a', 'c']], [[0, 1]], True)
    >>> index.search(codes[[0]], k=2, labels="dog").ids.tolist()
    [['c', 'b']]
    """

    engine: ClassVar[str]
    bits: int
    meta: dict[
        str, Any
    ]  # small values as JSON has them, for whoever owns the index; `save` keeps them with it

    def __init__(self) -> None:
        self._writing = RLock()  # held by whoever changes the index

    @staticmethod
    def build(
        codes: Codes,
        labels: Any = None,
        paths: Any = None,
        *,
        engine: str = "exact",
        codebook: Any = None,
        **options: Any,
    ) -> Index:
        """A new index of the codes, under their ids.

        `labels`    one label an item, (n,) of whole numbers or strings; or a numpy matrix (n, C) of 0 and 1; or a list of
                    collections of labels
        `paths`     one an item, or None
        `engine`    a name of `list_engines()`
        `codebook`  +-1 (C, bits), the codewords of the classes, for engines that route by them
        `options`   of the engine
        """
        if not FEWEST_BITS <= codes.bits <= MOST_BITS:
            raise UsageError(
                f"An index holds codes of {FEWEST_BITS} to {MOST_BITS} bits, got {codes.bits}."
            )
        index = ENGINES.get(engine)._create(codes.bits, codebook, **options)
        index.add(codes, labels, paths)
        return index

    @staticmethod
    def open(folder: str | Path) -> Index:
        """The index that `save` left in this folder."""
        from .storage.folder import read_manifest

        manifest = read_manifest(Path(folder))
        return ENGINES.get(manifest["engine"])._open(Path(folder))

    # ---- changing ------------------------------------------------------------------------------------------------

    def add(self, codes: Codes, labels: Any = None, paths: Any = None) -> None:
        """Add new items. Ids that are already there are refused: `update` replaces them."""
        batch, table = self._batch(codes, labels, paths)
        with self._writing:  # between the check and the change nobody else may add the same ids
            known = self.has(table.ids)
            if known.any():
                raise UsageError(
                    f"The index already has {_named(table.ids[known])}. Use update() to replace items."
                )
            if len(batch):
                self._put(batch, table)

    def update(self, codes: Codes, labels: Any = None, paths: Any = None) -> None:
        """Put items in the place of those with the same ids, and add those that are new. Doing it twice changes nothing."""
        batch, table = self._batch(codes, labels, paths)
        if len(batch):
            self._put(batch, table)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items. Ids that are not there are refused; then nothing is removed."""
        wanted = np.unique(self._ids(ids))
        with self._writing:
            known = self.has(wanted)
            if not known.all():
                raise UsageError(
                    f"The index does not have {_named(wanted[~known])}. Nothing was removed."
                )
            if len(wanted):
                self._remove(wanted)

    # ---- asking --------------------------------------------------------------------------------------------------

    def search(
        self,
        codes: Codes | NDArray[np.uint8],
        k: int = 10,
        *,
        radius: int | None = None,
        labels: Any = None,
        ids: ArrayLike | None = None,
        probes: int | None = None,
        threads: int | None = None,
    ) -> Hits:
        """The k nearest items of each query, in the order (distance, then id): exactly what brute force would give.

        `radius`   only items at most so far away
        `labels`   only items that carry this label, or one of these
        `ids`      only these items; ids that are not there are ignored
        `probes`   approximate: engines that route look into so many buckets and no further. Rows that are then not proven
                   to be exact are not `certain`, and `hits.exact` is False
        `threads`  all usable cores when not given
        """
        if k < 0 or (radius is not None and radius < 0) or (probes is not None and probes < 1):
            raise UsageError(
                f"k and radius must be at least 0 and probes at least 1, got k={k}, radius={radius}, probes={probes}."
            )
        packed = self._packed(codes)
        wanted = None if labels is None else label_set(labels)
        chosen = Filter(wanted, None if ids is None else np.unique(self._ids(ids)))
        reach = self.bits if radius is None else min(int(radius), self.bits)
        hits = self._search(Search(packed, int(k), reach, chosen, probes, threads))
        return _padded(hits, int(k))

    def within(
        self,
        codes: Codes | NDArray[np.uint8],
        radius: int,
        *,
        labels: Any = None,
        ids: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Hits:
        """All items at most `radius` away: as many columns as the query with the most hits needs, padded as in `search`."""
        k = _FIRST_WITHIN
        while True:
            hits = self.search(codes, k, radius=radius, labels=labels, ids=ids, threads=threads)
            most = int(hits.counts.max(initial=0))
            if most < k:
                return Hits(hits.ids[:, :most], hits.distances[:, :most], hits.certain)
            k *= 8

    # ---- what an engine has --------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def _create(cls, bits: int, codebook: Any, **options: Any) -> Index:
        """An empty index."""

    @classmethod
    @abstractmethod
    def _open(cls, folder: Path) -> Index:
        """The index in this folder, whose manifest names this engine."""

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Make the folder hold this index, whole or not at all. In the folder it came from, only what is new is written."""

    @abstractmethod
    def verify(self) -> None:
        """Check everything that is stored against its checksums; a StorageError names what is damaged."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def ids(self) -> Ids:
        """All ids, in order"""

    @abstractmethod
    def codes(self, ids: ArrayLike | None = None) -> Codes:
        """All codes, in the order of ids; or those of these items, in the order given. Ids that are not there are refused."""

    @abstractmethod
    def has(self, ids: Ids) -> Mask:
        """Which of the ids are there"""

    @abstractmethod
    def get(self, ids: ArrayLike) -> list[Item]:
        """Id, path and labels of these items."""

    @abstractmethod
    def _put(self, packed: NDArray[np.uint8], items: ItemTable) -> None:
        """Add items, or replace those with the same ids, in one step. The ids are ascending."""

    @abstractmethod
    def _remove(self, ids: Ids) -> None:
        """Remove items that are there, in one step."""

    @abstractmethod
    def _search(self, search: Search) -> Hits:
        """Answer with at most `search.k` columns, padded to the longest row."""

    # ---- checks --------------------------------------------------------------------------------------------------

    def _packed(self, codes: Codes | NDArray[np.uint8]) -> NDArray[np.uint8]:
        if (
            isinstance(codes, np.ndarray)
            and codes.dtype == np.uint8
            and codes.shape[1:] == (self.bits / 8,)
        ):
            return codes  # nothing more to check, and single queries must be quick
        checked = codes if isinstance(codes, Codes) else Codes(packed=codes, bits=self.bits)
        if checked.bits != self.bits:
            raise UsageError(
                f"This index holds codes of {self.bits} bits, got codes of {checked.bits} bits."
            )
        return checked.packed

    def _batch(self, codes: Codes, labels: Any, paths: Any) -> tuple[NDArray[np.uint8], ItemTable]:
        """Codes and items in the order of ids."""
        packed, ids = self._packed(codes), self._ids(codes.ids)
        table = item_table(ids, paths=paths, labels=labels)
        if len(ids) > 1 and not (ids[:-1] < ids[1:]).all():
            order = np.argsort(ids, kind="stable")
            packed, table = packed[order], table.take(order)
            twice = table.ids[1:] == table.ids[:-1]
            if twice.any():
                raise UsageError(
                    f"The ids must differ, but {_named(table.ids[1:][twice])} came twice."
                )
        return packed, table

    def _ids(self, ids: ArrayLike) -> Ids:
        """Ids of the one kind this index has."""
        array = id_array(ids)
        kind = self.ids_are
        if array.size == 0:
            return array.astype(np.int64 if kind is int else str)
        if kind is not None and kind is not _kind(array):
            raise UsageError(
                f"The ids of this index are {kind.__name__}, got {array.dtype} (such as {array[0]!r})."
            )
        return array

    @property
    @abstractmethod
    def ids_are(self) -> type[Id] | None:
        """int or str; None while the index is empty."""


ENGINES: Registry[type[Index]] = Registry("index engine")


def refuse_missing(wanted: Ids, there: Mask) -> None:
    """Items were asked for that the index does not have."""
    if not there.all():
        raise UsageError(f"The index does not have {_named(wanted[~there])}.")


def _kind(ids: Ids) -> type[Id]:
    return str if ids.dtype.kind == "U" else int


def _named(ids: Ids) -> str:
    """The first ids, for an error."""
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return ", ".join(repr(each) for each in ids[:3].tolist()) + more


def _padded(hits: Hits, k: int) -> Hits:
    missing = k - hits.distances.shape[1]
    if missing == 0:
        return hits
    nothing: Any = "" if hits.ids.dtype.kind == "U" else -1
    ids, distances = (
        np.pad(array, ((0, 0), (0, missing)), constant_values=value)
        for array, value in ((hits.ids, nothing), (hits.distances, -1))
    )
    return Hits(ids, distances, hits.certain)
