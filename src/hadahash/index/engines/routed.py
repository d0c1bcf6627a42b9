"""The codeword-routed engine: exact, and far quicker than a scan where codes lie in clusters.

Each item is kept under its nearest codeword c, ordered by its distance r to it. By the triangle inequality an item is at
least |d(query, c) - r| from a query. So the nearest bucket is scanned first, and of the others only what may still hold
something nearer than the k-th best: with codes of a trained network that is next to nothing. The same holds for the sum
over the quarters of a code, which leaves little even of the nearest bucket. With random codes nearly everything would be
left; a table that is like that is not rearranged but scanned, as the exact engine does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...codes import hamming, pack, unpack
from ...native import search as native
from ..api import ENGINES
from ..segments import LocalIndex

_WORTH_ROUTING = (
    1 << 19
)  # bytes of codes, which take a scan 10 microseconds; fewer are only scanned
_WORTH_LEARNING = 1 << 20  # bytes of codes; a codebook that is given costs nothing
_MOST_COMPARED = 0.5  # of the codes, by an average query; where it is more, a scan takes no longer
_CHECK = 8  # codes are compared in the time in which a bucket, a ring or a run is passed over
_ASKED, _K = 64, 11  # queries to find that out: codes of the table, each of which finds itself
_FEWEST_IN_A_RUN = 512  # bytes of codes, on average; where quarters cut finer, runs are whole rings
_AT_ONCE = 1 << 18
_SAMPLE, _ROUNDS = 16_384, 4
_FEWEST_CENTRES, _MOST_CENTRES = 16, 192


@ENGINES.register("routed")
class RoutedIndex(LocalIndex):
    """Without a codebook, each segment learns centres of its own; one that gains nothing by routing is scanned."""

    engine = "routed"

    def layout(self, rows: native.Rows) -> native.Table:
        if rows.nbytes >= (_WORTH_LEARNING if self.codebook is None else _WORTH_ROUTING):
            centres = self.codebook
            if centres is None:
                centres = learned_centres(native.packed_of(rows, self.bits), self.bits)
            table = routed_table(rows, native.rows_of(centres), self.bits)
            if pays(table, self.bits):
                return table
        return native.Table(native.aligned(rows))


def pays(table: native.Table, bits: int) -> bool:
    """Whether the codes of a routed table, as queries, are compared with so few that it is worth the detour."""
    if table.runs is None:
        return False
    queries = table.rows[np.linspace(0, len(table) - 1, _ASKED).astype(np.int64)]
    compared = native.compared(table, queries, k=_K, bits=bits)
    if compared is None:
        return True
    buckets, rings, runs = (
        len(table.runs.centres),
        len(table.runs.ring_spans),
        len(table.runs.starts),
    )
    return compared + _CHECK * (buckets + rings + runs / buckets) < _MOST_COMPARED * len(table)


def routed_table(rows: native.Rows, centres: native.Rows, bits: int) -> native.Table:
    """Codes in the order of ids, rearranged by (nearest centre, distance to it, distance in each quarter, id)."""
    limits = np.full(len(rows), (bits + 1) << 32, np.uint64)
    keys = (
        native.nearest(native.Table(centres), rows, k=1, limits=limits).keys[:, 0].astype(np.int64)
    )
    buckets, spans = keys & 0xFFFFFFFF, keys >> 32
    rings = buckets * (bits + 1) + spans
    fine = rings << 32 | _quarters(rows, centres, buckets)
    order = np.argsort(fine, kind="stable")
    starts = native.changes(fine[order])
    by_quarters = rows.nbytes >= _FEWEST_IN_A_RUN * len(starts)
    if not by_quarters:
        order = np.argsort(rings, kind="stable")
        starts = native.changes(rings[order])
    first = order[starts]
    ordered = native.aligned(rows, order)
    runs = native.runs_of(
        centres,
        np.stack([buckets[first], spans[first], starts], axis=1),
        ordered,
        by_quarters=by_quarters,
    )
    return native.Table(ordered, ranks=order.astype(np.uint32), runs=runs)


def _quarters(
    rows: native.Rows, centres: native.Rows, buckets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """`native.quarters` of each code and its centre as one number, in steps of bounded memory."""
    found = np.empty((len(rows), 4), np.uint8)
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        found[part] = native.quarters(rows[part], centres[buckets[part]])
    return found.view(np.uint32)[:, 0].astype(np.int64)


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
