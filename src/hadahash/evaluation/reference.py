"""Slow reference implementation of average precision: plain loops, no closed form, no numpy.

`metrics` is tested against it. A query is described by two lists with one entry per item:
`distances`, and whether the item is `relevant`. All functions return None where the denominator is
0 for every order of the ties.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations, product
from math import comb, fsum


def average_precision_of_order(
    relevant: Sequence[bool], *, depth: int | None = None, denominator: str = "found"
) -> Fraction | None:
    """Average precision of one ranking without ties: the definition.

    Args:
        relevant: Whether the item at each rank is relevant.
        depth: Rank cut-off; None: the whole ranking.
        denominator: "found" or "possible".

    Returns:
        The exact value, or None if the denominator is 0.

    Example:
        >>> average_precision_of_order([True, False, True])
        Fraction(5, 6)
        >>> average_precision_of_order([True, False, True], depth=2, denominator="possible")
        Fraction(1, 2)
    """
    top = relevant[:depth]
    hits, total = 0, Fraction(0)
    for rank, is_relevant in enumerate(top, start=1):
        if is_relevant:
            hits += 1
            total += Fraction(hits, rank)
    parts = hits if denominator == "found" else min(len(top), sum(relevant))
    return total / parts if parts else None


def expected_by_orders(
    distances: Sequence[int],
    relevant: Sequence[bool],
    *,
    depth: int | None = None,
    denominator: str = "found",
) -> Fraction | None:
    """Mean over every order of every tie, by enumeration. Feasible for tiny cases only.

    Args:
        distances: Distance of each item.
        relevant: Whether each item is relevant.
        depth: Rank cut-off; None: the whole ranking.
        denominator: "found" or "possible".

    Returns:
        The exact mean, in which an order with denominator 0 counts as 0; None if all orders do.

    Example:
        >>> expected_by_orders([0, 1, 1], [False, True, False])
        Fraction(5, 12)
    """
    values = [
        average_precision_of_order(order, depth=depth, denominator=denominator)
        for order in _orders(distances, relevant)
    ]
    if all(value is None for value in values):
        return None
    return sum((value or Fraction(0) for value in values), Fraction(0)) / len(values)


def expected_by_ranks(
    distances: Sequence[int],
    relevant: Sequence[bool],
    *,
    depth: int | None = None,
    denominator: str = "found",
) -> float | None:
    """The same, from the probability of a relevant item at each rank and its expected precision.

    Args:
        distances: Distance of each item.
        relevant: Whether each item is relevant.
        depth: Rank cut-off; None: the whole ranking.
        denominator: "found" or "possible".

    Returns:
        The expectation, or None if the denominator is always 0.

    Example:
        >>> round(expected_by_ranks([0, 1, 1], [False, True, False]), 4)
        0.4167
    """
    depth = len(distances) if depth is None else min(depth, len(distances))
    sums: list[float] = []
    before = hits_before = 0
    for n, r in _ties(distances, relevant):
        m = min(n, depth - before)
        if m < n and denominator == "found":
            return _expected_with_cut_tie(sums, n, r, m, before, hits_before)
        sums.extend(_tie_terms(n, r, m, before, hits_before))
        before, hits_before = before + n, hits_before + r
        if before >= depth:
            break
    parts = hits_before if denominator == "found" else min(depth, sum(relevant))
    return fsum(sums) / parts if parts else None


def evaluate_slowly(
    query_bits: Sequence[Sequence[int]],
    query_classes: Sequence[set[int]],
    database_bits: Sequence[Sequence[int]],
    database_classes: Sequence[set[int]],
    *,
    depth: int | None = None,
    denominator: str = "found",
) -> list[float | None]:
    """Expected average precision of each query, by a double loop over queries and items.

    Args:
        query_bits: Bits of each query.
        query_classes: Set of classes of each query.
        database_bits: Bits of each item.
        database_classes: Set of classes of each item.
        depth: Rank cut-off; None: the whole ranking.
        denominator: "found" or "possible".

    Returns:
        One value per query, None where the denominator is always 0.
    """
    results = []
    for bits, classes in zip(query_bits, query_classes, strict=True):
        distances, relevant = [], []
        for other_bits, other_classes in zip(database_bits, database_classes, strict=True):
            distances.append(sum(a != b for a, b in zip(bits, other_bits, strict=True)))
            relevant.append(bool(classes & other_classes))
        results.append(expected_by_ranks(distances, relevant, depth=depth, denominator=denominator))
    return results


def _tie_terms(n: int, r: int, m: int, before: int, hits_before: int) -> Iterator[float]:
    """Contribution of each of the first m ranks of a tie to the sum of precisions."""
    for i in range(1, m + 1):
        expected_hits = hits_before + 1 + ((i - 1) * (r - 1) / (n - 1) if n > 1 else 0)
        yield r / n * expected_hits / (before + i)


def _expected_with_cut_tie(
    sums: list[float], n: int, r: int, m: int, before: int, hits_before: int
) -> float | None:
    """Sum over x, the number of relevant items among the first m of the last tie."""
    if hits_before + min(r, m) == 0:
        return None
    expectation = []
    for x in range(max(0, m + r - n), min(r, m) + 1):
        probability = Fraction(comb(r, x) * comb(n - r, m - x), comb(n, m))
        total = fsum([*sums, *_tie_terms(m, x, m, before, hits_before)])
        expectation.append(float(probability) * total / max(hits_before + x, 1))
    return fsum(expectation)


def _ties(distances: Sequence[int], relevant: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Number of items and of relevant items at each distance, nearest first."""
    for distance in sorted(set(distances)):
        tie = [
            is_relevant
            for other, is_relevant in zip(distances, relevant, strict=True)
            if other == distance
        ]
        yield len(tie), sum(tie)


def _orders(distances: Sequence[int], relevant: Sequence[bool]) -> Iterator[list[bool]]:
    """Every ranking consistent with the distances."""
    ties = (([True] * r + [False] * (n - r)) for n, r in _ties(distances, relevant))
    for ranking in product(*(permutations(tie) for tie in ties)):
        yield [is_relevant for tie in ranking for is_relevant in tie]
