"""The benchmark runs at a small size."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def test_the_benchmark_measures_all_engines(tmp_path, capsys, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.syspath_prepend(str(BENCH))
    specification = importlib.util.spec_from_file_location("bench_search", BENCH / "search.py")
    bench = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(bench)
    out = tmp_path / "search.json"
    bench.main(
        [
            "--sizes",
            "6000",
            "--bits",
            "32",
            "64",
            "--batches",
            "1",
            "4",
            "--threads",
            "1",
            "--rounds",
            "1",
            "--out",
            str(out),
        ]
    )
    result = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == result
    assert {"command", "date", "hardware", "versions"} <= set(result) and len(result["cases"]) == 8
    for case in result["cases"]:
        shares = case["rows_with_the_true_distances"]
        assert shares["exact"] == shares["routed"] == 1 and case["read_bandwidth_gb_per_s"] > 0
        assert set(case["milliseconds_per_query"]) >= {"exact", "routed", "faiss flat"}
        assert {"faiss flat / exact", "exact / routed"} <= set(case["ratios"])
