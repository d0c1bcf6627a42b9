"""Groups of items with nearly equal codes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..native.search import nearest
from ..native.tables import Rows, Table, bitmap, rows_of
from .api import Index
from .checks import whole_number
from .engines.routed import arrange
from .items import Id

_QUERIES_PER_STEP = 1024
_NEIGHBORS_PER_QUERY = 64


def duplicate_groups(
    index: Index, radius: int, *, progress: Callable[[int], object] | None = None
) -> list[list[Id]]:
    """Find groups of items connected by links of at most `radius` bits (single linkage).

    A group has at least two items.

    Equal codes are compared only once.

    Args:
        index: The index.
        radius: Maximum distance of two linked items.
        progress: Called with the number of items processed since the last call.

    Returns:
        Groups of ids, the largest first; ids in ascending order.

    Raises:
        UsageError: `radius` is not an integer >= 0.

    Example:
        >>> from hadahash.codes import Codes, pack
        >>> packed = pack([[1] * 8, [1] * 7 + [-1], [-1] * 8])
        >>> duplicate_groups(Index.build(Codes(packed, 8, ["a", "b", "c"])), radius=1)
        [['a', 'b']]
    """
    radius = min(whole_number("radius", radius, 0), index.bits)
    report = progress or (lambda count: None)
    ids, codes = index.ids, index.codes()
    packed, member, sizes = np.unique(codes.packed, axis=0, return_inverse=True, return_counts=True)
    if radius == 0 or len(packed) == 0:
        groups = np.arange(len(packed))
        report(len(ids))
    else:
        groups = _components(rows_of(packed), index.bits, radius, sizes, report)
    group = groups[member.ravel()]
    order = np.argsort(group, kind="stable")  # keeps the order of ids inside each group
    parts = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    found = [ids[rows].tolist() for rows in parts if len(rows) > 1]
    return sorted(found, key=lambda members: (-len(members), members[0]))


def _components(
    rows: Rows,
    bits: int,
    radius: int,
    sizes: NDArray[np.int64],
    report: Callable[[int], object],
) -> NDArray[np.int64]:
    """The component of each distinct code, by union-find over the links that searches return.

    First the nearest neighbors of every code are searched. Codes with as many neighbors as
    requested may have more links, and are searched again among the codes outside of their
    component. In dense data the number of links is therefore about the number of codes, not of
    pairs.
    """
    table, parent = arrange(rows, bits), np.arange(len(rows))
    pending: list[NDArray[np.int64]] = []
    for start in range(0, len(rows), _QUERIES_PER_STEP):
        queries = np.arange(start, min(start + _QUERIES_PER_STEP, len(rows)))
        full = _link(table, rows, queries, radius, parent, None)
        pending.append(queries[full])
        report(int(sizes[queries[~full]].sum()))
    queries = np.concatenate(pending)
    while len(queries):
        roots = _find(parent, np.arange(len(parent)))
        queries = queries[np.argsort(roots[queries], kind="stable")]
        cuts = np.flatnonzero(np.diff(roots[queries])) + 1
        pending = []
        for members in np.split(queries, cuts):
            outside = roots != roots[members[0]]
            allowed = bitmap(outside if table.ordinals is None else outside[table.ordinals])
            for start in range(0, len(members), _QUERIES_PER_STEP):
                part = members[start : start + _QUERIES_PER_STEP]
                full = _link(table, rows, part, radius, parent, allowed)
                pending.append(part[full])
                report(int(sizes[part[~full]].sum()))
        queries = np.concatenate(pending)
    return _find(parent, np.arange(len(parent)))


def _link(
    table: Table,
    rows: Rows,
    queries: NDArray[np.int64],
    radius: int,
    parent: NDArray[np.int64],
    allowed: NDArray[np.uint64] | None,
) -> NDArray[np.bool_]:
    """Join each query with the allowed codes within the radius; returns which may have more."""
    k = min(_NEIGHBORS_PER_QUERY, len(rows))
    limits = np.full(len(queries), (radius + 1) << 32, np.uint64)
    keys = nearest(table, rows[queries], k=k, limits=limits, allowed=allowed).keys
    row, column = np.nonzero(keys < limits[:, None])
    ordinals = (keys[row, column] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    _union(parent, queries[row], ordinals)
    return np.asarray(keys[:, -1] < limits) & (k < len(rows))


def _find(parent: NDArray[np.int64], nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The root of each node; paths are halved on the way."""
    while True:
        up = parent[nodes]
        top = parent[up]
        if np.array_equal(up, top):
            return up
        parent[nodes] = top
        nodes = up


def _union(parent: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    """Join the components of each pair."""
    while True:
        first, second = _find(parent, first), _find(parent, second)
        differ = first != second
        if not differ.any():
            return
        first, second = first[differ], second[differ]
        np.minimum.at(parent, np.maximum(first, second), np.minimum(first, second))
