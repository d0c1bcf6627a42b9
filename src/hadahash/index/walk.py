"""Search in the order of a ranking with an engine that only knows distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming
from ..ranking import Prepared
from ..ranking.walk import Fetched, WalkHits, ranked_walk
from .items import Id, Ids, id_array, missing_id
from .query import Hits, SearchRequest, prepare_ranked

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
    prepared = prepare_ranked(request)
    size, id_type = len(index), index.id_type  # a server is asked once
    nearest = request._replace(k=size, probes=None, ranked=None)
    rows: list[WalkHits] = []
    if request.k and size:
        if seeds is None:
            hits = index._search(nearest._replace(k=min(request.k, _COLUMNS, size)))
            seeds = [ids[ids != missing_id(id_type)] for ids in hits.ids]
        for row, (query, first) in enumerate(zip(request.packed, seeds, strict=True)):
            walk = _Walk(index, nearest, query, first)
            rows.append(ranked_walk(prepared, row, walk.within, request.k))
    return _hits(rows, prepared, len(request.packed), id_type)


class _Walk:
    """The items that one query has fetched."""

    def __init__(
        self, index: Engine, request: SearchRequest, query: NDArray[np.uint8], seeds: Ids
    ) -> None:
        self._index, self._request, self._query = index, request, query
        self._seeds: list[Id] = seeds.tolist()
        self._known: set[Id] = set()

    def within(self, anchor: NDArray[np.uint8], radius: int) -> Fetched:
        """The items of a ball that were not fetched before, and first of all the seeds."""
        found = dict.fromkeys([*self._seeds, *self._ball(anchor, radius)])
        new = [each for each in found if each not in self._known]
        self._seeds = []
        self._known.update(new)
        codes = self._index.codes(id_array(new))
        if self._request.radius < self._index.bits:
            codes = codes[hamming(self._query[None], codes.packed)[0] <= self._request.radius]
        return Fetched(codes.ids, codes.packed, codes.content)

    def _ball(self, anchor: NDArray[np.uint8], radius: int) -> list[Id]:
        request, size = self._request._replace(packed=anchor[None], radius=radius), self._request.k
        k = min(_COLUMNS, size)
        while True:
            found = [hit.id for hit in self._index._search(request._replace(k=k))[0]]
            if len(found) < k or k == size:
                return found
            k = min(8 * k, size)


def _hits(
    rows: Sequence[WalkHits], prepared: Prepared, count: int, id_type: type[Id] | None
) -> Hits:
    columns = max((len(row.ids) for row in rows), default=0)
    ids = np.full((count, columns), missing_id(id_type), object)
    distances = np.full((count, columns), -1, np.int32)
    scores = np.full((count, columns), -np.inf)
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = row.ids
        distances[number, : len(row.ids)] = row.distances
        scores[number, : len(row.ids)] = prepared.scores(row.points)
    if id_type is not str:
        ids = ids.astype(np.int64)
    return Hits(ids, distances, np.ones(count, bool), scores)
