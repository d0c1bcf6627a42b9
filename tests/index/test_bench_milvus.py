"""The benchmark of the Milvus engine runs, and so do the examples of the page about scale."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from benches import ROOT, load_bench

from hadahash import Index


@pytest.fixture
def bench(monkeypatch):
    return load_bench("milvus", monkeypatch)


def test_the_benchmark_measures_and_writes_its_table(bench, tmp_path, capsys, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured -->\nold\n<!-- end of measured -->\nafter\n")
    out = tmp_path / "milvus.json"
    monkeypatch.setenv("HADAHASH_MILVUS_URI", "")  # restored after the test
    options = ["--lite", "--sizes", "2000", "--rounds", "1", "--settle", "0"]
    options += ["--out", str(out), "--page", str(page)]
    bench.main(options)
    result = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == result
    assert {"command", "date", "hardware", "versions", "revision", "load_after"} <= set(result)
    (case,) = result["cases"]
    assert case["inserted_per_second"] > 0 and all(row["same_answers"] for row in case["searches"])
    text = page.read_text()
    assert text.startswith("before\n<!-- measured -->\n| codes") and text.endswith(
        "<!-- end of measured -->\nafter\n"
    )
    assert "| 2,000 |" in text and "All results were equal." in text and "old" not in text


def test_the_page_shows_the_stored_results(bench):
    result = json.loads((ROOT / "bench" / "results" / "milvus.json").read_text())
    assert bench.table(result) in (ROOT / "docs" / "scale.md").read_text(), (
        "run: python bench/page.py"
    )


def test_the_examples_of_the_page_run(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2, 3, 4):
        ids = np.array([f"cat/{number}-{each}.jpg" for each in range(5)])
        make(5, 64, ids).save(tmp_path / "codes" / f"{number}.npz")
    text = (ROOT / "docs" / "scale.md").read_text()
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    blocks = [block for block in found if "hh.Codes.load" in block]  # the others need a model
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})
    assert len(Index.open("photos.index")) == 20 and len(Index.open("far.index")) == 5
    Index.open("far.index").drop()
