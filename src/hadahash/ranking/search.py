"""Ranked search over local rows, and scores of all items."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes
from ..errors import UsageError
from ..native.ranked import RankedHits as RankedHits
from ..native.ranked import all_points, most_points
from ..native.ranked_tables import Points
from ..native.tables import Rows, Table, rows_of
from ..queries import Queries
from .model import Doubles, Ranking
from .preparing import Prepared, prepare


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
    return most_points(
        prepared.tables,
        table,
        content,
        k=k,
        bits=prepared.bits,
        floors=floors,
        radius=radius,
        allowed=allowed,
        threads=threads,
    )


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
    rows = rows_of(codes.packed)
    return prepared.scores(all_points(prepared.tables, rows, content, prepared.bits))


def _checked_content(prepared: Prepared, table: Table, content: Rows | None) -> Rows | None:
    if not prepared.content_bits:
        return None
    if content is None or len(content) != len(table):
        got = "none" if content is None else len(content)
        raise UsageError(f"{len(table)} items need {len(table)} rows of content bits, got {got}.")
    return content
