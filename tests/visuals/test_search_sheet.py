"""The page of one search."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from hadahash.visuals import search_sheet
from hadahash.visuals.search_sheet import write_search_sheet


class Hit(NamedTuple):
    id: object
    distance: int
    labels: tuple[object, ...] = ()
    path: str | None = None


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, size in (("query.jpg", (1200, 800)), ("a.jpg", (500, 900)), ("b <i>.png", (20, 30))):
        (tmp_path / "photos").mkdir(exist_ok=True)
        pixels = rng.integers(0, 255, (size[1] // 10 + 1, size[0] // 10 + 1, 3), np.uint8)
        Image.fromarray(pixels).resize(size).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


def test_sheet_shows_names_distances_and_labels(photos, tmp_path):
    hits = [
        Hit("x", 0, ("cat", 7), str(photos / "a.jpg")),
        Hit(str(photos / "b <i>.png"), 3),
    ]
    page = tmp_path / "sheet.html"
    assert write_search_sheet(page, photos / "query.jpg", hits, bits=64) == []
    text = page.read_text()
    assert "<b>query.jpg</b>" in text and "<b>a.jpg</b>" in text and "cat, 7" in text
    assert "<b>b &lt;i&gt;.png</b>" in text and "<i>" not in text
    assert "same code" in text and "3 of 64 bits differ" in text
    assert str(photos) in text, "the folder of each file"
    assert "<script" not in text and "http" not in text
    assert text.count("data:image/jpeg;base64,") == 3


def test_pictures_are_large_and_uncropped(photos, tmp_path):
    import base64
    import io

    page = tmp_path / "sheet.html"
    hits = [Hit(str(photos / "a.jpg"), 1), Hit(str(photos / "b <i>.png"), 2)]
    write_search_sheet(page, photos / "query.jpg", hits)
    sources = re.findall(r"base64,([^\"]+)", page.read_text())
    sizes = [Image.open(io.BytesIO(base64.b64decode(own))).size for own in sources]
    assert sizes == [(360, 240), (200, 360), (20, 30)]


def test_unreadable_images_have_a_placeholder_and_are_returned(photos, tmp_path):
    page = tmp_path / "sheet.html"
    hits = [Hit(1, 5, (), str(photos / "gone.jpg")), Hit(2, 6, (), str(photos / "a.jpg"))]
    (problem,) = write_search_sheet(page, photos / "query.jpg", hits)
    text = page.read_text()
    assert "gone.jpg" in problem and "\n" not in problem
    assert text.count('class="missing"') == 1 and "<b>gone.jpg</b>" in text
    assert text.count("data:image/jpeg") == 2


def test_names_that_are_not_unicode(photos, tmp_path):
    odd = photos / "caf\udce9.jpg"
    try:
        odd.write_bytes((photos / "a.jpg").read_bytes())
    except OSError:
        pytest.skip("this file system holds Unicode names only")
    write_search_sheet(tmp_path / "s.html", odd, [Hit(str(odd), 0)])
    assert "caf?.jpg" in (tmp_path / "s.html").read_text()


def test_docstring_examples():
    assert doctest.testmod(search_sheet).failed == 0
