"""The codeword-routed engine: exact, and far quicker than a scan where codes lie in clusters.

Each item is kept under its nearest codeword c, ordered by its distance r to it. By the triangle inequality an item is at
least |d(query, c) - r| from a query. So the nearest bucket is scanned first, and of the others only what may still hold
something nearer than the k-th best: with codes of a trained network that is next to nothing, with random codes
everything, which takes as long as the flat scan.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming, pack, unpack
from ..native import search as native
from .base import ENGINES
from .local import LocalIndex

_WORTH_ROUTING = 1 << 17  # codes, which take a scan 50 microseconds; a codebook that is given is used from the first code on
_SAMPLE, _ROUNDS = 16_384, 4
_FEWEST_CENTRES, _MOST_CENTRES = 16, 192


@ENGINES.register("routed")
class RoutedIndex(LocalIndex):
    """Without a codebook, each segment learns centres of its own."""

    engine = "routed"

    def layout(self, rows: native.Rows) -> native.Table:
        centres = self.codebook
        if centres is None and len(rows) < _WORTH_ROUTING:
            return native.Table(native.aligned(rows))
        if centres is None:
            centres = learned_centres(native.packed_of(rows, self.bits), self.bits)
        return routed_table(rows, native.rows_of(centres), self.bits)


def routed_table(rows: native.Rows, centres: native.Rows, bits: int) -> native.Table:
    """Codes in the order of ids, rearranged by (nearest centre, distance to it, id)."""
    limits = np.full(len(rows), (bits + 1) << 32, np.uint64)
    keys = native.nearest(native.Table(centres), rows, k=1, limits=limits).keys[:, 0].astype(np.int64)
    places = (keys & 0xFFFFFFFF) * (bits + 1) + (keys >> 32)  # bucket, then span
    order = np.argsort(places, kind="stable")
    places = places[order]
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    buckets, spans = np.divmod(places[starts], bits + 1)
    runs = native.runs_of(centres, buckets, spans, starts, len(rows))
    return native.Table(native.aligned(rows, order), ranks=order.astype(np.uint32), runs=runs)


def learned_centres(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Centres of a sample: first far apart (each new one drawn by the fourth power of its distance to those before), then
    each the majority of its members' bits, a few times over. The same codes always give the same centres."""
    rng = np.random.default_rng(0)
    sample = packed[np.sort(rng.choice(len(packed), min(_SAMPLE, len(packed)), replace=False))]
    count = int(np.clip(np.sqrt(len(packed)) / 16, _FEWEST_CENTRES, _MOST_CENTRES))
    centres = sample[[rng.integers(len(sample))]]
    nearest = hamming(sample, centres)[:, 0].astype(np.float64)
    while len(centres) < count and nearest.any():
        new = sample[[rng.choice(len(sample), p=nearest**4 / (nearest**4).sum())]]
        centres = np.concatenate([centres, new])
        nearest = np.minimum(nearest, hamming(sample, new)[:, 0])
    signs = unpack(sample, bits).astype(np.int32)
    for _ in range(_ROUNDS):
        members = hamming(sample, centres).argmin(axis=1)
        sums = np.zeros((len(centres), bits), np.int32)
        np.add.at(sums, members, signs)
        centres = np.unique(pack(sums), axis=0)
    return centres
