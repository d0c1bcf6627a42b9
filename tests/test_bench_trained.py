"""The benchmarks that read evaluated runs, at a small size."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from benches import load_bench
from toys import tiny_config, use_smallest_backbone

from hadahash import Codes
from hadahash.runs import DataSpec, evaluate_run, train_run


@pytest.fixture
def run(toy_folder, tmp_path, monkeypatch):
    """A small evaluated run."""
    use_smallest_backbone(monkeypatch)
    out = tmp_path / "runs" / "toy"
    train_run(tiny_config(backbone="smallest", epochs=1), DataSpec(str(toy_folder)), out)
    evaluate_run(out)
    return out


def test_the_routed_search_is_measured_with_the_codewords_of_the_model(
    run, tmp_path, capsys, monkeypatch
):
    bench = load_bench("trained", monkeypatch)
    out = tmp_path / "trained.json"
    arguments = [f"toy={run}", "--size", "500", "--k", "3", "--rounds", "2", "--out", str(out)]
    bench.main(arguments)
    result = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == result and "revision" in result
    assert [case["codes"] for case in result["cases"]] == [44, 500]
    for case in result["cases"]:
        assert case["same_answers"] and case["certified"] and case["codes_of"] == "toy"
        assert set(case["ratios"]) == set(case["quartiles"]) == {"exact / routed"}
    page = load_bench("page", monkeypatch)
    text = page.render({"trained": result}, {})
    assert "| toy | 500 | 16 | 3 | " in text and "toy: hcdh" in text and "smallest" in text


def test_the_codes_of_all_runs_are_described(run, tmp_path, monkeypatch):
    shutil.copytree(run, run.parent / "again")
    bench = load_bench("codes", monkeypatch)
    out = tmp_path / "codes.json"
    bench.main([str(run.parent), "--out", str(out)])
    result = json.loads(out.read_text())
    assert {"date", "hardware", "versions", "revision", "load_before"} <= set(result)
    assert set(result["runs"]) == {"again", "toy"}
    assert result["runs"]["again"] == result["runs"]["toy"]


def test_codes_are_compared_with_the_majority_code_of_their_class(monkeypatch):
    bench = load_bench("codes", monkeypatch)
    signs = np.ones((8, 8), np.int8)
    signs[4:] = -1
    signs[0, 0] = -1
    labels = np.array([2, 2, 2, 2, 5, 5, 5, 5])  # class numbers without codes do not matter
    found = bench.figures(Codes.from_signs(signs), labels)
    assert found == {
        "nearest_to_own_class": 1.0,
        "equal_to_own_class": 7 / 8,
        "mean_distance_to_own_class": 1 / 8,
        "least_distance_between_classes": 8,
    }
