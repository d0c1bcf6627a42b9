"""The benchmark of search, at a small size, and its section."""

from __future__ import annotations

import json

import pytest
from benches import load_bench

pytest.importorskip("faiss", reason="the benchmark compares with faiss")


@pytest.fixture
def result(tmp_path, monkeypatch):
    out = tmp_path / "search.json"
    bench = load_bench("search", monkeypatch)
    options = "--sizes 3000 --bits 64 --batches 1 --threads 1 --rounds 1 --large 4000"
    bench.main([*options.split(), "--large-rounds", "1", "--out", str(out)])
    return json.loads(out.read_text())


def test_a_large_collection_is_searched_and_changed(result, monkeypatch):
    large = result["large"]
    assert (large["codes"], large["rounds"]) == (4000, 1) and large["peak_mb"] > 0
    assert [sorted(case["ways"]) for case in large["best"]] == [
        ["exact", "faiss flat"],
        ["exact", "routed"],
        ["faiss ivf", "routed"],
    ]
    assert all(case["rows_with_the_true_distances"] == 1 for case in large["best"])
    for case, engine in zip(large["changes"], ("exact", "routed"), strict=True):
        assert case["engine"] == engine
        assert {"add 1", "remove 999", "first search after remove 1"} <= set(case["milliseconds"])
    text = load_bench("page", monkeypatch).render({"search": result}, {})
    assert "### 4,000 codes" in text and "| exact, random codes |" in text
    assert "| routed, clustered codes |" in text and "faiss was built with" in text


def test_codes_are_the_same_in_blocks(monkeypatch):
    turns = load_bench("search_turns", monkeypatch)
    for kind in ("random", "clustered"):
        whole = turns.Maker(kind, 64)(600_000)
        blocks = list(turns.Maker(kind, 64).blocks(600_000))
        assert len(blocks) == 3 and sum(map(len, blocks)) == len(whole)
        assert all(
            (whole[i << 18 :][: len(block)] == block).all() for i, block in enumerate(blocks)
        )


def test_times_are_listed_in_words(monkeypatch):
    page = load_bench("page", monkeypatch)
    assert page.listed(["1 ms"]) == "1 ms"
    assert page.listed(["1 ms", "2 ms", "3 ms"]) == "1 ms, in 2 ms and in 3 ms"
