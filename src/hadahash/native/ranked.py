"""Ranked search in compiled code (ranked.c) or in numpy, with equal results.

A search goes through the items in phases. After each, the k-th best points so far tell where better
items can be (`ranked_bounds`), and the next phase evaluates only those.
"""

from __future__ import annotations

import ctypes
import itertools
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming
from ..errors import UsageError
from . import _library, usable_cores, used_level
from .ranked_bounds import Balls, balls_of, signs_of
from .ranked_query import CompiledQuery, QueryStruct
from .ranked_tables import Points, RankedQueries, reference_points
from .search import _QUERIES_PER_THREAD, _run_all
from .tables import Partition, Rows, Table, check_rows

Hits = NDArray[np.int64]  # (q, k, 3): points, ordinal and position; the worst of the best first
Ranges = NDArray[np.int64]  # (ranges, 2): first and last position

LOWEST = -(1 << 62)  # points that every item has
_NO_ORDINAL = 1 << 32
_CACHE = 1 << 9  # as CACHE_BITS of ranked.h
_CHUNK = 64  # as CHUNK of ranked.c
_SAMPLE = 4096  # items that are evaluated to get a first bound
_PIECE = 4096  # items per range of a phase
_STRIDES = (256, 32, 4, 1)  # phases of a flat table: every 256th piece, then every 32nd, ...
_NEAREST = 32  # a routed search begins with this part of the items, in the nearest shells
_MOST_BALLS = 24  # more take longer than what they exclude
_MOST_BALLS_WITH_CONTENT = 8
_ITEMS_PER_THREAD = 1 << 18
_SIZE_OF_A_HIT = 3


class RankedHits(NamedTuple):
    """The result of `most_points`: best first, ties in the order of ordinals.

    Attributes:
        ordinals: int64 (q, k); -1 is padding.
        points: int64 (q, k); `LOWEST` is padding.
        distances: Hamming distances of the class bits, int32 (q, k); -1 is padding.
    """

    ordinals: NDArray[np.int64]
    points: Points
    distances: NDArray[np.int32]


def most_points(
    queries: RankedQueries,
    table: Table,
    content: Rows | None,
    *,
    k: int,
    bits: int,
    floors: Points | None = None,
    radius: int | None = None,
    allowed: NDArray[np.uint64] | None = None,
    threads: int | None = None,
    level: int = -1,
) -> RankedHits:
    """Find the k items with the most points, exactly.

    Args:
        queries: The queries.
        table: Class bits of the items.
        content: Content bits of the items, in the order of ordinals; None where the queries have no
            content term.
        k: Number of items per query.
        bits: Number of class bits.
        floors: int64 (q,): find only items with at least this many points.
        radius: Find only items within this Hamming distance of the class bits.
        allowed: `bitmap` of the items to search, by position; None for all.
        threads: Maximum number of threads; None for all usable cores.
        level: Instruction set level, for tests; -1 for the best one.

    Returns:
        The items.

    Raises:
        UsageError: The content bits do not fit the table.
    """
    _check_content(content, len(table))
    hits = _empty(np.full(len(queries), LOWEST) if floors is None else floors, k)
    if hits.size == 0 or len(table) == 0:
        return _result(hits, queries, table)
    library = _library()
    if library is None:
        return _result(_in_numpy(queries, table, content, hits, radius, allowed), queries, table)
    job = _Job(library, queries, table, content, bits, radius, allowed, threads, level)
    find = job.flat if table.partition is None else partial(job.routed, table.partition)
    return _result(find(hits), queries, table)


def all_points(queries: RankedQueries, rows: Rows, content: Rows | None, bits: int) -> Points:
    """Points of all items, int64 (q, n), in compiled code if possible."""
    _check_content(content, len(rows))
    library = _library()
    if library is None:
        return reference_points(queries, rows, content)
    points = np.empty((len(queries), len(rows)), np.int64)
    table = Table(rows)
    signs = None if queries.classes is None else signs_of(queries.classes)
    width = 0 if content is None else content.itemsize * content.shape[1]
    address = None if content is None else content.ctypes.data

    def step(first: int, last: int) -> None:
        for row in range(first, last):
            query = CompiledQuery(queries, row, QueryStruct(), bits, None, signs)
            cache = np.zeros((_CACHE, 2), np.int64)
            library.hadahash_points(
                *(table.reference(None), address, width, ctypes.byref(query.struct)),
                *(cache.ctypes.data, 0, len(rows), points[row].ctypes.data),
            )

    cuts = np.linspace(0, len(queries), usable_cores() + 1).astype(int)
    _run_all([partial(step, *cut) for cut in itertools.pairwise(cuts)])
    return points


def _check_content(content: Rows | None, size: int) -> None:
    """Validate content bits, which C code reads as words."""
    if content is not None:
        check_rows(content)
        if len(content) != size:
            raise UsageError(f"{len(content)} rows of content bits do not match {size} codes.")


class _Job:
    """One call of `most_points` in compiled code."""

    def __init__(
        self,
        library: ctypes.CDLL,
        queries: RankedQueries,
        table: Table,
        content: Rows | None,
        bits: int,
        radius: int | None,
        allowed: NDArray[np.uint64] | None,
        threads: int | None,
        level: int,
    ) -> None:
        self.library, self.queries, self.level = library, queries, used_level(level)
        self.table, self.reference = table, table.reference(allowed)
        self.content = content
        self.threads = threads or usable_cores()
        self.structs = (QueryStruct * len(queries))()
        signs = None if queries.classes is None else signs_of(queries.classes)
        self.compiled = [
            CompiledQuery(queries, row, struct, bits, radius, signs)
            for row, struct in enumerate(self.structs)
        ]

    def flat(self, hits: Hits) -> Hits:
        """Scan a flat table in phases."""
        size = len(self.table)
        rows = slice(0, len(hits))
        if self.queries.classes is None or size <= 2 * _SAMPLE:
            return self._scan(rows, hits, _whole(size))
        floors = self._sampled_floors(rows, hits, _spread(size))
        hits = _empty(floors, hits.shape[1])
        done = np.zeros(-(-size // _PIECE), bool)
        for stride in _STRIDES:
            pieces = np.arange(0, len(done), stride)
            pieces = pieces[~done[pieces]]
            done[pieces] = True
            self._restrict(rows, hits)
            hits = self._scan(rows, hits, _pieces(pieces, size))
        return hits

    def routed(self, partition: Partition, hits: Hits) -> Hits:
        """Scan the shells of a routed table that may hold better items, query by query."""
        for row in range(len(hits)):
            here = slice(row, row + 1)
            anchors = self.queries.codes[here]
            bounds = self.compiled[row].bounds
            if bounds is not None and self.queries.classes is not None:
                anchors = self.queries.classes.codewords[bounds.top : bounds.top + 1]
            nearest = Balls(anchors, np.zeros(1, np.int64))
            order = np.argsort(_excess(partition, nearest), kind="stable")
            counts = np.cumsum(_shell_sizes(partition)[order])
            for wanted in (max(_SAMPLE, 2 * hits.shape[1]), len(self.table) // _NEAREST):
                first = order[: int(np.searchsorted(counts, wanted)) + 1]
                floors = self._sampled_floors(here, hits[here], _shell_ranges(partition, first))
                hits[here] = _empty(floors, hits.shape[1])
                self._restrict(here, hits)
            balls = self._restrict(here, hits)[0]
            chosen = np.arange(len(partition.shell_distances))
            if balls is not None:
                chosen = np.flatnonzero(_excess(partition, balls) <= 0)
            hits[here] = self._scan(here, hits[here], _shell_ranges(partition, chosen))
        return hits

    def _sampled_floors(self, rows: slice, hits: Hits, ranges: Ranges) -> Points:
        """Points of the k-th best of some items: no better result is lost below."""
        found = self._scan(rows, _empty(hits[:, 0, 0], hits.shape[1]), ranges)
        return np.asarray(found[:, 0, 0])

    def _restrict(self, rows: slice, hits: Hits) -> list[Balls | None]:
        """Compute where items as good as the k-th best can be."""
        found = []
        for row in range(*rows.indices(len(self.queries))):
            query = self.compiled[row]
            balls = balls_of(self.queries, row, int(hits[row, 0, 0]), query.bounds)
            found.append(balls)
            most = _MOST_BALLS if self.queries.content is None else _MOST_BALLS_WITH_CONTENT
            wide = balls is not None and len(balls.radii) > most
            query.restrict(None if wide or self.queries.classes is None else balls)
        return found

    def _scan(self, rows: slice, hits: Hits, ranges: Ranges) -> Hits:
        """Scan ranges of positions: threads divide the queries, or if they are few the ranges."""
        work = int((ranges[:, 1] - ranges[:, 0]).sum()) * len(hits)
        threads = min(self.threads, work // _ITEMS_PER_THREAD)
        if threads <= 1:
            self._call(rows, hits, ranges)
            return hits
        if len(hits) >= _QUERIES_PER_THREAD * threads:
            cuts = [rows.start + len(hits) * part // threads for part in range(threads + 1)]
            parts = [slice(*cut) for cut in itertools.pairwise(cuts)]
            _run_all(
                [
                    partial(
                        self._call,
                        part,
                        hits[part.start - rows.start : part.stop - rows.start],
                        ranges,
                    )
                    for part in parts
                ]
            )
            return hits
        copies = [hits, *(_empty(hits[:, 0, 0], hits.shape[1]) for _ in range(threads - 1))]
        divided = _divide(ranges, threads)
        _run_all([partial(self._call, rows, *part) for part in zip(copies, divided, strict=True)])
        return _best(np.concatenate(copies, axis=1), hits.shape[1])

    def _call(self, rows: slice, hits: Hits, ranges: Ranges) -> None:
        content = self.content
        width = 0 if content is None else content.itemsize * content.shape[1]
        caches = np.zeros((len(hits), _CACHE, 2), np.int64)
        self.library.hadahash_ranked(
            *(self.reference, None if content is None else content.ctypes.data, width),
            *(ctypes.byref(self.structs[rows.start]), len(hits), hits.ctypes.data, hits.shape[1]),
            *(caches.ctypes.data, ranges.ctypes.data, len(ranges), self.level),
        )


# ---- hits ----------------------------------------------------------------------------------------


def _empty(floors: Points, k: int) -> Hits:
    hits = np.empty((len(floors), k, _SIZE_OF_A_HIT), np.int64)
    hits[:, :, 0] = np.maximum(floors, LOWEST)[:, None]
    hits[:, :, 1], hits[:, :, 2] = _NO_ORDINAL, -1
    return hits


def _best(hits: Hits, k: int) -> Hits:
    """The k best, the worst of them first: a heap."""
    order = np.lexsort((-hits[:, :, 1], hits[:, :, 0]))[:, -k:]
    return np.take_along_axis(hits, order[:, :, None], 1)


def _result(hits: Hits, queries: RankedQueries, table: Table) -> RankedHits:
    hits = _best(hits, hits.shape[1])[:, ::-1]
    positions, padding = hits[:, :, 2], hits[:, :, 1] == _NO_ORDINAL
    points = np.where(padding, LOWEST, hits[:, :, 0])
    distances = np.full(positions.shape, -1, np.int32)
    if len(table):
        differ = table.rows[positions] ^ queries.codes[:, None, :]
        distances = np.bitwise_count(differ).sum(axis=2, dtype=np.int32)
        distances[padding] = -1
    return RankedHits(np.where(padding, -1, hits[:, :, 1]), points, distances)


def _in_numpy(
    queries: RankedQueries,
    table: Table,
    content: Rows | None,
    hits: Hits,
    radius: int | None,
    allowed: NDArray[np.uint64] | None,
) -> Hits:
    """Evaluate every item, in steps of bounded memory."""
    positions = np.arange(len(table))
    if allowed is not None:
        bits = np.unpackbits(allowed.view(np.uint8), count=len(table), bitorder="little")
        positions = positions[bits.view(bool)]
    k = hits.shape[1]
    for first in range(0, len(positions), _SAMPLE):
        part = positions[first : first + _SAMPLE]
        ordinals = part if table.ordinals is None else table.ordinals[part].astype(np.int64)
        rows = table.rows[part]
        new = np.empty((len(queries), len(part), _SIZE_OF_A_HIT), np.int64)
        new[:, :, 0] = reference_points(
            queries, rows, None if content is None else content[ordinals]
        )
        new[:, :, 1], new[:, :, 2] = ordinals, part
        excluded = new[:, :, 0] < hits[:, :1, 0]
        if radius is not None:
            excluded |= hamming(queries.codes.view(np.uint8), rows.view(np.uint8)) > radius
        new[excluded] = (LOWEST, _NO_ORDINAL, -1)
        hits = _best(np.concatenate([hits, new], axis=1), k)
    return hits


# ---- ranges --------------------------------------------------------------------------------------


def _whole(size: int) -> Ranges:
    return np.array([[0, size]], np.int64)


def _spread(size: int) -> Ranges:
    """Evenly spaced chunks, `_SAMPLE` items in total."""
    starts = np.arange(_SAMPLE // _CHUNK) * (size // (_SAMPLE // _CHUNK))
    return np.stack([starts, starts + _CHUNK], axis=1)


def _pieces(pieces: NDArray[np.int64], size: int) -> Ranges:
    starts = pieces * _PIECE
    return _joined(np.stack([starts, np.minimum(starts + _PIECE, size)], axis=1))


def _joined(ranges: Ranges) -> Ranges:
    """Ascending ranges, with adjacent ones joined."""
    new = np.append(True, ranges[1:, 0] != ranges[:-1, 1])[: len(ranges)]
    last = np.append(new[1:], True)[: len(ranges)]
    return np.ascontiguousarray(np.stack([ranges[new, 0], ranges[last, 1]], axis=1))


def _divide(ranges: Ranges, parts: int) -> list[Ranges]:
    """Divide ranges into parts of equal size."""
    ends = np.cumsum(ranges[:, 1] - ranges[:, 0])
    cuts = [int(ends[-1]) * part // parts // _CHUNK * _CHUNK for part in range(parts)] + [ends[-1]]
    before = ends - (ranges[:, 1] - ranges[:, 0])
    divided = []
    for first, last in itertools.pairwise(cuts):
        low = ranges[:, 0] + np.clip(first - before, 0, None)
        high = ranges[:, 1] - np.clip(ends - last, 0, None)
        divided.append(np.ascontiguousarray(np.stack([low, high], axis=1)[low < high]))
    return divided


def _shell_sizes(partition: Partition) -> NDArray[np.int64]:
    return np.diff(partition.starts[partition.shell_blocks])


def _shell_ranges(partition: Partition, shells: NDArray[np.int64]) -> Ranges:
    bounds = partition.starts[partition.shell_blocks]
    shells = np.sort(shells)
    return _joined(np.stack([bounds[shells], bounds[shells + 1]], axis=1))


def _excess(partition: Partition, balls: Balls) -> NDArray[np.int64]:
    """By how much each shell misses the nearest ball at least; not above 0 if it may touch one."""
    lists = np.repeat(np.arange(len(partition.centroids)), np.diff(partition.list_shells))
    anchors, centroids = (each.view(np.uint8) for each in (balls.anchors, partition.centroids))
    apart = hamming(anchors, centroids)[:, lists]
    excess = np.abs(apart - partition.shell_distances) - balls.radii[:, None]
    return np.asarray(excess.min(axis=0, initial=np.iinfo(np.int64).max))
