"""Pairs of nearly equal codes by keys of their bits, without comparing all pairs.

All pairs up to a distance share one of some keys (`duplicate_keys`), and sorting by a key brings
them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming
from ..native.pairs import near_pairs
from ..native.tables import Rows
from .duplicate_keys import Block, Words, choose_blocks, most_work
from .forest import Links, find, join

_STAGES = 4  # of the links, by distance; each may take this part of the allowed work
_SMALLEST_STEP = 12  # of a stage, as a part of the radius
_SAMPLE = 1500  # codes whose distances are taken to estimate the work
_CODES_PER_STEP = 1 << 14  # whose bits are permuted together
_LINKS_PER_STEP = 1 << 21  # that are kept before they are reduced to a forest


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
    """The minimum spanning forest of distinct codes, as far as keys find it at little cost.

    Small distances come first: codes that they connect need not be compared again.

    Args:
        rows: Distinct codes.
        bits: Length of the codes.
        radius: Maximum distance of two linked codes.
        report: Called with the finished fraction of the work.

    Returns:
        The forest. Its radius is smaller than asked for where comparing all codes costs less.
    """
    words = _permuted(rows, bits)
    parent, kept, reached = np.arange(len(words)), list[Links](), 0
    left = most = most_work(len(words))
    while reached < radius:
        stage = _Stage(words, parent)
        high, blocks = _next_stage(stage.sample_distances(bits), len(words), reached, radius, most)
        for done in stage.compare(blocks, high, left):
            report((reached + done * (high - reached)) / radius)
        left -= stage.compared
        if not blocks or left < 0:
            break
        kept.append(join(parent, stage.forest()))
        reached = high
    return PartialForest(_joined(kept), parent, reached)


def _next_stage(
    distances: NDArray[np.float64], size: int, reached: int, radius: int, most: float
) -> tuple[int, list[Block]]:
    """The distance up to which links are found next, and the blocks; none if that is too much work.

    The distances are quarters of the radius. In dense groups the steps are smaller: each one
    connects codes that the next one need not compare.
    """
    quarters = [radius * number // 4 for number in (1, 2, 3, 4)]
    high, found = next(each for each in quarters if each > reached), (reached, list[Block]())
    while high > reached:
        plan = choose_blocks(distances, size, high, most / _STAGES)
        if plan is not None:
            found = high, plan.blocks
            if plan.is_balanced or high - reached <= radius // _SMALLEST_STEP:
                break
        high = (reached + high) // 2
    return found


def _joined(links: list[Links]) -> Links:
    return np.concatenate([*links, np.zeros((0, 3), np.int64)])


def _permuted(rows: Rows, bits: int) -> Words:
    """The codes with their bits in a random order: distances are the same, and all blocks alike."""
    order, words = np.random.default_rng(0).permutation(bits), -(-bits // 64)
    permuted = np.zeros((len(rows), 8 * words), np.uint8)
    for start in range(0, len(rows), _CODES_PER_STEP):
        part = slice(start, start + _CODES_PER_STEP)
        unpacked = np.unpackbits(rows[part].view(np.uint8), axis=1)[:, order]
        permuted[part, : -(-bits // 8)] = np.packbits(unpacked, axis=1, bitorder="little")
    return permuted.view(np.uint64)


class _Stage:
    """The links up to a distance between components that are not connected yet.

    Attributes:
        compared: Number of comparisons.
    """

    def __init__(self, words: Words, parent: NDArray[np.int64]) -> None:
        self._parent = parent
        roots = find(parent, np.arange(len(parent)))
        self._order = np.argsort(roots, kind="stable")  # those of a component are adjacent
        self._components = roots[self._order].astype(np.uint32)
        self._words = words[self._order]
        self._links, self._count = list[Links](), 0
        self.compared = 0

    def sample_distances(self, bits: int) -> NDArray[np.float64]:
        """The fraction of pairs at each distance, of those that are not connected."""
        rng, size = np.random.default_rng(0), len(self._words)
        rows = np.sort(rng.choice(size, min(size, _SAMPLE), replace=False))
        sample = self._words[rows].view(np.uint8)
        distances, component = hamming(sample, sample), self._components[rows]
        counts = np.bincount(distances[component[:, None] != component], minlength=bits + 1)
        return counts / distances.size

    def compare(self, blocks: list[Block], radius: int, most: float) -> Iterator[float]:
        """Compare all codes that share a key, or stop when they are too many.

        Args:
            blocks: The keys.
            radius: Maximum distance of two linked codes.
            most: Number of comparisons that are allowed.

        Yields:
            The finished fraction.
        """
        total = sum(len(block.masks) for block in blocks)
        tables = (keys for block in blocks for keys in block.sorted_keys(self._words))
        for done, keys in enumerate(tables, 1):
            for links, compared in near_pairs(keys, self._words, self._components, radius):
                self.compared += compared
                if self.compared > most:
                    return
                self._add(links)
            yield done / total

    def _add(self, links: Links) -> None:
        if not len(links):
            return
        links[:, :2] = self._order[links[:, :2]]
        self._links.append(links)
        self._count += len(links)
        if self._count > _LINKS_PER_STEP:
            self._links, self._count = [self.forest()], 0

    def forest(self) -> Links:
        """The shortest of the links that connect the components."""
        return join(self._parent.copy(), _joined(self._links))
