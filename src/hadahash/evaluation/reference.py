"""Average precision the slow and obvious way, to check `metrics` against: plain loops, no closed form, no numpy.

A query's case is two lists of one entry an item: `distances`, and whether the item is `relevant`. All functions return
None where the denominator is 0 whatever the order of the ties.
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

    >>> average_precision_of_order([True, False, True])
    Fraction(5, 6)
    >>> average_precision_of_order([True, False, True], depth=2, denominator="possible")
    Fraction(1, 2)
    """
    top = relevant[:depth]
    hits, total = 0, Fraction(0)
    for place, is_relevant in enumerate(top, start=1):
        if is_relevant:
            hits += 1
            total += Fraction(hits, place)
    parts = hits if denominator == "found" else min(len(top), sum(relevant))
    return total / parts if parts else None


def expected_by_orders(
    distances: Sequence[int],
    relevant: Sequence[bool],
    *,
    depth: int | None = None,
    denominator: str = "found",
) -> Fraction | None:
    """The exact mean over every order of every tie; an order with nothing to divide by counts 0. For tiny cases.

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


def expected_by_places(
    distances: Sequence[int],
    relevant: Sequence[bool],
    *,
    depth: int | None = None,
    denominator: str = "found",
) -> float | None:
    """The same from the probability that each place holds a relevant item and the expected precision there.

    >>> round(expected_by_places([0, 1, 1], [False, True, False]), 4)
    0.4167
    """
    depth = len(distances) if depth is None else min(depth, len(distances))
    sums: list[float] = []
    before = hits_before = 0
    for n, r in _ties(distances, relevant):
        m = min(n, depth - before)
        if m < n and denominator == "found":
            return _expected_with_cut_tie(sums, n, r, m, before, hits_before)
        sums.extend(_places(n, r, m, before, hits_before))
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
    """The expected average precision of each query, from bits and sets of classes, by a double loop."""
    results = []
    for bits, classes in zip(query_bits, query_classes, strict=True):
        distances, relevant = [], []
        for other_bits, other_classes in zip(database_bits, database_classes, strict=True):
            distances.append(sum(a != b for a, b in zip(bits, other_bits, strict=True)))
            relevant.append(bool(classes & other_classes))
        results.append(
            expected_by_places(distances, relevant, depth=depth, denominator=denominator)
        )
    return results


def _places(n: int, r: int, m: int, before: int, hits_before: int) -> Iterator[float]:
    """What each of the first m places of a tie adds to the sum of precisions."""
    for i in range(1, m + 1):
        expected_hits = hits_before + 1 + ((i - 1) * (r - 1) / (n - 1) if n > 1 else 0)
        yield r / n * expected_hits / (before + i)


def _expected_with_cut_tie(
    sums: list[float], n: int, r: int, m: int, before: int, hits_before: int
) -> float | None:
    """Go through every number x of relevant items that may be among the first m of the last tie."""
    if hits_before + min(r, m) == 0:
        return None
    expectation = []
    for x in range(max(0, m + r - n), min(r, m) + 1):
        probability = Fraction(comb(r, x) * comb(n - r, m - x), comb(n, m))
        total = fsum([*sums, *_places(m, x, m, before, hits_before)])
        expectation.append(float(probability) * total / max(hits_before + x, 1))
    return fsum(expectation)


def _ties(distances: Sequence[int], relevant: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """How many items and how many relevant ones lie at each distance, nearest first."""
    for distance in sorted(set(distances)):
        tie = [
            is_relevant
            for other, is_relevant in zip(distances, relevant, strict=True)
            if other == distance
        ]
        yield len(tie), sum(tie)


def _orders(distances: Sequence[int], relevant: Sequence[bool]) -> Iterator[list[bool]]:
    """Every ranking that the distances allow."""
    ties = (([True] * r + [False] * (n - r)) for n, r in _ties(distances, relevant))
    for ranking in product(*(permutations(tie) for tie in ties)):
        yield [is_relevant for tie in ranking for is_relevant in tie]
