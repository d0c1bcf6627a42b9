"""From queries and a ranking to the tables that are searched."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..codes import pack
from ..errors import UsageError
from ..native.ranked_tables import (
    LOGARITHM_GRID,
    PROBABILITY_GRID,
    ClassTerm,
    LinearTerm,
    RankedQueries,
)
from ..native.tables import Rows, rows_of
from ..packing import is_one, pack_bits
from ..queries import Queries
from .model import VALUE_GRID, Doubles, Ranking, check_rank, check_weight, sigmoid


@dataclass(frozen=True, eq=False)
class Prepared:
    """Queries that are ready for a ranked search.

    Attributes:
        tables: What the kernel reads.
        unit: Points of a score of 1.
        bits: Number of class bits.
        content_bits: Number of content bits that the ranking uses; 0 if it uses none.
    """

    tables: RankedQueries
    unit: float
    bits: int
    content_bits: int

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.tables)

    def select(self, row: int) -> Prepared:
        """One of the queries."""
        return replace(self, tables=self.tables.select(row))

    def scores(self, points: NDArray[np.int64]) -> Doubles:
        """Scores of points."""
        return np.asarray(points / self.unit)


def prepare(
    queries: Queries, ranking: Ranking | None, rank: str, weight: float | None = None
) -> Prepared:
    """Make the tables of a ranked search.

    Class probabilities of a single-label query come from its classifier
    (`Queries.probabilities`) if there are any, else from its values.

    Args:
        queries: The queries.
        ranking: Codewords and fitted numbers; None for a method without codewords.
        rank: "hamming", "class" or "photo".
        weight: Weight of the content in "photo"; None for `ranking.content_weight`.

    Returns:
        The prepared queries.

    Raises:
        UsageError: The queries do not fit the ranking, or have no content for "photo".
    """
    check_rank(rank)
    ranking = Ranking() if ranking is None else ranking
    if ranking.bits not in (None, queries.bits):
        raise UsageError(f"Queries of {queries.bits} bits do not fit codewords of {ranking.bits}.")
    if rank != "photo" and weight is not None:
        raise UsageError(f"weight applies to rank='photo' only, got rank='{rank}'.")
    if rank == "photo":
        return _photo(queries, ranking, weight)
    codes = _class_rows(queries)
    none = np.zeros(len(queries), np.int64)
    if rank == "hamming":
        loss = LinearTerm(codes, np.ones(queries.values.shape, np.int64))
        return Prepared(RankedQueries(codes, none, None, loss, None), 1.0, queries.bits, 0)
    if ranking.codewords is None:
        start, loss = _linear(queries.values, VALUE_GRID)
        tables = RankedQueries(codes, start, None, loss, None)
        return Prepared(tables, float(VALUE_GRID), queries.bits, 0)
    term = _class_term(queries, ranking, logarithm=False)
    tables = RankedQueries(codes, none, term, None, None)
    return Prepared(tables, float(PROBABILITY_GRID), queries.bits, 0)


def _photo(queries: Queries, ranking: Ranking, weight: float | None) -> Prepared:
    z, codes, bits = queries.content, _class_rows(queries), queries.bits
    if z is None:
        raise UsageError("rank='photo' needs content bits, and these queries have none.")
    weight = check_weight(ranking.content_weight if weight is None else weight)
    width = z.shape[1]
    if ranking.codewords is None:
        start, linear = _linear(queries.values, VALUE_GRID * int(ranking.class_weight))
        more, content = _linear(z, VALUE_GRID * weight)
        tables = RankedQueries(codes, start + more, None, linear, content)
        return Prepared(tables, float(VALUE_GRID) * width, bits, width)
    start, content = _linear(z, LOGARITHM_GRID * weight / width)
    term = _class_term(queries, ranking, logarithm=True)
    tables = RankedQueries(codes, start, term, None, content)
    return Prepared(tables, float(LOGARITHM_GRID), bits, width)


def _linear(values: NDArray[np.float32], scale: float) -> tuple[NDArray[np.int64], LinearTerm]:
    """Points of an item that agrees in every bit, and what it loses for each that differs."""
    points = np.rint(np.abs(values.astype(np.float64)) * scale)
    if points.sum(axis=1).max(initial=0) >= 1 << 61:
        raise UsageError(f"weight times content is too large, got {np.abs(values).max():g}.")
    weights = points.astype(np.int64)
    codes = rows_of(pack_bits(is_one(values)))
    return weights.sum(axis=1), LinearTerm(codes, 2 * weights)


def _class_rows(queries: Queries) -> Rows:
    return rows_of(pack_bits(is_one(queries.values)))


def _class_term(queries: Queries, ranking: Ranking, *, logarithm: bool) -> ClassTerm:
    codewords: NDArray[np.int8] = ranking.codewords  # type: ignore[assignment]
    words, bits = rows_of(pack(codewords)), codewords.shape[1]
    distances = np.arange(bits + 1)
    if not ranking.multilabel:
        p = query_probabilities(queries, ranking)
        powers = np.exp(-2.0 * ranking.sharpness / bits * distances)
        return ClassTerm(words, bits, p, powers, None, logarithm)
    agreement = 1.0 - 2.0 * distances / bits
    slope, offset = ranking.slope, ranking.offset
    items = sigmoid(np.multiply.outer(slope, agreement) + offset[:, None])  # type: ignore
    p = ranking.class_probabilities(queries.values)
    return ClassTerm(words, bits, None, None, 1.0 - p[:, :, None] * items, logarithm)


def query_probabilities(queries: Queries, ranking: Ranking) -> Doubles:
    """Class probabilities of single-label queries: of their classifier, or of their values.

    Args:
        queries: The queries.
        ranking: A ranking with codewords.

    Returns:
        float64 (q, C).

    Raises:
        UsageError: The classifier has another number of classes.
    """
    p = queries.probabilities
    if p is None:
        return ranking.class_probabilities(queries.values)
    if p.shape[1] != len(ranking.codewords):  # type: ignore[arg-type]
        raise UsageError(
            f"Queries have probabilities of {p.shape[1]} classes, and the ranking has "
            f"{len(ranking.codewords)}."  # type: ignore[arg-type]
        )
    return p.astype(np.float64)
