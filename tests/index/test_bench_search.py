"""The search benchmark runs at a small size."""

from __future__ import annotations

import json

import pytest
from benches import load_bench


@pytest.fixture
def bench(monkeypatch):
    pytest.importorskip("faiss")
    return load_bench("search", monkeypatch)


def test_the_benchmark_measures_all_engines(bench, tmp_path, capsys, monkeypatch):
    out = tmp_path / "search.json"
    arguments = "--sizes 6000 --bits 32 64 --batches 1 4 --threads 1 2 --rounds 1 --large 4000"
    bench.main([*arguments.split(), "--large-rounds", "1", "--out", str(out)])
    result = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == result
    assert {"command", "date", "hardware", "versions", "revision", "load_after"} <= set(result)
    assert result["faiss_built_for"] == bench.faiss.get_compile_options().strip()
    assert len(result["cases"]) == 16 and len(result["best"]) == 8
    for case in result["cases"]:
        right = case["rows_with_the_true_distances"]
        assert set(right.values()) == {1.0} and case["read_bandwidth_gb_per_s"] > 0
        assert set(case["milliseconds_per_query"]) >= {"exact", "routed", "faiss flat"}
        assert "faiss flat, counting" in right
        assert {"faiss flat / exact", "exact / routed"} <= set(case["ratios"])
        assert set(case["quartiles"]) == set(case["ratios"])
    for case in result["best"]:
        sides = {"exact", "routed", "faiss flat"}
        assert set(case["ways"]) - {"faiss ivf"} == sides
        assert set(case["quartiles"]) == set(case["ratios"])
    text = load_bench("page", monkeypatch).render({"search": result}, {})
    assert text.count("| 6,000 | 64 | clustered | 4 |") == 3  # best threads, 1 thread, 2 threads
    plain = result["numpy"]
    assert (plain["codes"], plain["bits"], plain["rows_with_the_true_distances"]) == (6000, 64, 1)
    assert "Without a C compiler at install time, numpy takes" in text and "before" not in result
    old = plain | {"ratios": {"faiss flat / exact": 1.25}, "quartiles": {}}
    text = load_bench("page", monkeypatch).render({"search": result | {"before": old}}, {})
    assert "- *faiss flat / exact* of version 0.1: 1.25 (6,000 random codes of 64 bits" in text
    assert "best threads of each | >= 1 | 1.25 |" in text
    check_large(result["large"], text)


def check_large(large, text):
    """The large collection, which is here small, and its section."""
    assert (large["codes"], large["rounds"]) == (4000, 1) and large["peak_mb"] > 0
    assert [sorted(case["ways"]) for case in large["best"][::2]] == [
        ["exact", "faiss flat"],
        ["exact", "routed"],
        ["faiss ivf", "routed"],
    ]
    assert all(case["rows_with_the_true_distances"] == 1 for case in large["best"])
    for case, engine in zip(large["changes"], ("exact", "routed"), strict=True):
        assert case["engine"] == engine
        assert {"add 1", "remove 999", "first search after remove 1"} <= set(case["milliseconds"])
    assert "### 4,000 codes" in text and "| exact, random codes |" in text
    assert "| routed, clustered codes |" in text


def test_codes_are_the_same_in_blocks(monkeypatch):
    turns = load_bench("search_turns", monkeypatch)
    for kind in ("random", "clustered"):
        whole = turns.Maker(kind, 32)(300_000)
        blocks = list(turns.Maker(kind, 32).blocks(300_000))
        assert len(blocks) == 2 and sum(map(len, blocks)) == len(whole)
        assert all((whole[i << 18 :][: len(part)] == part).all() for i, part in enumerate(blocks))


def test_each_side_gets_its_best_number_of_threads(bench):
    times = {
        ("exact", 1): [2.0, 2.0, 2.0],
        ("exact", 2): [1.0, 2.0, 1.0],
        ("routed", 1): [1.0, 1.0, 1.0],
        ("routed", 2): [3.0, 3.0, 3.0],
        ("faiss flat", 1): [5.0, 5.0, 5.0],
        ("faiss flat", 2): [9.0, 9.0, 9.0],
        ("faiss flat, counting", 1): [4.0, 4.0, 4.0],
        ("faiss flat, counting", 2): [8.0, 8.0, 8.0],
    }
    best = bench.fastest(times)
    assert best["ways"] == {
        "exact": {"engine": "exact", "threads": 2},
        "routed": {"engine": "routed", "threads": 1},
        "faiss flat": {"engine": "faiss flat, counting", "threads": 1},
    }
    assert best["ratios"] == {
        "faiss flat / exact": 4.0,
        "faiss flat / routed": 4.0,
        "exact / routed": 1.0,
    }
    assert best["quartiles"]["faiss flat / exact"] == [3.0, 4.0]
