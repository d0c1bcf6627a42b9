"""Codebook designs: one codeword of +1 and -1 per class.

A design is a function `(classes, bits, rng) -> int8 (classes, bits)` registered under its name in
`DESIGNS`. `codebook` checks the arguments before it calls one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ..codes import binarize
from ..errors import UsageError
from ..registry import Registry
from .far import far
from .hadamard import hadamard, orders, walsh
from .nested import nested
from .quality import count_distinct

Codebook = NDArray[np.int8]
Design = Callable[[int, int, np.random.Generator], Codebook]

DESIGNS: Registry[Design] = Registry("codebook design")
DESIGNS.register("far")(far)
DESIGNS.register("nested")(nested)

MAX_CLASSES, MAX_BITS = 1 << 20, 4096  # larger codebooks take minutes and gigabytes
_MAX_DRAWS = 200  # random projections, or draws per class, before giving up on distinct codewords


def codebook(classes: int, bits: int, *, design: str = "far", seed: int = 0) -> Codebook:
    """Make a codebook with one codeword per class. The same arguments give the same bytes.

    Designs:

    - `far` (default): maximizes the minimum Hamming distance; every bit is balanced over the
      classes, none is constant.
    - `nested`: the same at every prefix of 8, 16, 24, ... bits, so that long codes can be cut.
    - `paper`: Algorithm 1 of HCDH (Chen et al., 2019).
    - `csq`: the hash centers of CSQ (Yuan et al., CVPR 2020).
    - `random`: distinct random codewords.

    Args:
        classes: Number of classes, 2 to 1,048,576.
        bits: Code length, 1 to 4,096.
        design: Name of a registered design.
        seed: Seed of all random choices, >= 0.

    Returns:
        int8 (classes, bits) of +1 and -1, distinct rows.

    Raises:
        UsageError: If the design is unknown, an argument is out of range, or the code is too short
            for the classes.

    Example:
        >>> codebook(4, 3).shape
        (4, 3)
        >>> rows = codebook(classes=10, bits=16, design="paper", seed=1).astype(int)
        >>> bool((rows @ rows.T == 16 * np.eye(10)).all())
        True
    """
    make = DESIGNS.get(design)
    classes, bits, seed = (
        _integer("classes", classes),
        _integer("bits", bits),
        _integer("seed", seed),
    )
    _check_sizes(classes, bits)
    if seed < 0:
        raise UsageError(f"seed must be >= 0, got {seed}.")
    return make(classes, bits, np.random.Generator(np.random.PCG64(seed)))


def paper_order(classes: int, bits: int) -> int:
    """Order K* of the Hadamard matrix behind the paper's codebook: equation (6).

    Args:
        classes: Number of classes C.
        bits: Code length K.

    Returns:
        The smallest power of two, at least 2, that is >= K and >= C.

    Example:
        >>> [paper_order(10, 16), paper_order(21, 16), paper_order(16, 16)]
        [16, 32, 16]
    """
    return max(2, 1 << (max(bits, classes) - 1).bit_length())


@DESIGNS.register("paper")
def paper(classes: int, bits: int, rng: np.random.Generator) -> Codebook:
    """Algorithm 1 of HCDH (Chen et al., 2019), with three stated deviations.

    If K* = K, the codewords are rows of Sylvester's matrix: every two differ in exactly half of the
    bits. Otherwise they are rows of sgn(H* T), where T is a Gaussian matrix (K*, K). The rows are
    drawn without repetition.

    Deviations from the printed algorithm:

    - A codeword is a row, as in the authors' code. The printed "column vectors" have the wrong
      length after the projection by T.
    - Row 0, the constant codeword, is drawn only if C = K*, when all rows are needed. The text asks
      for "eliminating the first row or the first column". Column 0 stays, so for K* = K bit 0 is +1
      for every class: a constant bit. After a projection the rows of H* T are independent and
      identically distributed, so there leaving out row 0 changes nothing.
    - sgn(H* T) can give two classes the same codeword. T and the rows are then drawn again.
      Distances are not improved in any way.

    sgn(0) = +1, as everywhere in this package.

    Args:
        classes: Number of classes C.
        bits: Code length K.
        rng: Source of all random choices.

    Returns:
        int8 (classes, bits) of +1 and -1.

    Raises:
        UsageError: If no projection gave distinct codewords.
    """
    order = paper_order(classes, bits)
    if order == bits:
        rows = _draw_rows(classes, order, rng)
        odd = np.bitwise_count(rows[:, None] & np.arange(bits)) & 1  # H*[r, c] = (-1)^|r & c|
        return np.where(odd, -1, 1).astype(np.int8)
    for _ in range(_MAX_DRAWS):
        T = rng.standard_normal((order, bits))
        projected = binarize(walsh(T))  # sgn(H* T), (K*, K)
        codewords = np.where(projected[_draw_rows(classes, order, rng)], 1, -1).astype(np.int8)
        if count_distinct(codewords) == classes:
            return codewords
    raise UsageError(
        f"{_MAX_DRAWS} random projections to {bits} bits all gave two of {classes} classes the "
        "same codeword. Use more bits, or design='far'."
    )


@DESIGNS.register("csq")
def csq(classes: int, bits: int, rng: np.random.Generator) -> Codebook:
    """Hash centers of CSQ (Yuan et al., "Central Similarity Quantization", CVPR 2020).

    Rows of a Hadamard matrix of order K and their negatives while there are enough of them (C <= 2
    K and K an order that `hadamard` builds), otherwise random codewords with half of the bits set.
    Equal ones are drawn again.

    Args:
        classes: Number of classes C.
        bits: Code length K.
        rng: Source of all random choices.

    Returns:
        int8 (classes, bits) of +1 and -1.

    Raises:
        UsageError: If there are fewer codewords with half of the bits set than classes.
    """
    if classes <= 2 * bits and bits in orders(bits):
        H = hadamard(bits)
        return np.concatenate([H, -H])[rng.permutation(2 * bits)[:classes]]
    half = np.where(np.arange(bits) < bits // 2, 1, -1).astype(np.int8)
    return _first_distinct((rng.permutation(half) for _ in range(_MAX_DRAWS * classes)), classes)


@DESIGNS.register("random")
def random(classes: int, bits: int, rng: np.random.Generator) -> Codebook:
    """Independent random bits, +1 and -1 with equal probability; repeated codewords are redrawn.

    Args:
        classes: Number of classes.
        bits: Code length.
        rng: Source of all random choices.

    Returns:
        int8 (classes, bits) of +1 and -1.

    Raises:
        UsageError: If not enough distinct codewords were drawn.
    """
    draws = (rng.integers(0, 2, bits) * 2 - 1 for _ in range(_MAX_DRAWS * classes))
    return _first_distinct((draw.astype(np.int8) for draw in draws), classes)


def _draw_rows(classes: int, order: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Distinct rows of H*; row 0 only if all rows are needed."""
    first = 0 if classes == order else 1
    return rng.permutation(order - first)[:classes] + first


def _first_distinct(codewords: Iterable[Codebook], count: int) -> Codebook:
    """The first `count` distinct codewords (bits,) as one array (count, bits)."""
    chosen: dict[bytes, Codebook] = {}
    for codeword in codewords:
        chosen.setdefault(codeword.tobytes(), codeword)
        if len(chosen) == count:
            return np.stack(list(chosen.values()))
    bits = len(next(iter(chosen.values())))
    raise UsageError(
        f"Drew only {len(chosen)} distinct codewords of {bits} bits for {count} classes. "
        "Use more bits."
    )


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise UsageError(f"{name} must be an integer, got {value!r}.")
    return int(value)


def _check_sizes(classes: int, bits: int) -> None:
    if not 2 <= classes <= MAX_CLASSES:
        raise UsageError(f"classes must be >= 2 and <= {MAX_CLASSES}, got {classes}.")
    if not 1 <= bits <= MAX_BITS:
        raise UsageError(f"bits must be >= 1 and <= {MAX_BITS}, got {bits}.")
    needed = (classes - 1).bit_length()
    if needed > bits:
        raise UsageError(
            f"bits must be >= {needed} for {classes} classes, got {bits}: "
            f"{bits} bits give only {2**bits} codewords."
        )
