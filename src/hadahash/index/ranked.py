"""Search in the order of a ranking over the segments of a local index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..native.tables import packed_of
from ..ranking import Prepared, ranked_search
from .query import Known, Neighbor, SearchRequest, join_neighbors, prepare_ranked
from .segments import Segment, SegmentHits, joined_parts


def rank_segments(segments: Sequence[Segment], request: SearchRequest) -> SegmentHits:
    """The best `request.k` items of all segments in the order (score descending, id)."""
    queries = prepare_ranked(request)
    k = min(request.k, sum(segment.live_count for segment in segments))
    if not segments:
        none = np.zeros((len(queries), 0), np.int64)
        exact = np.ones(len(queries), bool)
        scores = none.astype(np.float64)
        return SegmentHits(none.astype(np.int32), exact, none, scores=scores, ids=none)
    parts: list[tuple[SegmentHits, NDArray[np.int64]]] = []
    floors: NDArray[np.int64] | None = None
    for segment in segments:
        part, points = _rank_segment(segment, queries, request._replace(k=k), floors)
        parts.append((part, points))
        if k and points.shape[1] == k:
            last = points[:, -1]
            floors = last if floors is None else np.maximum(floors, last)
    return _best(segments, parts, k, queries)


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
    ordinals = np.maximum(found.ordinals, 0)  # padding has -1
    exact = np.ones(len(ordinals), bool)
    return SegmentHits(found.distances, exact, ordinals), found.points


def _best(
    segments: Sequence[Segment],
    parts: Sequence[tuple[SegmentHits, NDArray[np.int64]]],
    k: int,
    queries: Prepared,
) -> SegmentHits:
    """The k best of all parts in the order (points descending, id)."""
    hits, points = parts[0]
    if len(parts) > 1:
        ids, distances, ordinals = joined_parts(segments, [part for part, _ in parts])
        points = np.concatenate([each for _, each in parts], axis=1)
        widths = [each.shape[1] for _, each in parts]
        numbers = np.broadcast_to(np.repeat(np.arange(len(parts)), widths), distances.shape)
        id_order = np.unique(ids, return_inverse=True)[1].reshape(ids.shape)
        best = np.lexsort((id_order, ~points))[:, :k]  # ~ reverses the order, without overflow
        ids, distances, ordinals, numbers, points = (
            np.take_along_axis(array, best, 1)
            for array in (ids, distances, ordinals, numbers, points)
        )
        hits = SegmentHits(distances, hits.exact_rows, ordinals, numbers, ids=ids)
    return hits._replace(scores=np.where(hits.distances < 0, -np.inf, queries.scores(points)))


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
    keys = found.ordinals
    if found.segments is not None:
        keys = keys | found.segments << 32  # an ordinal has 32 bits
    distinct = np.unique(keys[found.distances >= 0])
    known: dict[int, Known] = {}
    for number, segment in enumerate(segments):
        own = distinct[distinct >> 32 == number]
        ordinals = own & 0xFFFFFFFF
        codes, content = packed_of(segment.rows_at(ordinals), bits[0]), segment.content_at(ordinals)
        contents = [None] * len(ordinals) if content is None else packed_of(content, bits[1])
        hits = segment.items.at(ordinals, load=False)
        items = zip(hits, codes, contents, strict=True)
        known.update(zip(own.tolist(), items, strict=True))
    return join_neighbors(keys, found.distances, found.scores, known, request, bits[0])
