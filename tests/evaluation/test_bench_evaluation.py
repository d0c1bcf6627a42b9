"""The benchmark of evaluation runs at a small size."""

from __future__ import annotations

import json

from benches import load_bench


def test_benchmark_measures_both_ways(tmp_path, capsys, monkeypatch):
    bench = load_bench("evaluation", monkeypatch)
    out = tmp_path / "evaluation.json"
    arguments = "--queries 40 --database 900 --sample 4 --rounds 2"
    bench.main([*arguments.split(), "--out", str(out)])
    result = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == result
    assert {"command", "date", "hardware", "versions", "revision", "load_after"} <= set(result)
    for case in (result["single_label"], result["multi_label"]):
        assert case["whole"]["seconds"] > 0 and 0.1 < case["whole"]["map"] <= 1
        assert case["largest_difference_of_ap_by_ties"] < 0.2
        # hadahash and the float loop on 1 and 2 threads, the popcount loop on 1
        assert len(case["milliseconds_per_query"]) == 5 and len(case["ratios"]) == 6
        assert set(case["quartiles"]) == set(case["ratios"])
        assert set(case["best"]["ratios"]) == {
            "argsort loop, float / hadahash",
            "argsort loop, popcount / hadahash",
        }
    text = load_bench("page", monkeypatch).render({"evaluation": result}, {})
    assert "| single label |" in text and "each side with its best number" in text.replace(
        "\n", " "
    )


def test_each_side_gets_its_best_number_of_threads(monkeypatch):
    bench = load_bench("evaluation", monkeypatch)
    times = {
        "hadahash, 1 thread(s)": [2.0, 2.0],
        "hadahash, 2 thread(s)": [1.0, 1.0],
        "argsort loop, float, 1 thread(s)": [6.0, 6.0],
        "argsort loop, float, 2 thread(s)": [8.0, 8.0],
        "argsort loop, popcount": [3.0, 3.0],
    }
    assert bench.best(times)["ratios"] == {
        "argsort loop, float / hadahash": 6.0,
        "argsort loop, popcount / hadahash": 3.0,
    }
