"""The k nearest codes of each query, in compiled code (search.c) or in numpy where that is missing: the same keys.

A key is distance * 2^32 + rank, where the rank is an item's place in the order of ids: sorting keys is sorting by
distance, then id. What a query has not found is padded with its limit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming, words
from ..errors import UsageError
from . import _library, usable_cores

Keys = NDArray[np.uint64]
Rows = NDArray[Any]  # codes as they are scanned: uint32 (n, 1) up to 32 bits, else uint64 (n, ceil(bits / 64))

MOST_ITEMS = 1 << 32  # of one table: a rank has 32 bits
UNSEEN_NOTHING = np.uint64(np.iinfo(np.uint64).max)
_CACHE_LINE = 64
_RUN_BYTES = 1 << 17  # as BLOCK_BYTES of search.c
_WORTH_A_THREAD = 1 << 22  # bytes of codes to compare, about half a millisecond
_MANY_QUERIES = 16  # for each thread: from here on threads share out queries, not codes
_PAIRS_AT_ONCE = 1 << 19  # in one step of the numpy code


class Runs(NamedTuple):
    """How a routed table is cut: buckets of one centre each, runs of one distance to the centre (see search.c)."""

    centres: Rows  # (buckets, words)
    bucket_runs: NDArray[np.int64]  # (buckets + 1,)
    starts: NDArray[np.int64]  # (runs + 1,)
    spans: NDArray[np.int32]  # (runs,)


def runs_of(centres: Rows, buckets: NDArray[np.int64], spans: NDArray[np.int64], starts: NDArray[np.int64], size: int) -> Runs:
    """Runs from the bucket, the distance to its centre and the first position of each, in order of position.

    Long ones are cut so that a piece stays in the cache while all queries visit it.
    """
    ends = np.append(starts, size)[1:]
    _check_runs(len(centres), buckets, spans, starts, ends)
    longest = _RUN_BYTES // (centres.itemsize * centres.shape[1])
    pieces = -(-(ends - starts) // longest)
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    cut = np.append(np.repeat(starts, pieces) + number * longest, size)
    bucket_runs = np.searchsorted(np.repeat(buckets, pieces), np.arange(len(centres) + 1))
    return Runs(centres, bucket_runs.astype(np.int64), cut.astype(np.int64), np.repeat(spans, pieces).astype(np.int32))


class Found(NamedTuple):
    """The best keys of each query, in order; and the least key that any item it did not look at may have."""

    keys: Keys  # (q, k)
    unseen: Keys  # (q,)


class _Table(ctypes.Structure):
    """`table_t` of search.c"""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("codes", "ranks", "allowed")),
        *((name, ctypes.c_int64) for name in ("size", "width")),
        *((name, ctypes.c_void_p) for name in ("centres", "bucket_runs", "run_starts", "run_spans", "run_ranks")),
        ("buckets", ctypes.c_int64),
    )


class Table:
    """Codes to search in, with the order of their ids. It keeps the arrays alive while compiled code reads them."""

    def __init__(self, rows: Rows, *, ranks: NDArray[np.uint32] | None = None, runs: Runs | None = None) -> None:
        self.rows, self.ranks, self.runs = rows, ranks, runs
        _check_rows(rows)
        if len(rows) > MOST_ITEMS:
            raise UsageError(f"One table holds at most {MOST_ITEMS} codes, got {len(rows)}. Split them over several.")
        parts: tuple[NDArray[Any] | None, ...] = (None,) * 5
        if runs is not None and ranks is not None:
            parts = (runs.centres, runs.bucket_runs, runs.starts, runs.spans, ranks[runs.starts[:-1]])
        self._fields = (rows, ranks, *parts)
        self._all = self._structure(None)

    def __len__(self) -> int:
        return len(self.rows)

    def _structure(self, allowed: NDArray[np.uint64] | None) -> _Table:
        rows, ranks, *parts = (None if array is None else array.ctypes.data for array in self._fields)
        mask = None if allowed is None else allowed.ctypes.data
        buckets = 0 if self.runs is None else len(self.runs.centres)
        return _Table(rows, ranks, mask, len(self.rows), self.rows.itemsize * self.rows.shape[1], *parts, buckets)

    def structure(self, allowed: NDArray[np.uint64] | None) -> _Table:
        return self._all if allowed is None else self._structure(allowed)


def rows_of(packed: NDArray[np.uint8]) -> Rows:
    """Packed codes as they are scanned: zero-padded to 4 bytes, or to a multiple of 8."""
    if packed.shape[1] > 4:
        return words(packed)
    if packed.shape[1] == 4:
        return np.ascontiguousarray(packed).view(np.uint32)
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, 4 - packed.shape[1])))).view(np.uint32)


def aligned(rows: Rows, order: NDArray[np.intp] | None = None) -> Rows:
    """A copy of the rows, in this order, that starts on a cache line: a batch of queries then takes two thirds of the time."""
    raw = np.empty(rows.nbytes + _CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % _CACHE_LINE
    copy = raw[start : start + rows.nbytes].view(rows.dtype).reshape(rows.shape)
    if order is None:
        copy[:] = rows
    else:
        np.take(rows, order, axis=0, out=copy)
    return copy


def packed_of(rows: Rows, bits: int) -> NDArray[np.uint8]:
    """The packed codes again."""
    return np.ascontiguousarray(rows.view(np.uint8)[:, : -(-bits // 8)])


def bitmap(mask: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """A mask as the bits of words, with a word to spare: compiled code looks at 64 bits from any place."""
    packed = np.packbits(mask, bitorder="little")
    return np.pad(packed, (0, 16 - len(packed) % 8)).view(np.uint64)


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
    """The k smallest keys below its limit of each query, among the allowed items.

    `limits`   # uint64 (q,): (radius + 1) << 32 for codes within a radius, (bits + 1) << 32 for all
    `allowed`  # `bitmap` of the items that may be found, by position in the table
    `probes`   with runs: look only into so many buckets, the nearest ones; None: until the answer is proven
    """
    _check_rows(queries)
    if queries.dtype != table.rows.dtype or queries.shape[1] != table.rows.shape[1]:
        raise UsageError(
            f"Queries {queries.dtype} {queries.shape[1]} wide do not fit codes {table.rows.dtype} {table.rows.shape[1]}."
        )
    heaps = np.repeat(limits[:, None], k, axis=1)
    unseen = np.empty(len(queries), np.uint64)
    unseen.fill(UNSEEN_NOTHING)
    if heaps.size == 0 or len(table) == 0:
        return Found(heaps, unseen)
    library = _library()
    if library is None:
        return Found(_nearest_in_numpy(table, queries, heaps, allowed), unseen)
    job = _Job(library, table.structure(allowed), queries, heaps, unseen, threads, level)
    if table.runs is None:
        job.scan()
    else:
        job.route(probes)
    job.heaps.sort(axis=1)
    return Found(job.heaps, unseen)


class _Job:
    """One call of `nearest` in compiled code."""

    def __init__(
        self,
        library: ctypes.CDLL,
        table: _Table,
        queries: Rows,
        heaps: Keys,
        unseen: Keys,
        threads: int | None,
        level: int,
    ) -> None:
        self.library, self.table, self.queries, self.level = library, table, queries, level
        self.heaps, self.unseen, self.threads, self.joining = heaps, unseen, threads, Lock()

    def scan(self) -> None:
        """All codes of a flat table."""
        work = self.table.size * self.table.width * len(self.queries)
        self._share(self._scan, self.table.size, work, 64)

    def route(self, probes: int | None) -> None:
        """First the nearest buckets; then, unless the number of probes is set, all that may hold something better."""
        self.spans = np.empty((len(self.queries), self.table.buckets), np.uint16)
        work = np.zeros(len(self.queries), np.int64)
        threads = len(self.queries) // _MANY_QUERIES
        if threads > 1:
            threads = min(threads, self.threads or usable_cores())
        self._by_queries(partial(self._probe, probes or 1, work), threads)
        if probes is None and work.any():
            self.unseen[:] = UNSEEN_NOTHING
            self._share(self._sweep, self.table.buckets, int(work.sum()) * self.table.width, 1)

    def _share(self, step: Callable[[slice, Keys, int, int], None], size: int, work: int, grain: int) -> None:
        """Share out the queries, or where they are few the codes (a multiple of `grain`), and join what is found."""
        threads = work // _WORTH_A_THREAD
        if threads > 1:
            threads = min(threads, self.threads or usable_cores())
        if threads <= 1:
            step(slice(0, len(self.queries)), self.heaps, 0, size)
            return
        if len(self.queries) >= _MANY_QUERIES * threads:
            self._by_queries(lambda rows: step(rows, self.heaps[rows], 0, size), threads)
            return
        cuts = [size * part // threads // grain * grain for part in range(threads)] + [size]
        heaps = [self.heaps, *(np.repeat(self.heaps.max(axis=1, keepdims=True), self.heaps.shape[1], axis=1) for _ in cuts[2:])]
        everything = slice(0, len(self.queries))
        _together([partial(step, everything, heaps[part], cuts[part], cuts[part + 1]) for part in range(threads)])
        joined = np.concatenate(heaps, axis=1)
        joined.sort(axis=1)
        self.heaps = np.ascontiguousarray(joined[:, : self.heaps.shape[1]])

    def _by_queries(self, step: Callable[[slice], None], threads: int) -> None:
        count, parts = len(self.queries), max(1, threads)
        cuts = [count * part // parts for part in range(parts + 1)]
        _together([partial(step, slice(cuts[part], cuts[part + 1])) for part in range(parts)])

    def _arguments(self, rows: slice, heaps: Keys) -> tuple[Any, ...]:
        queries = self.queries[rows]
        return ctypes.byref(self.table), queries.ctypes.data, len(queries), heaps.ctypes.data, heaps.shape[1]

    def _scan(self, rows: slice, heaps: Keys, first: int, last: int) -> None:
        self.library.hadahash_scan(*self._arguments(rows, heaps), first, last, self.level)

    def _probe(self, probes: int, work: NDArray[np.int64], rows: slice) -> None:
        out = self.spans[rows].ctypes.data, work[rows].ctypes.data, self.unseen[rows].ctypes.data
        self.library.hadahash_probe(*self._arguments(rows, self.heaps[rows]), probes, *out, self.level)

    def _sweep(self, rows: slice, heaps: Keys, first: int, last: int) -> None:
        unseen = self.unseen[rows].copy()  # threads that share out the codes must not write to one place
        buckets = self.spans[rows].ctypes.data, first, last
        self.library.hadahash_sweep(*self._arguments(rows, heaps), *buckets, unseen.ctypes.data, self.level)
        with self.joining:
            np.minimum(self.unseen[rows], unseen, out=self.unseen[rows])


def _together(steps: Sequence[Callable[[], None]]) -> None:
    """Run all steps at once, the first in this thread; waiting threads sleep."""
    if len(steps) == 1:
        return steps[0]()
    with ThreadPoolExecutor(len(steps) - 1) as pool:
        others = [pool.submit(step) for step in steps[1:]]
        steps[0]()
        for other in others:
            other.result()
    return None


def _check_rows(rows: Rows) -> None:
    """Refuse anything for which the compiled code would read past an end."""
    good = (rows.dtype == np.uint32 and rows.shape[1:] == (1,)) or (rows.dtype == np.uint64 and rows.ndim == 2)
    if not good or not rows.flags.c_contiguous:
        raise UsageError("Codes to search must be contiguous uint32 (n, 1) or uint64 (n, words): rows_of makes them.")


def _check_runs(centres: int, buckets: Any, spans: Any, starts: Any, ends: Any) -> None:
    good = (ends > starts).all() and starts[:1].sum() == 0 and (np.diff(buckets) >= 0).all()
    if not good or (len(buckets) and (buckets[0] < 0 or buckets[-1] >= centres or spans.min() < 0 or spans.max() >= 1 << 15)):
        raise UsageError("The runs of a routed table must follow each other and cover it.")


def _nearest_in_numpy(table: Table, queries: Rows, heaps: Keys, allowed: NDArray[np.uint64] | None) -> Keys:
    """Every code is compared, so everything is seen; in steps of bounded memory."""
    k = heaps.shape[1]
    ranks = np.arange(len(table)) if table.ranks is None else table.ranks
    positions = np.arange(len(table))
    if allowed is not None:
        positions = positions[np.unpackbits(allowed.view(np.uint8), count=len(table), bitorder="little").view(bool)]
    step = max(1, _PAIRS_AT_ONCE // len(queries))
    for start in range(0, len(positions), step):
        part = positions[start : start + step]
        keys = hamming(queries.view(np.uint8), table.rows[part].view(np.uint8)).astype(np.uint64) << np.uint64(32)
        keys |= ranks[part].astype(np.uint64)
        heaps = np.concatenate([heaps, np.minimum(keys, heaps.max(axis=1, keepdims=True))], axis=1)
        heaps = np.partition(heaps, k - 1, axis=1)[:, :k]
    return np.sort(heaps, axis=1)
