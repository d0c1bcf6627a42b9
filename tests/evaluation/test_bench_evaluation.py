"""The benchmark of evaluation runs at a small size."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path


def test_benchmark_measures_both_ways(tmp_path, capsys):
    path = Path(__file__).parents[2] / "bench" / "evaluation.py"
    specification = importlib.util.spec_from_file_location("bench_evaluation", path)
    bench = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(bench)
    out = tmp_path / "evaluation.json"
    bench.main(
        [
            "--queries",
            "40",
            "--database",
            "900",
            "--sample",
            "4",
            "--rounds",
            "2",
            "--out",
            str(out),
        ]
    )
    result = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == result
    assert {"command", "date", "hardware", "versions"} <= set(result)
    for case in (result["single_label"], result["multi_label"]):
        assert case["whole"]["seconds"] > 0 and 0.1 < case["whole"]["map"] <= 1
        assert case["largest_difference_of_ap_by_ties"] < 0.2
        assert len(case["milliseconds_per_query"]) == 4 and len(case["ratios"]) == 4
