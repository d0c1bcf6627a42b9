"""Pairs of nearly equal codes by parts of their bits, without comparing all pairs.

Two codes that differ in at most r of their bits agree in one of any r + 1 disjoint parts. So all
pairs are among those that agree in a part, which sorting by that part brings together. Where these
are too many, the codes are divided into r + 2 parts and must agree in two of them, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..native.tables import Rows
from .forest import Links, find, join

Words = NDArray[np.uint64]

_MORE_PARTS = 3  # parts beyond r + 1 that are tried
_MOST_TABLES = 128
_SAMPLE = 1 << 15  # pairs whose agreement is estimated
_TABLE_COST = 25  # sorting a code costs as much as comparing so many pairs
_SCAN_COST = 0.1  # of the search for neighbors, per pair of codes
_PAIRS_PER_STEP = 1 << 16
_LINKS_PER_STEP = 1 << 21  # that are kept before they are reduced to a forest
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd; spreads the bits of a part over a key
_HALF = np.uint64(32)


class PartialForest(NamedTuple):
    """Links that were found.

    Attributes:
        links: Minimum spanning forest of the links up to `radius`.
        parent: Its components, as `forest.join` leaves them.
        radius: Distance up to which the links are complete.
    """

    links: Links
    parent: NDArray[np.int64]
    radius: int


def links_by_parts(
    rows: Rows, bits: int, radius: int, report: Callable[[float], object]
) -> PartialForest:
    """The minimum spanning forest of distinct codes, as far as parts find it at little cost.

    Small distances come first: codes that they connect need not be compared again.

    Args:
        rows: Distinct codes.
        bits: Length of the codes.
        radius: Maximum distance of two linked codes.
        report: Called with the finished fraction of the work.

    Returns:
        The forest. Its radius is smaller than asked for where comparing all codes costs less.
    """
    words = np.ascontiguousarray(rows, np.uint64)
    parent, kept, reached = np.arange(len(words)), list[Links](), 0
    for low, high in pairwise(_stages(radius)):
        masks = _choose_masks(words, bits, high)
        if masks is None:
            break
        found = _Stage(words, parent, high)
        for number, mask in enumerate(masks):
            if not found.compare(mask):
                return PartialForest(_joined(kept), parent, low)
            report((number + 1) / len(masks) * high / radius)
        kept.append(join(parent, found.forest()))
        reached = high
    return PartialForest(_joined(kept), parent, reached)


def _stages(radius: int) -> list[int]:
    """Distances, from 0 to the radius, up to which links are found together."""
    return sorted({0, radius // 4, radius // 2, radius})


def _joined(links: list[Links]) -> Links:
    return np.concatenate([*links, np.zeros((0, 3), np.int64)])


class _Stage:
    """The links up to a distance between components that are not connected yet."""

    def __init__(self, words: Words, parent: NDArray[np.int64], radius: int) -> None:
        self._words, self._radius = words, radius
        self._parent = parent
        self._roots = find(parent, np.arange(len(parent)))
        self._links: list[Links] = []
        self._count, self._left = 0, _SCAN_COST * len(words) ** 2 + 1e8

    def compare(self, mask: Words) -> bool:
        """Compare all codes that agree in the bits of a mask; False if they are too many."""
        order, begin, end = _candidates(self._words, mask, self._roots)
        sizes = end - begin
        self._left -= int(sizes.sum())
        if self._left < 0:
            return False
        words = self._words[order]
        for left, right in _ranges(begin, sizes):
            distances = np.bitwise_count(words[left, 0] ^ words[right, 0]).astype(np.int64)
            for word in range(1, words.shape[1]):
                distances += np.bitwise_count(words[left, word] ^ words[right, word])
            near = np.flatnonzero(distances <= self._radius)
            if len(near):
                pairs = order[left[near]], order[right[near]], distances[near]
                self._add(np.stack(pairs, axis=1))
        return True

    def _add(self, links: Links) -> None:
        self._links.append(links)
        self._count += len(links)
        if self._count > _LINKS_PER_STEP:
            self._links, self._count = [self.forest()], 0

    def forest(self) -> Links:
        """The shortest of the links that connect the components."""
        return join(self._parent.copy(), _joined(self._links))


def _candidates(
    words: Words, mask: Words, roots: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Codes that agree with others of other components in the bits of a mask.

    Returns:
        The codes in an order, and for each place in it the range of places to compare it with.
    """
    keys = _keys(words, mask)
    order = np.argsort(keys)
    keys = keys[order]
    equal = keys[1:] == keys[:-1]
    shared = np.concatenate([[False], equal]) | np.concatenate([equal, [False]])
    order, keys = order[shared], keys[shared]
    order = order[np.lexsort((roots[order], keys))]
    group = _run_ends(keys)
    component = _run_ends(keys, roots[order])
    return order, np.minimum(component, group), group


def _run_ends(*columns: NDArray[np.generic]) -> NDArray[np.int64]:
    """For each place of sorted columns the end of the run of equal values."""
    size = len(columns[0])
    if not size:
        return np.zeros(0, np.int64)
    new = np.zeros(size, bool)
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(np.concatenate([[True], new[1:]]))
    ends = np.append(starts[1:], size)
    return np.repeat(ends, ends - starts)


def _ranges(
    begin: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Each place beside each place of its range, in steps of bounded size."""
    before = np.concatenate([[0], np.cumsum(sizes)])
    for start in range(0, int(before[-1]), _PAIRS_PER_STEP):
        stop = min(start + _PAIRS_PER_STEP, int(before[-1]))
        first = int(np.searchsorted(before, start, side="right")) - 1
        last = int(np.searchsorted(before, stop, side="left"))
        places = np.arange(first, last)
        counts = np.minimum(before[first + 1 : last + 1], stop) - np.maximum(
            before[first:last], start
        )
        left = np.repeat(places, counts)
        right = begin[left] + np.arange(start, stop) - before[left]
        yield left, right


def _keys(words: Words, mask: Words) -> NDArray[np.uint64]:
    """A number per code that depends on the bits of a mask alone."""
    keys = np.zeros(len(words), np.uint64)
    for word in np.flatnonzero(mask).tolist():
        keys ^= words[:, word] & mask[word]
        keys *= _MIX
        keys ^= keys >> _HALF
    return keys


def _choose_masks(words: Words, bits: int, radius: int) -> list[Words] | None:
    """Masks such that codes within the radius agree in one: those of the least work.

    Returns:
        The masks; None if the search for neighbors is less work.
    """
    size = len(words)
    rng = np.random.default_rng(0)
    sample = words[rng.integers(0, size, _SAMPLE)] ^ words[rng.integers(0, size, _SAMPLE)]
    best, least = None, _SCAN_COST * size**2 + 1e8
    for more in range(_MORE_PARTS):
        parts = radius + 1 + more
        tables = comb(parts, 1 + more)
        if parts > bits or tables > _MOST_TABLES:
            break
        masks = _masks(words.shape[1], bits, parts, 1 + more, rng)
        agree = np.mean([~(sample & mask).any(axis=1) for mask in masks[:16]])
        work = float(tables * size * (_TABLE_COST + agree * size / 2))
        if work < least:
            best, least = masks, work
    return best


def _masks(
    width: int, bits: int, parts: int, agreeing: int, rng: np.random.Generator
) -> list[Words]:
    """Masks of every choice of `agreeing` of the parts of a random division of the bits."""
    division = np.zeros((parts, 8 * 8 * width), bool)
    for number, bit in enumerate(rng.permutation(bits)):
        division[number % parts, bit] = True
    single = np.packbits(division, axis=1).view(np.uint64)
    return [
        np.bitwise_or.reduce(single[list(each)]) for each in combinations(range(parts), agreeing)
    ]
