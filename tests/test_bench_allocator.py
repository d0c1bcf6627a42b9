"""The benchmark of the allocator, at a small size."""

from __future__ import annotations

import json

import pytest
from benches import load_bench


def test_both_ways_are_measured(tmp_path, monkeypatch):
    pytest.importorskip("timm")
    out = tmp_path / "allocator.json"
    arguments = ["--backbone", "test_efficientnet", "--images", "4", "--rounds", "1"]
    load_bench("allocator", monkeypatch).main([*arguments, "--out", str(out)])
    result = json.loads(out.read_text())
    assert set(result["ways"]) == {"default", "kept"}
    for found in result["ways"].values():
        assert found["encode"] > 0 and found["train"] > 0 and 50 < found["peak_mb"] < 2000
    assert len(result["ratios"]["encode"]) == 1
    text = " ".join(load_bench("sections", monkeypatch).SECTIONS["allocator"](result))
    assert "| kept | " in text and "test_efficientnet with random weights" in text
