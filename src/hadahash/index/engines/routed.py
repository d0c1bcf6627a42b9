"""An exact engine with inverted lists, much faster than a scan where codes form clusters.

Each item is stored in the list of its nearest codeword c (the centroid), ordered by its distance r
to it. By the triangle inequality an item is at least |d(query, c) - r| from a query. So the nearest
list is scanned first, and of the others only the blocks that may hold something nearer than the
k-th best: with codes of a trained network that is almost nothing. The same bound, summed over the
quarters of a code, excludes most of the nearest list too. With random codes almost nothing can be
excluded; such a table is stored flat and scanned, as in the exact engine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...codes import hamming, pack, unpack
from ...native.search import compared_codes, nearest
from ...native.tables import (
    Rows,
    Table,
    cache_aligned,
    packed_of,
    partition,
    rows_of,
    subdistances,
)
from ..api import ENGINES
from ..local import LocalIndex

_MIN_ROUTED_BYTES = 1 << 19  # of codes, which a scan reads in 10 microseconds
_MIN_LEARNED_BYTES = 1 << 20  # of codes; given codewords cost nothing
_MAX_COMPARED = 0.5  # fraction of the codes per query; above, a scan is as fast
_BOUND_COST = 8  # codes are compared in the time in which a list, shell or block is skipped
_SAMPLE_QUERIES, _SAMPLE_K = 64, 11  # to estimate it: codes of the table, which find themselves
_MIN_BLOCK_BYTES = 512  # of codes, on average; else blocks are whole shells
_CODES_PER_STEP = 1 << 18
_SAMPLE, _ITERATIONS = 16_384, 4  # of the clustering
_MIN_CENTROIDS, _MAX_CENTROIDS = 16, 192


@ENGINES.register("routed")
class RoutedIndex(LocalIndex):
    """Inverted lists around the codewords, or without them around learned centroids.

    Segments that do not benefit from routing are scanned.
    """

    engine = "routed"

    def layout(self, rows: Rows) -> Table:
        """A routed table, or a flat one if that is at least as fast."""
        return arrange(rows, self.bits, self.codewords)


def arrange(rows: Rows, bits: int, codewords: NDArray[np.uint8] | None = None) -> Table:
    """Arrange codes for fast exact search.

    Args:
        rows: Codes in the order of ids.
        bits: Length of the codes.
        codewords: Packed codewords to use as centroids; None to learn centroids.

    Returns:
        A routed table, or a flat one if that is at least as fast.
    """
    if rows.nbytes >= (_MIN_LEARNED_BYTES if codewords is None else _MIN_ROUTED_BYTES):
        if codewords is None:
            codewords = learn_centroids(packed_of(rows, bits), bits)
        table = routed_table(rows, rows_of(codewords), bits)
        if routing_is_worthwhile(table, bits):
            return table
    return Table(cache_aligned(rows))


def routing_is_worthwhile(table: Table, bits: int) -> bool:
    """Whether a routed table is searched faster than a flat one, estimated by its own codes.

    Args:
        table: A routed table.
        bits: Length of the codes.

    Returns:
        True if the average query is compared with few enough codes.
    """
    if table.partition is None:
        return False
    queries = table.rows[np.linspace(0, len(table) - 1, _SAMPLE_QUERIES).astype(np.int64)]
    compared = compared_codes(table, queries, k=_SAMPLE_K, bits=bits)
    if compared is None:
        return True
    lists = len(table.partition.centroids)
    shells, blocks = len(table.partition.shell_distances), len(table.partition.starts)
    bounds = lists + shells + blocks / lists
    return compared + _BOUND_COST * bounds < _MAX_COMPARED * len(table)


def routed_table(rows: Rows, centroids: Rows, bits: int) -> Table:
    """Codes ordered by (nearest centroid, distance to it, sub-distances, id).

    Args:
        rows: Codes in the order of ids.
        centroids: Rows of the centroids.
        bits: Length of the codes.

    Returns:
        The routed table.
    """
    keys = _sort_keys(rows, centroids, bits)
    order = np.argsort(keys, kind="stable")
    starts = _starts(keys, order)
    by_subdistances = rows.nbytes >= _MIN_BLOCK_BYTES * len(starts)
    if not by_subdistances:
        keys &= ~0xFFFFFFFF
        order = np.argsort(keys, kind="stable")
        starts = _starts(keys, order)
    lists, distances = np.divmod(keys[order[starts]] >> 32, bits + 1)
    del keys
    ordered = cache_aligned(rows, order)
    blocks = np.stack([lists, distances, starts], axis=1)
    divided = partition(centroids, blocks, ordered, by_subdistances=by_subdistances)
    return Table(ordered, ordinals=order.astype(np.uint32), partition=divided)


def _sort_keys(rows: Rows, centroids: Rows, bits: int) -> NDArray[np.int64]:
    """(nearest centroid, distance to it, `subdistances`) of each code as one number.

    Like the search for block starts, it takes steps, so that large tables need little more memory
    than the keys and their order.
    """
    keys = np.empty(len(rows), np.int64)
    table = Table(centroids)
    for start in range(0, len(rows), _CODES_PER_STEP):
        part = rows[start : start + _CODES_PER_STEP]
        limits = np.full(len(part), (bits + 1) << 32, np.uint64)
        found = nearest(table, part, k=1, limits=limits).keys[:, 0].astype(np.int64)
        lists, distances = found & 0xFFFFFFFF, found >> 32
        quarters = subdistances(part, centroids[lists]).view(np.uint32)[:, 0]
        keys[start : start + len(part)] = (lists * (bits + 1) + distances) << 32 | quarters
    return keys


def _starts(keys: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions in this order where the key differs from the previous one."""
    new = np.ones(len(order), bool)
    for start in range(1, len(order), _CODES_PER_STEP):
        part = keys[order[start - 1 : start + _CODES_PER_STEP]]
        new[start : start + _CODES_PER_STEP] = part[1:] != part[:-1]
    return np.flatnonzero(new)


def learn_centroids(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Cluster a sample of codes by k-majority. The same codes always give the same centroids.

    The first centroids are far apart: each new one is drawn with a probability proportional to the
    fourth power of its distance to the previous ones.

    Args:
        packed: Packed codes, uint8 (n, ceil(bits / 8)).
        bits: Length of the codes.

    Returns:
        Packed centroids, distinct and sorted.
    """
    rng = np.random.default_rng(0)
    sample = packed[np.sort(rng.choice(len(packed), min(_SAMPLE, len(packed)), replace=False))]
    count = int(np.clip(np.sqrt(len(packed)) / 16, _MIN_CENTROIDS, _MAX_CENTROIDS))
    centroids = sample[[rng.integers(len(sample))]]
    distances = hamming(sample, centroids)[:, 0].astype(np.float64)
    while len(centroids) < count and distances.any():
        weights = distances**4
        new = sample[[rng.choice(len(sample), p=weights / weights.sum())]]
        centroids = np.concatenate([centroids, new])
        distances = np.minimum(distances, hamming(sample, new)[:, 0])
    signs = unpack(sample, bits).astype(np.int32)
    for _ in range(_ITERATIONS):
        members = hamming(sample, centroids).argmin(axis=1)
        sums = np.zeros((len(centroids), bits), np.int32)
        np.add.at(sums, members, signs)
        centroids = np.unique(pack(sums), axis=0)
    return centroids
