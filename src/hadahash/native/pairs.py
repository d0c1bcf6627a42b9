"""Pairs of nearly equal codes among those that share a key, in compiled code (pairs.c) or in numpy.

A sorted key is key * 2^32 + the position of the code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from . import _library, used_level

Words = NDArray[np.uint64]
Links = NDArray[np.int64]  # (m, 3): two rows and their distance

_LINKS_PER_STEP = 1 << 16
_PAIRS_PER_STEP = 1 << 16  # of the numpy implementation
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def near_pairs(
    keys: Words, words: Words, components: NDArray[np.uint32], radius: int, *, level: int = -1
) -> Iterator[tuple[Links, int]]:
    """Compare the codes that share a key, unless they are in the same component.

    Args:
        keys: Sorted keys, uint64 (n,): each code once.
        words: The codes, uint64 (n, words).
        components: The component of each code, ascending, uint32 (n,).
        radius: Maximum distance of a pair.
        level: Instruction set level, for tests; -1 for the best one.

    Yields:
        Pairs within the radius, and how many were compared to find them: some at a time.

    Raises:
        UsageError: The arrays do not match.
    """
    _check(keys, words, components)
    library = _library()
    if library is None:
        yield from _near_in_numpy(keys, words, components, radius)
    else:
        yield from _near_compiled(library, keys, words, components, radius, used_level(level))


def _check(keys: Words, words: Words, components: NDArray[np.uint32]) -> None:
    """Validate arrays, so that the compiled code never reads beyond their end."""
    arrays = (keys, words, components)
    fits = (
        all(array.flags.c_contiguous and array.flags.aligned for array in arrays)
        and [array.dtype for array in arrays] == [np.uint64, np.uint64, np.uint32]
        and keys.shape == components.shape == words.shape[:1]
        and words.ndim == 2
        and (not len(keys) or int(keys.astype(np.uint32).max()) < len(words))
    )
    if not fits:
        raise UsageError(
            f"Keys {keys.dtype} {keys.shape}, codes {words.dtype} {words.shape} and components "
            f"{components.dtype} {components.shape} do not match."
        )


def _near_compiled(
    library: ctypes.CDLL,
    keys: Words,
    words: Words,
    components: NDArray[np.uint32],
    radius: int,
    level: int,
) -> Iterator[tuple[Links, int]]:
    size = len(keys)
    links = np.empty((max(size, _LINKS_PER_STEP), 3), np.int64)
    state = np.zeros(2, np.int64)  # the next position, pairs compared
    while state[0] < size:
        state[1] = 0
        found = library.hadahash_near_pairs(
            keys.ctypes.data,
            size,
            words.ctypes.data,
            8 * words.shape[1],
            components.ctypes.data,
            radius,
            state.ctypes.data,
            links.ctypes.data,
            len(links),
            level,
        )
        yield links[:found].copy(), int(state[1])


def _near_in_numpy(
    keys: Words, words: Words, components: NDArray[np.uint32], radius: int
) -> Iterator[tuple[Links, int]]:
    order, keys = (keys & _LOW).astype(np.int64), keys >> _HALF
    run_ends = _run_ends(keys)
    begin = np.minimum(_run_ends(keys, components[order]), run_ends)
    for left, right in _ranges(begin, run_ends - begin):
        pairs = order[left], order[right]
        distances = np.bitwise_count(words[pairs[0]] ^ words[pairs[1]]).sum(axis=1, dtype=np.int64)
        near = distances <= radius
        yield np.stack([*pairs, distances], axis=1)[near], len(left)


def _run_ends(*columns: NDArray[np.generic]) -> NDArray[np.int64]:
    """For each place of sorted columns the end of the run of equal values."""
    size = len(columns[0])
    new = np.zeros(size, bool)
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    new[:1] = True
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], size)
    return np.repeat(ends, ends - starts) if size else starts


def _ranges(
    begin: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Each place beside each place of its range, in steps of bounded size."""
    before = np.concatenate([[0], np.cumsum(sizes)])
    for start in range(0, int(before[-1]), _PAIRS_PER_STEP):
        stop = min(start + _PAIRS_PER_STEP, int(before[-1]))
        first = int(np.searchsorted(before, start, side="right")) - 1
        last = int(np.searchsorted(before, stop, side="left"))
        counts = np.minimum(before[first + 1 : last + 1], stop) - np.maximum(
            before[first:last], start
        )
        left = np.repeat(np.arange(first, last), counts)
        yield left, begin[left] + np.arange(start, stop) - before[left]
