"""Counting Hamming distances in compiled code (hamming.c), or in numpy where that is missing: the same numbers.

`search` finds the nearest codes in the same library (search.c).

The library is built when hadahash is installed, or by `python setup.py build_ext --inplace` in a checkout. The
environment variable HADAHASH_NATIVE=0 turns it off.
"""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming
from ..errors import UsageError

_INTERFACE = 4  # of hamming.c and search.c
_MOST_BINS = 32_768  # the compiled code keeps bin numbers of two sets in 16 bits
_QUERIES_AT_ONCE = 64  # in one call of the compiled code: the unit that threads share out
_PAIRS_AT_ONCE = 1 << 19  # in one step of the numpy code, about 20 MB
_FOLDER = Path(__file__).parent
_LEVELS = ("portable", "popcnt", "avx2", "avx512")

Words = NDArray[np.uint64]


class _Side(NamedTuple):
    """Queries or database: codes uint64 (n, words) and label sets uint64 (n, label words), maybe 0 words wide."""

    codes: Words
    labels: Words


def count_distances(
    queries: Words,
    codes: Words,
    *,
    bits: int,
    ranges: NDArray[np.int64] | None = None,
    threads: int | None = None,
    level: int = -1,
) -> NDArray[np.int64]:
    """For each query, how many codes lie at each distance: int64 (q, bits + 1).

    `ranges`  # int64 (q, 2): count only codes[first:last] for this query; None: count all

    >>> from ..codes import pack, words
    >>> count_distances(words(pack([[1, 1, 1]])), words(pack([[1, 1, 1], [-1, 1, 1], [1, -1, 1]])), bits=3).tolist()
    [[1, 2, 0, 0]]
    """
    sides = (_Side(side, np.zeros((len(side), 0), np.uint64)) for side in (queries, codes))
    return _count(*sides, bits=bits, ranges=ranges, threads=threads, level=level)[:, 0]


def count_shared(
    queries: Words,
    query_labels: Words,
    codes: Words,
    code_labels: Words,
    *,
    bits: int,
    threads: int | None = None,
    level: int = -1,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many codes lie at each distance, and how many of them share a class with the query: int64 (q, bits + 1) each.

    Labels are sets of classes as bits, uint64 (n, ceil(classes / 64)), at least one word.
    """
    sides = _Side(queries, query_labels), _Side(codes, code_labels)
    counts = _count(*sides, bits=bits, ranges=None, threads=threads, level=level)
    return counts.sum(axis=1), counts[:, 1]


def available() -> bool:
    """Whether the compiled code is there and not turned off."""
    return _library() is not None


def describe() -> str:
    """What counts distances here: 'compiled (avx512)', ..., or 'numpy'."""
    library = _library()
    return "numpy" if library is None else f"compiled ({_LEVELS[library.hadahash_cpu_level()]})"


def usable_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _count(
    queries: _Side,
    database: _Side,
    *,
    bits: int,
    ranges: NDArray[np.int64] | None,
    threads: int | None,
    level: int,
) -> NDArray[np.int64]:
    """int64 (q, sets, bits + 1): one set, or with labels two: those that share no class and those that do."""
    _check(queries, database, bits)
    size = len(database.codes)
    counts = np.zeros((len(queries.codes), 1 + (database.labels.shape[1] > 0), bits + 1), np.int64)
    if ranges is None:
        ranges = np.tile(np.array([0, size], np.int64), (len(counts), 1))
    ranges = np.ascontiguousarray(ranges.clip(0, size), np.int64)
    library = _library() if bits < _MOST_BINS else None

    def step(start: int) -> None:
        rows = slice(start, start + _QUERIES_AT_ONCE)
        part = _Side(queries.codes[rows], queries.labels[rows])
        if library is None:
            _count_in_numpy(part, ranges[rows], database, counts[rows])
        else:
            _count_compiled(library, part, ranges[rows], database, counts[rows], level)

    starts = range(0, len(counts), _QUERIES_AT_ONCE)
    with ThreadPoolExecutor(min(threads or usable_cores(), len(starts)) or 1) as pool:
        for _ in pool.map(step, starts):  # going through the results raises what a step raised
            pass
    return counts


def _check(queries: _Side, database: _Side, bits: int) -> None:
    """Refuse anything for which the compiled code would read past an end."""
    if any(
        array.dtype != np.uint64 or array.ndim != 2 or not array.flags.c_contiguous
        for array in (*queries, *database)
    ):
        raise UsageError(
            "Codes and labels to count must be contiguous uint64 (n, words): hadahash.codes.words makes them."
        )
    widths = queries.codes.shape[1], database.codes.shape[1], -(-bits // 64)
    if len(set(widths)) != 1:
        raise UsageError(
            f"Queries of {widths[0]} words, codes of {widths[1]} words and {bits} bits do not fit together."
        )
    shapes = queries.labels.shape, database.labels.shape
    if shapes != ((len(queries.codes), shapes[1][1]), (len(database.codes), shapes[0][1])):
        raise UsageError(
            f"Label sets of the shapes {shapes[0]} and {shapes[1]} do not fit the codes."
        )


def _count_compiled(
    library: ctypes.CDLL,
    queries: _Side,
    ranges: NDArray[np.int64],
    database: _Side,
    counts: NDArray[np.int64],
    level: int,
) -> None:
    failed = library.hadahash_count_distances(
        queries.codes.ctypes.data,
        queries.labels.ctypes.data,
        ranges.ctypes.data,
        len(queries.codes),
        database.codes.ctypes.data,
        database.labels.ctypes.data,
        len(database.codes),
        database.codes.shape[1],
        database.labels.shape[1],
        counts.shape[2],
        counts.ctypes.data,
        level,
    )
    if failed:
        raise MemoryError("no memory for the histograms of distances")


def _count_in_numpy(
    queries: _Side, ranges: NDArray[np.int64], database: _Side, counts: NDArray[np.int64]
) -> None:
    """Queries with one range are counted together, in steps of bounded memory."""
    bins = counts.shape[2]
    for first, last in np.unique(ranges, axis=0):
        rows = np.flatnonzero((ranges == (first, last)).all(axis=1))
        offsets = np.arange(len(rows))[:, None] * counts[0].size
        step = max(1, _PAIRS_AT_ONCE // len(rows))
        for start in range(first, last, step):
            part = slice(start, min(start + step, last))
            cell = (
                hamming(queries.codes[rows].view(np.uint8), database.codes[part].view(np.uint8))
                + offsets
            )
            cell += bins * _shared(queries.labels[rows], database.labels[part])
            counts[rows] += np.bincount(cell.ravel(), minlength=counts[rows].size).reshape(
                -1, *counts.shape[1:]
            )


def _shared(a: Words, b: Words) -> NDArray[np.bool_]:
    """Whether two label sets have a class in common: bool (len(a), len(b))"""
    shared = np.zeros((len(a), len(b)), bool)
    for word in range(a.shape[1]):
        shared |= (a[:, None, word] & b[None, :, word]) != 0
    return shared


def _library() -> ctypes.CDLL | None:
    return None if os.environ.get("HADAHASH_NATIVE") == "0" else _load(_FOLDER)


@cache
def _load(folder: Path) -> ctypes.CDLL | None:
    """The compiled library in this folder; None where there is none, or one of other source or for another CPU."""
    for path in (folder / f"_hamming{suffix}" for suffix in EXTENSION_SUFFIXES):
        try:
            library = ctypes.CDLL(str(path))
            if library.hadahash_interface() == _INTERFACE:
                return _declare(library)
        except (OSError, AttributeError):
            continue
    return None


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    heaps = (pointer, pointer, number, pointer, number)  # table, queries, how many, heaps, k
    library.hadahash_count_distances.argtypes = [
        *(pointer, pointer, pointer, number),  # queries, their labels, their ranges, how many
        *(pointer, pointer, number),  # codes, their labels, how many
        *(number, number, number),  # words of a code, words of a label set, bins
        *(pointer, ctypes.c_int),  # counts, level
    ]
    library.hadahash_scan.argtypes = [*heaps, number, number, ctypes.c_int]  # positions, level
    library.hadahash_probe.argtypes = [
        *heaps,
        number,
        *(3 * [pointer]),
        ctypes.c_int,
    ]  # probes; spans, work, unseen; level
    library.hadahash_sweep.argtypes = [
        *heaps,
        pointer,
        number,
        number,
        pointer,
        ctypes.c_int,
    ]  # spans, buckets, unseen, level
    library.hadahash_scan.restype = library.hadahash_sweep.restype = None
    return library
