"""Codebooks of few classes, where every two codewords can differ in more than half of the bits.

With column sums 0 (or +-1 for an odd number of classes) the MEAN distance is as large as it can be, and the minimum
can come within one of it: each bit splits the classes evenly, and the splits separate every two classes about equally
often. Levenshtein's pasting of Hadamard matrices reaches Plotkin's bound exactly but has more words than classes, as
a rule, so that its columns are not balanced; a short tabu search from there (or from random splits) balances them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .hadamard import hadamard

Book = NDArray[np.int8]
Real = NDArray[np.float64]

_NEVER = 1e15  # the cost of a move that is not allowed; real costs are whole numbers far below it
_WORK = 1e8  # entries of the table of moves that one search may compute
_MOST_STEPS = 1000
_LEAST_STEPS = 20  # fewer are not worth their memory


def splits(classes: int, bits: int, distance: int, rng: np.random.Generator) -> Book | None:
    """A book int8 (classes, bits) of at least this minimum distance >= bits / 2, balanced if that can be found.

    None if neither the algebra nor the search reaches the distance.
    """
    pasted = paste(classes, bits, distance, rng)
    if pasted is not None and worst_sum(pasted) <= 1:
        return pasted
    starts = [even_columns(classes, bits, rng)]
    if pasted is not None:
        starts.append(rebalance(pasted, rng))
    for start in starts:
        found = spread(start, distance, rng)
        if found is not None:
            return found
    return pasted


def worst_sum(book: Book) -> int:
    """The largest |column sum|: 0 or 1 in a balanced book."""
    return int(np.abs(book.sum(0, dtype=np.int64)).max())


def paste(classes: int, bits: int, distance: int, rng: np.random.Generator) -> Book | None:
    """Levenshtein's code of this length and minimum distance, `classes` of its words drawn; None if it has too few.

    With k = floor(d / (2d - n)) the length is n = (2k - 1) a + (2k + 1) b and the distance d = k a + (k + 1) b; the
    pieces of length 2k - 1 (2k words at distance k) and 2k + 1 come from the orders 2k and 2k + 2, and two pieces at
    a time from the orders 4k and 4k + 4 (F. J. MacWilliams and N. J. A. Sloane, The Theory of Error-Correcting Codes,
    ch. 2, th. 8). An odd distance is had from the even one above it by leaving out a column.
    """
    n, d = (bits + 1, distance + 1) if distance % 2 else (bits, distance)
    k = d // (2 * d - n) if 2 * d > n else 0
    if 2 * k < classes:
        return None
    a, b = d * (2 * k + 1) - n * (k + 1), k * n - d * (2 * k - 1)
    try:
        pieces = _pieces(2 * k, a) + _pieces(2 * k + 2, b)
    except UsageError:  # an order that cannot be built
        return None
    rows = rng.permutation(2 * k)[:classes]
    return np.hstack([piece[rows] for piece in pieces])[:, :bits]


def _pieces(words: int, count: int) -> list[Book]:
    """Blocks with `words` rows, all pairs of them equally far apart, of (words - 1) * count columns together."""
    if count % 2:  # the normalised matrix of this order without its constant column
        return [hadamard(words)[:, 1:]] * count
    if count == 0:
        return []
    H = hadamard(2 * words)  # the rows that begin + +, without those two columns: twice the length
    return [H[H[:, 1] == 1, 2:]] * (count // 2)


def even_columns(classes: int, bits: int, rng: np.random.Generator) -> Book:
    """Random columns of sum 0, or +-1 for odd `classes`."""
    column = np.where(np.arange(classes) % 2, -1, 1).astype(np.int8)
    columns = rng.permuted(np.tile(column, (bits, 1)), axis=1)
    return np.where(rng.integers(0, 2, bits), columns.T, -columns.T)


def rebalance(book: Book, rng: np.random.Generator) -> Book:
    """Turn signs, at random, in the columns that are not balanced until they are."""
    book = book.copy()
    for column in book.T:
        total = int(column.sum(dtype=np.int64))
        majority = np.flatnonzero(column == np.sign(total))
        column[rng.permutation(majority)[: abs(total) // 2]] *= -1
    return book


def spread(start: Book, distance: int, rng: np.random.Generator) -> Book | None:
    """Tabu search over balanced books for one of this minimum distance; None if it is not found.

    Cost: the sum over pairs of max(0, inner product - (bits - 2 distance))^2. A move exchanges a +1 and a -1 of a
    column (for an odd number of classes it may also turn one sign of the larger side). The table of all moves costs
    one product of matrices; every number in it is whole and below 2^53, so it is exact.
    """
    classes, bits = start.shape
    B = start.T.astype(np.float64)  # (bits, classes)
    G = B.T @ B
    limit = bits - 2 * distance
    tabu = np.zeros(B.shape, np.int64)  # the step from which a sign may be turned again
    steps = int(min(_MOST_STEPS, _WORK / (bits * classes**2)))
    for step in range(steps if steps >= _LEAST_STEPS else 0):
        now = _excess(G, limit)
        if not now.any():
            return B.T.astype(np.int8)
        down, up = _excess(G - 2, limit) - now, _excess(G + 2, limit) - now
        turn = (
            (down + up).sum(0) + B * (B @ (down - up))
        ) / 2  # (bits, classes): the cost of turning one sign
        turn += 1e9 * (tabu > step)
        column, rows = _best_move(B, turn, up, rng)
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


def _best_move(B: Real, turn: Real, up: Real, rng: np.random.Generator) -> tuple[int, list[int]]:
    """The cheapest move, ties broken by chance: its column, and the rows whose sign turns."""
    classes = B.shape[1]
    swap = (
        turn[:, :, None] + turn[:, None, :] - 2 * up
    )  # the two that change places stay as far apart as they were
    swap[B[:, :, None] == B[:, None, :]] = _NEVER
    least = swap.min()
    if classes % 2:
        single = np.where(np.sign(B.sum(1, keepdims=True)) == B, turn, _NEVER)
        if single.min() < least:
            column, row = divmod(_pick(single, rng), classes)
            return column, [row]
    column, pair = divmod(_pick(swap, rng), classes**2)
    return column, list(divmod(pair, classes))


def _pick(costs: Real, rng: np.random.Generator) -> int:
    return int(rng.choice(np.flatnonzero(costs == costs.min())))
