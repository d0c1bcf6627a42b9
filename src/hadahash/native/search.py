"""k-nearest-neighbor search in compiled code (search.c, route.c) or in numpy, with equal results.

A key is distance * 2^32 + ordinal: sorting by key is sorting by distance, then id. Where a query
finds fewer than k items, its keys are padded with its limit.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming
from ..errors import UsageError
from . import _library, usable_cores, used_level
from .tables import Partition, Rows, Table, check_rows

Keys = NDArray[np.uint64]

NO_BOUND = np.uint64(np.iinfo(np.uint64).max)
_BYTES_PER_THREAD = 1 << 22  # of codes to compare, about half a millisecond
_QUERIES_PER_THREAD = 16  # from this number on, threads divide the queries, not the codes
_PAIRS_PER_STEP = 1 << 19  # of the numpy implementation
_ALL = slice(None)


class Found(NamedTuple):
    """The result of `nearest`.

    Attributes:
        keys: The best keys of each query in ascending order, uint64 (q, k).
        unvisited_lower_bound: The smallest key that an item which was not visited may have, uint64
            (q,). None if every item was visited.
    """

    keys: Keys
    unvisited_lower_bound: Keys | None


def nearest(
    table: Table,
    queries: Rows,
    *,
    k: int,
    limits: Keys,
    allowed: NDArray[np.uint64] | None = None,
    probes: int | None = None,
    threads: int | None = None,
    level: int = -1,
) -> Found:
    """Find the k smallest keys of each query, below its limit, among the allowed items.

    Args:
        table: The codes to search.
        queries: Rows like those of the table.
        k: Number of keys per query.
        limits: uint64 (q,): (radius + 1) << 32 for codes within a radius, (bits + 1) << 32 for all.
        allowed: `bitmap` of the items to search, by position; None for all.
        probes: Number of lists of a routed table to visit, the nearest first. None visits all that
            may hold a better key.
        threads: Maximum number of threads; None for all usable cores.
        level: Instruction set level, for tests; -1 for the best one.

    Returns:
        The keys, and a lower bound on the keys of items that were not visited.

    Raises:
        UsageError: The queries do not fit the table.
    """
    check_rows(queries)
    if queries.dtype != table.rows.dtype or queries.shape[1] != table.rows.shape[1]:
        raise UsageError(
            f"Queries {queries.dtype} of {queries.shape[1]} words do not match codes "
            f"{table.rows.dtype} of {table.rows.shape[1]} words."
        )
    heaps = np.empty((len(queries), k), np.uint64)
    heaps[:] = limits[:, None]
    if heaps.size == 0 or len(table) == 0:
        return Found(heaps, None)
    library = _library()
    if library is None:
        return Found(_nearest_in_numpy(table, queries, heaps, allowed), None)
    job = _Job(library, table, allowed, queries, heaps, threads, level)
    if table.partition is None:
        job.scan()
    else:
        job.route(table.partition, probes)
    job.heaps.sort(axis=1)
    return Found(job.heaps, job.bounds)


def compared_codes(table: Table, queries: Rows, *, k: int, bits: int) -> float | None:
    """Average number of codes of a routed table that a query is compared with.

    Args:
        table: A routed table.
        queries: Rows like those of the table.
        k: Number of neighbors.
        bits: Length of the codes.

    Returns:
        The number, or None without the compiled library or for a flat table.
    """
    library = _library()
    if library is None or table.partition is None:
        return None
    heaps = np.full((len(queries), k), (bits + 1) << 32, np.uint64)
    job = _Job(library, table, None, queries, heaps, 1, -1)
    return float(job.probe(len(table.partition.centroids), 1).sum() / len(queries))


class _Job:
    """One call of `nearest` in compiled code."""

    bounds: Keys | None = None  # unvisited lower bounds

    def __init__(
        self,
        library: ctypes.CDLL,
        table: Table,
        allowed: NDArray[np.uint64] | None,
        queries: Rows,
        heaps: Keys,
        threads: int | None,
        level: int,
    ) -> None:
        self.library, self.queries, self.heaps = library, queries, heaps
        self.table, self.size, self.nbytes = table.reference(allowed), len(table), table.rows.nbytes
        self.threads, self.level = threads, used_level(level)

    def scan(self) -> None:
        """Scan all codes of a flat table."""
        self._divide(self._scan, self.size, self.nbytes * len(self.queries), 64)

    def route(self, partition: Partition, probes: int | None) -> None:
        """Visit the nearest lists; without `probes` also all others that may hold better keys."""
        lists = len(partition.centroids)
        left = int(self.probe(lists, probes or 1)[:, 1].sum())
        if probes is None and left:
            self.bounds = np.full(len(self.queries), NO_BOUND)
            self.joining = Lock()
            self._divide(self._scan_remaining, lists, left * self.nbytes // self.size, 1)

    def probe(self, lists: int, probes: int) -> NDArray[np.int64]:
        """Visit the nearest lists of each query.

        Returns:
            int64 (q, 2): codes compared, and codes in other lists that may have better keys.
        """
        count = len(self.queries)
        self.centroid_distances = np.empty((count, lists), np.uint16)
        self.bounds = np.empty(count, np.uint64)
        self.bounds.fill(NO_BOUND)
        work = np.zeros((count, 2), np.int64)
        threads = count // _QUERIES_PER_THREAD
        if threads > 1:
            threads = min(threads, self.threads or usable_cores())
        self._divide_queries(partial(self._probe, probes, work, self.bounds), threads)
        return work

    def _divide(
        self, step: Callable[[slice, Keys, int, int], None], size: int, work: int, grain: int
    ) -> None:
        """Divide the queries among threads, or if they are few the codes (in units of `grain`)."""
        threads = work // _BYTES_PER_THREAD
        if threads > 1:
            threads = min(threads, self.threads or usable_cores())
        if threads <= 1:
            step(_ALL, self.heaps, 0, size)
            return
        if len(self.queries) >= _QUERIES_PER_THREAD * threads:
            self._divide_queries(lambda rows: step(rows, self.heaps[rows], 0, size), threads)
            return
        cuts = [size * part // threads // grain * grain for part in range(threads)] + [size]
        limits = self.heaps.max(axis=1, keepdims=True)
        copies = [np.repeat(limits, self.heaps.shape[1], axis=1) for _ in cuts[2:]]
        heaps = [self.heaps, *copies]
        _run_all(
            [
                partial(step, _ALL, heaps[part], cuts[part], cuts[part + 1])
                for part in range(threads)
            ]
        )
        merged = np.concatenate(heaps, axis=1)
        merged.sort(axis=1)
        self.heaps = np.ascontiguousarray(merged[:, : self.heaps.shape[1]])

    def _divide_queries(self, step: Callable[[slice], None], threads: int) -> None:
        if threads <= 1:
            return step(_ALL)
        cuts = [len(self.queries) * part // threads for part in range(threads + 1)]
        parts = [slice(cuts[part], cuts[part + 1]) for part in range(threads)]
        return _run_all([partial(step, part) for part in parts])

    def _arguments(self, rows: slice, heaps: Keys) -> tuple[Any, ...]:
        queries = self.queries if rows is _ALL else self.queries[rows]
        return self.table, _address(queries), len(queries), _address(heaps), heaps.shape[1]

    def _scan(self, rows: slice, heaps: Keys, first: int, last: int) -> None:
        self.library.hadahash_scan(*self._arguments(rows, heaps), first, last, self.level)

    def _probe(self, probes: int, work: NDArray[np.int64], bounds: Keys, rows: slice) -> None:
        arguments = self._arguments(rows, self.heaps[rows])
        out = _address(self.centroid_distances[rows]), _address(work[rows]), _address(bounds[rows])
        if self.library.hadahash_probe(*arguments, probes, *out, self.level):
            raise MemoryError("not enough memory to sort the blocks of a list")

    def _scan_remaining(self, rows: slice, heaps: Keys, first: int, last: int) -> None:
        shared: Keys = self.bounds[rows]  # type: ignore[index]
        bounds = shared.copy()  # threads that divide the codes must not write to the same place
        lists = _address(self.centroid_distances[rows]), first, last
        arguments = self._arguments(rows, heaps)
        self.library.hadahash_scan_remaining(*arguments, *lists, _address(bounds), self.level)
        with self.joining:
            np.minimum(shared, bounds, out=shared)


def _address(array: NDArray[Any]) -> int:
    """Address of an array: faster than `array.ctypes.data` if the array is writeable."""
    if array.flags.writeable and array.size:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    return int(array.ctypes.data)


def _run_all(steps: Sequence[Callable[[], None]]) -> None:
    """Run all steps concurrently, the first one in this thread."""
    others = [_pool().submit(step) for step in steps[1:]]
    steps[0]()
    for other in others:
        other.result()


@cache
def _pool() -> ThreadPoolExecutor:
    """A pool of waiting threads: starting one takes longer than many searches.

    Threads do not survive a fork, so a child process makes its own pool.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_pool.cache_clear)
    return ThreadPoolExecutor(max(1, usable_cores() - 1), "hadahash-search")


def _nearest_in_numpy(
    table: Table, queries: Rows, heaps: Keys, allowed: NDArray[np.uint64] | None
) -> Keys:
    """Compare every code, in steps of bounded memory."""
    k = heaps.shape[1]
    ordinals = np.arange(len(table)) if table.ordinals is None else table.ordinals
    positions = np.arange(len(table))
    if allowed is not None:
        bits = np.unpackbits(allowed.view(np.uint8), count=len(table), bitorder="little")
        positions = positions[bits.view(bool)]
    step = max(1, _PAIRS_PER_STEP // len(queries))
    for start in range(0, len(positions), step):
        part = positions[start : start + step]
        distances = hamming(queries.view(np.uint8), table.rows[part].view(np.uint8))
        keys = distances.astype(np.uint64) << np.uint64(32) | ordinals[part].astype(np.uint64)
        heaps = np.concatenate([heaps, np.minimum(keys, heaps.max(axis=1, keepdims=True))], axis=1)
        heaps = np.partition(heaps, k - 1, axis=1)[:, :k]
    return np.sort(heaps, axis=1)
