"""A reference index: a dictionary with distances computed bit by bit."""

from __future__ import annotations

import numpy as np

from hadahash.index import ENGINES, list_engines
from hadahash.index.local import LocalIndex

LOCAL_ENGINES = [
    name for name in list_engines() if issubclass(ENGINES.get(name), LocalIndex)
]  # those that store their own files


class BruteForce:
    def __init__(self, bits):
        self.bits, self.items = bits, {}  # id -> (bits of the code, labels, path)

    def put(self, codes, labels=None, paths=None):
        for row, (signs, each) in enumerate(zip(codes.signs(), codes.ids.tolist(), strict=True)):
            item_labels = (
                set()
                if labels is None
                else {labels[row]}
                if np.isscalar(labels[row])
                else set(labels[row])
            )
            self.items[each] = (signs, item_labels, None if paths is None else paths[row])

    def search(self, codes, k, *, radius=None, labels=None, ids=None):
        """Lists of (distance, id), at most k."""
        rows = []
        for query in codes.signs():
            found = [
                (int((query != signs).sum()), each)
                for each, (signs, carried, _) in self.items.items()
                if (labels is None or carried & set(labels)) and (ids is None or each in ids)
            ]
            found = sorted(hit for hit in found if radius is None or hit[0] <= radius)
            rows.append(found[:k])
        return rows


def as_lists(hits):
    """Hits as lists of (distance, id), without the padding, which is checked."""
    rows = []
    for ids, distances in zip(hits.ids.tolist(), hits.distances.tolist(), strict=True):
        rows.append(
            [
                (distance, each)
                for distance, each in zip(distances, ids, strict=True)
                if distance >= 0
            ]
        )
        assert all(each in (-1, "") for each in ids[len(rows[-1]) :])
        assert all(distance == -1 for distance in distances[len(rows[-1]) :])
    return rows
