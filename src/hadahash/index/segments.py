"""An index whose codes are on this machine: a few segments that never change, the newest last.

Whoever searches takes the segments as they are at that moment, and a writer puts new ones in their place in one step:
so a search sees the index before a change or after it, and never waits. New items become a new segment, which is merged
with its neighbour when it has grown to half of its size: there are never more than log2(n) segments, and an item is
moved at most log2(n) times.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..codes import Codes, pack
from ..errors import UsageError, unknown
from ..native import search as native
from .api import Hits, Index, Search, refuse_missing
from .items import Id, Ids, Item, ItemTable, Mask
from .segment import Part, Segment, make_segment, merged
from .storage import folder as store


class LocalIndex(Index):
    """An engine derives from it and says in `layout` how a segment's codes lie."""

    def __init__(self, bits: int, codebook: NDArray[np.uint8] | None) -> None:
        super().__init__()
        self.bits = bits
        self.codebook = codebook  # uint8 (C, ceil(bits / 8)); it travels with the index, even where an engine has no use for it
        self.meta: dict[str, Any] = {}
        self._segments: tuple[Segment, ...] = ()
        self._origin: store.Origin | None = None  # the folder it came from, or was saved to last

    @classmethod
    def _create(cls, bits: int, codebook: Any, **options: Any) -> LocalIndex:
        if options:
            raise unknown(
                f"option of the index engine '{cls.engine}'", next(iter(options)), ["codebook"]
            )
        return cls(bits, None if codebook is None else packed_codebook(codebook, bits))

    @abstractmethod
    def layout(self, rows: native.Rows) -> native.Table:
        """Codes in the order of ids to the table that is scanned: a copy, as the codes may be the caller's."""

    # ---- changing ------------------------------------------------------------------------------------------------

    def _put(self, packed: NDArray[np.uint8], items: ItemTable) -> None:
        with self._writing:
            kept = self._without(items.ids)
            self._segments = self._tidy(
                (*kept, make_segment(native.rows_of(packed), items, self.layout))
            )

    def _remove(self, ids: Ids) -> None:
        self._segments = self._tidy(self._without(ids))

    def _without(self, ids: Ids) -> tuple[Segment, ...]:
        """The segments, less the items with these ids."""
        segments = []
        for segment in self._segments:
            ranks = segment.ranks_of(ids)
            ranks = ranks[ranks >= 0]
            segments.append(segment.without(ranks) if len(ranks) else segment)
        return tuple(segments)

    def _tidy(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Drop what is empty, rewrite what is half empty, and join neighbours of like size."""
        kept: list[Segment] = []
        for segment in segments:
            if segment.live == 0:
                continue
            if segment.live * 2 < len(segment.codes):
                segment = merged([segment], self.layout)
            together, size = [segment], segment.live
            while kept and kept[-1].live < 2 * size:
                together.insert(0, kept.pop())
                size += together[0].live
            kept.append(merged(together, self.layout) if len(together) > 1 else segment)
        return tuple(kept)

    # ---- asking --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(segment.live for segment in self._segments)

    @property
    def ids_are(self) -> type[Id] | None:
        segments = self._segments
        return segments[0].items.ids_are if segments else None

    @property
    def ids(self) -> Ids:
        parts = [segment.live_ids() for segment in self._segments]
        return np.sort(np.concatenate(parts), kind="stable") if parts else np.zeros(0, np.int64)

    def codes(self, ids: ArrayLike | None = None) -> Codes:
        segments = self._segments
        if ids is not None:
            return self._codes_of(segments, self._ids(ids))
        if not segments:
            return self._codes_of((), np.zeros(0, np.int64))
        rows = np.concatenate([segment.live_rows() for segment in segments])
        known = np.concatenate([segment.live_ids() for segment in segments])
        order = np.argsort(known, kind="stable")
        return Codes(
            packed=native.packed_of(rows[order], self.bits), bits=self.bits, ids=known[order]
        )

    def _codes_of(self, segments: tuple[Segment, ...], wanted: Ids) -> Codes:
        packed, there = (
            np.zeros((len(wanted), -(-self.bits // 8)), np.uint8),
            np.zeros(len(wanted), bool),
        )
        for segment in segments:
            ranks = segment.ranks_of(wanted)
            here = ranks >= 0
            packed[here] = native.packed_of(segment.rows_at(ranks[here]), self.bits)
            there |= here
        refuse_missing(wanted, there)
        return Codes(packed=packed, bits=self.bits, ids=wanted)

    def has(self, ids: ArrayLike) -> Mask:
        wanted = self._ids(ids)
        there = np.zeros(len(wanted), bool)
        for segment in self._segments:
            there |= segment.ranks_of(wanted) >= 0
        return there

    def get(self, ids: ArrayLike) -> list[Item]:
        wanted = self._ids(ids)
        found: dict[Id, Item] = {}
        for segment in self._segments:
            ranks = segment.ranks_of(wanted)
            found.update((item.id, item) for item in segment.items.at(ranks[ranks >= 0]))
        refuse_missing(wanted, np.array([each in found for each in wanted.tolist()], bool))
        return [found[each] for each in wanted.tolist()]

    def _search(self, search: Search) -> Hits:
        queries = native.rows_of(search.packed)
        limits: NDArray[np.uint64] = np.empty(len(queries), np.uint64)
        limits.fill((search.radius + 1) << 32)
        parts: list[Part] = []
        for segment in self._segments:
            if parts:
                limits = _lowered(limits, parts[-1].distances, search.k)
            parts.append(segment.search(search, queries, limits))
        if not parts:
            nothing = np.zeros((len(queries), 0))
            return Hits(
                nothing.astype(np.int64), nothing.astype(np.int32), np.ones(len(queries), bool)
            )
        return Hits(*(parts[0] if len(parts) == 1 else _best(parts, search.k)))

    # ---- on disk -------------------------------------------------------------------------------------------------

    @classmethod
    def _open(cls, folder: Path) -> Index:
        opened = store.open_folder(folder)
        index = cls(opened.bits, opened.codebook)
        index._segments, index._origin, index.meta = opened.segments, opened.origin, opened.meta
        return index

    def save(self, folder: str | Path) -> None:
        with self._writing:
            state = store.State(self.engine, self.bits, self.codebook, self._segments, self.meta)
            self._segments, self._origin = store.save_folder(Path(folder), state, self._origin)

    def verify(self) -> None:
        store.verify(self._segments)


def _lowered(limits: native.Keys, distances: NDArray[np.int32], k: int) -> native.Keys:
    """The limits for a further segment, after one with these distances: it may tie with the k-th, but not be further."""
    if k == 0 or distances.shape[1] < k:
        return limits
    last = distances[:, -1].astype(np.int64)
    return np.where(last >= 0, (last + 1).astype(np.uint64) << np.uint64(32), limits)


def _best(parts: list[Part], k: int) -> Part:
    """The k best of all parts in the order (distance, then id)."""
    ids = np.concatenate([part.ids for part in parts], axis=1)
    distances = np.concatenate([part.distances for part in parts], axis=1)
    order_of_id = np.unique(ids, return_inverse=True)[1].reshape(ids.shape)
    keys = np.where(
        distances < 0, np.iinfo(np.int64).max, distances.astype(np.int64) << 40 | order_of_id
    )
    best = np.argsort(keys, axis=1, kind="stable")[:, :k]
    certain = np.logical_and.reduce([part.certain for part in parts])
    return Part(np.take_along_axis(ids, best, 1), np.take_along_axis(distances, best, 1), certain)


def packed_codebook(codebook: Any, bits: int) -> NDArray[np.uint8]:
    values = codebook.signs() if isinstance(codebook, Codes) else np.asarray(codebook)
    if values.ndim != 2 or len(values) == 0 or values.shape[1] != bits:
        raise UsageError(
            f"A codebook for {bits}-bit codes is +-1 (classes, {bits}), got the shape {values.shape}."
        )
    return pack(values)
