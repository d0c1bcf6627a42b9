"""Search in the order of a ranking over the segments of a local index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..native.tables import packed_of
from ..ranking import Prepared, ranked_search
from .items import Id, id_type_of, missing_id
from .query import Hits, Known, Neighbor, SearchRequest, join_neighbors, prepare_ranked
from .segments import Segment, SegmentHits


def rank_segments(segments: Sequence[Segment], request: SearchRequest) -> SegmentHits:
    """The best `request.k` items of all segments in the order (score descending, id)."""
    queries = prepare_ranked(request)
    k = min(request.k, sum(segment.live_count for segment in segments))
    if not segments:
        none = np.zeros((len(queries), 0), np.int64)
        exact = np.ones(len(queries), bool)
        return SegmentHits(none, none.astype(np.int32), exact, none, None, none.astype(np.float64))
    parts: list[tuple[SegmentHits, NDArray[np.int64]]] = []
    floors: NDArray[np.int64] | None = None
    for segment in segments:
        part, points = _rank_segment(segment, queries, request._replace(k=k), floors)
        parts.append((part, points))
        if k and points.shape[1] == k:
            last = points[:, -1]
            floors = last if floors is None else np.maximum(floors, last)
    return _best(parts, k, queries)


def _rank_segment(
    segment: Segment,
    queries: Prepared,
    request: SearchRequest,
    floors: NDArray[np.int64] | None,
) -> tuple[SegmentHits, NDArray[np.int64]]:
    """The best items of one segment, and their points."""
    table = segment.codes.load()
    found = ranked_search(
        queries,
        table,
        segment.codes.content() if queries.content_bits else None,
        k=min(request.k, len(table)),
        floors=floors,
        radius=None if request.radius >= queries.bits else request.radius,
        allowed=segment.allowed(request.filter),
        threads=request.threads,
    )
    padding = found.ordinals < 0
    ordinals = np.where(padding, 0, found.ordinals)
    ids = segment.items.ids_at(ordinals.ravel()).reshape(ordinals.shape)
    if padding.any():
        ids[padding] = missing_id(id_type_of(ids))
    exact = np.ones(len(ids), bool)
    return SegmentHits(ids, found.distances, exact, ordinals), found.points


def _best(
    parts: Sequence[tuple[SegmentHits, NDArray[np.int64]]], k: int, queries: Prepared
) -> SegmentHits:
    """The k best of all parts in the order (points descending, id)."""
    ids, distances, ordinals = (
        np.concatenate([part[column] for part, _ in parts], axis=1) for column in (0, 1, 3)
    )
    points = np.concatenate([each for _, each in parts], axis=1)
    widths = [each.shape[1] for _, each in parts]
    segments = np.broadcast_to(np.repeat(np.arange(len(parts)), widths), distances.shape)
    if len(parts) > 1:
        id_order = np.unique(ids, return_inverse=True)[1].reshape(ids.shape)
        best = np.lexsort((id_order, ~points))[:, :k]  # ~ reverses the order, without overflow
        ids, distances, ordinals, segments, points = (
            np.take_along_axis(array, best, 1)
            for array in (ids, distances, ordinals, segments, points)
        )
    scores = np.where(distances < 0, -np.inf, queries.scores(points))
    exact = np.ones(len(ids), bool)
    return SegmentHits(ids, distances, exact, ordinals, segments, scores)


def neighbors_of(
    segments: Sequence[Segment],
    found: SegmentHits,
    request: SearchRequest,
    bits: tuple[int, int],
) -> list[list[Neighbor]]:
    """The items of hits, with their codes.

    Args:
        segments: The segments that were searched.
        found: What the search returned.
        request: The search.
        bits: Numbers of class and content bits.

    Returns:
        For each query its neighbors, without padding.
    """
    numbers = np.zeros_like(found.ordinals) if found.segments is None else found.segments
    hit = found.distances >= 0
    known: dict[Id, Known] = {}
    for number, segment in enumerate(segments):
        ordinals = np.unique(found.ordinals[hit & (numbers == number)])
        codes, content = packed_of(segment.rows_at(ordinals), bits[0]), segment.content_at(ordinals)
        contents = [None] * len(ordinals) if content is None else packed_of(content, bits[1])
        items = zip(segment.items.at(ordinals), codes, contents, strict=True)
        known.update((each[0].id, each) for each in items)
    hits = Hits(found.ids, found.distances, found.exact_rows, found.scores)
    return join_neighbors(hits, known, request, bits[0])
