"""The benchmark of the network's share, at a small size."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benches import load_bench
from PIL import Image

from hadahash.native import usable_cores


def test_the_share_of_the_network_is_measured(saved, tmp_path, monkeypatch):
    for name in ("HADAHASH_FEATURE_CACHE", "XDG_CACHE_HOME"):  # the benchmark sets them
        monkeypatch.setenv(name, "")
    photos, out = tmp_path / "photos", tmp_path / "overlap.json"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for number in range(5):
        pixels = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(photos / f"{number}.jpg")
    bench = load_bench("overlap", monkeypatch)
    sizes = {"count": 4, "distinct": 2, "copies": 3, "megapixels": 0.1}
    options = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    bench.main(["--photos", str(photos), "--model", str(saved), "--out", str(out), *options])
    result = json.loads(out.read_text())
    assert result["runtime"] == "torch" and result["model"]["side"] == 32
    assert [(case["case"], case["photos"]) for case in result["cases"]] == [
        ("as they are", 4),
        ("0.1 megapixels", 6),
    ]
    for case in result["cases"]:
        assert 0 < case["network_busy"] < 1
        assert case["images_per_second"] > 0
        assert 0 < case["seconds"] < case["build_seconds"]
        assert case["decode_cpu_ms"] > 0 and result["network_alone"]["cpu_ms"] > 0
        used = case["decode_cpu_ms"] + result["network_alone"]["cpu_ms"]
        assert case["most_per_second"] == pytest.approx(1000 * usable_cores() / used)
    text = "\n".join(load_bench("sections", monkeypatch).SECTIONS["overlap"](result))
    assert "| as they are | 4 |" in text and "network alone" in text


def test_results_without_the_network_alone_are_shown(monkeypatch):
    case = {"case": "as they are", "photos": 9, "images_per_second": 192.0, "network_busy": 0.95}
    result = {"model": {"side": 9, "backbone": "x", "size": 8}, "runtime": "onnx", "cases": [case]}
    text = "\n".join(load_bench("sections", monkeypatch).SECTIONS["overlap"](result))
    assert "| as they are | 9 | 192 |  |  |  | 95 % |" in text
