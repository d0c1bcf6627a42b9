"""The quality of a codebook: distances, balance and independence, and a bound to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UsageError
from .bounds import distance_bound

_BLOCK = 1 << 22  # inner products per block (16 MiB)


@dataclass(frozen=True)
class CodebookQuality:
    """Measures of one codebook.

    If the bits are balanced and independent over the classes, so are the codes of a data set with
    equally large classes. For orthogonal codewords (the paper's case) `bit_balance` is exactly
    1 / classes: orthogonality and bit balance exclude each other.

    Attributes:
        classes: Number of codewords.
        bits: Code length.
        minimum_distance: Smallest Hamming distance of two codewords.
        mean_distance: Mean Hamming distance of two codewords.
        distance_bound: Upper bound on the minimum distance of any codebook of these sizes.
        bit_balance: Mean over bits of (mean of the bit over the classes)^2; 0 is best.
        worst_column_sum: Largest |sum of a bit over the classes|; 0 is best, 1 for odd `classes`.
        codeword_balance: Mean over codewords of |sum of its bits|; 0 is best.
        mean_bit_correlation: Mean |correlation| of two bits over the classes; 0 for constant bits.
        max_bit_correlation: Largest |correlation| of two bits.
        mean_inner_product: Mean |inner product| / bits of two codewords.
        max_inner_product: Largest |inner product| / bits of two codewords.
        dead_bits: Number of bits that are the same for all classes.
        duplicates: Number of classes that share the codeword of an earlier class.
    """

    classes: int
    bits: int
    minimum_distance: int
    mean_distance: float
    distance_bound: int
    bit_balance: float
    worst_column_sum: int
    codeword_balance: float
    mean_bit_correlation: float
    max_bit_correlation: float
    mean_inner_product: float
    max_inner_product: float
    dead_bits: int
    duplicates: int

    def to_dict(self) -> dict[str, int | float]:
        """Return all measures by name."""
        return asdict(self)


def codebook_quality(codewords: ArrayLike) -> CodebookQuality:
    """Measure a codebook.

    Args:
        codewords: (classes, bits) of +1 and -1, with at least 2 classes.

    Returns:
        Its measures.

    Raises:
        UsageError: If the array does not have this shape and these values.

    Example:
        >>> q = codebook_quality([[1, 1, 1, -1], [1, -1, -1, 1], [-1, 1, -1, 1], [-1, -1, 1, -1]])
        >>> q.minimum_distance, q.distance_bound, q.bit_balance, q.dead_bits
        (2, 2, 0.0, 0)
    """
    signs = _checked(codewords)
    classes, bits = signs.shape
    sums = signs.sum(0, dtype=np.int64)  # (bits,)
    ones = (classes + sums) // 2
    pairs = classes * (classes - 1) // 2
    total, largest, highest = 0.0, 0, -bits
    for products in _products(signs):
        total += float(np.abs(products).sum(dtype=np.float64))
        largest = max(largest, int(np.abs(products).max()))
        highest = max(highest, int(products.max()))
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


def minimum_distance(codewords: NDArray[np.int8]) -> int:
    """Return the smallest Hamming distance of two codewords, int8 (classes, bits)."""
    return closest_pairs(codewords)[0]


def closest_pairs(codewords: NDArray[np.int8]) -> tuple[int, int]:
    """Find the minimum distance and how often it occurs.

    Args:
        codewords: int8 (classes, bits) of +1 and -1.

    Returns:
        The minimum distance, and the number of pairs at this distance.
    """
    closest, count = -np.inf, 0
    for products in _products(codewords):
        largest = float(products.max())
        if largest >= closest:
            count = int((products == largest).sum()) + (count if largest == closest else 0)
            closest = largest
    return (int(codewords.shape[1]) - int(closest)) // 2, count


def count_distinct(codewords: NDArray[np.int8]) -> int:
    """Return the number of distinct codewords, int8 (classes, bits)."""
    return len(np.unique(np.packbits(codewords > 0, axis=1), axis=0))


def _products(codewords: NDArray[np.int8]) -> Iterator[NDArray[np.float32]]:
    """Inner products of every two codewords, each pair once, in blocks; integers, exact."""
    B = codewords.astype(np.float32)
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
    """Compute |Pearson's correlation| of every two bits.

    Args:
        products: (bits, bits), sums of b_i b_j over the codes, with bits of +1 and -1.
        sums: (bits,), sums of b_i over the codes.
        count: Number of codes.

    Returns:
        (bits, bits); 0 for constant bits.
    """
    covariance = products * count - np.outer(sums, sums)  # times count^2: integers
    spread = np.sqrt(np.maximum(np.diagonal(covariance), 1))
    return np.asarray(np.abs(covariance / np.outer(spread, spread)))


def _checked(codewords: ArrayLike) -> NDArray[np.int8]:
    array = np.asarray(codewords)
    if array.ndim != 2 or len(array) < 2 or array.shape[1] < 1 or not np.isin(array, (-1, 1)).all():
        raise UsageError(
            "A codebook must be an array (classes, bits) of +1 and -1 with at least 2 classes, "
            f"got {array.dtype} {array.shape}. Make one with hadahash.codebook."
        )
    return array.astype(np.int8)
