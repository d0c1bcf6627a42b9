"""The page in a real browser, with a running server and a small trained model."""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from serving import READ, ToyCollection, in_thread

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
def address(toy_collection):
    with in_thread(toy_collection) as address:
        yield address


class Visitor:
    """A page that records what must not happen: errors, and requests to other servers."""

    def __init__(self, browser, address: str, size: str = "desk", **options) -> None:
        width, height = SIZES[size]
        self.page = browser.new_page(viewport={"width": width, "height": height}, **options)
        self.page.set_default_timeout(15_000)
        self.trouble: list[str] = []
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on(
            "console",
            lambda entry: (
                self.trouble.append(entry.text) if "Security Policy" in entry.text else None
            ),
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
            "the page scrolls sideways"
        )
        self.page.close()

    @property
    def hits(self):
        return self.page.locator("#grid .hit:has(.distance)")

    def labels(self) -> set[str]:
        return set(self.page.locator("#grid .label span").all_inner_texts())

    def upload(self, path: Path) -> None:
        self.page.set_input_files("#file", path)

    def open_filters(self) -> None:
        if not self.page.locator("#controls").evaluate("details => details.open"):
            self.page.get_by_text("Refine").click()


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


def test_upload_results_and_click_through(visitor, toy_collection):
    page = visitor.page
    expect(page.locator("#facts")).to_contain_text("48 images · 16-bit codes")
    expect(page.locator("#grid .hit").first).to_be_visible()  # suggestions
    visitor.upload(toy_collection.root / "photos" / "red" / "002.png")
    expect(visitor.hits).to_have_count(24)
    expect(page.locator("#status")).to_have_text(
        re.compile(r"24 most similar of 48 images; at most \d+ of 16 bits differ\.")
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
        "an image is not among its own results"
    )
    assert "#id=" in page.url


@pytest.fixture(scope="module")
def two_part_address(two_part_collection):
    with in_thread(two_part_collection) as address:
        yield address


def json_of(request):
    """The JSON body of a request; empty if it has none."""
    is_json = request.headers.get("content-type") == "application/json"
    return request.post_data_json if is_json else {}


@pytest.mark.parametrize("size", list(SIZES))
def test_the_dial_between_kind_and_photo(browser, two_part_address, two_part_collection, size):
    visitor = Visitor(browser, two_part_address, size)
    page, asked = visitor.page, []
    page.on("request", lambda request: asked.append(json_of(request)))
    expect(page.locator("#facts")).to_contain_text(
        "48 images · 16 + 16-bit codes" if size == "desk" else "48 images"
    )
    dial = page.locator("#dial")
    expect(dial).to_be_visible()
    visitor.upload(two_part_collection.root / "photos" / "red" / "002.png")
    expect(visitor.hits).to_have_count(24)
    assert visitor.hits.first.locator(".distance").inner_text() == "same photo"
    assert visitor.hits.nth(1).locator(".place").inner_text() == "2"
    dial.focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(dial).to_have_attribute("aria-valuetext", "more of the same photo")
    weight = two_part_collection.index.ranking.content_weight * 2.5**4
    with page.expect_response(
        lambda each: json_of(each.request).get("weight") == weight
    ) as received:
        page.keyboard.press("End")
    answer = received.value.json()
    assert answer["rank"] == "photo" and answer["weight"] == pytest.approx(weight)
    searches = [each for each in asked if each]
    assert searches and all(each["values"] for each in searches), "the image is sent once"
    expect(dial).to_have_attribute("aria-valuetext", "same photo")
    page.reload()
    expect(dial).to_have_value("4")
    visitor.close()


def test_no_dial_without_content_bits(visitor):
    expect(visitor.page.locator("#grid .hit").first).to_be_visible()
    expect(visitor.page.locator("#dial-box")).to_be_hidden()


def test_a_label_that_no_item_has_any_more_is_an_error_on_the_page(visitor, toy_collection):
    page = visitor.page
    visitor.upload(toy_collection.root / "photos" / "red" / "002.png")
    expect(visitor.hits).to_have_count(24)
    page.route(
        "**/v1/search",
        lambda route: route.continue_(
            post_data=route.request.post_data.replace('["blue"]', '["bleu"]')
        ),
    )
    visitor.open_filters()
    page.get_by_role("button", name="blue", exact=True).click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Unknown label 'bleu'. Did you mean 'blue'?")
    page.unroute("**/v1/search")
    page.get_by_role("button", name="blue", exact=True).click()
    expect(alert).to_be_hidden()


def test_filter_and_sliders(visitor, toy_collection):
    page = visitor.page
    visitor.upload(toy_collection.root / "photos" / "red" / "002.png")
    expect(visitor.hits).to_have_count(24)
    visitor.open_filters()
    chip = page.get_by_role("button", name="blue", exact=True)
    chip.click()
    expect(visitor.hits).to_have_count(12)
    assert visitor.labels() == {"blue"} and chip.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="green", exact=True).click()
    expect(visitor.hits).to_have_count(24)
    assert visitor.labels() == {"blue", "green"}
    for label in ("blue", "green"):
        page.get_by_role("button", name=label, exact=True).click()
    page.get_by_role("slider", name="Number of images").fill("5")
    expect(visitor.hits).to_have_count(5)
    page.get_by_role("slider", name="Number of images").fill("100")
    expect(visitor.hits).to_have_count(48)
    page.get_by_label("Maximum distance").fill("2")
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


def test_an_error_is_shown_until_the_next_search(visitor, toy_collection, tmp_path):
    page = visitor.page
    (tmp_path / "note.png").write_text("not an image")
    visitor.upload(tmp_path / "note.png")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("not an image of a supported format")
    expect(page.locator("#grid .hit")).to_have_count(0)
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(10_000_001)
    visitor.upload(tmp_path / "huge.png")
    expect(alert).to_contain_text("the limit is 10 MB")
    visitor.upload(toy_collection.root / "photos" / "red" / "002.png")
    expect(visitor.hits).to_have_count(24)
    expect(alert).to_be_hidden()


RECORD = """() => {
  const append = FormData.prototype.append;
  FormData.prototype.append = function (name, value, ...more) {
    if (name === "image") window.sent = value;
    append.call(this, name, value, ...more);
  };
}"""
READ_SENT = "async () => Array.from(new Uint8Array(await window.sent.arrayBuffer()))"


def sent_image(visitor, path: Path) -> bytes:
    """The image that the page sends for a file."""
    visitor.page.evaluate(RECORD)
    with visitor.page.expect_response("**/v1/search"):
        visitor.upload(path)
    expect(visitor.hits).to_have_count(24)
    return bytes(visitor.page.evaluate(READ_SENT))


def test_large_images_are_scaled_before_they_are_sent(desk, toy_collection, tmp_path):
    name = toy_collection.root / "photos" / "red" / "002.png"
    large, exif = Image.open(name).resize((3000, 2000), Image.Resampling.BICUBIC), Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    large.save(tmp_path / "large.jpg", exif=exif)
    sent = Image.open(io.BytesIO(sent_image(desk, tmp_path / "large.jpg")))
    assert (sent.format, sent.size) == ("JPEG", (683, 1024)) and not sent.getexif()
    expect(desk.hits.first.locator(".label")).to_have_text("red")
    assert sent_image(desk, name) == name.read_bytes(), "small ones are sent as they are"


def test_large_files_panoramas_and_unknown_formats(desk, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (900, 900, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "heavy.png")
    assert (tmp_path / "heavy.png").stat().st_size > 2e6
    sent = Image.open(io.BytesIO(sent_image(desk, tmp_path / "heavy.png")))
    assert (sent.format, sent.size) == ("JPEG", (900, 900))
    Image.new("RGBA", (6000, 512)).save(tmp_path / "wide.png")
    sent = Image.open(io.BytesIO(sent_image(desk, tmp_path / "wide.png")))
    assert sent.size == (3000, 256) and sent.getpixel((9, 9)) == (255, 255, 255)
    Image.new("RGB", (2100, 10)).save(tmp_path / "x.tiff")
    sent = Image.open(io.BytesIO(sent_image(desk, tmp_path / "x.tiff")))
    assert sent.format == "TIFF", "Chromium cannot decode it"


def test_drop_paste_and_surprise(desk, toy_collection):
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
        page.evaluate(give, [kind, base64.b64encode(toy_collection.image(name)).decode()])
        expect(desk.hits.first.locator(".label")).to_have_text(name.split("/")[0])
    page.locator("#surprise").click()
    expect(page.locator("#query-name")).to_contain_text(".png")
    first = page.locator("#query-name").inner_text()
    desk.hits.last.click()
    expect(page.locator("#query-name")).not_to_have_text(first)
    page.go_back()
    expect(page.locator("#query-name")).to_have_text(first)


def test_back_returns_to_the_uploaded_image(visitor, toy_collection):
    page = visitor.page
    visitor.upload(toy_collection.root / "photos" / "red" / "002.png")
    expect(visitor.hits).to_have_count(24)
    expect(page.locator("#query-name")).to_have_text("Your image")
    uploaded = page.locator("#preview").get_attribute("src")
    names = page.locator("#grid .name").all_inner_texts()
    visitor.hits.last.click()
    expect(page.locator("#query-name")).to_contain_text(".png")
    page.go_back()
    expect(page.locator("#query-name")).to_have_text("Your image")
    assert page.locator("#preview").get_attribute("src") == uploaded
    assert page.locator("#grid .name").all_inner_texts() == names
    page.wait_for_function("() => document.getElementById('preview').naturalWidth > 0")
    page.go_back()
    expect(page.locator("#results-title")).to_have_text("Find similar images")
    expect(page.locator("#preview")).to_be_hidden()
    page.go_forward()
    expect(page.locator("#query-name")).to_have_text("Your image")


def test_a_query_given_before_the_statistics_arrive(browser, address, toy_collection):
    visitor = Visitor(browser, address)
    page = visitor.page
    held = []
    page.route("**/v1/stats", lambda route: held.append(route))
    page.reload(wait_until="domcontentloaded")
    page.wait_for_function("() => document.body !== null")
    visitor.upload(toy_collection.root / "photos" / "red" / "002.png")
    expect(page.locator("#preview")).to_be_visible()
    page.evaluate("location.hash = '#duplicates'")
    page.go_back()
    assert held, "The statistics were not requested"
    for route in held:
        route.continue_()
    expect(visitor.hits).to_have_count(24)
    expect(page.locator("#query-name")).to_have_text("Your image")
    visitor.close()


def test_results_are_on_the_screen_of_a_phone_after_a_search(browser, address, toy_collection):
    visitor = Visitor(browser, address, "phone")
    visitor.upload(toy_collection.root / "photos" / "red" / "002.png")
    expect(visitor.hits).to_have_count(24)
    expect(visitor.hits.first).to_be_in_viewport()
    visitor.hits.last.click()
    expect(visitor.page.locator("#query-name")).to_contain_text(".png")
    expect(visitor.page.locator("#preview")).to_be_in_viewport()
    visitor.close()


def test_bits_are_shown_on_request(desk, toy_collection):
    page = desk.page
    desk.upload(toy_collection.root / "photos" / "red" / "002.png")
    expect(desk.hits).to_have_count(24)
    bits = desk.hits.last.locator("canvas.bits")
    expect(bits).to_be_hidden()
    page.get_by_label("Show the bits of the codes").check()
    expect(bits).to_be_visible()
    page.reload()
    expect(page.get_by_label("Show the bits of the codes")).to_be_checked()


def test_the_page_respects_the_limit_of_results(browser, toy_collection):
    with in_thread(toy_collection, max_k=20) as address:
        visitor = Visitor(browser, address)
        visitor.page.locator("#grid .hit").first.click()
        expect(visitor.hits).to_have_count(19)  # without the query itself
        visitor.page.get_by_role("slider", name="Number of images").fill("20")
        expect(visitor.page.locator("#k-value")).to_have_text("20")
        expect(visitor.page.locator("#alert")).to_be_hidden()
        visitor.close()


def test_long_labels_and_missing_files_do_not_break_the_cards(browser, collection_copy):
    from hadahash import Index

    codes = collection_copy.index.codes()[:3]
    names, label = codes.ids.tolist(), "Scans of the photographs of grandmother " * 3
    (collection_copy.root / "photos" / names[0]).unlink()
    Index.build(codes, [label] * 3, names).save(collection_copy.root / "photos.index")
    with in_thread(collection_copy) as address:
        visitor = Visitor(browser, address, "phone")
        visitor.page.locator("#grid .hit").first.click()
        expect(visitor.hits).to_have_count(2)
        for hit in visitor.hits.all():
            outer, inner = hit.bounding_box(), hit.locator(".photo").bounding_box()
            assert inner["width"] <= outer["width"]
            badge = hit.locator(".distance").bounding_box()
            assert badge["x"] + badge["width"] <= outer["x"] + outer["width"]
        visitor.close()


def test_a_collection_whose_folder_was_moved_shows_a_notice(browser, collection_copy):
    index = collection_copy.index
    (collection_copy.root / "photos").rename(collection_copy.root / "moved")
    (collection_copy.root / "photos").mkdir()
    assert len(index) == 48
    with in_thread(collection_copy) as address:
        visitor = Visitor(browser, address)
        expect(visitor.page.locator("#notice")).to_contain_text("--images FOLDER")
        expect(visitor.page.locator("#grid .none").first).to_be_visible()
        visitor.close()


def test_dark_and_light_theme(desk):
    page, shade = desk.page, "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(shade)
    page.get_by_role("button", name="Switch between light and dark theme").click()
    dark = page.evaluate(shade)
    assert light != dark
    page.reload()
    assert page.evaluate(shade) == dark, "the theme is stored"


def test_keyboard_and_screen_reader(desk, toy_collection):
    page = desk.page
    desk.upload(toy_collection.root / "photos" / "red" / "002.png")
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
        r"red, \d+\.png, 0 of 16 bits differ\. Search from this image\.",
        desk.hits.first.get_attribute("aria-label"),
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


def test_names_are_shown_as_text(browser, collection_copy):
    from hadahash import Index

    name = "<img src=x onerror=alert(1)>.png"
    codes = collection_copy.index.codes()[:2]
    shutil.copy(
        collection_copy.root / "photos" / "red" / "002.png", collection_copy.root / "photos" / name
    )
    Index.build(codes, ["<b>bold</b>"] * 2, [name, name]).save(
        collection_copy.root / "photos.index"
    )
    with in_thread(collection_copy) as address:
        visitor = Visitor(browser, address)
        visitor.page.locator("#grid .hit").first.click()
        expect(visitor.hits).to_have_count(1)
        assert visitor.hits.first.locator(".name").inner_text() == name and visitor.labels() == {
            "<b>bold</b>"
        }
        assert visitor.page.locator("img[src='x'], b").count() == 0
        visitor.close()


def test_the_page_asks_for_the_token_of_a_private_collection(browser, toy_collection):
    with in_thread(toy_collection, read_token=READ) as address:
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
    expect(page.locator("main")).to_contain_text("Only items with one of these labels.")
    page.close()


@pytest.mark.skipif(not SHOWN, reason="HADAHASH_SCREENSHOTS is not set")
@pytest.mark.parametrize(
    ("size", "scheme"), [("desk", "light"), ("desk", "dark"), ("phone", "light")]
)
def test_screenshots(browser, size, scheme):
    """Writes the screenshots of docs/figures."""
    shown = Path(str(SHOWN))
    FIGURES.mkdir(parents=True, exist_ok=True)
    with in_thread(ToyCollection(shown)) as address:
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
