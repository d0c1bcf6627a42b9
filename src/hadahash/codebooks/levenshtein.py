"""Codebooks of few classes, in which every two codewords can differ in more than half of the bits.

With column sums 0 (or +-1 for an odd number of classes) the mean distance is as large as possible,
and the minimum can come within one of it: each bit splits the classes evenly, and the splits
separate every two classes about equally often. Levenshtein's codes, made of blocks of Hadamard
matrices, reach Plotkin's bound exactly but usually have more codewords than classes, so that their
columns are not balanced. A short tabu search from there (or from random columns) balances them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .hadamard import hadamard

Codebook = NDArray[np.int8]
Real = NDArray[np.float64]

_FORBIDDEN = 1e15  # cost of a move that is not allowed; real costs are integers far below it
_MAX_WORK = 1e8  # entries of the table of moves that one search may compute
_MAX_STEPS = 1000
_MIN_STEPS = 20  # fewer steps are not worth their memory


def balanced_codebook(
    classes: int, bits: int, distance: int, rng: np.random.Generator
) -> Codebook | None:
    """Search for a codebook with a given minimum distance, balanced if possible.

    Args:
        classes: Number of classes.
        bits: Code length.
        distance: Minimum Hamming distance to reach, >= bits / 2.
        rng: Source of all random choices.

    Returns:
        int8 (classes, bits), or None if neither construction nor search reaches the distance.
    """
    constructed = levenshtein_code(classes, bits, distance, rng)
    if constructed is not None and max_column_sum(constructed) <= 1:
        return constructed
    starts = [random_balanced_columns(classes, bits, rng)]
    if constructed is not None:
        starts.append(balance_columns(constructed, rng))
    for start in starts:
        found = tabu_search(start, distance, rng)
        if found is not None:
            return found
    return constructed


def max_column_sum(codewords: Codebook) -> int:
    """Return the largest |column sum|: 0 or 1 in a balanced codebook."""
    return int(np.abs(codewords.sum(0, dtype=np.int64)).max())


def levenshtein_code(
    classes: int, bits: int, distance: int, rng: np.random.Generator
) -> Codebook | None:
    """Construct Levenshtein's code of a given minimum distance and draw codewords from it.

    With k = floor(d / (2d - n)) the length is n = (2k - 1) a + (2k + 1) b and the distance
    d = k a + (k + 1) b. Blocks of length 2k - 1 (2k codewords at distance k) and 2k + 1 come from
    the orders 2k and 2k + 2, and two blocks at a time from the orders 4k and 4k + 4
    (F. J. MacWilliams and N. J. A. Sloane, The Theory of Error-Correcting Codes, ch. 2, th. 8). For
    an odd distance one column of the code of the next even distance is left out.

    Args:
        classes: Number of codewords.
        bits: Code length.
        distance: Minimum Hamming distance.
        rng: Source of the draw.

    Returns:
        int8 (classes, bits), or None if the code has too few codewords or cannot be built.
    """
    n, d = (bits + 1, distance + 1) if distance % 2 else (bits, distance)
    k = d // (2 * d - n) if 2 * d > n else 0
    if 2 * k < classes:
        return None
    a, b = d * (2 * k + 1) - n * (k + 1), k * n - d * (2 * k - 1)
    try:
        blocks = _equidistant_blocks(2 * k, a) + _equidistant_blocks(2 * k + 2, b)
    except UsageError:  # an order that cannot be built
        return None
    rows = rng.permutation(2 * k)[:classes]
    return np.hstack([block[rows] for block in blocks])[:, :bits]


def _equidistant_blocks(codewords: int, count: int) -> list[Codebook]:
    """Blocks of equidistant rows with (codewords - 1) * count columns in total."""
    if count % 2:  # the normalized matrix of this order without its constant column
        return [hadamard(codewords)[:, 1:]] * count
    if count == 0:
        return []
    H = hadamard(2 * codewords)  # rows that begin with + +, without those two columns
    return [H[H[:, 1] == 1, 2:]] * (count // 2)


def random_balanced_columns(classes: int, bits: int, rng: np.random.Generator) -> Codebook:
    """Draw columns of sum 0, or +-1 for an odd number of classes.

    Args:
        classes: Number of rows.
        bits: Number of columns.
        rng: Source of the draw.

    Returns:
        int8 (classes, bits).
    """
    column = np.where(np.arange(classes) % 2, -1, 1).astype(np.int8)
    columns = rng.permuted(np.tile(column, (bits, 1)), axis=1)
    return np.where(rng.integers(0, 2, bits), columns.T, -columns.T)


def balance_columns(codewords: Codebook, rng: np.random.Generator) -> Codebook:
    """Flip random signs in unbalanced columns until they are balanced.

    Args:
        codewords: int8 (classes, bits).
        rng: Source of the draw.

    Returns:
        int8 (classes, bits).
    """
    codewords = codewords.copy()
    for column in codewords.T:
        total = int(column.sum(dtype=np.int64))
        majority = np.flatnonzero(column == np.sign(total))
        column[rng.permutation(majority)[: abs(total) // 2]] *= -1
    return codewords


def tabu_search(start: Codebook, distance: int, rng: np.random.Generator) -> Codebook | None:
    """Search balanced codebooks for one of a given minimum distance.

    The cost is the sum over pairs of max(0, inner product - (bits - 2 distance))^2. A move swaps a
    +1 and a -1 of a column; for an odd number of classes it may also flip one sign of the majority.
    The table of all moves costs one matrix product; its entries are integers below 2^53, hence
    exact.

    Args:
        start: A balanced codebook int8 (classes, bits).
        distance: Minimum Hamming distance to reach.
        rng: Breaks ties.

    Returns:
        int8 (classes, bits), or None if none was found.
    """
    classes, bits = start.shape
    B = start.T.astype(np.float64)  # (bits, classes)
    G = B.T @ B
    limit = bits - 2 * distance
    tabu = np.zeros(B.shape, np.int64)  # the step from which a sign may be flipped again
    steps = int(min(_MAX_STEPS, _MAX_WORK / (bits * classes**2)))
    for step in range(steps if steps >= _MIN_STEPS else 0):
        now = _excess(G, limit)
        if not now.any():
            return B.T.astype(np.int8)
        down, up = _excess(G - 2, limit) - now, _excess(G + 2, limit) - now
        flip = ((down + up).sum(0) + B * (B @ (down - up))) / 2  # (bits, classes): cost of a flip
        flip += 1e9 * (tabu > step)
        column, rows = _best_move(B, flip, up, rng)
        for row in rows:
            change = -2 * B[column, row] * B[column]
            change[row] = 0
            G[row] += change
            G[:, row] += change
            B[column, row] *= -1
        tabu[column, rows] = step + rng.integers(4, 13, len(rows))
    return None


def _excess(G: Real, limit: int) -> Real:
    excess: Real = np.maximum(G - limit, 0) ** 2
    np.fill_diagonal(excess, 0)
    return excess


def _best_move(B: Real, flip: Real, up: Real, rng: np.random.Generator) -> tuple[int, list[int]]:
    """The cheapest move, ties broken at random: its column, and the rows to flip."""
    classes = B.shape[1]
    # The distance between the two that are swapped does not change.
    swap = flip[:, :, None] + flip[:, None, :] - 2 * up
    swap[B[:, :, None] == B[:, None, :]] = _FORBIDDEN
    least = swap.min()
    if classes % 2:
        single = np.where(np.sign(B.sum(1, keepdims=True)) == B, flip, _FORBIDDEN)
        if single.min() < least:
            column, row = divmod(_argmin(single, rng), classes)
            return column, [row]
    column, pair = divmod(_argmin(swap, rng), classes**2)
    return column, list(divmod(pair, classes))


def _argmin(costs: Real, rng: np.random.Generator) -> int:
    return int(rng.choice(np.flatnonzero(costs == costs.min())))
