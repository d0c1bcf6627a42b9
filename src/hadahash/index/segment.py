"""A part of an index that never changes: codes, their items in the order of ids, and a mask of those since removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..native import search as native
from .api import Filter, Search
from .items import Ids, Items, ItemTable, Mask, Ranks, joined

Layout = Callable[
    [native.Rows], native.Table
]  # codes in the order of ids -> the table that is scanned


class CodeTable(Protocol):
    """Where a segment's table comes from: memory, or a file that is checked before its first use."""

    def __len__(self) -> int: ...
    def load(self) -> native.Table: ...


@dataclass(frozen=True, eq=False)
class InMemory:
    table: native.Table

    def __len__(self) -> int:
        return len(self.table)

    def load(self) -> native.Table:
        return self.table


class Part(NamedTuple):
    """What one segment answers: ids (q, k), distances (q, k), -1 where there is nothing; and which rows are proven."""

    ids: Ids
    distances: NDArray[np.int32]
    certain: Mask


@dataclass(frozen=True, eq=False)
class Segment:
    codes: CodeTable
    items: Items
    gone: Mask | None = None  # (n,), by rank
    stored: object = None  # where it is on disk; belongs to store.py

    @property
    def live(self) -> int:
        return len(self.codes) - (0 if self.gone is None else int(np.count_nonzero(self.gone)))

    def without(self, ranks: Ranks) -> Segment:
        gone = np.zeros(len(self.codes), bool) if self.gone is None else self.gone.copy()
        gone[ranks] = True
        return replace(self, gone=gone)

    def ranks_of(self, ids: Ids) -> Ranks:
        """-1 for ids that are not here, or no longer."""
        ranks = self.items.ranks_of(ids)
        return ranks if self.gone is None else np.where((ranks >= 0) & ~self.gone[ranks], ranks, -1)

    def live_ids(self) -> Ids:
        ids = self.items.table().ids
        return ids if self.gone is None else ids[~self.gone]

    def live_rows(self) -> native.Rows:
        """Codes in the order of ids."""
        table = self.codes.load()
        rows = table.rows
        if table.ranks is not None:
            rows = np.empty_like(table.rows)
            rows[table.ranks] = table.rows
        return rows if self.gone is None else rows[~self.gone]

    def rows_at(self, ranks: Ranks) -> native.Rows:
        """The codes of these places in the order of ids."""
        table = self.codes.load()
        return table.rows[ranks if table.ranks is None else self._positions[ranks]]

    @cached_property
    def _positions(self) -> NDArray[np.uint32]:
        """Where in a routed table the code of each rank lies."""
        ranks: NDArray[np.uint32] = self.codes.load().ranks  # type: ignore[assignment]
        positions = np.empty_like(ranks)
        positions[ranks] = np.arange(len(ranks), dtype=np.uint32)
        return positions

    def live_items(self) -> ItemTable:
        table = self.items.table()
        return table if self.gone is None else table.take(~self.gone)

    def search(self, search: Search, queries: native.Rows, limits: native.Keys) -> Part:
        """The best `search.k` items of this segment whose keys are below the limits."""
        table = self.codes.load()
        k = min(search.k, len(table))
        allowed = self._allowed(search.filter)
        found = native.nearest(
            table,
            queries,
            k=k,
            limits=limits,
            allowed=allowed,
            probes=search.probes,
            threads=search.threads,
        )
        keys = found.keys.view(np.int64)
        distances, ranks = (keys >> 32).astype(np.int32), keys & 0xFFFFFFFF
        worst = found.keys[:, -1] if k else np.zeros(len(queries), np.uint64)
        certain = worst <= (native.UNSEEN_NOTHING if found.unseen is None else found.unseen)
        missing = found.keys >= limits[:, None] if np.count_nonzero(worst >= limits) else None
        if missing is not None:
            ranks[missing], distances[missing] = 0, -1
        ids = self.items.ids_at(ranks.ravel()).reshape(ranks.shape)
        if missing is not None:
            ids[missing] = "" if ids.dtype.kind == "U" else -1
        return Part(ids, distances, certain)

    def _allowed(self, chosen: Filter) -> NDArray[np.uint64] | None:
        if chosen.labels is None and chosen.ids is None:
            return self._present
        mask = np.ones(len(self.codes), bool) if self.gone is None else ~self.gone
        if chosen.labels is not None:
            mask &= self.items.with_labels(chosen.labels)
        if chosen.ids is not None:
            ranks = self.items.ranks_of(chosen.ids)
            listed = np.zeros(len(mask), bool)
            listed[ranks[ranks >= 0]] = True
            mask &= listed
        return self._bitmap(mask)

    @cached_property
    def _present(self) -> NDArray[np.uint64] | None:
        return None if self.gone is None else self._bitmap(~self.gone)

    def _bitmap(self, mask: Mask) -> NDArray[np.uint64]:
        ranks = self.codes.load().ranks
        return native.bitmap(mask if ranks is None else mask[ranks])


def make_segment(rows: native.Rows, items: ItemTable, layout: Layout) -> Segment:
    return Segment(InMemory(layout(rows)), items)


def merged(segments: Sequence[Segment], layout: Layout) -> Segment:
    """One segment in the place of several, without what was removed."""
    rows = np.concatenate([segment.live_rows() for segment in segments])
    items = joined([segment.live_items() for segment in segments])
    order = np.argsort(items.ids, kind="stable")  # quick on parts that are in order
    return make_segment(rows[order], items.take(order), layout)
