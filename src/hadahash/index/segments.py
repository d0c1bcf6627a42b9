"""Immutable segments: codes, their items in the order of ids, and a mask of deleted items.

An index is a short sequence of segments, the newest last. New items become a new segment, which is
merged with its predecessor when it has grown to half of its size (size-tiered compaction): there
are at most log2(n) segments, and an item is moved at most log2(n) times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..native.search import NO_BOUND, Keys, nearest
from ..native.tables import Rows, Table, bitmap, cache_aligned, cleared
from .items import (
    Ids,
    Items,
    ItemTable,
    Label,
    Mask,
    Ordinals,
    concatenate,
    id_type_of,
    missing_id,
    sets_with,
)
from .label_counts import LabelCounts, count_labels, recount
from .query import Filter, SearchRequest
from .storage.segment_files import SavedSegment

_MOST_FILTERS, _FILTER_BYTES = 256, 2**25  # bitmaps of filters that a segment keeps
Layout = Callable[[Rows], Table]  # codes in the order of ids -> the table that is searched


class CodeTable(Protocol):
    """Source of a segment's table: memory, or files that are verified before first use."""

    def __len__(self) -> int:
        """Number of codes."""
        ...

    def load(self) -> Table:
        """The table to search."""
        ...

    def content(self) -> Rows | None:
        """Content bits in the order of ids; None if the items have none."""
        ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """A table in memory.

    Attributes:
        table: The table to search.
        content_rows: Content bits in the order of ids, or None.
    """

    table: Table
    content_rows: Rows | None = None

    def __len__(self) -> int:
        """Number of codes."""
        return len(self.table)

    def load(self) -> Table:
        """The table to search."""
        return self.table

    def content(self) -> Rows | None:
        """Content bits in the order of ids; None if the items have none."""
        return self.content_rows


def in_memory(layout: Layout, rows: Rows, content: Rows | None) -> InMemory:
    """Arrange codes and their content bits, both in the order of ids."""
    return InMemory(layout(rows), None if content is None else cache_aligned(content))


class SegmentHits(NamedTuple):
    """Results of a search in one or several segments. Padding has the distance -1.

    Attributes:
        distances: int32 (q, k).
        exact_rows: bool (q,): the row is guaranteed to equal an exhaustive search.
        ordinals: int64 (q, k), in the segment of the item.
        segments: Number of the item's segment, (q, k); None if there is only one.
        scores: float64 (q, k), descending; None for the order of distances. Padding has -inf.
        ids: (q, k); None if they were not needed, because there is only one segment.
    """

    distances: NDArray[np.int32]
    exact_rows: Mask
    ordinals: Ordinals
    segments: NDArray[np.int64] | None = None
    scores: NDArray[np.float64] | None = None
    ids: Ids | None = None


@dataclass(frozen=True, eq=False)
class Segment:
    """A part of an index that never changes.

    Attributes:
        codes: The codes.
        items: The items, in the order of ids.
        deleted: Mask of deleted items by ordinal; None if there are none.
        saved: Where it is on disk; None if it was never saved.
        counted: Label counts of an earlier state, with its mask of deleted items.
    """

    codes: CodeTable
    items: Items
    deleted: Mask | None = None
    saved: SavedSegment | None = None
    counted: tuple[LabelCounts, Mask | None] | None = None

    @cached_property
    def live_count(self) -> int:
        """Number of items that are not deleted."""
        deleted = 0 if self.deleted is None else int(np.count_nonzero(self.deleted))
        return len(self.codes) - deleted

    def delete(self, ordinals: Ordinals) -> Segment:
        """The segment with these items deleted."""
        deleted = np.zeros(len(self.codes), bool) if self.deleted is None else self.deleted.copy()
        deleted[ordinals] = True
        changed = replace(self, deleted=deleted, counted=self.latest_counts)
        live = self.__dict__.get("_live_bitmap")
        if live is not None:  # it is known; for a large segment it is slow to make
            routed = self.codes.load().ordinals is not None
            positions = self._positions[ordinals] if routed else ordinals
            changed.__dict__["_live_bitmap"] = cleared(live, positions)
            if routed:
                changed.__dict__["_positions"] = self._positions
        return changed

    def saved_as(self, saved: SavedSegment) -> Segment:
        """Move the segment to another location, and keep what it has in memory.

        Args:
            saved: The files of the segment.

        Returns:
            The segment at its new location.
        """
        moved = replace(self, saved=saved)
        moved.__dict__.update(self.__dict__ | {"saved": saved})
        return moved

    def ordinals_of(self, ids: Ids) -> Ordinals:
        """Ordinals of these ids; -1 for ids that are unknown or deleted."""
        ordinals = self.items.ordinals_of(ids)
        if self.deleted is None:
            return ordinals
        return np.where((ordinals >= 0) & ~self.deleted[ordinals], ordinals, -1)

    def live_ids(self) -> Ids:
        """Ids that are not deleted, ascending."""
        ids = self.items.all_ids()
        return ids if self.deleted is None else ids[~self.deleted]

    def live_rows(self) -> Rows:
        """Codes that are not deleted, in the order of ids."""
        table = self.codes.load()
        rows = table.rows
        if table.ordinals is not None:
            rows = np.empty_like(table.rows)
            rows[table.ordinals] = table.rows
        return rows if self.deleted is None else rows[~self.deleted]

    def live_content(self) -> Rows | None:
        """Content bits of items that are not deleted, in the order of ids; None without."""
        content = self.codes.content()
        return content if content is None or self.deleted is None else content[~self.deleted]

    def live_items(self) -> ItemTable:
        """Items that are not deleted."""
        table = self.items.table()
        return table if self.deleted is None else table.take(~self.deleted)

    def rows_at(self, ordinals: Ordinals) -> Rows:
        """The codes of these ordinals."""
        table = self.codes.load()
        return table.rows[ordinals if table.ordinals is None else self._positions[ordinals]]

    def content_at(self, ordinals: Ordinals) -> Rows | None:
        """The content bits of these ordinals; None if the items have none."""
        content = self.codes.content()
        return None if content is None else content[ordinals]

    @property
    def latest_counts(self) -> tuple[LabelCounts, Mask | None] | None:
        """The latest label counts that are known, and the deleted items then; None without."""
        counts = self.__dict__.get("label_counts")
        return self.counted if counts is None else (counts, self.deleted)

    @cached_property
    def label_counts(self) -> LabelCounts:
        """Label sets and labels with their numbers of live items.

        All items are counted only if no earlier counts are known, in memory or in the manifest.
        """
        saved, known = self.saved, self.counted
        if known is None and saved is not None and saved.entry.label_counts is not None:
            known = LabelCounts.of(saved.entry.label_counts), saved.deleted
        if known is None:
            numbers = self.items.set_numbers()
            live = numbers if self.deleted is None else numbers[~self.deleted]
            return count_labels(self.items.label_sets(), live)
        before, deleted = known
        if deleted is self.deleted:
            return before
        return recount(before, self.items.set_numbers(), deleted, self.deleted)

    def search(self, request: SearchRequest, queries: Rows, limits: Keys) -> SegmentHits:
        """The best `request.k` items of this segment with keys below the limits."""
        table = self.codes.load()
        k = min(request.k, len(table))
        found = nearest(
            table,
            queries,
            k=k,
            limits=limits,
            allowed=self.allowed(request.filter),
            probes=request.probes,
            threads=request.threads,
        )
        keys, bound = found.keys.view(np.int64), found.unvisited_lower_bound
        distances, ordinals = (keys >> 32).astype(np.int32), keys & 0xFFFFFFFF
        worst = found.keys[:, -1] if k else np.zeros(len(queries), np.uint64)
        exact = worst <= (NO_BOUND if bound is None else bound)
        padding = found.keys >= limits[:, None] if np.count_nonzero(worst >= limits) else None
        if padding is not None:
            ordinals[padding], distances[padding] = 0, -1
        return SegmentHits(distances, exact, ordinals)

    def ids_of(self, hits: SegmentHits) -> Ids:
        """Ids of hits of this segment, (q, k)."""
        ids = self.items.ids_at(hits.ordinals.ravel()).reshape(hits.ordinals.shape)
        padding = hits.distances < 0
        if padding.any():
            ids[padding] = missing_id(id_type_of(ids))
        return ids

    def allowed(self, chosen: Filter) -> NDArray[np.uint64] | None:
        """`bitmap` of the items of a filter that are not deleted, by position; None for all."""
        if chosen.labels is None and chosen.ids is None:
            return self._live_bitmap
        if chosen.ids is not None or chosen.labels is None:
            return self._allowed(chosen)
        key, known = chosen.labels, self._label_bitmaps
        found = known.get(key)
        if found is None:
            found = self._allowed(chosen)
            while len(known) >= max(1, min(_MOST_FILTERS, _FILTER_BYTES // found.nbytes)):
                known.pop(next(iter(known.copy())), None)  # the oldest
            known[key] = found
        return found

    def _allowed(self, chosen: Filter) -> NDArray[np.uint64]:
        mask = np.ones(len(self.codes), bool) if self.deleted is None else ~self.deleted
        if chosen.labels is not None:
            mask &= sets_with(self.items.label_sets(), chosen.labels)[self.items.set_numbers()]
        if chosen.ids is not None:
            ordinals = self.items.ordinals_of(chosen.ids)
            listed = np.zeros(len(mask), bool)
            listed[ordinals[ordinals >= 0]] = True
            mask &= listed
        return self._bitmap(mask)

    def _bitmap(self, mask: Mask) -> NDArray[np.uint64]:
        ordinals = self.codes.load().ordinals
        return bitmap(mask if ordinals is None else mask[ordinals])

    @cached_property
    def _live_bitmap(self) -> NDArray[np.uint64] | None:
        return None if self.deleted is None else self._bitmap(~self.deleted)

    @cached_property
    def _label_bitmaps(self) -> dict[frozenset[Label], NDArray[np.uint64]]:
        """The bitmaps of the latest filters by label: making one takes longer than a search."""
        return {}

    @cached_property
    def _positions(self) -> NDArray[np.uint32]:
        """Position of each ordinal in a routed table."""
        ordinals: NDArray[np.uint32] = self.codes.load().ordinals  # type: ignore[assignment]
        positions = np.empty_like(ordinals)
        positions[ordinals] = np.arange(len(ordinals), dtype=np.uint32)
        return positions


def merge_segments(segments: Sequence[Segment], layout: Layout) -> Segment:
    """Merge segments into one, without deleted items."""
    rows = np.concatenate([segment.live_rows() for segment in segments])
    parts = [segment.live_content() for segment in segments]
    contents = [part for part in parts if part is not None]
    items = concatenate([segment.live_items() for segment in segments])
    order = np.argsort(items.ids, kind="stable")  # fast, as each part is sorted
    content = np.concatenate(contents)[order] if contents else None
    return Segment(in_memory(layout, rows[order], content), items.take(order))


def compact(segments: Sequence[Segment], layout: Layout) -> tuple[Segment, ...]:
    """Drop empty segments, rewrite half-empty ones, and merge neighbors of similar size."""
    kept: list[Segment] = []
    for segment in segments:
        if segment.live_count == 0:
            continue
        if segment.live_count * 2 < len(segment.codes):
            segment = merge_segments([segment], layout)
        group, size = [segment], segment.live_count
        while kept and kept[-1].live_count < 2 * size:
            group.insert(0, kept.pop())
            size += group[0].live_count
        kept.append(merge_segments(group, layout) if len(group) > 1 else segment)
    return tuple(kept)


def delete_ids(segments: Sequence[Segment], ids: Ids) -> tuple[Segment, ...]:
    """The segments without the items of these ids; unknown ids are ignored."""
    remaining = []
    for segment in segments:
        ordinals = segment.ordinals_of(ids)
        ordinals = ordinals[ordinals >= 0]
        remaining.append(segment.delete(ordinals) if len(ordinals) else segment)
    return tuple(remaining)


def search_segments(
    segments: Sequence[Segment], request: SearchRequest, queries: Rows
) -> SegmentHits:
    """The best `request.k` items of all segments, at most as many as are not deleted."""
    if segments and request.k > segments[0].live_count:
        count = sum(segment.live_count for segment in segments)
        request = request._replace(k=min(request.k, count))
    limits: Keys = np.empty(len(queries), np.uint64)
    limits.fill((request.radius + 1) << 32)
    parts: list[SegmentHits] = []
    for segment in segments:
        if parts:
            limits = _tighten(limits, parts[-1].distances, request.k)
        parts.append(segment.search(request, queries, limits))
    if not parts:
        none = np.zeros((len(queries), 0), np.int64)
        exact = np.ones(len(queries), bool)
        return SegmentHits(none.astype(np.int32), exact, none, ids=none)
    return parts[0] if len(parts) == 1 else _best(segments, parts, request.k)


def hit_ids(segments: Sequence[Segment], hits: SegmentHits) -> Ids:
    """Ids of hits, (q, k)."""
    return segments[0].ids_of(hits) if hits.ids is None else hits.ids


def _tighten(limits: Keys, distances: NDArray[np.int32], k: int) -> Keys:
    """Limits for the next segment: hits may tie with the k-th best so far, but not be farther."""
    if k == 0 or distances.shape[1] < k:
        return limits
    last = distances[:, -1].astype(np.int64)
    return np.where(last >= 0, (last + 1).astype(np.uint64) << np.uint64(32), limits)


def joined_parts(
    segments: Sequence[Segment], parts: Sequence[SegmentHits]
) -> tuple[Ids, NDArray[np.int32], Ordinals]:
    """Ids, distances and ordinals of the hits of all segments, side by side."""
    ids = [segment.ids_of(part) for segment, part in zip(segments, parts, strict=True)]
    distances, ordinals = [part.distances for part in parts], [part.ordinals for part in parts]
    return (
        np.concatenate(ids, axis=1),
        np.concatenate(distances, axis=1),
        np.concatenate(ordinals, axis=1),
    )


def _best(segments: Sequence[Segment], parts: Sequence[SegmentHits], k: int) -> SegmentHits:
    """The k best of all parts in the order (distance, id)."""
    ids, distances, ordinals = joined_parts(segments, parts)
    widths = [part.distances.shape[1] for part in parts]
    numbers = np.broadcast_to(np.repeat(np.arange(len(parts)), widths), distances.shape)
    id_order = np.unique(ids, return_inverse=True)[1].reshape(ids.shape)
    keys = distances.astype(np.int64) << 40 | id_order
    best = np.argsort(np.where(distances < 0, np.iinfo(np.int64).max, keys), axis=1, kind="stable")
    best = best[:, :k]
    exact = np.logical_and.reduce([part.exact_rows for part in parts])
    columns = (np.take_along_axis(array, best, 1) for array in (ids, distances, ordinals, numbers))
    best_ids, best_distances, best_ordinals, best_numbers = columns
    return SegmentHits(best_distances, exact, best_ordinals, best_numbers, ids=best_ids)
