"""The benchmark of rankings runs at a small size."""

from __future__ import annotations

import json

from benches import load_bench


def test_the_benchmark_measures_all_rankings(tmp_path, capsys, monkeypatch):
    out = tmp_path / "ranking.json"
    bench = load_bench("ranking", monkeypatch)
    monkeypatch.setattr(bench, "QUERIES", 2)
    bench.main(["--sizes", "9000", "--rounds", "1", "--out", str(out)])
    result = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == result
    assert [case["kind"] for case in result["cases"]] == ["clustered", "repeated", "random"]
    for case in result["cases"]:
        ways = {"real", "class", "photo", "weighted"}
        assert {f"{way} / plain" for way in ways} <= set(case["ratios"])
        assert set(case["milliseconds_per_query"]) >= ways | {"plain"}
        assert case["distinct_codes"] <= 9000
    text = load_bench("page", monkeypatch).render({"ranking": result}, {})
    assert "## Ranked search" in text and "| 9,000 | repeated |" in text
