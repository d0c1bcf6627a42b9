"""How good a codebook is: the figures that the paper's properties ask for, and a bound to hold them against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UsageError
from .bounds import distance_bound

_BLOCK = 1 << 22  # inner products held at a time (16 MiB)


@dataclass(frozen=True)
class CodebookQuality:
    """The figures of one codebook.

    Balance and independence of the BITS over the classes are what keeps the codes of a balanced collection balanced.
    For orthogonal codewords (the paper's case) `bit_balance` is exactly 1 / classes: orthogonality and bit balance
    exclude each other.
    """

    classes: int
    bits: int
    minimum_distance: int
    mean_distance: float
    distance_bound: int  # no codebook of this size has a larger minimum distance
    bit_balance: float  # mean over bits of (mean of the bit over the classes)^2: 0 is best
    worst_column_sum: (
        int  # largest |sum of a bit over the classes|: 0 is best, 1 for an odd number of classes
    )
    codeword_balance: float  # mean over codewords of |sum of its bits|: 0 is best
    mean_bit_correlation: (
        float  # mean |correlation| of two bits over the classes; a constant bit correlates 0
    )
    max_bit_correlation: float
    mean_inner_product: float  # mean |inner product| / bits of two codewords
    max_inner_product: float
    dead_bits: int  # bits that are the same for all classes
    duplicates: int  # classes whose codeword an earlier class has

    def to_dict(self) -> dict[str, int | float]:
        return asdict(self)


def codebook_quality(book: ArrayLike) -> CodebookQuality:
    """Measure a codebook (classes, bits) of +1 and -1.

    >>> q = codebook_quality([[1, 1, 1, -1], [1, -1, -1, 1], [-1, 1, -1, 1], [-1, -1, 1, -1]])
    >>> q.minimum_distance, q.distance_bound, q.bit_balance, q.dead_bits
    (2, 2, 0.0, 0)
    """
    signs = _checked(book)
    classes, bits = signs.shape
    sums = signs.sum(0, dtype=np.int64)  # (bits,)
    ones = (classes + sums) // 2
    pairs = classes * (classes - 1) // 2
    total, largest, highest = 0.0, 0, -bits
    for products in _products(signs):
        total += float(np.abs(products).sum(dtype=np.float64))
        largest, highest = (
            max(largest, int(np.abs(products).max())),
            max(highest, int(products.max())),
        )
    reals = signs.astype(np.float64)
    correlation = bit_correlation(reals.T @ reals, sums, classes)[np.triu_indices(bits, 1)]
    return CodebookQuality(
        classes=classes,
        bits=bits,
        minimum_distance=(bits - highest) // 2,
        mean_distance=int((ones * (classes - ones)).sum()) / pairs,
        distance_bound=distance_bound(classes, bits),
        bit_balance=float((sums**2).sum()) / (bits * classes**2),
        worst_column_sum=int(np.abs(sums).max()),
        codeword_balance=float(np.abs(signs.sum(1, dtype=np.int64)).mean()),
        mean_bit_correlation=float(correlation.mean()) if bits > 1 else 0.0,
        max_bit_correlation=float(correlation.max()) if bits > 1 else 0.0,
        mean_inner_product=total / (pairs * bits),
        max_inner_product=largest / bits,
        dead_bits=int((np.abs(sums) == classes).sum()),
        duplicates=classes - count_distinct(signs),
    )


def minimum_distance(book: NDArray[np.int8]) -> int:
    """The smallest Hamming distance between two codewords of a book int8 (classes, bits)."""
    return nearest_pairs(book)[0]


def nearest_pairs(book: NDArray[np.int8]) -> tuple[int, int]:
    """The minimum distance of a book, and how many pairs of codewords are as close as that."""
    closest, count = -np.inf, 0
    for products in _products(book):
        largest = float(products.max())
        if largest >= closest:
            count = int((products == largest).sum()) + (count if largest == closest else 0)
            closest = largest
    return (int(book.shape[1]) - int(closest)) // 2, count


def count_distinct(book: NDArray[np.int8]) -> int:
    """How many different codewords a book has."""
    return len(np.unique(np.packbits(book > 0, axis=1), axis=0))


def _products(book: NDArray[np.int8]) -> Iterator[NDArray[np.float32]]:
    """The inner products of every two different codewords, each pair once, in blocks; whole numbers, exact."""
    B = book.astype(np.float32)
    rows = max(1, _BLOCK // len(B))
    for start in range(0, len(B), rows):
        block, later = B[start : start + rows], B[start + rows :]
        if len(block) > 1:
            yield (block @ block.T)[np.triu_indices(len(block), 1)]
        if len(later):
            yield block @ later.T


def bit_correlation(
    products: NDArray[np.float64], sums: NDArray[np.int64], count: int
) -> NDArray[np.float64]:
    """|Pearson's correlation| of every two bits, (bits, bits), from sums over `count` codes; a constant bit correlates 0.

    `products` (bits, bits) are the sums of b_i b_j, `sums` (bits,) those of b_i, with bits of +1 and -1.
    """
    covariance = products * count - np.outer(sums, sums)  # count^2 times it: whole numbers
    spread = np.sqrt(np.maximum(np.diagonal(covariance), 1))
    return np.asarray(np.abs(covariance / np.outer(spread, spread)))


def _checked(book: ArrayLike) -> NDArray[np.int8]:
    array = np.asarray(book)
    if array.ndim != 2 or len(array) < 2 or array.shape[1] < 1 or not np.isin(array, (-1, 1)).all():
        raise UsageError(
            f"A codebook is an array (classes, bits) of +1 and -1 with at least 2 classes, "
            f"got {array.dtype} {array.shape}. hadahash.codebook makes one."
        )
    return array.astype(np.int8)
