"""The design "far": codewords as far apart as can be had, in bits that split the classes evenly.

Three constructions meet, and the best book wins (largest minimum distance, then best balance, then fewest closest pairs):
- `splits`: few classes, all distances above half of the bits (Plotkin's bound);
- `antipodal`: rows of a Hadamard matrix and their negatives, up to 2 x bits classes at half of the bits;
- `linear`: linear codes for any number of classes.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
from numpy.typing import NDArray

from .bounds import distance_bound
from .hadamard import hadamard, orders
from .linear import linear
from .quality import minimum_distance, nearest_pairs
from .splits import splits

Book = NDArray[np.int8]


def far(classes: int, bits: int, rng: np.random.Generator) -> Book:
    """int8 (classes, bits) of +1 and -1: distinct codewords, no constant bit, bits balanced where that costs nothing.

    The minimum distance equals the upper bound `distance_bound` for most sizes with classes <= 2 bits.
    """
    bound = distance_bound(classes, bits)
    books = antipodal(classes, bits, rng)
    reached = max(map(minimum_distance, books), default=0)
    if 2 * bound >= bits:
        least = max(
            reached, -(-bits // 2)
        )  # a tie is worth a search too: fewer pairs may be as close as that
        attempts = (
            splits(classes, bits, distance, rng) for distance in range(bound, least - 1, -1)
        )
        books += islice((book for book in attempts if book is not None), 1)
        reached = max(map(minimum_distance, books), default=0)
    if reached < bound:
        books.append(linear(classes, bits, rng))
    best = max(books, key=_rank) if len(books) > 1 else books[0]
    return _shuffle(_level(_revive(best), rng), rng)


def antipodal(classes: int, bits: int, rng: np.random.Generator) -> list[Book]:
    """Rows of a Hadamard matrix with their negatives, brought to the length; from the next order below and that above.

    A row and its negative add up to zero, so the columns are balanced; two different rows differ in half of the places.
    """
    possible = orders(bits + bits // 2 + 8)
    below = [n for n in possible if n <= bits][-1:]
    above = [n for n in possible if n >= bits][:1]
    books = []
    for n in sorted({*below, *above}):
        if 2 * n >= classes:
            H = hadamard(n)[rng.permutation(n)[: -(-classes // 2)]]
            extra = rng.permutation(n)[: max(0, bits - n)]
            H = np.hstack([H[:, :bits], H[:, extra]])
            books.append(np.stack([H, -H], axis=1).reshape(-1, bits)[:classes])
    return books


def _rank(book: Book) -> tuple[int, int, int]:
    """Minimum distance, then balance, then as few pairs as possible at the minimum distance."""
    distance, pairs = nearest_pairs(book)
    return distance, -int((book.sum(0, dtype=np.int64) ** 2).sum()), -pairs


def _revive(book: Book) -> Book:
    """Split the classes evenly where a bit is constant: no distance falls by that."""
    book = book.copy()
    dead = np.flatnonzero((book == book[0]).all(0))
    rows = np.arange(len(book))[:, None]
    book[:, dead] = np.where((rows >> dead % max(1, (len(book) - 1).bit_length())) & 1, -1, 1)
    return book


def _level(book: Book, rng: np.random.Generator) -> Book:
    """Turn whole columns so that the codewords hold about as many +1 as -1: changes no distance and no |column sum|."""
    B = book.astype(np.float64)
    M = B.T @ B  # whole numbers, exact
    signs = rng.choice(np.array([-1.0, 1.0]), book.shape[1])
    pull = M @ signs
    while True:
        saved = signs * pull - len(
            book
        )  # a quarter of what turning one column takes off the squared row sums
        column = int(saved.argmax())
        if saved[column] <= 0:
            return np.where(signs > 0, book, -book)
        signs[column] *= -1
        pull += 2 * signs[column] * M[column]


def _shuffle(book: Book, rng: np.random.Generator) -> Book:
    rows, columns = rng.permutation(book.shape[0]), rng.permutation(book.shape[1])
    return np.ascontiguousarray(book[rows][:, columns])
