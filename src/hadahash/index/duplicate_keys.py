"""Keys such that every pair of nearly equal codes shares one, and few other pairs do.

The bits of a code are divided into blocks, and each block has a dimension k; the dimensions sum to
r + 1. Two codes that differ in at most r bits differ in fewer than k bits of one block (the
pigeonhole principle). Take any linear code of length and dimension of that block: fewer than k
parity checks leave a codeword that is not zero, so one codeword is zero wherever the two differ,
and they agree in all bits where it is one. Its 2^k - 1 codewords are the masks of the keys (Pagh,
"Locality-sensitive hashing without false negatives", 2016). With k = 1, the key is the whole block.

Few blocks have long keys, which few pairs share; many blocks have fewer keys. The number of blocks
is that of the least estimated work.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_WORD = 64  # bits of a block at most; keys of half as many are rare enough
_MOST_KEYS = 1 << 13  # per code
_TRIES = 16  # random linear codes, of which the best is taken
_KEY_COST = 10  # sorting a key costs as much as comparing so many pairs
_LINK_COST = 50  # of a pair within the radius, which is kept
_SCAN_COST = 0.5  # of the search for neighbors, per pair of codes
_FREE = 1e8  # comparisons that are always allowed
_BALANCE = 4
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd; spreads the bits of a block over the high half
_HIGH = np.uint64(0xFFFFFFFF00000000)


class Block(NamedTuple):
    """Some consecutive bits of the codes, and the masks of their keys.

    Attributes:
        start: The first bit.
        masks: One mask per key; its lowest bit is the first one of the block.
    """

    start: int
    masks: Words

    def sorted_keys(self, words: Words) -> Iterator[Words]:
        """The keys of all codes, one mask after another.

        Args:
            words: The codes, uint64 (n, words).

        Yields:
            Sorted keys * 2^32 + position of the code, as `near_pairs` takes them.
        """
        word, shift = divmod(self.start, _WORD)
        bits = words[:, word] >> np.uint64(shift)
        if shift and word + 1 < words.shape[1]:
            bits |= words[:, word + 1] << np.uint64(_WORD - shift)
        positions = np.arange(len(words), dtype=np.uint64)
        for mask in self.masks:
            keys = bits & mask
            keys *= _MIX
            keys &= _HIGH
            keys |= positions
            keys.sort()
            yield keys


def most_work(size: int) -> float:
    """The number of comparisons that cost as much as the search for neighbors.

    Args:
        size: Number of codes.

    Returns:
        The number.
    """
    return _SCAN_COST * size**2 + _FREE


class Plan(NamedTuple):
    """How codes are compared, and the estimated work in comparisons.

    Attributes:
        blocks: The blocks.
        sorting: Work of sorting the keys.
        comparing: Work of comparing the pairs that share a key.
    """

    blocks: list[Block]
    sorting: float
    comparing: float

    @property
    def is_balanced(self) -> bool:
        """Whether comparing takes not much longer than sorting: there are no dense groups."""
        return self.comparing <= _BALANCE * self.sorting + _FREE


def choose_blocks(
    distances: NDArray[np.float64], size: int, radius: int, most: float
) -> Plan | None:
    """The blocks of the least work for codes whose bits are in a random order.

    Args:
        distances: Fraction of all pairs at each distance, (bits + 1,), as far as they would be
            compared.
        size: Number of codes.
        radius: Maximum distance of the pairs that share a key.
        most: The work that is allowed, in comparisons.

    Returns:
        The plan; None if all are more work.
    """
    bits, best, least = len(distances) - 1, None, most
    costs = np.where(np.arange(bits + 1) <= radius, _LINK_COST, 1)
    agreeing = _agreeing(distances * costs) * size**2 / 2
    for count in range(1, min(radius + 1, bits) + 1):
        keys = sum(2**dimension - 1 for dimension in _shares(radius + 1, count))
        sorting = float(keys * size * _KEY_COST)
        if keys > _MOST_KEYS or sorting >= least:
            continue
        blocks = divide(bits, radius, count)
        weights = np.bitwise_count(np.concatenate([block.masks for block in blocks]))
        plan = Plan(blocks, sorting, float(agreeing[weights].sum()))
        if plan.sorting + plan.comparing < least:
            best, least = plan, plan.sorting + plan.comparing
    return best


def divide(bits: int, radius: int, count: int) -> list[Block]:
    """Divide the bits into blocks such that codes within a radius share a key.

    Args:
        bits: Length of the codes.
        radius: Maximum distance of two codes that share a key.
        count: Number of blocks, at most `radius` + 1 and `bits`.

    Returns:
        The blocks.
    """
    lengths = _shares(bits, count)
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    shares = zip(starts, lengths, _shares(radius + 1, count), strict=True)
    return [Block(start, linear_code(min(length, _WORD), k)) for start, length, k in shares]


@cache
def linear_code(length: int, dimension: int) -> Words:
    """The codewords of a binary linear code, without zero: the best of some random ones.

    Args:
        length: Number of bits, at most 64.
        dimension: Number of bits of a message.

    Returns:
        uint64 (2^dimension - 1,). Most have about half of the bits, or more.
    """
    rng, messages = np.random.default_rng(0), np.arange(1, 1 << dimension, dtype=np.uint32)
    places = np.arange(length, dtype=np.uint64)
    best, least = np.zeros(0, np.uint64), np.inf
    for _ in range(_TRIES):
        turns = [rng.permutation(messages) for _ in range(-(-length // len(messages)))]
        columns = np.concatenate(turns)[:length]
        words = (np.bitwise_count(messages[:, None] & columns) & 1).astype(np.uint64)
        shared = float(np.exp2(-words.sum(axis=1, dtype=np.float64)).sum())
        if shared < least:
            best, least = np.bitwise_or.reduce(words << places, axis=1), shared
    return best


def _shares(total: int, count: int) -> list[int]:
    """The total divided into nearly equal numbers, the larger first."""
    return [total // count + (number < total % count) for number in range(count)]


def _agreeing(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """The fraction of the pairs that agree in w random bits, for each w up to 64.

    A pair at distance d agrees in all w of n bits with probability C(n - d, w) / C(n, w).
    """
    bits = len(distances) - 1
    chance, agreeing = np.ones(bits + 1), np.zeros(_WORD + 1)
    same = np.arange(bits, -1, -1)  # bits in which a pair at each distance agrees
    for taken in range(min(_WORD, bits) + 1):
        agreeing[taken] = distances @ chance
        chance = chance * np.maximum(same - taken, 0) / max(bits - taken, 1)
    return agreeing
