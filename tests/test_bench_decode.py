"""The benchmark of decoding, at a small size."""

from __future__ import annotations

import json

import numpy as np
from benches import load_bench
from PIL import Image
from toys import tiny_config, use_smallest_backbone

from hadahash.runs import DataSpec, train_run


def test_decoding_is_measured_in_full_and_reduced(toy_folder, tmp_path, monkeypatch):
    use_smallest_backbone(monkeypatch)
    run, photos, out = tmp_path / "run", tmp_path / "large", tmp_path / "decode.json"
    train_run(tiny_config(backbone="smallest", epochs=1), DataSpec(str(toy_folder)), run)
    photos.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        pixels = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(photos / f"{number}.jpg")
    bench = load_bench("decode", monkeypatch)
    sizes = {"count": 2, "few": 1, "timed": 1, "rounds": 2, "megapixels": 1.6, "side": 32}
    options = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    bench.main(["--photos", str(photos), "--model", str(run), "--out", str(out), *options])
    result = json.loads(out.read_text())
    assert result["at_least"] == 512 and len(result["cases"]) == 5
    first = result["cases"][0]
    assert first["photos"] == 2 and set(first["ratios"]) == {"full / reduced"}
    assert first["times_the_side"]["reduced"][0] >= 16
    assert 0.5 < first["equal_bits"]["reduced"]["all"] <= 1
    page = load_bench("page", monkeypatch)
    text = page.render({"decode": result}, {})
    assert "## Decoding large photos" in text and "| 1.6 megapixels | 2 |" in text
