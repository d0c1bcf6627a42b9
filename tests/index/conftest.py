from __future__ import annotations

import numpy as np
import pytest

from hadahash.codes import Codes, pack
from hadahash.index.engines import routed


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture(autouse=True)
def route_all(monkeypatch):
    """Route also small tables, by sub-distances, whether that is faster or not."""
    for name, value in {
        "_MIN_ROUTED_BYTES": 0,
        "_MAX_COMPARED": np.inf,
        "_MIN_BLOCK_BYTES": 0,
    }.items():
        monkeypatch.setattr(routed, name, value)


@pytest.fixture
def make(rng):
    """make(n, bits, ids): codes around 6 centroids, with many ties."""

    def codes(n, bits=64, ids=None, flips=0.08):
        centroids = np.random.default_rng(5).choice([-1, 1], (6, bits))
        values = centroids[rng.integers(0, 6, n)] * rng.choice(
            [1, -1], (n, bits), p=[1 - flips, flips]
        )
        return Codes(packed=pack(values), bits=bits, ids=ids)

    return codes
