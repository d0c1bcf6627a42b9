"""Bounds on the minimum distance of a codebook: how good it can be, and when a search can stop."""

from __future__ import annotations

from math import comb


def max_codewords(bits: int, distance: int) -> int:
    """Bound the number of codewords that differ pairwise in at least `distance` bits.

    The smaller of Plotkin's bound (with A(n, d) <= 2 A(n - 1, d) for codewords that are too long
    for it) and the sphere-packing bound, both after the step A(n, 2e - 1) = A(n + 1, 2e). For
    2 * distance >= bits Plotkin's bound is exact wherever the Hadamard matrices it needs exist
    (Levenshtein 1961).

    Args:
        bits: Code length.
        distance: Minimum Hamming distance, >= 1.

    Returns:
        An upper bound on the number of codewords.

    Example:
        >>> max_codewords(16, 8), max_codewords(32, 17)
        (32, 12)
    """
    n, d = (bits + 1, distance + 1) if distance % 2 else (bits, distance)
    if 2 * d > n:
        return 2 * (d // (2 * d - n))
    plotkin = 4 * d << (n - 2 * d)
    sphere = sum(comb(n - 1, i) for i in range(d // 2))
    return min(plotkin, (1 << (n - 1)) // sphere)


def distance_bound(classes: int, bits: int) -> int:
    """Bound the minimum Hamming distance of a codebook from above.

    Args:
        classes: Number of codewords.
        bits: Code length.

    Returns:
        A distance that no codebook of these sizes exceeds; 0 if not even distinct codewords exist.

    Example:
        >>> [distance_bound(10, bits) for bits in (16, 32, 64)]
        [8, 17, 35]
    """
    low, high = 0, bits  # max_codewords decreases with the distance
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if max_codewords(bits, middle) >= classes else (low, middle - 1)
    return low


def varshamov_floor(classes: int, bits: int) -> int:
    """Compute a minimum distance that linear codes of these sizes reach (Gilbert, Varshamov).

    The largest d for which a random linear code with 2^k >= classes codewords is expected to hold
    less than one codeword of weight below d: (2^k - 1) * (codewords of weight < d) < 2^bits. A good
    codebook is not below it.

    Args:
        classes: Number of codewords.
        bits: Code length.

    Returns:
        The distance.

    Example:
        >>> [varshamov_floor(100, bits) for bits in (16, 32, 64)]
        [3, 9, 22]
    """
    codewords = (1 << (classes - 1).bit_length()) - 1
    distance, lighter = 0, 1  # lighter: number of words of weight <= distance
    while codewords * lighter < 1 << bits:
        distance += 1
        lighter += comb(bits, distance)
    return distance
