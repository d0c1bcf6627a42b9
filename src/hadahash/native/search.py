"""The k nearest codes of each query, in compiled code (search.c) or in numpy where that is missing: the same keys.

A key is distance * 2^32 + rank, where the rank is an item's place in the order of ids: sorting keys is sorting by
distance, then id. What a query has not found is padded with its limit.
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

from ..codes import hamming, words
from ..errors import UsageError
from . import _library, usable_cores

Keys = NDArray[np.uint64]
Rows = NDArray[
    Any
]  # codes as they are scanned: uint32 (n, 1) up to 32 bits, else uint64 (n, ceil(bits / 64))

MOST_ITEMS = 1 << 32  # of one table: a rank has 32 bits
UNSEEN_NOTHING = np.uint64(np.iinfo(np.uint64).max)
_CACHE_LINE = 64
_RUN_BYTES = 1 << 17  # as BLOCK_BYTES of search.c
_WORTH_A_THREAD = 1 << 22  # bytes of codes to compare, about half a millisecond
_MANY_QUERIES = 16  # for each thread: from here on threads share out queries, not codes
_PAIRS_AT_ONCE = 1 << 19  # in one step of the numpy code
_EVERYTHING = slice(None)


class Runs(NamedTuple):
    """How a routed table is cut: buckets of one centre each, rings of one distance to it, runs of equal `quarters`."""

    centres: Rows  # (buckets, words)
    bucket_rings: NDArray[np.int64]  # (buckets + 1,)
    ring_spans: NDArray[np.int32]  # (rings,)
    ring_runs: NDArray[np.int64]  # (rings + 1,)
    starts: NDArray[np.int64]  # (runs + 1,)
    quarters: NDArray[np.uint8] | None  # (runs, 4); None where a run is a whole ring

    def listed(self) -> NDArray[np.int64]:
        """(runs, 3): bucket, distance to its centre and first position of each run, which is what `runs_of` takes."""
        buckets = np.repeat(np.arange(len(self.centres)), np.diff(self.bucket_rings))
        rings = np.stack([buckets, self.ring_spans], axis=1).astype(np.int64)
        return np.concatenate(
            [np.repeat(rings, np.diff(self.ring_runs), axis=0), self.starts[:-1, None]], axis=1
        )


def runs_of(centres: Rows, listed: NDArray[np.int64], rows: Rows, *, by_quarters: bool) -> Runs:
    """Runs from the bucket, the distance to its centre and the first position of each, (runs, 3) in order of position.

    `by_quarters`: the codes of a run have equal `quarters`. Long runs and rings are cut so that a piece stays in the cache
    while all queries visit it.
    """
    _check_runs(len(centres), listed, len(rows))
    longest = _RUN_BYTES // (centres.itemsize * centres.shape[1])
    pieces = -(-np.diff(listed[:, 2], append=len(rows)) // longest)
    buckets, spans, starts = np.repeat(listed, pieces, axis=0).T
    starts = starts + longest * (
        np.arange(len(starts)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    )
    new = changes(buckets, spans)
    ring_starts = np.repeat(starts[new], np.diff(new, append=len(starts)))
    ring_runs = changes(buckets, spans, (starts - ring_starts) // longest)
    bucket_rings = np.searchsorted(buckets[ring_runs], np.arange(len(centres) + 1))
    return Runs(
        centres,
        bucket_rings.astype(np.int64),
        spans[ring_runs].astype(np.int32),
        np.append(ring_runs, len(starts)).astype(np.int64),
        np.append(starts, len(rows)).astype(np.int64),
        quarters(rows[starts], centres[buckets]) if by_quarters else None,
    )


def quarters(rows: Rows, others: Rows) -> NDArray[np.uint8]:
    """The distance in each quarter of the bytes of a row, at most 255: uint8 (n, 4). Both (n, words), row by row."""
    unit = np.uint8 if rows.itemsize == 4 else np.uint16  # a quarter is a whole number of them
    counts = np.bitwise_count(rows.view(unit) ^ others.view(unit)).reshape(len(rows), 4, -1)
    return np.asarray(counts.sum(axis=2, dtype=np.int32).clip(max=255), np.uint8)


def changes(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where a row of the columns, none of them negative, differs from the one before; the first does."""
    return np.flatnonzero(np.bitwise_or.reduce([np.diff(column, prepend=-1) for column in columns]))


class Found(NamedTuple):
    """The best keys of each query, in order; and the least key that any item it did not look at may have."""

    keys: Keys  # (q, k)
    unseen: Keys | None  # (q,); None: every item was looked at


class _Table(ctypes.Structure):
    """`table_t` of search.c"""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("codes", "ranks", "allowed")),
        *((name, ctypes.c_int64) for name in ("size", "width")),
        *(
            (name, ctypes.c_void_p)
            for name in ("centres", "bucket_rings", "ring_spans", "ring_ranks", "ring_runs")
        ),
        *((name, ctypes.c_void_p) for name in ("run_starts", "run_ranks", "run_quarters")),
        ("buckets", ctypes.c_int64),
    )


class Table:
    """Codes to search in, with the order of their ids. It keeps the arrays alive while compiled code reads them."""

    def __init__(
        self, rows: Rows, *, ranks: NDArray[np.uint32] | None = None, runs: Runs | None = None
    ) -> None:
        self.rows, self.ranks, self.runs = rows, ranks, runs
        _check_rows(rows)
        if len(rows) > MOST_ITEMS:
            raise UsageError(
                f"One table holds at most {MOST_ITEMS} codes, got {len(rows)}. Split them over several."
            )
        self._fields = (rows, ranks, *_fields(runs, ranks))
        self._all = self._structure(None)
        self.all_allowed = ctypes.byref(self._all)

    def __len__(self) -> int:
        return len(self.rows)

    def _structure(self, allowed: NDArray[np.uint64] | None) -> _Table:
        rows, ranks, *parts = (
            None if array is None else array.ctypes.data for array in self._fields
        )
        mask = None if allowed is None else allowed.ctypes.data
        buckets = 0 if self.runs is None else len(self.runs.centres)
        return _Table(
            rows,
            ranks,
            mask,
            len(self.rows),
            self.rows.itemsize * self.rows.shape[1],
            *parts,
            buckets,
        )

    def reference(self, allowed: NDArray[np.uint64] | None) -> Any:
        """What compiled code is given."""
        return self.all_allowed if allowed is None else ctypes.byref(self._structure(allowed))


def _fields(runs: Runs | None, ranks: NDArray[np.uint32] | None) -> tuple[NDArray[Any] | None, ...]:
    """From `centres` to `run_quarters` of a table."""
    if runs is None or ranks is None:
        return (None,) * 8
    run_ranks = ranks[runs.starts[:-1]]
    ring_ranks = (
        np.minimum.reduceat(run_ranks, runs.ring_runs[:-1]) if len(run_ranks) else run_ranks
    )
    return (
        *(runs.centres, runs.bucket_rings, runs.ring_spans, ring_ranks, runs.ring_runs),
        *(
            runs.starts,
            run_ranks,
            None if runs.quarters is None else np.ascontiguousarray(runs.quarters),
        ),
    )


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
    heaps = np.empty((len(queries), k), np.uint64)
    heaps[:] = limits[:, None]
    if heaps.size == 0 or len(table) == 0:
        return Found(heaps, None)
    library = _library()
    if library is None:
        return Found(_nearest_in_numpy(table, queries, heaps, allowed), None)
    job = _Job(library, table, allowed, queries, heaps, threads, level)
    if table.runs is None:
        job.scan()
    else:
        job.route(table.runs, probes)
    job.heaps.sort(axis=1)
    return Found(job.heaps, job.unseen)


def compared(table: Table, queries: Rows, *, k: int, bits: int) -> float | None:
    """How many codes of a routed table a query is compared with, on average; None where no compiled code can tell."""
    library = _library()
    if library is None or table.runs is None:
        return None
    heaps = np.full((len(queries), k), (bits + 1) << 32, np.uint64)
    job = _Job(library, table, None, queries, heaps, 1, -1)
    return float(job.probe(len(table.runs.centres), 1).sum() / len(queries))


class _Job:
    """One call of `nearest` in compiled code."""

    unseen: Keys | None = None

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
        self.library, self.table, self.queries, self.level = (
            library,
            table.reference(allowed),
            queries,
            level,
        )
        self.heaps, self.threads, self.size, self.nbytes = (
            heaps,
            threads,
            len(table),
            table.rows.nbytes,
        )

    def scan(self) -> None:
        """All codes of a flat table."""
        self._share(self._scan, self.size, self.nbytes * len(self.queries), 64)

    def route(self, runs: Runs, probes: int | None) -> None:
        """First the nearest buckets; then, unless the number of probes is set, all that may hold something better."""
        left = int(self.probe(len(runs.centres), probes or 1)[:, 1].sum())
        if probes is None and left:
            self.unseen = np.full(len(self.queries), UNSEEN_NOTHING)
            self.joining = Lock()
            self._share(self._sweep, len(runs.centres), left * self.nbytes // self.size, 1)

    def probe(self, buckets: int, probes: int) -> NDArray[np.int64]:
        """The nearest buckets of each query; returns how many codes were compared and how many elsewhere may be better."""
        count = len(self.queries)
        self.spans, self.unseen = np.empty((count, buckets), np.uint16), np.empty(count, np.uint64)
        self.unseen.fill(UNSEEN_NOTHING)
        work = np.zeros((count, 2), np.int64)
        threads = count // _MANY_QUERIES
        if threads > 1:
            threads = min(threads, self.threads or usable_cores())
        self._by_queries(partial(self._probe, probes, work, self.unseen), threads)
        return work

    def _share(
        self, step: Callable[[slice, Keys, int, int], None], size: int, work: int, grain: int
    ) -> None:
        """Share out the queries, or where they are few the codes (a multiple of `grain`), and join what is found."""
        threads = work // _WORTH_A_THREAD
        if threads > 1:
            threads = min(threads, self.threads or usable_cores())
        if threads <= 1:
            step(_EVERYTHING, self.heaps, 0, size)
            return
        if len(self.queries) >= _MANY_QUERIES * threads:
            self._by_queries(lambda rows: step(rows, self.heaps[rows], 0, size), threads)
            return
        cuts = [size * part // threads // grain * grain for part in range(threads)] + [size]
        heaps = [
            self.heaps,
            *(
                np.repeat(self.heaps.max(axis=1, keepdims=True), self.heaps.shape[1], axis=1)
                for _ in cuts[2:]
            ),
        ]
        _together(
            [
                partial(step, _EVERYTHING, heaps[part], cuts[part], cuts[part + 1])
                for part in range(threads)
            ]
        )
        joined = np.concatenate(heaps, axis=1)
        joined.sort(axis=1)
        self.heaps = np.ascontiguousarray(joined[:, : self.heaps.shape[1]])

    def _by_queries(self, step: Callable[[slice], None], threads: int) -> None:
        if threads <= 1:
            return step(_EVERYTHING)
        cuts = [len(self.queries) * part // threads for part in range(threads + 1)]
        return _together(
            [partial(step, slice(cuts[part], cuts[part + 1])) for part in range(threads)]
        )

    def _arguments(self, rows: slice, heaps: Keys) -> tuple[Any, ...]:
        queries = self.queries if rows is _EVERYTHING else self.queries[rows]
        return self.table, _address(queries), len(queries), _address(heaps), heaps.shape[1]

    def _scan(self, rows: slice, heaps: Keys, first: int, last: int) -> None:
        self.library.hadahash_scan(*self._arguments(rows, heaps), first, last, self.level)

    def _probe(self, probes: int, work: NDArray[np.int64], unseen: Keys, rows: slice) -> None:
        out = _address(self.spans[rows]), _address(work[rows]), _address(unseen[rows])
        if self.library.hadahash_probe(
            *self._arguments(rows, self.heaps[rows]), probes, *out, self.level
        ):
            raise MemoryError("no memory to put the runs of a bucket in order")

    def _sweep(self, rows: slice, heaps: Keys, first: int, last: int) -> None:
        seen: Keys = self.unseen[rows]  # type: ignore[index]
        unseen = seen.copy()  # threads that share out the codes must not write to one place
        buckets = _address(self.spans[rows]), first, last
        self.library.hadahash_sweep(
            *self._arguments(rows, heaps), *buckets, _address(unseen), self.level
        )
        with self.joining:
            np.minimum(seen, unseen, out=seen)


def _address(array: NDArray[Any]) -> int:
    """`array.ctypes.data`, in a third of its time where the array can be written to."""
    if array.flags.writeable and array.size:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    return int(array.ctypes.data)


def _together(steps: Sequence[Callable[[], None]]) -> None:
    """Run all steps at once, the first in this thread; waiting threads sleep."""
    others = [_pool().submit(step) for step in steps[1:]]
    steps[0]()
    for other in others:
        other.result()


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that wait for work: starting one takes longer than many a search. They do not live on in a forked process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_pool.cache_clear)
    return ThreadPoolExecutor(max(1, usable_cores() - 1), "hadahash-search")


def _check_rows(rows: Rows) -> None:
    """Refuse anything for which the compiled code would read past an end."""
    good = (rows.dtype == np.uint32 and rows.shape[1:] == (1,)) or (
        rows.dtype == np.uint64 and rows.ndim == 2
    )
    if not good or not rows.flags.c_contiguous:
        raise UsageError(
            "Codes to search must be contiguous uint32 (n, 1) or uint64 (n, words): rows_of makes them."
        )


def _check_runs(centres: int, listed: NDArray[np.int64], size: int) -> None:
    buckets, spans, starts = listed.T
    good = (
        starts[:1].sum() == 0
        and (np.diff(starts, append=size) > 0).all()
        and len(starts) >= min(size, 1)
    )
    good = good and (listed >= 0).all() and (buckets < centres).all() and (spans < 1 << 15).all()
    if not good or (np.diff(buckets << 15 | spans) < 0).any():
        raise UsageError("The runs of a routed table must follow each other and cover it.")


def _nearest_in_numpy(
    table: Table, queries: Rows, heaps: Keys, allowed: NDArray[np.uint64] | None
) -> Keys:
    """Every code is compared, so everything is seen; in steps of bounded memory."""
    k = heaps.shape[1]
    ranks = np.arange(len(table)) if table.ranks is None else table.ranks
    positions = np.arange(len(table))
    if allowed is not None:
        positions = positions[
            np.unpackbits(allowed.view(np.uint8), count=len(table), bitorder="little").view(bool)
        ]
    step = max(1, _PAIRS_AT_ONCE // len(queries))
    for start in range(0, len(positions), step):
        part = positions[start : start + step]
        keys = hamming(queries.view(np.uint8), table.rows[part].view(np.uint8)).astype(
            np.uint64
        ) << np.uint64(32)
        keys |= ranks[part].astype(np.uint64)
        heaps = np.concatenate([heaps, np.minimum(keys, heaps.max(axis=1, keepdims=True))], axis=1)
        heaps = np.partition(heaps, k - 1, axis=1)[:, :k]
    return np.sort(heaps, axis=1)
