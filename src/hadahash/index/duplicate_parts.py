"""Pairs of nearly equal codes by keys of their bits, without comparing all pairs.

All pairs up to a distance share one of some keys (`duplicate_keys`), and sorting by a key brings
them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming
from ..native.pairs import near_pairs
from ..native.tables import Rows
from .duplicate_keys import Block, Words, choose_blocks, most_work
from .forest import Links, find, join

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
    for low, high in pairwise(_stages(radius)):
        stage = _Stage(words, parent, high)
        blocks = choose_blocks(stage.sample_distances(bits), len(words), high)
        if blocks is None:
            break
        for done in stage.compare(blocks):
            report((low + done * (high - low)) / radius)
        if stage.left < 0:
            break
        kept.append(join(parent, stage.forest()))
        reached = high
    return PartialForest(_joined(kept), parent, reached)


def _stages(radius: int) -> list[int]:
    """Distances, from 0 to the radius, up to which links are found together."""
    return sorted({0, radius // 4, radius // 2, 3 * radius // 4, radius})


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
        left: Number of comparisons that are left; below 0 if they were too many.
    """

    def __init__(self, words: Words, parent: NDArray[np.int64], radius: int) -> None:
        self._parent, self._radius = parent, radius
        roots = find(parent, np.arange(len(parent)))
        self._order = np.argsort(roots, kind="stable")  # those of a component are adjacent
        self._components = roots[self._order].astype(np.uint32)
        self._words = words[self._order]
        self._links, self._count = list[Links](), 0
        self.left = most_work(len(words))

    def sample_distances(self, bits: int) -> NDArray[np.float64]:
        """The fraction of pairs at each distance, of those that are not connected."""
        rng, size = np.random.default_rng(0), len(self._words)
        rows = np.sort(rng.choice(size, min(size, _SAMPLE), replace=False))
        sample = self._words[rows].view(np.uint8)
        distances, component = hamming(sample, sample), self._components[rows]
        counts = np.bincount(distances[component[:, None] != component], minlength=bits + 1)
        return counts / distances.size

    def compare(self, blocks: list[Block]) -> Iterator[float]:
        """Compare all codes that share a key, unless they are too many.

        Args:
            blocks: The keys.

        Yields:
            The finished fraction.
        """
        done, total = 0, sum(len(block.masks) for block in blocks)
        for block in blocks:
            for keys in block.sorted_keys(self._words):
                for links, compared in near_pairs(
                    keys, self._words, self._components, self._radius
                ):
                    self.left -= compared
                    if self.left < 0:
                        return
                    self._add(links)
                done += 1
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
