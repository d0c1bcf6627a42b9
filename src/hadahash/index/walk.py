"""Search in the order of a ranking with an engine that only knows distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming
from ..ranking import Prepared, prepare
from ..ranking.walk import Fetched, WalkHits, ranked_walk
from .items import Ids, empty_ids, id_array, missing_id
from .query import Hits, SearchRequest

if TYPE_CHECKING:
    from .engine import Engine

_COLUMNS = 256  # of the first search of a ball; also the most items to begin with


def walk_ranked(index: Engine, request: SearchRequest, seeds: Sequence[Ids] | None = None) -> Hits:
    """The best items of each query in the order of a ranking, exactly.

    Balls of class bits are fetched until no other item can be better. Good items at the beginning
    make the balls small.

    Args:
        index: The engine.
        request: The search, with `ranked`.
        seeds: For each query ids of items that are probably among the best; by default the nearest.

    Returns:
        The hits.
    """
    ranked = request.ranked
    if ranked is None:
        raise ValueError("the request has no ranking")
    weight = ranked.weight if ranked.rank == "photo" else None
    prepared = prepare(ranked.queries, ranked.ranking, ranked.rank, weight)
    nearest = request._replace(probes=None, ranked=None)
    if seeds is None and request.k:
        hits = index._search(nearest._replace(k=min(request.k, _COLUMNS, len(index))))
        seeds = [ids[ids != missing_id(index.id_type)] for ids in hits.ids]
    rows: list[WalkHits] = []
    for row in range(len(request.packed) if request.k and len(index) else 0):
        walk = _Walk(index, nearest, request.packed[row], id_array(seeds[row] if seeds else ()))
        rows.append(ranked_walk(prepared, row, walk.within, request.k))
    return _hits(rows, prepared, len(request.packed), index)


class _Walk:
    """The items that one query has fetched."""

    def __init__(
        self, index: Engine, request: SearchRequest, query: NDArray[np.uint8], seeds: Ids
    ) -> None:
        self._index, self._request, self._query, self._seeds = index, request, query, seeds
        self._known: set[object] = set()

    def within(self, anchor: NDArray[np.uint8], radius: int) -> Fetched:
        """The items of a ball that were not fetched before, and first of all the seeds."""
        found = self._ball(anchor, radius)
        ids = [*self._seeds.tolist(), *found] if len(self._seeds) else found
        self._seeds = empty_ids(None)
        new = [each for each in dict.fromkeys(ids) if each not in self._known]
        self._known.update(new)
        codes = self._index.codes(id_array(new) if new else empty_ids(self._index.id_type))
        if self._request.radius < self._index.bits:
            near = hamming(self._query[None], codes.packed)[0] <= self._request.radius
            codes = codes[near]
        return Fetched(codes.ids, codes.packed, codes.content)

    def _ball(self, anchor: NDArray[np.uint8], radius: int) -> list[int | str]:
        request = self._request._replace(packed=anchor[None], radius=radius)
        size = len(self._index)
        k = min(_COLUMNS, size)
        while True:
            hits = self._index._search(request._replace(k=k))
            found = [hit.id for hit in hits[0]]
            if len(found) < k or k == size:
                return found
            k = min(8 * k, size)


def _hits(rows: Sequence[WalkHits], prepared: Prepared, count: int, index: Engine) -> Hits:
    columns = max((len(row.ids) for row in rows), default=0)
    ids = np.full((count, columns), missing_id(index.id_type), object)
    distances = np.full((count, columns), -1, np.int32)
    found = np.full((count, columns), -np.inf)
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = row.ids
        distances[number, : len(row.ids)] = row.distances
        found[number, : len(row.ids)] = prepared.scores(row.points)
    if index.id_type is not str:
        ids = ids.astype(np.int64)
    return Hits(ids, distances, np.ones(count, bool), found)
