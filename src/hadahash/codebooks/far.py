"""The design "far": maximizes the minimum Hamming distance, with bits balanced over the classes.

Three constructions compete. The best codebook wins: largest minimum distance, then best balance,
then fewest closest pairs.

- `balanced_codebook`: few classes, all distances above half of the bits (Plotkin's bound).
- `antipodal`: rows of a Hadamard matrix and their negatives, up to 2 x bits classes at half of the
  bits.
- `linear_codebook`: linear codes for any number of classes.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
from numpy.typing import NDArray

from .bounds import distance_bound
from .hadamard import hadamard, orders
from .levenshtein import balanced_codebook
from .linear import linear_codebook
from .quality import closest_pairs, minimum_distance

Codebook = NDArray[np.int8]


def far(classes: int, bits: int, rng: np.random.Generator) -> Codebook:
    """Make distinct codewords with a large minimum distance, without constant bits.

    The minimum distance equals the upper bound `distance_bound` for most sizes with
    classes <= 2 bits. Bits are balanced over the classes where that costs no distance.

    Args:
        classes: Number of classes.
        bits: Code length.
        rng: Source of all random choices.

    Returns:
        int8 (classes, bits) of +1 and -1.
    """
    bound = distance_bound(classes, bits)
    candidates = antipodal(classes, bits, rng)
    reached = max(map(minimum_distance, candidates), default=0)
    if 2 * bound >= bits:
        # A tie is searched too, because it may have fewer closest pairs.
        least = max(reached, -(-bits // 2))
        attempts = (
            balanced_codebook(classes, bits, distance, rng)
            for distance in range(bound, least - 1, -1)
        )
        candidates += islice((found for found in attempts if found is not None), 1)
        reached = max(map(minimum_distance, candidates), default=0)
    if reached < bound:
        candidates.append(linear_codebook(classes, bits, rng))
    best = max(candidates, key=_rank) if len(candidates) > 1 else candidates[0]
    return _shuffle(balance_codewords(_replace_constant_bits(best), rng), rng)


def antipodal(classes: int, bits: int, rng: np.random.Generator) -> list[Codebook]:
    """Take rows of Hadamard matrices with their negatives, shortened or extended to the length.

    The matrices have the next order below and the next above the length. A row and its negative add
    up to zero, so the columns are balanced; two different rows differ in half of the bits.

    Args:
        classes: Number of classes.
        bits: Code length.
        rng: Source of all random choices.

    Returns:
        At most two codebooks int8 (classes, bits); none if there are too few rows.
    """
    possible = orders(bits + bits // 2 + 8)
    below = [n for n in possible if n <= bits][-1:]
    above = [n for n in possible if n >= bits][:1]
    codebooks = []
    for n in sorted({*below, *above}):
        if 2 * n >= classes:
            H = hadamard(n)[rng.permutation(n)[: -(-classes // 2)]]
            extra = rng.permutation(n)[: max(0, bits - n)]
            H = np.hstack([H[:, :bits], H[:, extra]])
            codebooks.append(np.stack([H, -H], axis=1).reshape(-1, bits)[:classes])
    return codebooks


def _rank(codewords: Codebook) -> tuple[int, int, int]:
    """Sort key: minimum distance, then balance, then few pairs at the minimum distance."""
    distance, pairs = closest_pairs(codewords)
    return distance, -int((codewords.sum(0, dtype=np.int64) ** 2).sum()), -pairs


def _replace_constant_bits(codewords: Codebook) -> Codebook:
    """Replace constant bits by bits that split the classes evenly; no distance decreases."""
    codewords = codewords.copy()
    constant = np.flatnonzero((codewords == codewords[0]).all(0))
    rows = np.arange(len(codewords))[:, None]
    digit = constant % max(1, (len(codewords) - 1).bit_length())
    codewords[:, constant] = np.where((rows >> digit) & 1, -1, 1)
    return codewords


def balance_codewords(codewords: Codebook, rng: np.random.Generator) -> Codebook:
    """Negate whole columns so that codewords have about as many +1 as -1.

    Changes no distance and no |column sum|.

    Args:
        codewords: int8 (classes, bits) of +1 and -1.
        rng: Chooses the signs to start from.

    Returns:
        The codewords with some columns negated.
    """
    B = codewords.astype(np.float64)
    M = B.T @ B  # integers, exact
    signs = rng.choice(np.array([-1.0, 1.0]), codewords.shape[1])
    pull = M @ signs
    while True:
        # A quarter of the decrease of the squared row sums when one column is negated.
        gain = signs * pull - len(codewords)
        column = int(gain.argmax())
        if gain[column] <= 0:
            return np.where(signs > 0, codewords, -codewords)
        signs[column] *= -1
        pull += 2 * signs[column] * M[column]


def _shuffle(codewords: Codebook, rng: np.random.Generator) -> Codebook:
    rows, columns = rng.permutation(codewords.shape[0]), rng.permutation(codewords.shape[1])
    return np.ascontiguousarray(codewords[rows][:, columns])
