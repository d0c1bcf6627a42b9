"""Groups of nearly equal codes equal the connected components of all pairs."""

from __future__ import annotations

import time

import numpy as np
import pytest

from hadahash.codes import Codes, hamming
from hadahash.errors import UsageError
from hadahash.index import Index
from hadahash.index import duplicate_links as module
from hadahash.index.duplicates import duplicate_groups


def components(codes, radius):
    """Groups by depth-first search over all pairs."""
    near = hamming(codes.packed, codes.packed) <= radius
    group = np.full(len(codes), -1)
    for start in range(len(codes)):
        stack = [start] if group[start] < 0 else []
        while stack:
            row = stack.pop()
            group[row] = start
            stack += np.flatnonzero(near[row] & (group < 0)).tolist()
    members = [np.sort(codes.ids[group == number]).tolist() for number in np.unique(group)]
    return sorted((m for m in members if len(m) > 1), key=lambda m: (-len(m), m[0]))


@pytest.mark.parametrize("neighbors", [1, 2, 5, 64])
@pytest.mark.parametrize("radius", [0, 1, 4, 9, 64])
@pytest.mark.parametrize("flips", [0.02, 0.08, 0.5])
def test_groups_equal_components(make, monkeypatch, radius, flips, neighbors):
    monkeypatch.setattr(module, "_NEIGHBORS_PER_QUERY", neighbors)
    monkeypatch.setattr(module, "_QUERIES_PER_STEP", 50)
    codes = make(400, flips=flips)
    assert duplicate_groups(Index.build(codes), radius) == components(codes, radius)


def test_progress_counts_every_item_once(make):
    codes, counts = make(3000, flips=0.03), []
    duplicate_groups(Index.build(codes), 3, progress=counts.append)
    assert sum(counts) == 3000 and len(counts) > 1


def test_dense_clusters_take_seconds(rng):
    """Every code has hundreds of neighbors: the pairs are far too many to list."""
    centroids = rng.integers(0, 256, (100, 8), dtype=np.uint8)
    flips = np.packbits(rng.random((30_000, 64), np.float32) < 0.05, axis=1)
    packed = centroids[rng.integers(0, 100, 30_000)] ^ flips
    index = Index.build(Codes(packed=packed, bits=64))
    start = time.perf_counter()
    groups = duplicate_groups(index, 6)
    assert time.perf_counter() - start < 20
    assert len(groups) >= 90 and sum(map(len, groups)) > 29_000


def test_an_invalid_radius_is_refused(make):
    for radius in (-1, 1.5, True):
        with pytest.raises(UsageError, match="radius must be an integer"):
            duplicate_groups(Index.build(make(3)), radius)


def test_a_radius_of_any_size_joins_all_items(make):
    index = Index.build(make(3))
    for radius in (index.bits, 10**30):
        assert duplicate_groups(index, radius) == [sorted(index.ids.tolist())]
