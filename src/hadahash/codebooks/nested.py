"""The design "nested": every prefix of 8, 16, 24, ... bits is a good codebook of its own.

A model with such codewords gives codes of every length: the first bits of a long code are a short
code whose classes are as far apart as that length allows, or nearly so. Codebooks are built in
blocks of 8 bits. A block is searched for the minimum distance of the prefix that it completes, with
the blocks before it fixed. Two searches compete. The one with the larger sum of minimum distances
over all prefixes wins, and among equals the one whose distances differ least: an image between two
classes with opposite codewords is as near to all others as to its own.

- columns of a linear code, chosen with the Walsh-Hadamard transform as in `linear`;
- for at most 64 classes also arbitrary balanced columns: each is a cut of the classes into halves
  that separates close pairs, found by exchanging classes.

Codewords within a block are as in `far`: no bit is constant, and bits split the classes evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .bounds import distance_bound, varshamov_floor
from .far import balance_codewords, far
from .hadamard import walsh
from .linear import LinearCode, coset_bits, insert_column, penalty, whole_cosets
from .quality import codebook_quality, minimum_distance

Codebook = NDArray[np.int8]
Reals = NDArray[np.float64]

BLOCK = 8  # bits between two prefixes
_MAX_CLASSES_OF_CUTS = 64
_RESTARTS, _SWEEPS = 4, 3  # searches of a block by cuts
_STEEPNESS = 1.2  # a pair that is one bit closer weighs exp(1.2) times as much
_MAX_WORK = 4e6  # weights computed in one attempt to raise the distance
_EXCHANGES = 60  # attempts to raise the distance of a linear prefix by one


def nested(classes: int, bits: int, rng: np.random.Generator) -> Codebook:
    """Make codewords whose prefixes of every multiple of 8 bits have a large minimum distance.

    At every prefix that can tell the classes apart, the minimum distance is at least the
    Gilbert-Varshamov distance, `varshamov_floor`.

    Args:
        classes: Number of classes.
        bits: Code length.
        rng: Source of all random choices.

    Returns:
        int8 (classes, bits) of +1 and -1, distinct rows.
    """
    found = [_linear(classes, bits, rng)]
    if classes <= _MAX_CLASSES_OF_CUTS:
        found.append(_cuts(classes, bits, rng))
    best = max(found, key=_quality)
    if minimum_distance(best) == 0:  # hardly more codewords than classes
        best = far(classes, bits, rng)
    return _shuffle(balance_codewords(best, rng), rng)


def _quality(codewords: Codebook) -> tuple[int, int]:
    """Sort key: minimum distances of all prefixes, then equal distances of the whole codewords."""
    products = codewords.astype(np.int64) @ codewords.T
    return sum(prefix_distances(codewords)), -int((products**2).sum())


def prefix_lengths(bits: int) -> list[int]:
    """List the lengths of the prefixes: the multiples of 8 below the code length, and the length.

    Args:
        bits: Code length.

    Returns:
        The lengths in increasing order.

    Example:
        >>> prefix_lengths(20)
        [8, 16, 20]
    """
    return [*range(BLOCK, bits, BLOCK), bits]


def prefix_distances(codewords: Codebook) -> list[int]:
    """Measure the minimum distance of every prefix.

    Args:
        codewords: int8 (classes, bits) of +1 and -1.

    Returns:
        One distance for each of `prefix_lengths`.
    """
    return [minimum_distance(codewords[:, :n]) for n in prefix_lengths(codewords.shape[1])]


@dataclass(frozen=True)
class PrefixQuality:
    """Distances of the first bits of a codebook.

    Attributes:
        bits: Length of the prefix.
        minimum_distance: Smallest Hamming distance of two prefixes.
        mean_distance: Mean Hamming distance of two prefixes.
        far_distance: Minimum distance of the design `far` at this length; 0 if it is too short for
            the classes.
        distance_bound: Upper bound on the minimum distance of any codebook of these sizes.
    """

    bits: int
    minimum_distance: int
    mean_distance: float
    far_distance: int
    distance_bound: int


def prefix_quality(codewords: Codebook, *, seed: int = 0) -> list[PrefixQuality]:
    """Measure every prefix of a codebook, beside a codebook made for that length alone.

    Args:
        codewords: int8 (classes, bits) of +1 and -1.
        seed: Seed of the codebooks of the design `far`.

    Returns:
        One entry for each of `prefix_lengths`.
    """
    found = []
    for bits in prefix_lengths(codewords.shape[1]):
        own = codebook_quality(codewords[:, :bits])
        possible = own.classes <= 1 << bits
        other = far(own.classes, bits, np.random.default_rng(seed)) if possible else None
        distance = 0 if other is None else minimum_distance(other)
        entry = own.minimum_distance, own.mean_distance, distance, own.distance_bound
        found.append(PrefixQuality(bits, *entry))
    return found


def _linear(classes: int, bits: int, rng: np.random.Generator) -> Codebook:
    k = (classes - 1).bit_length()
    cosets = coset_bits(classes, k)
    allowed = np.arange(1 << k) & ((1 << cosets) - 1) != 0
    code = LinearCode.from_columns(k, [])
    for length in prefix_lengths(bits):
        first = len(code.columns)
        while len(code.columns) < length:
            target = varshamov_floor(1 << k, len(code.columns) + 1) + 2
            insert_column(code, max(target, code.distance + 2), allowed, rng)
        code = _raise_distance(code, first, allowed, rng)
    return whole_cosets(code, classes, [1 << i for i in range(cosets)], rng)


def _raise_distance(
    code: LinearCode, first: int, allowed: NDArray[np.bool_], rng: np.random.Generator
) -> LinearCode:
    """Exchange the columns from `first` on while that raises the minimum distance."""
    bound = distance_bound(1 << code.k, len(code.columns))
    best = code
    while best.distance < bound:
        higher = _exchange(best.copy(), first, best.distance + 1, allowed, rng)
        if higher is None:
            break
        best = higher
    return best


def _exchange(
    code: LinearCode,
    first: int,
    target: int,
    allowed: NDArray[np.bool_],
    rng: np.random.Generator,
) -> LinearCode | None:
    """The code at the target distance, or None; a new column stays for a few steps."""
    free_at = np.zeros(1 << code.k, np.int64)
    for step in range(int(min(_EXCHANGES, max(4, _MAX_WORK / (1 << code.k))))):
        own = np.array(code.columns[first:])
        loss = walsh(penalty(code.weights, target) - penalty(code.weights - 1, target))
        order = loss[own] - loss[0] + (free_at[own] > step) * (1 << 50)
        removed = code.drop(first + int(rng.choice(np.flatnonzero(order == order.min()))))
        inserted = insert_column(code, target, allowed, rng, exclude=removed)
        free_at[inserted] = step + rng.integers(2, 5)
        if code.distance >= target:
            return code
    return None


def _cuts(classes: int, bits: int, rng: np.random.Generator) -> Codebook:
    distances = np.zeros((classes, classes), np.int64)
    columns: list[Reals] = []
    for length in prefix_lengths(bits):
        size = length - len(columns)
        blocks = [_block(distances, size, rng) for _ in range(_RESTARTS)]
        block = max(blocks, key=lambda found: _closeness(distances + _separated(found)))
        distances += _separated(block)
        columns += block
    return np.stack(columns, axis=1).astype(np.int8)


def _block(distances: NDArray[np.int64], size: int, rng: np.random.Generator) -> list[Reals]:
    """Columns that separate the closest pairs; each is searched again once the others are known."""
    block: list[Reals] = []
    for _ in range(size):
        block.append(_cut(_pair_weights(distances + _separated(block)), rng))
    for _ in range(_SWEEPS):
        for place in range(size):
            others = block[:place] + block[place + 1 :]
            weights = _pair_weights(distances + _separated(others))
            new = _cut(weights, rng)
            if new @ weights @ new < block[place] @ weights @ block[place]:
                block[place] = new
    return block


def _separated(columns: list[Reals]) -> NDArray[np.int64]:
    """How many of the columns separate each pair of classes."""
    if not columns:
        return np.zeros((), np.int64)
    signs = np.stack(columns)
    return ((len(signs) - signs.T @ signs) / 2).astype(np.int64)


def _closeness(distances: NDArray[np.int64]) -> tuple[int, int]:
    """Sort key: minimum distance, then few pairs at it."""
    pairs = distances[np.triu_indices(len(distances), 1)]
    return int(pairs.min()), -int((pairs == pairs.min()).sum())


def _pair_weights(distances: NDArray[np.int64]) -> Reals:
    off = distances + np.eye(len(distances), dtype=np.int64) * (1 << 20)
    weights: Reals = np.exp(-_STEEPNESS * np.minimum(off - off.min(), 40))
    np.fill_diagonal(weights, 0)
    return weights


def _cut(weights: Reals, rng: np.random.Generator) -> Reals:
    """Halves of the classes, as +1 and -1, between which the weights are large.

    Starts at random. The class that is most tied to its own half is exchanged for the best one of
    the other half while that helps.
    """
    classes = len(weights)
    signs = np.ones(classes)
    signs[rng.permutation(classes)[: (classes + int(rng.integers(2))) // 2]] = -1
    ties = weights @ signs
    for _ in range(4 * classes):
        out = int(np.where(signs > 0, ties, -np.inf).argmax())
        gain = np.where(signs > 0, -np.inf, ties[out] - ties + 2 * weights[out])
        into = int(gain.argmax())
        if gain[into] <= 1e-12:
            break
        signs[out], signs[into] = -1, 1
        ties += 2 * (weights[into] - weights[out])
    return signs


def _shuffle(codewords: Codebook, rng: np.random.Generator) -> Codebook:
    """Permute the classes, and the bits within each block."""
    bits = codewords.shape[1]
    blocks = np.split(np.arange(bits), range(BLOCK, bits, BLOCK))
    order = np.concatenate([rng.permutation(block) for block in blocks])
    return np.ascontiguousarray(codewords[rng.permutation(len(codewords))][:, order])
