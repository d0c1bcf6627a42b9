"""How far apart codewords can be: upper bounds, to tell how good a codebook is and when a search may stop."""

from __future__ import annotations

from math import comb


def most_codewords(bits: int, distance: int) -> int:
    """An upper bound on the number of words of `bits` bits that differ pairwise in at least `distance` (>= 1) places.

    The smaller of Plotkin's bound (with A(n, d) <= 2 A(n - 1, d) where the words are too long for it) and the
    sphere-packing bound, both after the step A(n, 2e - 1) = A(n + 1, 2e). For 2 * distance >= bits Plotkin's is the
    exact number wherever the Hadamard matrices it needs exist (Levenshtein 1961).

    >>> most_codewords(16, 8), most_codewords(32, 17)
    (32, 12)
    """
    n, d = (bits + 1, distance + 1) if distance % 2 else (bits, distance)
    if 2 * d > n:
        return 2 * (d // (2 * d - n))
    plotkin = 4 * d << (n - 2 * d)
    sphere = sum(comb(n - 1, i) for i in range(d // 2))
    return min(plotkin, (1 << (n - 1)) // sphere)


def distance_bound(classes: int, bits: int) -> int:
    """No codebook of these sizes has a minimum distance above this one (0: not even distinct codewords exist).

    >>> [distance_bound(10, bits) for bits in (16, 32, 64)]
    [8, 17, 35]
    """
    low, high = 0, bits  # most_codewords falls as the distance grows
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if most_codewords(bits, middle) >= classes else (low, middle - 1)
    return low


def varshamov_floor(classes: int, bits: int) -> int:
    """The distance that linear codes of these sizes are sure to reach (Gilbert, Varshamov): no good book is below it.

    It is the largest d for which a random linear code with 2^k >= classes words is expected to hold less than one word
    of weight below d: (2^k - 1) * (number of words of weight < d) < 2^bits.

    >>> [varshamov_floor(100, bits) for bits in (16, 32, 64)]
    [3, 9, 22]
    """
    words = (1 << (classes - 1).bit_length()) - 1
    distance, lighter = 0, 1  # lighter: words of weight <= distance
    while words * lighter < 1 << bits:
        distance += 1
        lighter += comb(bits, distance)
    return distance
