"""Components of linked rows, and the links that form them: union-find in whole arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Links = NDArray[np.int64]  # (m, 3): two rows and their distance


def join(parent: NDArray[np.int64], links: Links) -> Links:
    """Join the components of linked rows, the nearest first.

    Args:
        parent: The forest of components, which is changed.
        links: Links in any order.

    Returns:
        The links that joined two components.
    """
    kept = []
    for distance in np.unique(links[:, 2]):
        level = links[links[:, 2] == distance]
        while len(level):
            roots = np.sort(find(parent, level[:, :2].ravel()).reshape(-1, 2), axis=1)
            differ = roots[:, 0] != roots[:, 1]
            level, roots = level[differ], roots[differ]
            high, first = np.unique(roots[:, 1], return_index=True)
            parent[high] = roots[first, 0]  # to a smaller root: there are no cycles
            kept.append(level[first])
    return np.concatenate([*kept, np.zeros((0, 3), np.int64)])


def find(parent: NDArray[np.int64], nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The root of each node; paths are halved on the way."""
    while True:
        up = parent[nodes]
        top = parent[up]
        if np.array_equal(up, top):
            return up
        parent[nodes] = top
        nodes = up
