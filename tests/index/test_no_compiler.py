"""Without the compiled library: one warning for large indexes, and the same results."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from hadahash.index import ENGINES, Index, local
from hadahash.index._contract_ranked import ranked_checks


def test_a_large_index_warns_once_without_the_compiled_library(make, monkeypatch, tmp_path):
    monkeypatch.setenv("HADAHASH_NATIVE", "0")
    monkeypatch.setattr(local, "_warned", False)
    monkeypatch.setattr(local, "_SLOW_SIZE", 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Index.build(make(900))
    with pytest.warns(RuntimeWarning, match=r"Searching 2,000 codes without the compiled library"):
        index = Index.build(make(2000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.save(tmp_path / "i")
        Index.open(tmp_path / "i")
    monkeypatch.setattr(local, "_warned", False)
    with pytest.warns(RuntimeWarning, match="without the compiled library"):
        Index.open(tmp_path / "i")


def test_the_results_are_the_same(make, monkeypatch):
    codes, queries = make(500), make(7)
    expected = Index.build(codes).search(queries, 20)
    monkeypatch.setenv("HADAHASH_NATIVE", "0")
    for engine in ("exact", "routed"):
        hits = Index.build(codes, engine=engine).search(queries, 20)
        assert hits.exact and np.array_equal(hits.ids, expected.ids)


@pytest.mark.parametrize("engine", ["exact", "routed"])
@pytest.mark.parametrize("check", ranked_checks().values(), ids=ranked_checks().keys())
def test_ranked_searches_are_the_same(check, engine, monkeypatch):
    monkeypatch.setenv("HADAHASH_NATIVE", "0")
    check(ENGINES.get(engine))
