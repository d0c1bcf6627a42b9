"""The pages fit a desktop and a phone, and load nothing from outside."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from hadahash import Codes, evaluate
from hadahash.visuals.demo_page import DemoResult, write_demo_page
from hadahash.visuals.search_sheet import write_search_sheet
from hadahash.visuals.thumbnails import Thumbnail

playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = os.environ.get("HADAHASH_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
LONG = "a-very-long-name-without-any-space-" * 3

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not Path(CHROMIUM).exists(),
        reason="chromium is not installed; HADAHASH_CHROMIUM may name it",
    ),
]


class Hit(NamedTuple):
    id: str
    distance: int
    labels: tuple[str, ...] = (LONG, "cat")
    path: str | None = None


def _sheet(folder: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (60, 90, 3), np.uint8)
    photo = folder / f"{LONG}.jpg"
    Image.fromarray(pixels).resize((900, 600)).save(photo)
    hits = [Hit(str(photo), bits) for bits in range(6)] + [Hit(str(folder / "gone.jpg"), 7)]
    write_search_sheet(folder / "sheet.html", photo, hits, bits=64)
    return folder / "sheet.html"


def _demo(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    book = np.where(rng.random((4, 64)) < 0.5, -1, 1).astype(np.int8)
    labels = np.arange(40) % 4
    codes = Codes.from_signs(book[labels])
    report = evaluate(codes, labels, codes, labels)
    picture = rng.integers(0, 255, (32, 32, 3), np.uint8)
    query = Thumbnail(picture, f"{LONG}\nAP 0.50")
    row = [query, *(Thumbnail(picture, f"{LONG}\n✓ 3", bool(i % 2)) for i in range(10))]
    result = DemoResult(
        "toys", "Features.", {LONG: report}, [row] * 3, [row] * 3, book, [LONG, *"bcd"]
    )
    write_demo_page(folder / "demo.html", result)
    return folder / "demo.html"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("write", [_sheet, _demo])
def test_page_fits_the_window(browser, tmp_path, write, width):
    page = browser.new_page(viewport={"width": width, "height": 844})
    requests, errors = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(write(tmp_path).as_uri())
    size = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert size[0] <= size[1], "the page scrolls sideways"
    assert all(url.startswith(("file:", "data:")) for url in requests) and not errors
    broken = page.evaluate("[...document.images].filter(i => !i.naturalWidth).length")
    assert broken == 0
    page.close()


def test_pictures_of_the_sheet_are_large(browser, tmp_path):
    for width, columns in ((1280, 4), (390, 2)):
        page = browser.new_page(viewport={"width": width, "height": 844})
        page.goto(_sheet(tmp_path).as_uri())
        boxes = page.evaluate(
            "[...document.querySelectorAll('.sheet img')].map(i => i.getBoundingClientRect())"
            ".map(b => [b.width, b.top])"
        )
        assert min(own for own, _ in boxes) > 150, "pictures are at least 150 px wide"
        assert sum(top == boxes[0][1] for _, top in boxes) == columns
        page.close()
