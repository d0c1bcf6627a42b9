"""The links that join nearly equal codes: a minimum spanning forest of all pairs up to a distance.

With it, the groups at every smaller distance are known without another search. Pairs are found by
keys of their bits (`duplicate_parts`). Where the codes are too few or too dense for that, each one
is compared with its nearest neighbors, and where these are too many to be complete, with the codes
outside of its group; pairs are never listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..native.search import nearest
from ..native.tables import Rows, Table, bitmap
from .duplicate_parts import PartialForest, links_by_parts
from .engines.routed import arrange
from .forest import Links, find, join

_QUERIES_PER_STEP = 1024
_NEIGHBORS_PER_QUERY = 64
_LINKS_PER_STEP = 1 << 21  # that are kept before they are reduced to a forest


def spanning_links(
    rows: Rows, bits: int, radius: int, sizes: NDArray[np.int64], report: Callable[[int], object]
) -> Links:
    """The minimum spanning forest of distinct codes, of links up to a distance.

    Args:
        rows: Distinct codes.
        bits: Length of the codes.
        radius: Maximum distance of two linked codes.
        sizes: Number of items of each code.
        report: Called with the number of items processed since the last call.

    Returns:
        The links, the shortest first.
    """
    done, total = 0, int(sizes.sum())

    def report_fraction(fraction: float) -> None:
        nonlocal done
        report(int(fraction * total) - done)
        done = int(fraction * total)

    forest = links_by_parts(rows, bits, radius, report_fraction)
    found = [forest.links]
    if forest.radius < radius:
        found.append(_links_by_neighbors(rows, bits, radius, forest))
    report(total - done)
    return np.concatenate(found)


def _links_by_neighbors(rows: Rows, bits: int, radius: int, forest: PartialForest) -> Links:
    """The links of a minimum spanning forest that are longer than those of a given one."""
    table, parent, kept = arrange(rows, bits), forest.parent, []
    links, reached = _nearest_links(table, rows, radius)
    for distance in range(forest.radius + 1, radius + 1):
        kept.append(join(parent, links[links[:, 2] == distance]))
        # Codes whose list of neighbors ends at this distance may have further links.
        while len(queries := np.flatnonzero(reached <= distance)):
            found, reached[queries] = _outside_links(table, rows, queries, radius, parent)
            kept.append(join(parent, found[found[:, 2] <= distance]))
    return np.concatenate([*kept, np.zeros((0, 3), np.int64)])


def _nearest_links(table: Table, rows: Rows, radius: int) -> tuple[Links, NDArray[np.int64]]:
    """Links to the nearest neighbors, and the distance from which on each code may have more."""
    parts, count = [np.zeros((0, 3), np.int64)], 0
    reached = np.full(len(rows), radius + 1)
    for start in range(0, len(rows), _QUERIES_PER_STEP):
        queries = np.arange(start, min(start + _QUERIES_PER_STEP, len(rows)))
        k = min(_NEIGHBORS_PER_QUERY, len(rows))
        links, last = _search(table, rows, queries, radius, k, None)
        if k < len(rows):
            reached[queries] = last
        parts.append(links)
        count += len(links)
        if count > _LINKS_PER_STEP:
            parts = [join(np.arange(len(rows)), np.concatenate(parts))]
            count = 0
    return join(np.arange(len(rows)), np.concatenate(parts)), reached


def _outside_links(
    table: Table,
    rows: Rows,
    queries: NDArray[np.int64],
    radius: int,
    parent: NDArray[np.int64],
) -> tuple[Links, NDArray[np.int64]]:
    """Links to the nearest codes of other components, and their distances."""
    roots = find(parent, np.arange(len(parent)))
    found, reached = [], np.full(len(parent), radius + 1)
    for members in _by_root(queries, roots):
        outside = roots != roots[members[0]]
        allowed = bitmap(outside if table.ordinals is None else outside[table.ordinals])
        for start in range(0, len(members), _QUERIES_PER_STEP):
            part = members[start : start + _QUERIES_PER_STEP]
            links, reached[part] = _search(table, rows, part, radius, 1, allowed)
            found.append(links)
    return np.concatenate(found), reached[queries]


def _by_root(queries: NDArray[np.int64], roots: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    ordered = queries[np.argsort(roots[queries], kind="stable")]
    yield from np.split(ordered, np.flatnonzero(np.diff(roots[ordered])) + 1)


def _search(
    table: Table,
    rows: Rows,
    queries: NDArray[np.int64],
    radius: int,
    k: int,
    allowed: NDArray[np.uint64] | None,
) -> tuple[Links, NDArray[np.int64]]:
    """Links to the k nearest allowed codes, and the distance of the last or `radius` + 1."""
    limits = np.full(len(queries), (radius + 1) << 32, np.uint64)
    keys = nearest(table, rows[queries], k=k, limits=limits, allowed=allowed).keys.astype(np.int64)
    row, column = np.nonzero(keys >> 32 <= radius)
    chosen = keys[row, column]
    links = np.stack([queries[row], chosen & 0xFFFFFFFF, chosen >> 32], axis=1)
    return links[links[:, 0] != links[:, 1]], keys[:, -1] >> 32
