"""Files that are slightly or thoroughly wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

EXTREMES = [
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    bytes(4),
    b"\x80\0\0\0",
    b"\0\0\0\x01",
]


def mutated(rng: np.random.Generator, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds after one to four random changes."""
    data = bytearray(seeds[rng.integers(len(seeds))])
    for _ in range(rng.integers(1, 5)):
        if not data:
            break
        _change(rng, data, seeds)
    return bytes(data)


def _change(rng: np.random.Generator, data: bytearray, seeds: Sequence[bytes]) -> None:
    # headers are at the beginning: half of the changes are there
    end = len(data) if rng.random() < 0.5 else min(len(data), 200)
    at, size = int(rng.integers(end)), int(rng.integers(1, 64))
    kind = rng.integers(8)
    if kind < 3:
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == 3:
        data[at : at + 4] = EXTREMES[rng.integers(len(EXTREMES))]
    elif kind == 4:
        del data[at : at + size]
    elif kind == 5:
        data[at:at] = data[at : at + size] * int(rng.integers(1, 20))
    elif kind == 6:
        del data[at:]
    else:
        other = seeds[rng.integers(len(seeds))]
        start = int(rng.integers(len(other) + 1))
        data[at:] = other[start : start + 2000]
