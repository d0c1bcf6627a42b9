"""Exact ranked search over any engine that can list the items within a Hamming distance.

The k-th best points so far tell in which balls of class bits better items can be. The walk fetches
these balls until nothing outside them can be better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming
from ..errors import UsageError
from ..native.ranked import LOWEST, all_points
from ..native.ranked_bounds import Balls, ClassBounds, balls_of
from ..native.ranked_tables import Points
from ..native.tables import packed_of, rows_of
from .preparing import Prepared

Packed = NDArray[np.uint8]


class Fetched(NamedTuple):
    """Items of an engine.

    Attributes:
        ids: (n,), integers or strings.
        packed: Packed class bits, uint8 (n, bytes).
        content: Packed content bits, uint8 (n, bytes), or None.
    """

    ids: NDArray[Any]
    packed: Packed
    content: Packed | None


Within = Callable[[Packed, int], Fetched]  # packed code (bytes,), radius -> all items within it


class WalkHits(NamedTuple):
    """Results for one query: best first, ties in the order of ids.

    Attributes:
        ids: (n,), n <= k.
        points: int64 (n,): `Prepared.scores` turns them into scores.
        distances: Hamming distances of the class bits, int32 (n,).
    """

    ids: NDArray[Any]
    points: Points
    distances: NDArray[np.int32]


def ranked_walk(prepared: Prepared, row: int, within: Within, k: int) -> WalkHits:
    """Find the k items with the most points, exactly.

    Args:
        prepared: The queries, as `prepare` makes them.
        row: Number of the query.
        within: Returns all items within a distance of a code.
        k: Number of items.

    Returns:
        The items, fewer than k if there are no more.

    Raises:
        UsageError: k is below 1.
    """
    if k < 1:
        raise UsageError(f"k must be >= 1, got {k}.")
    tables = prepared.tables
    bounds = None if tables.classes is None else ClassBounds(tables.classes, row)
    anchor = tables.codes[row]
    if bounds is not None and tables.classes is not None:
        anchor = tables.classes.codewords[bounds.top]
    seen = _Seen(prepared, row, within, k)
    radius = 0
    seen.fetch(_packed(anchor, prepared.bits), radius)
    while seen.count < k and radius < prepared.bits:
        radius = min(max(1, 2 * radius), prepared.bits)
        seen.fetch(_packed(anchor, prepared.bits), radius)
    while missing := _missing(balls_of(tables, row, seen.least, bounds), seen):
        seen.fetch(*missing)
    return seen.best()


class _Seen:
    """Items that were fetched, and the balls that they cover."""

    def __init__(self, prepared: Prepared, row: int, within: Within, k: int) -> None:
        self.prepared, self.row, self.within, self.k = prepared, row, within, k
        self.covered: dict[bytes, int] = {}  # radius by packed anchor
        self.known: dict[Any, tuple[int, int]] = {}  # points and distance by id
        self.least = LOWEST

    @property
    def count(self) -> int:
        return len(self.known)

    @property
    def everything(self) -> bool:
        return any(radius >= self.prepared.bits for radius in self.covered.values())

    def fetch(self, anchor: Packed, radius: int) -> None:
        found = self.within(anchor, radius)
        self.covered[anchor.tobytes()] = radius
        new = [i for i, each in enumerate(found.ids.tolist()) if each not in self.known]
        if not new:
            return
        one = self.prepared.select(self.row)
        content = None
        if one.content_bits:
            if found.content is None:
                raise UsageError("rank='photo' needs content bits, and these items have none.")
            content = rows_of(found.content[new])
        packed = found.packed[new]
        points = all_points(one.tables, rows_of(packed), content, one.bits)[0]
        distances = hamming(_packed(one.tables.codes[0], one.bits)[None], packed)[0]
        values = zip(points.tolist(), distances.tolist(), strict=True)
        self.known |= dict(zip(found.ids[new].tolist(), values, strict=True))
        if self.count >= self.k:
            best = np.array([points for points, _ in self.known.values()])
            self.least = int(np.partition(best, -self.k)[-self.k])

    def best(self) -> WalkHits:
        order = sorted(self.known, key=lambda each: (-self.known[each][0], each))[: self.k]
        kind = np.int64 if all(isinstance(each, int) for each in order) else object
        points, distances = (
            np.array([self.known[each][column] for each in order]) for column in (0, 1)
        )
        ids = np.array(order, kind)
        return WalkHits(ids, points.astype(np.int64), distances.astype(np.int32))


def _missing(balls: Balls | None, seen: _Seen) -> tuple[Packed, int] | None:
    """The smallest ball that was not fetched."""
    bits = seen.prepared.bits
    if seen.everything:
        return None
    if balls is None:
        return _packed(seen.prepared.tables.codes[seen.row], bits), bits
    for i in np.argsort(balls.radii, kind="stable"):
        anchor = _packed(balls.anchors[i], bits)
        if seen.covered.get(anchor.tobytes(), -1) < balls.radii[i]:
            return anchor, int(balls.radii[i])
    return None


def _packed(row: NDArray[Any], bits: int) -> Packed:
    return packed_of(row[None], bits).reshape(-1)
