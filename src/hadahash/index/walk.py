"""Search in the order of a ranking with an engine that only knows distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..ranking import score
from .items import id_array, id_type_of, missing_id
from .query import Hits, SearchRequest

if TYPE_CHECKING:
    from .engine import Engine


def walk_ranked(index: Engine, request: SearchRequest) -> Hits:
    """The best items of each query, from the items that a search by distance returns."""
    ranked = request.ranked
    if ranked is None:
        raise ValueError("the request has no ranking")
    everything = request._replace(k=len(index), probes=None, ranked=None)
    hits = index._search(everything)
    columns = min(request.k, hits.distances.shape[1])
    ids = np.full((len(hits), columns), missing_id(id_type_of(hits.ids)), hits.ids.dtype)
    distances = np.full((len(hits), columns), -1, np.int32)
    scores = np.full((len(hits), columns), -np.inf)
    weight = ranked.weight if ranked.rank == "photo" else None
    for row in range(len(hits)):
        found = id_array([hit.id for hit in hits[row]])
        if len(found) == 0:
            continue
        values = score(ranked.queries[row], index.codes(found), ranked.ranking, ranked.rank, weight)
        best = np.lexsort((np.unique(found, return_inverse=True)[1], -values[0]))[:columns]
        ids[row, : len(best)] = found[best]
        distances[row, : len(best)] = hits.distances[row, best]
        scores[row, : len(best)] = values[0, best]
    return Hits(ids, distances, hits.exact_rows, scores)
