"""Codebooks: one codeword of +1 and -1 for each class, by a named design.

A design is a function (classes, bits, rng) -> int8 (classes, bits), registered under its name; arguments are checked
before it is called.
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
from .quality import distinct

Book = NDArray[np.int8]
Design = Callable[[int, int, np.random.Generator], Book]

DESIGNS: Registry[Design] = Registry("codebook design")
DESIGNS.register("far")(far)

_REDRAWS = 200
MOST_CLASSES, MOST_BITS = 1 << 20, 4096  # larger books take minutes and gigabytes


def codebook(classes: int, bits: int, *, design: str = "far", seed: int = 0) -> Book:
    """A codeword for each class: int8 (classes, bits) of +1 and -1. The same arguments give the same bytes.

    design "far" (default): codewords as far apart as can be had, every bit balanced over the classes, no constant bit.
    design "paper": Algorithm 1 of HCDH to the letter.
    design "random": independent, fair random bits. design "csq": the hash centers of CSQ.

    >>> codebook(4, 3).shape
    (4, 3)
    >>> book = codebook(classes=10, bits=16, design="paper", seed=1).astype(int)
    >>> bool((book @ book.T == 16 * np.eye(10)).all())
    True
    """
    make = DESIGNS.get(design)
    classes, bits, seed = _whole("classes", classes), _whole("bits", bits), _whole("seed", seed)
    _check(classes, bits)
    if seed < 0:
        raise UsageError(f"The seed must not be negative, got seed={seed}.")
    return make(classes, bits, np.random.Generator(np.random.PCG64(seed)))


def paper_order(classes: int, bits: int) -> int:
    """K*, the order of the matrix behind the paper's codebook: the smallest power of two >= bits and > classes.

    Equation (6) asks for >= classes; one row more is needed because the constant row is not drawn.

    >>> [paper_order(10, 16), paper_order(21, 16), paper_order(16, 16)]
    [16, 32, 32]
    """
    return 1 << (max(bits, classes + 1) - 1).bit_length()


@DESIGNS.register("paper")
def paper(classes: int, bits: int, rng: np.random.Generator) -> Book:
    """The Hadamard codebook of Chen et al., "Hadamard Codebook Based Deep Hashing", Algorithm 1.

    K* is the smallest power of two that is >= bits and > classes. If K* = bits, the codewords are rows of Sylvester's
    matrix: every two differ in exactly half of the bits. Else they are rows of sgn(H* T), T a Gaussian matrix (K*,
    bits). Which rows is drawn without repetition.

    Where the paper is silent or contradicts itself, and what is done here:
    - "column vectors" have the wrong length once T has been applied: a codeword is a ROW, as in the authors' code.
    - "eliminating the first row or the first column": row 0, the constant codeword, is never drawn. Column 0 is kept,
      so for K* = bits bit 0 is +1 for EVERY class: a dead bit. The design "far" has none. Without row 0, K* rows serve
      K* - 1 classes, hence "> classes" where equation (6) has ">=".
    - sgn(H* T) can give two classes the same codeword. Deviation: T and the rows are drawn again until all codewords
      differ. Their distances are not improved in any way.
    - sgn(0) = +1, as everywhere in this package.
    """
    order = paper_order(classes, bits)
    if order == bits:
        rows = _draw_rows(classes, order, rng)
        odd = (
            np.bitwise_count(rows[:, None] & np.arange(bits)) & 1
        )  # entry (r, c) of H* is -1 to the |r & c|
        return np.where(odd, -1, 1).astype(np.int8)
    for _ in range(_REDRAWS):
        T = rng.standard_normal((order, bits))
        projected = binarize(walsh(T))  # sgn(H* T), (K*, bits)
        book = np.where(projected[_draw_rows(classes, order, rng)], 1, -1).astype(np.int8)
        if distinct(book) == classes:
            return book
    raise UsageError(
        f"{_REDRAWS} random projections to {bits} bits all gave two of {classes} classes the same codeword: "
        "give more bits, or design='far'."
    )


@DESIGNS.register("random")
def random(classes: int, bits: int, rng: np.random.Generator) -> Book:
    """Codewords of independent, fair random bits; repeated codewords are drawn again.

    Raises:
        UsageError: If 200 * `classes` draws hold fewer than `classes` distinct codewords.
    """
    return _first_distinct(
        (rng.integers(0, 2, bits) * 2 - 1 for _ in range(_REDRAWS * classes)), classes, bits
    )


@DESIGNS.register("csq")
def csq(classes: int, bits: int, rng: np.random.Generator) -> Book:
    """The hash centers of CSQ (Yuan et al., CVPR 2020), in random order over the classes.

    Rows of a Hadamard matrix and their negatives if `bits` is a Hadamard order and `classes` <= 2 * `bits`,
    otherwise random codewords with half of the bits set; repeated codewords are drawn again.

    Raises:
        UsageError: If 200 * `classes` draws hold fewer than `classes` distinct codewords.
    """
    if classes <= 2 * bits and bits in orders(bits):
        H = hadamard(bits)
        return np.concatenate([H, -H])[rng.permutation(2 * bits)[:classes]]
    half = np.where(np.arange(bits) < bits // 2, 1, -1)
    return _first_distinct(
        (rng.permutation(half) for _ in range(_REDRAWS * classes)), classes, bits
    )


def _first_distinct(words: Iterable[NDArray[np.int64]], classes: int, bits: int) -> Book:
    chosen: dict[bytes, NDArray[np.int64]] = {}
    for word in words:
        chosen.setdefault(word.tobytes(), word)
        if len(chosen) == classes:
            return np.stack(list(chosen.values())).astype(np.int8)
    raise UsageError(
        f"Drew only {len(chosen)} different codewords of {bits} bits for {classes} classes: use more bits."
    )


def _draw_rows(classes: int, order: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of H*, without repetition and without row 0."""
    return rng.permutation(order - 1)[:classes] + 1


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise UsageError(f"{name} must be a whole number, got {value!r}.")
    return int(value)


def _check(classes: int, bits: int) -> None:
    if classes == 1:
        raise UsageError("One class has nothing to tell apart: give at least 2 classes.")
    if classes < 1:
        raise UsageError(f"A codebook needs at least 2 classes, got classes={classes}.")
    if bits < 1:
        raise UsageError(f"A codeword needs at least 1 bit, got bits={bits}.")
    if classes > MOST_CLASSES or bits > MOST_BITS:
        raise UsageError(
            f"A codebook has at most {MOST_CLASSES} classes and {MOST_BITS} bits, got classes={classes}, bits={bits}."
        )
    if (classes - 1).bit_length() > bits:
        raise UsageError(
            f"{bits} bits have only {2**bits} different codes, too few for {classes} classes: "
            f"give at least {(classes - 1).bit_length()} bits."
        )
