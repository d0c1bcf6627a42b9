"""Counts of items and relevant items per tie, for rankings by score.

`metrics` works on the number of items and of relevant items in each tie, best tie first. Under a
ranking by score every query has ties of its own, so the tables are made for a block of queries at a
time. Equal codes always tie: scores are computed once per distinct code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes, words
from ..errors import UsageError
from ..native.ranked import all_points
from ..native.tables import rows_of
from ..queries import Queries
from ..ranking import Prepared, Ranking, prepare
from .labels import LabelArray, LabelPair
from .metrics import Counts

_ELEMENTS = 1 << 20  # scores at once, to bound the memory

Points = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of a database, made ready.

    Attributes:
        queries: The queries.
        database: The distinct codes of the database.
        member: int64 (n,), the distinct code of each item.
        sizes: int64 (u,), number of items with each distinct code.
        ranking: Codewords and fitted numbers, or None.
        rank: "hamming", "class" or "photo".
        weight: Weight of the content.
    """

    queries: Queries
    database: Codes
    member: NDArray[np.int64]
    sizes: Counts
    ranking: Ranking | None
    rank: str
    weight: float | None

    def blocks(self) -> Iterator[tuple[slice, Points]]:
        """Queries and their points int64 (q, u), in blocks of bounded size."""
        step = max(1, _ELEMENTS // len(self.database))
        rows = rows_of(self.database.packed)
        uses_content = self._prepare(slice(0, 1)).content_bits
        content = self.database.content if uses_content else None
        stored = None if content is None else rows_of(content)
        for start in range(0, len(self.queries), step):
            part = slice(start, min(start + step, len(self.queries)))
            tables = self._prepare(part).tables
            yield part, all_points(tables, rows, stored, self.queries.bits)

    def _prepare(self, part: slice) -> Prepared:
        return prepare(self.queries[part], self.ranking, self.rank, self.weight)


def score_database(
    queries: Queries | Codes,
    database: Codes,
    *,
    rank: str,
    ranking: Ranking | None = None,
    weight: float | None = None,
) -> Scored:
    """Make a ranking ready.

    Args:
        queries: Real-valued queries, or codes.
        database: Codes of the database.
        rank: "hamming", "class" or "photo".
        ranking: Codewords and fitted numbers; None for a method without codewords.
        weight: Weight of the content in "photo".

    Returns:
        The scores, which are computed in blocks.

    Raises:
        UsageError: Queries, database and ranking do not fit each other.
    """
    if isinstance(queries, Codes):
        queries = Queries.from_codes(queries)
    prepared = prepare(queries[:1], ranking, rank, weight)
    if database.bits != queries.bits:
        raise UsageError(
            f"Query codes have {queries.bits} bits and database codes {database.bits}. "
            "Encode both with the same model."
        )
    if prepared.content_bits not in (0, database.content_bits):
        raise UsageError(
            f"The queries have {prepared.content_bits} content bits and the database has "
            f"{database.content_bits}. Encode both with the same model."
        )
    made_by = {queries.content_fingerprint, database.content_fingerprint} - {None}
    if prepared.content_bits and len(made_by) > 1:
        raise UsageError(
            "The content bits of queries and database were made by two projections. "
            "Encode both with the same model."
        )
    used = database if prepared.content_bits else database.class_codes()
    first, member, sizes = distinct(used)
    return Scored(queries, used[first], member, sizes, ranking, rank, weight)


def distinct(codes: Codes) -> tuple[NDArray[np.int64], NDArray[np.int64], Counts]:
    """Group equal codes, content bits included.

    Args:
        codes: The codes.

    Returns:
        A row of each distinct code (u,), the distinct code of each row (n,), and how many rows
        have it (u,).

    Example:
        >>> codes = Codes(packed=np.array([[7], [8], [7]], np.uint8), bits=8)
        >>> [part.tolist() for part in distinct(codes)]
        [[0, 1], [0, 1, 0], [2, 1]]
    """
    packed = codes.packed
    if codes.content is not None:
        packed = np.concatenate([packed, codes.content], axis=1)
    rows = words(packed)
    order = np.lexsort(rows.T)
    ordered = rows[order]
    new = np.ones(len(rows), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts = np.flatnonzero(new)
    member = np.empty(len(rows), np.int64)
    member[order] = np.cumsum(new) - 1
    return order[starts], member, np.diff(np.append(starts, len(rows)))


@dataclass(frozen=True, eq=False)
class Ties:
    """Tables of ties: iterate over `blocks`.

    Attributes:
        scored: The scores.
        labels: Labels of queries and database.
        exclude_self: Whether query i is item i, which is left out.
    """

    scored: Scored
    labels: LabelPair
    exclude_self: bool = False

    def blocks(self) -> Iterator[tuple[Counts, Counts]]:
        """`total` and `relevant` int64 (q, ties) of a block of queries, best tie first.

        Rows with fewer ties than others end with empty ones.
        """
        counter = _Relevant(self.scored, self.labels)
        for part, points in self.scored.blocks():
            rows = [self._row(counter, part.start + i, own) for i, own in enumerate(points)]
            width = max(len(total) for total, _ in rows)
            tables = np.zeros((2, len(rows), width), np.int64)
            for table, row in zip(tables.swapaxes(0, 1), rows, strict=True):
                table[:, : len(row[0])] = row
            yield tables[0], tables[1]

    def _row(self, counter: _Relevant, query: int, points: Points) -> tuple[Counts, Counts]:
        sizes, relevant = self.scored.sizes, counter.of(query)
        if self.exclude_self:
            own = self.scored.member[query]
            sizes, relevant = sizes.copy(), relevant.copy()
            sizes[own] -= 1
            relevant[own] -= int(counter.has_class(query))
        if len(sizes) == len(self.scored.member) and not self.exclude_self:
            return _single_items(points, relevant)
        order = np.argsort(-points, kind="stable")
        ends = _ends(points[order])
        return _per_tie(np.cumsum(sizes[order]), ends), _per_tie(np.cumsum(relevant[order]), ends)


def _single_items(points: Points, relevant: Counts) -> tuple[Counts, Counts]:
    """Ties if all codes differ.

    Points and relevance are sorted as one number, several times as fast as positions.
    """
    keys = np.sort(-2 * points + relevant)
    ends = _ends(keys >> 1)
    return np.diff(ends, prepend=-1), _per_tie(np.cumsum(keys & 1), ends)


def _ends(ordered: Points) -> NDArray[np.intp]:
    """The last place of each run of equal numbers."""
    return np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)


def _per_tie(sums: Counts, ends: NDArray[np.intp]) -> Counts:
    return np.diff(sums[ends], prepend=0)


class _Relevant:
    """Number of relevant items with each distinct code."""

    def __init__(self, scored: Scored, labels: LabelPair) -> None:
        self._member, self._count = scored.member, len(scored.sizes)
        self._query, self._database = labels.query, labels.database
        self._kept: dict[int, Counts] = {}

    def of(self, query: int) -> Counts:
        """int64 (u,)."""
        if self._query.ndim == 2:
            return self._counts(self._shared(self._query[query]))
        label = int(self._query[query])
        if label not in self._kept:
            self._kept = {label: self._counts(self._database == label)}  # queries often come sorted
        return self._kept[label]

    def has_class(self, query: int) -> bool:
        """Whether an item with the labels of the query is relevant to it."""
        return bool(np.any(self._query[query])) if self._query.ndim == 2 else True

    def _shared(self, own: LabelArray) -> NDArray[np.bool_]:
        return np.asarray(self._database[:, own].any(axis=1))

    def _counts(self, mask: NDArray[np.bool_]) -> Counts:
        if self._count == len(self._member):
            found = np.zeros(self._count, np.int64)
            found[self._member] = mask
            return found
        return np.bincount(self._member[mask], minlength=self._count)
