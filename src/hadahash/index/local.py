"""Base class of engines that keep their codes on this machine, in memory or in a folder.

A search uses a snapshot of the segments, and a writer replaces them in one step: a search sees the
index before or after a change, and never blocks.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import native
from ..codes import Codes
from ..errors import unknown
from ..native.tables import Rows, Table, packed_of, rows_of
from .api import ENGINES, Index
from .checks import pack_codewords
from .items import (
    Id,
    Ids,
    Item,
    ItemTable,
    Label,
    Mask,
    Ordinals,
    check_ids_exist,
    empty_ids,
)
from .query import Hits, Neighbor, SearchRequest
from .ranked import neighbors_of, rank_segments
from .segments import Segment, compact, delete_ids, hit_ids, in_memory, search_segments
from .storage.folder import MANIFEST, IndexFolder, IndexState, LoadedIndex, SavedRevision

_SLOW_SIZE = 100_000  # number of codes above which searches without the compiled library are slow
_warned = False


class _Part(NamedTuple):
    """Requested items in one segment."""

    segment: Segment
    here: Mask  # which of the requested items it has
    ordinals: Ordinals


class LocalIndex(Index):
    """Base class of local engines; subclasses define `layout`.

    Attributes:
        codewords: Packed codewords, uint8 (C, ceil(bits / 8)), or None. They are stored with the
            index, also by engines that do not use them.
    """

    stores_content = True

    def __init__(self, bits: int, codewords: NDArray[np.uint8] | None) -> None:
        """Create an empty index.

        Args:
            bits: Length of the codes.
            codewords: Packed codewords, or None.
        """
        super().__init__()
        self.bits, self.codewords = bits, codewords
        self.meta: dict[str, Any] = {}
        self._segments: tuple[Segment, ...] = ()
        self._revision: SavedRevision | None = None  # where it was opened from or last saved to

    @classmethod
    def _create(cls, bits: int, codewords: Any, **options: Any) -> LocalIndex:
        if options:
            known = ["codewords"]
            raise unknown(f"option of the index engine '{cls.engine}'", next(iter(options)), known)
        return cls(bits, pack_codewords(codewords, bits))

    @classmethod
    def _load(cls, loaded: LoadedIndex) -> LocalIndex:
        index = cls(loaded.manifest.bits, loaded.manifest.codewords)
        index._segments, index._revision = loaded.segments, loaded.revision
        index.meta, index.ranking = loaded.manifest.meta, loaded.manifest.ranking
        index.content_bits, index._projection = loaded.manifest.content_bits, loaded.projection
        _warn_if_slow(len(index))
        return index

    def reopened(self, folder: str | Path) -> Index:
        """The index in a folder; see `Engine.reopened`."""
        loaded = IndexFolder(folder).open(self._segments)
        return ENGINES.get(loaded.manifest.engine)._load(loaded)

    @abstractmethod
    def layout(self, rows: Rows) -> Table:
        """Arrange codes for searching.

        Args:
            rows: Codes in the order of ids. They may be the caller's memory and must be copied.

        Returns:
            The table that is searched.
        """

    # ---- changes ---------------------------------------------------------------------------------

    def _put(
        self, packed: NDArray[np.uint8], items: ItemTable, content: NDArray[np.uint8] | None = None
    ) -> None:
        with self._writing:
            rows = None if content is None else rows_of(content)
            new = Segment(in_memory(self.layout, rows_of(packed), rows), items)
            self._segments = compact((*delete_ids(self._segments, items.ids), new), self.layout)
        _warn_if_slow(len(self))

    def _remove(self, ids: Ids) -> None:
        self._segments = compact(delete_ids(self._segments, ids), self.layout)

    # ---- queries ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of items."""
        return sum(segment.live_count for segment in self._segments)

    @property
    def id_type(self) -> type[Id] | None:
        """Type of the ids, int or str; None while the index is empty."""
        segments = self._segments
        return segments[0].items.id_type if segments else None

    @property
    def ids(self) -> Ids:
        """All ids in ascending order: int64, or object (str)."""
        parts = [segment.live_ids() for segment in self._segments]
        return np.sort(np.concatenate(parts), kind="stable") if parts else empty_ids(None)

    def sample_ids(self, count: int) -> Ids:
        """Some ids; see `Engine.sample_ids`. Other ids are not read."""
        segments, total = self._segments, len(self)
        if count >= total:
            return self.ids
        parts, before = [], 0
        for segment in segments:  # each has its part of the sample
            after = before + segment.live_count
            share = count * after // total - count * before // total
            rows = np.linspace(0, segment.live_count - 1, share).astype(np.int64)
            live = rows if segment.deleted is None else np.flatnonzero(~segment.deleted)[rows]
            parts.append(segment.items.ids_at(live))
            before = after
        return np.sort(np.concatenate(parts), kind="stable") if parts else empty_ids(None)

    def codes(self, ids: ArrayLike | None = None) -> Codes:
        """The codes of all items, or of these; see `Engine.codes`."""
        segments = self._segments
        if ids is not None or not segments:
            requested = self._checked_ids(() if ids is None else ids)
            return self._codes_of(_locate(segments, requested), requested)
        rows = np.concatenate([segment.live_rows() for segment in segments])
        known = np.concatenate([segment.live_ids() for segment in segments])
        order = np.argsort(known, kind="stable")
        contents = [segment.live_content() for segment in segments]
        content = None
        if self.content_bits:
            content = np.concatenate([each for each in contents if each is not None])[order]
            content = packed_of(content, self.content_bits)
        packed = packed_of(rows[order], self.bits)
        made_by = self.content_fingerprint
        return Codes(packed, self.bits, known[order], (), content, self.content_bits, made_by)

    def lookup(self, ids: ArrayLike) -> tuple[list[Item], Codes]:
        """Items and their codes; see `Engine.lookup`."""
        requested = self._checked_ids(ids)
        parts = _locate(self._segments, requested)
        return _items_of(parts, requested), self._codes_of(parts, requested)

    def _codes_of(self, parts: list[_Part], requested: Ids) -> Codes:
        widths = -(-self.bits // 8), -(-self.content_bits // 8)
        packed, content = (np.zeros((len(requested), width), np.uint8) for width in widths)
        for segment, here, ordinals in parts:
            packed[here] = packed_of(segment.rows_at(ordinals), self.bits)
            rows = segment.content_at(ordinals)
            if rows is not None:
                content[here] = packed_of(rows, self.content_bits)
        kept = content if self.content_bits else None
        made_by = self.content_fingerprint
        return Codes(packed, self.bits, requested, (), kept, self.content_bits, made_by)

    def has(self, ids: ArrayLike) -> Mask:
        """Which of the ids are in the index, bool (n,)."""
        requested = self._checked_ids(ids)
        found = np.zeros(len(requested), bool)
        for segment in self._segments:
            found |= segment.ordinals_of(requested) >= 0
        return found

    def get(self, ids: ArrayLike) -> list[Item]:
        """Id, path and labels of items; see `Engine.get`."""
        requested = self._checked_ids(ids)
        return _items_of(_locate(self._segments, requested), requested)

    def label_counts(self) -> dict[Label, int]:
        """Number of items per label, from counts that are kept per segment."""
        first, *others = [each.label_counts.per_label for each in self._segments] or [{}]
        counts = dict(first)
        for each in others:
            for label, count in each.items():
                counts[label] = counts.get(label, 0) + count
        return {label: count for label, count in counts.items() if count}

    def has_label(self, labels: Sequence[Label]) -> bool:
        """Whether an item has one of the labels, from the same counts; see `Engine.has_label`."""
        counts = [segment.label_counts.per_label for segment in self._segments]
        return any(each.get(label) for label in labels for each in counts)

    def _search(self, request: SearchRequest) -> Hits:
        segments = self._segments
        found = search_segments(segments, request, rows_of(request.packed))
        return Hits(hit_ids(segments, found), found.distances, found.exact_rows)

    def _ranked(self, request: SearchRequest) -> Hits:
        segments = self._segments
        found = rank_segments(segments, request)
        return Hits(hit_ids(segments, found), found.distances, found.exact_rows, found.scores)

    def _neighbors(self, request: SearchRequest) -> list[list[Neighbor]]:
        segments = self._segments
        if request.ranked is None:
            found = search_segments(segments, request, rows_of(request.packed))
        else:
            found = rank_segments(segments, request)
        return neighbors_of(segments, found, request, (self.bits, self.content_bits))

    # ---- folder ----------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, name: str = MANIFEST) -> None:
        """Write the index to a folder, atomically; see `Engine.save`."""
        with self._writing:
            state = IndexState(
                self.engine,
                self.bits,
                self.codewords,
                self.meta,
                self._segments,
                self.content_bits,
                self.ranking,
                self._projection,
            )
            saved = IndexFolder(folder, name).commit(state, self._revision)
            self._segments, self._revision = saved.segments, saved.revision
            self._projection = saved.projection

    def verify(self) -> None:
        """Verify the checksums of all stored files; see `Engine.verify`."""
        for segment in self._segments:
            if segment.saved is not None:
                segment.saved.verify()
        if self._projection is not None:
            self._projection.verify()


def _locate(segments: tuple[Segment, ...], requested: Ids) -> list[_Part]:
    """The segments that have some of these items."""
    parts, found = [], np.zeros(len(requested), bool)
    for segment in segments:
        ordinals = segment.ordinals_of(requested)
        here = ordinals >= 0
        if here.any():
            parts.append(_Part(segment, here, ordinals[here]))
            found |= here
    check_ids_exist(requested, found)
    return parts


def _items_of(parts: list[_Part], requested: Ids) -> list[Item]:
    found = {item.id: item for part in parts for item in part.segment.items.at(part.ordinals)}
    return [found[each] for each in requested.tolist()]


def _warn_if_slow(size: int) -> None:
    """Warn once that searches are slow, if there are many codes and no compiled library."""
    global _warned
    if size > _SLOW_SIZE and not _warned and not native.available():
        _warned = True
        warnings.warn(
            f"Searching {size:,} codes without the compiled library takes about 60 times as long. "
            "Install a C compiler and reinstall hadahash.",
            RuntimeWarning,
            stacklevel=4,
        )
