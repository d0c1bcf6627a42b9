"""The definition of a bit, packing, and the Hamming distance.

A bit is 1 (+1) where the value is >= 0, else 0 (-1). So 0.0 and -0.0 are both 1; NaN is refused.
Packed codes are uint8 (n, ceil(bits / 8)), most significant bit first, as `numpy.packbits` writes
them; the padding bits of the last byte are 0.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import UsageError


def is_one(values: Any) -> Any:
    """The definition of a bit: 1 where the value is >= 0; for numpy arrays and torch tensors."""
    return values >= 0


def binarize(values: ArrayLike) -> NDArray[np.bool_]:
    """Turn real values into bits.

    Args:
        values: Real values of any shape. Bits (booleans, or only 0 and 1) are refused, because both
            are >= 0.

    Returns:
        True where the value is >= 0.

    Raises:
        UsageError: The values contain NaN, or are bits already.

    >>> binarize([-0.5, -0.0, 0.0, 2.0]).tolist()
    [False, True, True, True]
    """
    values = np.asarray(values)
    if _look_like_bits(values):
        raise UsageError(
            f"These look like bits, not real values ({values.dtype}, no negative number). "
            "Use Codes.from_bits(bits) or numpy.packbits(bits, axis=1)."
        )
    if values.dtype.kind == "f" and np.isnan(values).any():
        position = np.argwhere(np.isnan(values))[0].tolist()
        raise UsageError(
            f"Cannot binarize NaN (at {position}). The output of the network diverged."
        )
    return np.asarray(is_one(values))


def _look_like_bits(values: NDArray[Any]) -> bool:
    """Whether every value would become a 1 because the array holds bits, not real values."""
    if values.dtype.kind in "bu":
        return True
    if not values.size or values.min() != 0:
        return False
    return values.dtype.kind == "i" or (values.max() == 1 and bool(np.isin(values, (0, 1)).all()))


def pack(values: ArrayLike) -> NDArray[np.uint8]:
    """Pack real values, or signs -1 and +1, into codes.

    Args:
        values: (n, bits).

    Returns:
        Packed codes, uint8 (n, ceil(bits / 8)).

    Raises:
        UsageError: The values are bits already, contain NaN, or do not have two dimensions.

    >>> pack([[1, -1, -1, 1, 0.5, -2, 3, -1, 1]]).tolist()
    [[154, 128]]
    """
    return pack_bits(binarize(values))


def pack_bits(bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Pack booleans (n, bits) into codes, uint8 (n, ceil(bits / 8))."""
    if bits.ndim != 2:
        raise UsageError(f"Codes must have the shape (n, bits), got {bits.shape}.")
    return np.packbits(bits, axis=1)


def unpack(packed: NDArray[np.uint8], bits: int) -> NDArray[np.int8]:
    """Unpack codes to signs.

    Args:
        packed: uint8 (n, ceil(bits / 8)).
        bits: Code length.

    Returns:
        int8 (n, bits) of +1 and -1.

    >>> unpack(pack([[1, -1, 1]]), 3).tolist()
    [[1, -1, 1]]
    """
    return np.unpackbits(packed, axis=1, count=bits).view(np.int8) * np.int8(2) - np.int8(1)


def words(packed: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Packed codes as aligned, zero-padded uint64 (n, ceil(bytes / 8)), for counting distances."""
    packed = np.require(packed, requirements=("C", "A"))
    width = -(-packed.shape[1] // 8) * 8
    if packed.shape[1] != width:
        packed = np.pad(packed, ((0, 0), (0, width - packed.shape[1])))
    return packed.view(np.uint64)


def hamming(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Hamming distances between all packed codes of `a` and all of `b`.

    Args:
        a: Packed codes, uint8 (n, bytes).
        b: Packed codes, uint8 (m, bytes).

    Returns:
        int32 (n, m).

    Raises:
        UsageError: An argument is not packed, or the widths differ.

    >>> hamming(pack([[1, 1, 1]]), pack([[1, -1, -1], [1, 1, 1]])).tolist()
    [[2, 0]]
    """
    for codes in (a, b):
        if getattr(codes, "dtype", None) != np.uint8 or codes.ndim != 2:
            kind = f"{getattr(codes, 'dtype', type(codes).__name__)} {np.shape(codes)}"
            raise UsageError(f"Packed codes must be uint8 (n, bytes), got {kind}.")
    if a.shape[1] != b.shape[1]:
        raise UsageError(
            f"Cannot compare codes of {a.shape[1]} and {b.shape[1]} bytes: use one code length."
        )
    left, right = words(a), words(b)
    distances = np.zeros((len(left), len(right)), np.int32)
    for word in range(left.shape[1]):
        distances += np.bitwise_count(left[:, None, word] ^ right[None, :, word])
    return distances


def check_bits(bits: Any, name: str = "bits") -> int:
    """A code length as an int; refuses what is not an integer >= 1."""
    try:
        number = operator.index(bits)
    except TypeError:
        number = 0
    if isinstance(bits, (bool, np.bool_)) or number < 1:
        raise UsageError(f"{name} must be an integer >= 1, got {bits!r}.")
    return number
