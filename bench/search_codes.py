"""Random and clustered codes, for benchmarks of searches. They need numpy only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

CODEWORDS, FLIPS = 100, 0.05
Packed = NDArray[np.uint8]


def codewords(bits: int) -> Packed:
    """The packed codewords of clustered codes."""
    return np.random.default_rng(1).integers(0, 256, (CODEWORDS, bits // 8), dtype=np.uint8)


def codeword_signs(bits: int) -> NDArray[Any]:
    """The codewords as +1 and -1."""
    return np.where(np.unpackbits(codewords(bits), axis=1), 1, -1)


class Maker:
    """Makes packed codes, in blocks: random ones, or codewords with flipped bits."""

    def __init__(self, kind: str, bits: int) -> None:
        self.kind, self.bits, self.centroids = kind, bits, codewords(bits)
        self.rng = np.random.default_rng(0)

    def __call__(self, n: int) -> Packed:
        """The next n codes."""
        packed, at = np.empty((n, self.bits // 8), np.uint8), 0
        for block in self.blocks(n):
            packed[at : at + len(block)] = block
            at += len(block)
        return packed

    def blocks(self, n: int) -> Iterator[Packed]:
        """The same codes, block by block."""
        for start in range(0, n, 1 << 18):
            yield self.block(min(1 << 18, n - start))

    def block(self, n: int) -> Packed:
        if self.kind == "random":
            return self.rng.integers(0, 256, (n, self.bits // 8), dtype=np.uint8)
        flips = np.packbits(self.rng.random((n, self.bits), np.float32) < FLIPS, axis=1)
        return np.asarray(self.centroids[self.rng.integers(0, CODEWORDS, n)] ^ flips)
