"""The page in a real browser, against a running server with a small trained model."""

from __future__ import annotations

import base64
import os
import re
import shutil
from pathlib import Path

import pytest
from serving import READ, Place, in_thread

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect

CHROMIUM = os.environ.get("HADAHASH_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SIZES = {"desk": (1280, 900), "phone": (390, 844)}
FIGURES = Path(__file__).parents[2] / "docs" / "figures"
SHOWN = os.environ.get(
    "HADAHASH_SCREENSHOTS"
)  # a folder that holds photos.index, run, photos and query.png

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not Path(CHROMIUM).exists(),
        reason="chromium is not installed; HADAHASH_CHROMIUM may name it",
    ),
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(place):
    with in_thread(place) as address:
        yield address


class Visitor:
    """A page that remembers what must not happen: errors, and requests to anywhere else."""

    def __init__(self, browser, address: str, size: str = "desk", **options) -> None:
        width, height = SIZES[size]
        self.page = browser.new_page(viewport={"width": width, "height": height}, **options)
        self.page.set_default_timeout(15_000)
        self.trouble: list[str] = []
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on(
            "console",
            lambda said: self.trouble.append(said.text) if "Security Policy" in said.text else None,
        )
        self.page.on("dialog", lambda dialog: self.trouble.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self._watch(request.url, address))
        self.page.goto(address)

    def _watch(self, url: str, address: str) -> None:
        if not url.startswith((address, "blob:", "data:")):
            self.trouble.append(url)

    def close(self) -> None:
        assert not self.trouble
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (
            "it scrolls sideways"
        )
        self.page.close()

    @property
    def hits(self):
        return self.page.locator("#grid .hit:has(.distance)")

    def labels(self) -> set[str]:
        return set(self.page.locator("#grid .label span").all_inner_texts())

    def upload(self, path: Path) -> None:
        self.page.set_input_files("#file", path)


@pytest.fixture(params=list(SIZES))
def visitor(request, browser, address):
    visitor = Visitor(browser, address, request.param)
    yield visitor
    visitor.close()


@pytest.fixture
def desk(browser, address):
    visitor = Visitor(browser, address)
    yield visitor
    visitor.close()


def test_upload_results_and_click_through(visitor, place):
    page = visitor.page
    expect(page.locator("#facts")).to_contain_text("48 images · 16 bits")
    expect(page.locator("#grid .hit").first).to_be_visible()  # something to start from
    visitor.upload(place.root / "photos" / "red" / "002.png")
    expect(visitor.hits).to_have_count(24)
    expect(page.locator("#status")).to_have_text(
        re.compile(r"24 images · distance 0 to \d+ · proven exact · [\d.]+ ms")
    )
    assert visitor.hits.first.locator(".distance").inner_text() == "0" and visitor.labels() >= {
        "red"
    }
    assert visitor.hits.first.locator(".label").inner_text() == "red"
    far = visitor.hits.last
    distance = far.locator(".distance").inner_text()
    assert far.locator("canvas.bits").get_attribute("aria-label") == f"{distance} of 16 bits differ"
    expect(page.locator("#preview")).to_be_visible()
    loaded = "images => images.every(image => image.complete && image.naturalWidth > 0)"
    visitor.hits.first.scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('#grid img').naturalWidth > 0")
    assert page.locator("#grid img").evaluate_all(f"all => ({loaded})(all.slice(0, 2))")
    name = far.locator(".name").inner_text()
    far.click()
    expect(page.locator("#query-name")).to_contain_text(name)
    expect(visitor.hits).to_have_count(24)
    assert name not in page.locator("#grid .name").all_inner_texts(), (
        "an image is not among its own neighbours"
    )
    assert "#id=" in page.url


def test_filter_and_sliders(visitor, place):
    page = visitor.page
    visitor.upload(place.root / "photos" / "red" / "002.png")
    expect(visitor.hits).to_have_count(24)
    chip = page.get_by_role("button", name="blue", exact=True)
    chip.click()
    expect(visitor.hits).to_have_count(12)
    assert visitor.labels() == {"blue"} and chip.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="green", exact=True).click()
    expect(visitor.hits).to_have_count(24)
    assert visitor.labels() == {"blue", "green"}
    for label in ("blue", "green"):
        page.get_by_role("button", name=label, exact=True).click()
    page.get_by_role("slider", name="Images").fill("5")
    expect(visitor.hits).to_have_count(5)
    page.get_by_role("slider", name="Images").fill("100")
    expect(visitor.hits).to_have_count(48)
    page.get_by_label("Distance at most").fill("2")
    expect(page.locator("#status")).to_contain_text(re.compile("distance 0"))
    page.wait_for_function(
        "() => [...document.querySelectorAll('.distance')].every(each => Number(each.textContent) <= 2)"
    )
    expect(page.locator("#radius-value")).to_have_text("2")


def test_the_map(visitor):
    page = visitor.page
    expect(page.locator("#surprise")).to_be_enabled()
    canvas = page.locator("#map")
    canvas.scroll_into_view_if_needed()
    spot = page.evaluate(
        """async () => {
          const data = await (await fetch("/v1/map")).json();
          const half = document.getElementById("map").clientWidth / 2;
          return { x: half + data.x[0] * (half - 14), y: half - data.y[0] * (half - 14), count: data.ids.length };
        }"""
    )
    assert spot["count"] == 48
    canvas.hover(position={"x": spot["x"], "y": spot["y"]})
    tip = page.locator("#tip")
    expect(tip).to_be_visible()
    expect(tip.locator("span")).to_have_text("blue")
    page.wait_for_function("() => document.querySelector('#tip img').naturalWidth > 0")
    canvas.click(position={"x": spot["x"], "y": spot["y"]})
    expect(visitor.hits).to_have_count(24)
    expect(page.locator("#query-name")).to_contain_text("blue")
    page.mouse.move(1, 1)
    canvas.focus()
    for key in ("ArrowRight", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    expect(page.locator("#map-live")).to_have_text(re.compile(r"\w+, \w+/\d+\.png"))
    chosen = page.locator("#map-live").inner_text().split("/")[-1]
    page.keyboard.press("Enter")
    expect(page.locator("#query-name")).to_contain_text(chosen)


def test_an_error_is_said_and_forgotten(visitor, place, tmp_path):
    page = visitor.page
    (tmp_path / "note.png").write_text("this is no image")
    visitor.upload(tmp_path / "note.png")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("not an image of a format that is read here")
    expect(page.locator("#grid .hit")).to_have_count(0)
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(10_000_001)
    visitor.upload(tmp_path / "huge.png")
    expect(alert).to_contain_text("at most 10 MB")
    visitor.upload(place.root / "photos" / "red" / "002.png")
    expect(visitor.hits).to_have_count(24)
    expect(alert).to_be_hidden()


def test_drop_paste_and_surprise(desk, place):
    page = desk.page
    expect(page.locator("#surprise")).to_be_enabled()
    give = """([kind, content]) => {
      const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
      const data = new DataTransfer();
      data.items.add(new File([bytes], "x.png", { type: "image/png" }));
      const event = kind === "paste" ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true })
        : new DragEvent(kind, { dataTransfer: data, bubbles: true });
      document.getElementById("drop").dispatchEvent(event);
    }"""
    for kind, name in (("drop", "green/001.png"), ("paste", "yellow/003.png")):
        page.evaluate(give, [kind, base64.b64encode(place.image(name)).decode()])
        expect(desk.hits.first.locator(".label")).to_have_text(name.split("/")[0])
    page.locator("#surprise").click()
    expect(page.locator("#query-name")).to_contain_text(".png")
    first = page.locator("#query-name").inner_text()
    desk.hits.last.click()
    expect(page.locator("#query-name")).not_to_have_text(first)
    page.go_back()
    expect(page.locator("#query-name")).to_have_text(first)


def test_dark_and_light(desk):
    page, shade = desk.page, "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(shade)
    page.get_by_role("button", name="Switch between light and dark").click()
    dark = page.evaluate(shade)
    assert light != dark
    page.reload()
    assert page.evaluate(shade) == dark, "it is remembered"


def test_keyboard_and_screen_reader(desk, place):
    page = desk.page
    desk.upload(place.root / "photos" / "red" / "002.png")
    expect(desk.hits).to_have_count(24)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, canvas[role], a")].filter((each) => {
          const label = each.labels?.[0]?.textContent || each.getAttribute("aria-label") || each.textContent;
          return !label.trim();
        }).map((each) => each.outerHTML)"""
    )
    assert nameless == []
    assert page.locator("#status").get_attribute("aria-live") == "polite"
    assert re.match(
        r"red, \d+\.png, distance 0\. Search from it\.", desk.hits.first.get_attribute("aria-label")
    )
    page.locator("body").press("Tab")
    seen = []
    for _ in range(14):
        seen.append(
            page.evaluate(
                "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
            )
        )
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid" or seen[-1] == "file", seen
        page.keyboard.press("Tab")
    assert {"file", "surprise", "k", "radius"} <= set(seen)
    desk.hits.nth(3).focus()
    name = desk.hits.nth(3).locator(".name").inner_text()
    page.keyboard.press("Enter")
    expect(page.locator("#query-name")).to_contain_text(name)


def test_names_are_shown_as_text(browser, own_place):
    from hadahash import Index

    name = "<img src=x onerror=alert(1)>.png"
    codes = own_place.index.codes()[:2]
    shutil.copy(own_place.root / "photos" / "red" / "002.png", own_place.root / "photos" / name)
    Index.build(codes, ["<b>bold</b>"] * 2, [name, name]).save(own_place.root / "photos.index")
    with in_thread(own_place) as address:
        visitor = Visitor(browser, address)
        visitor.page.locator("#grid .hit").first.click()
        expect(visitor.hits).to_have_count(1)
        assert visitor.hits.first.locator(".name").inner_text() == name and visitor.labels() == {
            "<b>bold</b>"
        }
        assert visitor.page.locator("img[src='x'], b").count() == 0
        visitor.close()


def test_a_private_collection_asks_for_its_token(browser, place):
    with in_thread(place, read_token=READ) as address:
        visitor = Visitor(browser, address)
        page = visitor.page
        page.get_by_label("Access token").fill(READ)
        page.get_by_role("button", name="Open").click()
        page.wait_for_function("() => document.querySelector('#grid img')?.naturalWidth > 0")
        page.locator("#grid .hit").first.click()
        expect(visitor.hits).to_have_count(24)
        visitor.close()


def test_the_api_page(browser, address):
    visitor = Visitor(browser, f"{address}/docs")
    visitor._watch = lambda *_: None
    page = visitor.page
    expect(page.locator("main")).to_contain_text("/v1/search")
    page.get_by_text("Body: multipart/form-data").first.click()
    expect(page.locator("main")).to_contain_text("Only items that carry one of these labels.")
    page.close()


@pytest.mark.skipif(not SHOWN, reason="HADAHASH_SCREENSHOTS names no collection to show")
@pytest.mark.parametrize(
    ("size", "scheme"), [("desk", "light"), ("desk", "dark"), ("phone", "light")]
)
def test_screenshots(browser, size, scheme):
    """Makes the pictures of docs/figures anew."""
    shown = Path(str(SHOWN))
    FIGURES.mkdir(parents=True, exist_ok=True)
    with in_thread(Place(shown)) as address:
        visitor = Visitor(browser, address, size, color_scheme=scheme, device_scale_factor=1.5)
        expect(visitor.page.locator("#grid .hit").first).to_be_visible()
        visitor.upload(shown / "query.png")
        expect(visitor.hits.first).to_be_visible()
        visitor.page.wait_for_function("() => document.querySelector('#grid img').naturalWidth > 0")
        visitor.page.wait_for_timeout(500)
        if size == "phone":
            visitor.page.locator("#results").scroll_into_view_if_needed()
            visitor.page.evaluate("document.getElementById('results').scrollIntoView()")
            visitor.page.wait_for_timeout(500)
        visitor.page.screenshot(path=FIGURES / f"serve-{size}-{scheme}.png")
        visitor.close()
