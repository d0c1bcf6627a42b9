"""Queries of a ranked search as tables, and the slow definition of their scores.

A score is an integer number of points, so that compiled code and numpy agree to the bit. All
tables come from numpy. Compiled code only adds, multiplies and divides doubles in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming
from .tables import Rows

Doubles = NDArray[np.float64]
Points = NDArray[np.int64]

PROBABILITY_GRID = 1 << 40  # points of a probability 1
LOGARITHM_GRID = 1 << 32  # points of a logarithm 1
LEAST_PROBABILITY = 2.0**-60  # of which a logarithm is taken
LANES = 4  # partial sums over classes: class c belongs to the sum c % LANES
_MANTISSAS = 128  # table entries of `logarithm`
_STEP = 1 << 16  # items scored at once


class LinearTerm(NamedTuple):
    """Points that an item loses where its bits differ from those of the query.

    Attributes:
        codes: The bits of the queries, (q, words).
        weights: Points per bit, int64 (q, bits), none negative.
    """

    codes: Rows
    weights: Points


class ClassTerm(NamedTuple):
    """Probability that query and item share a class, from the distances to all codewords.

    Attributes:
        codewords: (C, words).
        bits: Length of the codewords.
        probabilities: Single-label: class probabilities of the queries, (q, C); else None.
        powers: Single-label: weight of a class by the distance to its codeword, (bits + 1,).
        factors: Multi-label: 1 - p(c | query) p(c | item) by the distance of the item to the
            codeword, (q, C, bits + 1); else None.
        logarithm: Whether points are of the logarithm of the probability.
    """

    codewords: Rows
    bits: int
    probabilities: Doubles | None
    powers: Doubles | None
    factors: Doubles | None
    logarithm: bool


@dataclass(frozen=True, eq=False)
class RankedQueries:
    """Queries of a ranked search: points = start + class term - losses.

    Attributes:
        codes: Class bits of the queries, (q, words).
        start: int64 (q,).
        classes: The class term, or None.
        linear: Losses in the class bits, or None.
        content: Losses in the content bits, or None.
    """

    codes: Rows
    start: Points
    classes: ClassTerm | None
    linear: LinearTerm | None
    content: LinearTerm | None

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.start)

    def select(self, row: int) -> RankedQueries:
        """One of the queries."""
        one = slice(row, row + 1)
        classes, terms = self.classes, (self.linear, self.content)
        if classes is not None:
            p, factors = classes.probabilities, classes.factors
            classes = classes._replace(
                probabilities=None if p is None else p[one],
                factors=None if factors is None else factors[one],
            )
        linear, content = (
            None if term is None else LinearTerm(term.codes[one], term.weights[one])
            for term in terms
        )
        return RankedQueries(self.codes[one], self.start[one], classes, linear, content)


def reference_points(queries: RankedQueries, rows: Rows, content: Rows | None) -> Points:
    """Points of all items: the definition, in numpy.

    Args:
        queries: The queries.
        rows: Class bits of the items, (n, words).
        content: Content bits of the items, (n, words), where the queries have a content term.

    Returns:
        int64 (q, n).
    """
    points = np.empty((len(queries), len(rows)), np.int64)
    for first in range(0, len(rows), _STEP):
        part = slice(first, first + _STEP)
        found = np.repeat(queries.start[:, None], len(rows[part]), axis=1)
        if queries.classes is not None:
            found += _class_points(queries.classes, rows[part])
        if queries.linear is not None:
            found -= _losses(queries.linear, rows[part])
        if queries.content is not None and content is not None:
            found -= _losses(queries.content, content[part])
        points[:, part] = found
    return points


def logarithm(x: Doubles) -> Doubles:
    """Natural logarithm of normal numbers > 0, in the operations of ranked.h: error below 1e-15.

    >>> bool(abs(logarithm(np.array([0.3]))[0] - np.log(0.3)) < 1e-15)
    True
    """
    inverses, logs = logarithm_tables()
    bits = np.ascontiguousarray(x, np.float64).view(np.uint64)
    exponents = (bits >> np.uint64(52)).astype(np.int64) - 1023
    entries = (bits >> np.uint64(45)).astype(np.int64) & (_MANTISSAS - 1)
    ones = np.uint64(1023 << 52)
    mantissas = ((bits & np.uint64((1 << 52) - 1)) | ones).view(np.float64)
    r = mantissas * inverses[entries] - 1.0
    series = r * (1.0 + r * (-1 / 2 + r * (1 / 3 + r * (-1 / 4 + r * (1 / 5 + r * (-1 / 6))))))
    return np.asarray(exponents * np.log(2.0) + (logs[entries] + series))


def logarithm_tables() -> tuple[Doubles, Doubles]:
    """Inverses of mantissas 1 <= m < 2 in equal steps, and their negative logarithms."""
    inverses = 1 / (1 + (np.arange(_MANTISSAS) + 0.5) / _MANTISSAS)
    return inverses, -np.log(inverses)


def _class_points(term: ClassTerm, rows: Rows) -> Points:
    distances = hamming(term.codewords.view(np.uint8), rows.view(np.uint8))
    p = _shared_single(term, distances) if term.factors is None else _shared_multi(term, distances)
    if not term.logarithm:
        return np.rint(p * PROBABILITY_GRID).astype(np.int64)
    return np.rint(logarithm(np.maximum(p, LEAST_PROBABILITY)) * LOGARITHM_GRID).astype(np.int64)


def _shared_single(term: ClassTerm, distances: NDArray[np.int32]) -> Doubles:
    """sum_c p_c e_c / sum_c e_c; partial sums as in ranked.h."""
    if term.probabilities is None or term.powers is None:
        raise ValueError("A single-label term needs probabilities and powers.")
    above = np.zeros((LANES, len(term.probabilities), distances.shape[1]))
    below = np.zeros((LANES, 1, distances.shape[1]))
    for c, (p, each) in enumerate(zip(term.probabilities.T, distances, strict=True)):
        above[c % LANES] += p[:, None] * term.powers[each]
        below[c % LANES] += term.powers[each]
    sums = ((part[0] + part[1]) + (part[2] + part[3]) for part in (above, below))
    return np.asarray(np.divide(*sums))


def _shared_multi(term: ClassTerm, distances: NDArray[np.int32]) -> Doubles:
    """1 - prod_c factor_c; partial products as in ranked.h."""
    if term.factors is None:
        raise ValueError("A multi-label term needs factors.")
    parts = np.ones((LANES, len(term.factors), distances.shape[1]))
    for c, each in enumerate(distances):
        parts[c % LANES] *= term.factors[:, c, each]
    return np.asarray(1.0 - (parts[0] * parts[1]) * (parts[2] * parts[3]))


def _losses(term: LinearTerm, rows: Rows) -> Points:
    bits = term.weights.shape[1]
    queries = np.unpackbits(term.codes.view(np.uint8), axis=1, count=bits)
    items = np.unpackbits(np.ascontiguousarray(rows).view(np.uint8), axis=1, count=bits)
    losses = np.empty((len(queries), len(items)), np.int64)
    for query, weights, row in zip(queries, term.weights, losses, strict=True):
        row[:] = (items != query) @ weights
    return losses
