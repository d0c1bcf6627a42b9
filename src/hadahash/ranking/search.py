"""Ranked search over local rows, and scores of all items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes, hamming
from ..errors import UsageError
from ..native.ranked_tables import Points, reference_points
from ..native.tables import Rows, Table, rows_of
from ..queries import Queries
from .model import Doubles, Ranking
from .preparing import Prepared, prepare

LOWEST = np.iinfo(np.int64).min  # points of padding, and the floor that excludes nothing


class RankedHits(NamedTuple):
    """Results of a ranked search: best first, ties in the order of ordinals.

    Attributes:
        ordinals: int64 (q, k); -1 is padding.
        points: int64 (q, k): `Prepared.scores` turns them into scores; `LOWEST` is padding.
        distances: Hamming distances of the class bits, int32 (q, k); -1 is padding.
    """

    ordinals: NDArray[np.int64]
    points: Points
    distances: NDArray[np.int32]


def ranked_search(
    prepared: Prepared,
    table: Table,
    content: Rows | None = None,
    *,
    k: int,
    floors: Points | None = None,
    radius: int | None = None,
    allowed: NDArray[np.uint64] | None = None,
    threads: int | None = None,
) -> RankedHits:
    """Find the k items with the most points, exactly.

    Args:
        prepared: The queries, as `prepare` makes them.
        table: Class bits of the items, flat or routed.
        content: Content bits of the items as `rows_of` makes them, in the order of ordinals. Needed
            if `prepared.content_bits` is not 0.
        k: Number of items per query.
        floors: int64 (q,): return only items with at least this many points, for instance those of
            the k-th best item of another segment.
        radius: Return only items within this Hamming distance of the class bits.
        allowed: `bitmap` of the items to search, by position as for `native.search.nearest`; None
            for all.
        threads: Maximum number of threads; None for all usable cores.

    Returns:
        The items. The result is always that of an exhaustive search.

    Raises:
        UsageError: The queries do not fit the table, or content is missing.
    """
    content = _checked_content(prepared, table, content)
    points = reference_points(prepared.tables, table.rows, _by_position(table, content))
    distances = hamming(prepared.tables.codes.view(np.uint8), table.rows.view(np.uint8))
    ordinals = np.arange(len(table)) if table.ordinals is None else table.ordinals.astype(np.int64)
    hidden = np.zeros(points.shape, bool)
    if allowed is not None:
        bits = np.unpackbits(allowed.view(np.uint8), count=len(table), bitorder="little")
        hidden |= ~bits.view(bool)
    if floors is not None:
        hidden |= points < floors[:, None]
    if radius is not None:
        hidden |= distances > radius
    points[hidden] = LOWEST
    order = np.lexsort((np.broadcast_to(ordinals, points.shape), np.negative(points, dtype=object)))
    return _padded(order[:, :k], points, distances, ordinals, k)


def score(
    queries: Queries,
    codes: Codes,
    ranking: Ranking | None,
    rank: str,
    weight: float | None = None,
) -> Doubles:
    """Scores of all items: the definition of a ranking. Higher is better.

    Args:
        queries: The queries.
        codes: The items.
        ranking: Codewords and fitted numbers; None for a method without codewords.
        rank: "hamming", "class" or "photo".
        weight: Weight of the content in "photo"; None for `ranking.content_weight`.

    Returns:
        float64 (q, n).

    Raises:
        UsageError: Queries, codes and ranking do not fit each other.
    """
    prepared = prepare(queries, ranking, rank, weight)
    if codes.bits != prepared.bits:
        raise UsageError(f"Queries of {prepared.bits} bits do not fit codes of {codes.bits} bits.")
    if prepared.content_bits not in (0, codes.content_bits):
        raise UsageError(
            f"Queries of {prepared.content_bits} content bits do not fit codes of "
            f"{codes.content_bits} content bits."
        )
    used = prepared.content_bits and codes.content is not None
    content = rows_of(codes.content) if used else None  # type: ignore[arg-type]
    return prepared.scores(reference_points(prepared.tables, rows_of(codes.packed), content))


def _checked_content(prepared: Prepared, table: Table, content: Rows | None) -> Rows | None:
    if not prepared.content_bits:
        return None
    if content is None or len(content) != len(table):
        got = "none" if content is None else len(content)
        raise UsageError(f"{len(table)} items need {len(table)} rows of content bits, got {got}.")
    return content


def _by_position(table: Table, content: Rows | None) -> Rows | None:
    if content is None or table.ordinals is None:
        return content
    rows: Rows = content[table.ordinals]
    return rows


def _padded(
    order: NDArray[np.intp],
    points: Points,
    distances: NDArray[np.int32],
    ordinals: NDArray[np.int64],
    k: int,
) -> RankedHits:
    """The items of this order, with padding to k columns."""
    missing = k - order.shape[1]
    found = np.take_along_axis(points, order, 1)
    near = np.take_along_axis(distances, order, 1)
    items = ordinals[order]
    wide = ((0, 0), (0, missing))
    found = np.pad(found, wide, constant_values=LOWEST)
    padding = found == LOWEST
    items, near = np.pad(items, wide), np.pad(near, wide)
    return RankedHits(
        np.where(padding, -1, items), found, np.where(padding, -1, near).astype(np.int32)
    )
