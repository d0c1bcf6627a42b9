"""Histograms of Hamming distances in compiled code (hamming.c) or in numpy, with equal results.

`hadahash.native.search` finds nearest neighbors with the same library (search.c, route.c), and
`hadahash.native.pairs` nearly equal codes (pairs.c).

The library is built when hadahash is installed, or by `python setup.py build_ext --inplace` in a
checkout. The environment variable HADAHASH_NATIVE=0 disables it; with the name of an instruction
set that `levels` lists (HADAHASH_NATIVE=avx2), the compiled code uses no better one.
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

_INTERFACE = 8  # as INTERFACE of hamming.c
_MAX_BINS = 32_768  # the compiled code keeps the bin numbers of two sets in 16 bits
_QUERIES_PER_CALL = 64  # of the compiled code: the unit of work of a thread
_PAIRS_PER_STEP = 1 << 19  # of the numpy implementation, about 20 MB
_FOLDER = Path(__file__).parent

Words = NDArray[np.uint64]


class _Side(NamedTuple):
    """Queries or database: codes uint64 (n, words), label sets uint64 (n, label words >= 0)."""

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
    """Count, for each query, the codes at each Hamming distance.

    Args:
        queries: uint64 (q, words), as `hadahash.codes.words` makes them.
        codes: uint64 (n, words).
        bits: Length of the codes.
        ranges: int64 (q, 2): count only codes[first:last] for this query; None counts all.
        threads: Maximum number of threads; None for all usable cores.
        level: Instruction set level, for tests; -1 for the best one.

    Returns:
        int64 (q, bits + 1).

    Raises:
        UsageError: The shapes of the arrays do not match.

    Example:
        >>> from hadahash.codes import pack, words
        >>> database = words(pack([[1, 1, 1], [-1, 1, 1], [1, -1, 1]]))
        >>> count_distances(words(pack([[1, 1, 1]])), database, bits=3).tolist()
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
    """Count the codes at each distance, and those among them that share a class with the query.

    Args:
        queries: uint64 (q, words).
        query_labels: Sets of classes as bits, uint64 (q, ceil(classes / 64)), at least one word.
        codes: uint64 (n, words).
        code_labels: Sets of classes as bits, uint64 (n, ceil(classes / 64)).
        bits: Length of the codes.
        threads: Maximum number of threads; None for all usable cores.
        level: Instruction set level, for tests; -1 for the best one.

    Returns:
        Counts of all codes and of those that share a class: int64 (q, bits + 1) each.

    Raises:
        UsageError: The shapes of the arrays do not match.
    """
    sides = _Side(queries, query_labels), _Side(codes, code_labels)
    counts = _count(*sides, bits=bits, ranges=None, threads=threads, level=level)
    return counts.sum(axis=1), counts[:, 1]


def available() -> bool:
    """Whether the compiled library is present and enabled."""
    return _library() is not None


def describe() -> str:
    """The implementation in use: 'compiled (avx512)', ..., or 'numpy'."""
    names = levels()
    return f"compiled ({names[used_level(-1)]})" if names else "numpy"


def levels() -> tuple[str, ...]:
    """Instruction sets that this CPU has and the library is compiled for, the best one last.

    Returns:
        'portable', 'popcnt', 'avx2', 'avx512' up to the best on x86-64, 'neon' on aarch64;
        nothing without the compiled library. Position i has the level number i.
    """
    library = _library()
    if library is None:
        return ()
    numbers = range(library.hadahash_cpu_level() + 1)
    return tuple(library.hadahash_level_name(number).decode() for number in numbers)


def used_level(level: int) -> int:
    """The number of the instruction set that the compiled code uses.

    Args:
        level: A number, for tests; -1 for the one that HADAHASH_NATIVE names, or the best one.

    Returns:
        Position in `levels`; -1 for the best one.

    Raises:
        UsageError: HADAHASH_NATIVE names an instruction set that is not there.
    """
    name = os.environ.get("HADAHASH_NATIVE", "")
    if level >= 0 or name in ("", "1"):
        return level
    names = levels()
    if name not in names:
        raise UsageError(f"HADAHASH_NATIVE must be 0, 1 or one of {', '.join(names)}, got {name}.")
    return names.index(name)


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
    """int64 (q, sets, bits + 1). With labels there are two sets: no shared class, shared class."""
    _check(queries, database, bits)
    queries, database = _aligned(queries), _aligned(database)
    size = len(database.codes)
    counts = np.zeros((len(queries.codes), 1 + (database.labels.shape[1] > 0), bits + 1), np.int64)
    if ranges is None:
        ranges = np.tile(np.array([0, size], np.int64), (len(counts), 1))
    ranges = np.ascontiguousarray(ranges.clip(0, size), np.int64)
    library = _library() if bits < _MAX_BINS else None

    def step(start: int) -> None:
        rows = slice(start, start + _QUERIES_PER_CALL)
        part = _Side(queries.codes[rows], queries.labels[rows])
        if library is None:
            _count_in_numpy(part, ranges[rows], database, counts[rows])
        else:
            _count_compiled(library, part, ranges[rows], database, counts[rows], level)

    starts = range(0, len(counts), _QUERIES_PER_CALL)
    with ThreadPoolExecutor(min(threads or usable_cores(), len(starts)) or 1) as pool:
        for _ in pool.map(step, starts):  # consuming the results raises the errors of steps
            pass
    return counts


def _check(queries: _Side, database: _Side, bits: int) -> None:
    """Validate arrays, so that the compiled code never reads beyond their end."""
    if any(
        array.dtype != np.uint64 or array.ndim != 2 or not array.flags.c_contiguous
        for array in (*queries, *database)
    ):
        raise UsageError(
            "Codes and labels to count must be contiguous uint64 (n, words). "
            "hadahash.codes.words makes them."
        )
    widths = queries.codes.shape[1], database.codes.shape[1], -(-bits // 64)
    if len(set(widths)) != 1:
        raise UsageError(
            f"Queries of {widths[0]} words and codes of {widths[1]} words do not match {bits} bits."
        )
    shapes = queries.labels.shape, database.labels.shape
    if shapes != ((len(queries.codes), shapes[1][1]), (len(database.codes), shapes[0][1])):
        raise UsageError(
            f"Label sets of shapes {shapes[0]} and {shapes[1]} do not match the codes."
        )


def _aligned(side: _Side) -> _Side:
    """The same arrays, copied where they do not start at a multiple of 8 bytes."""
    return _Side(*(array if array.flags.aligned else array.copy() for array in side))


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
        used_level(level),
    )
    if failed:
        raise MemoryError("not enough memory for the histograms of distances")


def _count_in_numpy(
    queries: _Side, ranges: NDArray[np.int64], database: _Side, counts: NDArray[np.int64]
) -> None:
    """Count queries with the same range together, in steps of bounded memory."""
    bins = counts.shape[2]
    for first, last in np.unique(ranges, axis=0):
        rows = np.flatnonzero((ranges == (first, last)).all(axis=1))
        offsets = np.arange(len(rows))[:, None] * counts[0].size
        step = max(1, _PAIRS_PER_STEP // len(rows))
        for start in range(first, last, step):
            part = slice(start, min(start + step, last))
            near, far = queries.codes[rows].view(np.uint8), database.codes[part].view(np.uint8)
            cell = hamming(near, far) + offsets
            cell += bins * _shared(queries.labels[rows], database.labels[part])
            flat = np.bincount(cell.ravel(), minlength=counts[rows].size)
            counts[rows] += flat.reshape(-1, *counts.shape[1:])


def _shared(a: Words, b: Words) -> NDArray[np.bool_]:
    """Whether two label sets have a class in common: bool (len(a), len(b))."""
    shared = np.zeros((len(a), len(b)), bool)
    for word in range(a.shape[1]):
        shared |= (a[:, None, word] & b[None, :, word]) != 0
    return shared


def _library() -> ctypes.CDLL | None:
    return None if os.environ.get("HADAHASH_NATIVE") == "0" else _load(_FOLDER)


@cache
def _load(folder: Path) -> ctypes.CDLL | None:
    """The compiled library in this folder; None if it is missing or cannot be used."""
    for path in (folder / f"_hamming{suffix}" for suffix in EXTENSION_SUFFIXES):
        try:
            library = ctypes.CDLL(str(path))
            if library.hadahash_interface() == _INTERFACE:
                return _declare(library)
        except (OSError, AttributeError):
            continue
    return None


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number, level = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    heaps = (pointer, pointer, number, pointer, number)  # table, queries, n_queries, heaps, k
    library.hadahash_level_name.argtypes = [level]
    library.hadahash_level_name.restype = ctypes.c_char_p
    library.hadahash_count_distances.argtypes = [
        *(pointer, pointer, pointer, number),  # queries, their labels, their ranges, n_queries
        *(pointer, pointer, number),  # codes, their labels, n_codes
        *(number, number, number),  # words per code, words per label set, bins
        *(pointer, level),  # counts
    ]
    library.hadahash_scan.argtypes = [*heaps, number, number, level]  # first, last
    # probes; centroid_distances, work, unvisited_bounds
    library.hadahash_probe.argtypes = [*heaps, number, pointer, pointer, pointer, level]
    # centroid_distances, first, last, unvisited_bounds
    library.hadahash_scan_remaining.argtypes = [*heaps, pointer, number, number, pointer, level]
    library.hadahash_scan.restype = library.hadahash_scan_remaining.restype = None
    library.hadahash_near_pairs.argtypes = [
        *(pointer, number),  # keys, size
        *(pointer, number, pointer, ctypes.c_uint32),  # codes, width, components, radius
        *(pointer, pointer, number, level),  # state, links, capacity
    ]
    library.hadahash_near_pairs.restype = number
    library.hadahash_ranked.argtypes = [
        *(pointer, pointer, number),  # table, content, its width
        *(pointer, number, pointer, number, pointer),  # queries, n_queries, heaps, k, caches
        *(pointer, number, level),  # ranges, n_ranges
    ]
    # table, content, its width, query, cache, first, last, points
    library.hadahash_points.argtypes = [
        pointer,
        pointer,
        number,
        pointer,
        pointer,
        number,
        number,
        pointer,
    ]
    library.hadahash_ranked.restype = library.hadahash_points.restype = None
    return library
