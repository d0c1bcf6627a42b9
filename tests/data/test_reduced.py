"""Large JPEGs are decoded no larger than needed, everywhere, and are otherwise treated as before."""

from __future__ import annotations

import hashlib
import io
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from make_images import encode, picture, scan_bomb, turned
from PIL import Image

from hadahash import Hasher, native
from hadahash.data import FileImages, LabelledImages, MemoryImages
from hadahash.data import images as module
from hadahash.data.decode import decode, in_memory, read_reduced
from hadahash.data.images import image_size, open_image, open_reduced
from hadahash.data.pixel_store import PixelStore
from hadahash.data.preprocess import Preprocess
from hadahash.data.squares import Reduced, enough_for, shrink_to_square
from hadahash.errors import CorruptImage, ImageTooLarge
from hadahash.native import resize
from hadahash.photos.digests import DigestingImages
from hadahash.serve.core import decode_worker

SIDE = 256
PREPROCESS = Preprocess(side=SIDE)


@cache
def photo(height: int, width: int) -> np.ndarray:
    """Detail at many scales, as photographs have it."""
    rng = np.random.default_rng(0)
    total = np.zeros((height, width), np.float32)
    for size in (4, 16, 64, 256):
        coarse = rng.standard_normal((size, size), np.float32)
        grown = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        total += np.asarray(grown) * 40 / size**0.5
    tint = np.array([1, 0.8, 1.2], np.float32)
    return np.rint((total[..., None] * tint + 128).clip(0, 255)).astype(np.uint8)


@pytest.fixture(scope="module")
def large() -> np.ndarray:
    return photo(1600, 2100)


@pytest.fixture(scope="module")
def jpeg(large) -> bytes:
    return encode(large, "JPEG", quality=92)


def full_square(data: bytes, fit: str = "crop") -> np.ndarray:
    return shrink_to_square(open_image(data), SIDE, fit=fit).astype(int)


def small_square(data: bytes, fit: str = "crop") -> np.ndarray:
    return open_reduced(data, SIDE).square(SIDE, fit=fit).astype(int)


@pytest.mark.parametrize(
    ("size", "decoded"),
    [
        ((1407, 1500), 1407),  # small photos are decoded in full
        ((1408, 1500), 704),
        ((2047, 2100), 1024),
        ((2815, 2900), 1408),
        ((2820, 2816), 704),
    ],
)
def test_the_decoded_side_is_once_to_twice_what_suffices(size, decoded):
    data = encode(np.full((*size, 3), 90, np.uint8), "JPEG")
    assert min(open_image(data, at_least=enough_for(SIDE)).shape[:2]) == decoded
    assert open_image(data).shape[:2] == size == image_size(data)


def test_a_small_square_needs_no_less_than_a_usual_one():
    assert [enough_for(side) for side in (4, 32, 112, 256, 260)] == [512, 512, 512, 704, 715]
    assert [enough_for(side, preview=True) for side in (4, 256, 300)] == [512, 512, 600]


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
def test_the_square_is_nearly_that_of_a_full_decode(large, options):
    data = encode(large, "JPEG", quality=92, **options)
    assert open_image(data, at_least=enough_for(SIDE)).shape == (800, 1050, 3)
    difference = np.abs(small_square(data) - full_square(data))
    assert difference.mean() < 0.25 and difference.max() <= 3


@pytest.mark.parametrize("side", [1, 7, 64, 256])
@pytest.mark.parametrize("box", [(0, 0, 301, 263), (20.25, 0.5, 280.75, 261), (1, 3, 300, 260)])
def test_shrinking_rounds_once(monkeypatch, side, box):
    image = np.random.default_rng(side).integers(0, 256, (263, 301, 3), dtype=np.uint8)
    square = resize.shrink(image, side, box)
    rows, columns = (triangle(n, *box[k::2], side) for n, k in ((263, 1), (301, 0)))
    expected = np.einsum("iwc,jw->ijc", np.tensordot(rows, image, 1), columns)
    assert np.abs(square - expected).max() < 0.52
    for way in ("0", *native.levels()):
        monkeypatch.setenv("HADAHASH_NATIVE", way)
        assert np.array_equal(resize.shrink(image, side, box), square), way


def test_shrinking_keeps_extreme_values():
    for value in (0, 255):
        image = np.full((90, 70, 3), value, np.uint8)
        assert (resize.shrink(image, 33, (0.3, 0.7, 69.9, 89.1)) == value).all()


def triangle(length: int, start: float, stop: float, side: int) -> np.ndarray:
    """Weights (side, length) of the pixels when start..stop of a row becomes `side`."""
    step = (stop - start) / side
    centers = start + (np.arange(side) + 0.5) * step
    away = np.abs(np.arange(length) + 0.5 - centers[:, None]) / step
    weights = np.maximum(0, 1 - away)
    return weights / weights.sum(1, keepdims=True)


def test_codes_are_nearly_those_of_a_full_decode():
    """Fine detail beside large shapes; the reduction is the strongest that is allowed."""
    files = [encode(detailed(seed), "JPEG", quality=90) for seed in range(12)]
    assert {open_reduced(each, SIDE).pixels.shape[0] for each in files} == {704}
    model = Hasher.pretrained("lite0", device="cpu").model_
    assert model.preprocess.side == SIDE
    full, reduced = (
        model.encode([read(each).astype(np.uint8) for each in files])
        for read in (full_square, small_square)
    )
    differing = np.unpackbits(full.packed ^ reduced.packed).mean()
    assert differing <= 0.005


def detailed(seed: int) -> np.ndarray:
    """Shapes of all sizes in their own colors, and noise, 1408 pixels wide."""
    rng = np.random.default_rng(seed)
    image = np.full((1408, 1408, 3), rng.integers(0, 256, 3), np.int16)
    for _ in range(400):
        top, left = rng.integers(0, 1400, 2)
        height, width = (4 + 500 * rng.random(2) ** 4).astype(int)
        image[top : top + height, left : left + width] = rng.integers(0, 256, 3)
    noise = rng.normal(0, 4, (1408, 1408, 1)).astype(np.int16)
    return (image + noise).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("mode", ["CMYK", "L"])
def test_other_color_spaces_are_reduced_too(large, mode):
    data = encode(Image.fromarray(large).convert(mode), "JPEG", quality=92)
    assert open_image(data, at_least=enough_for(SIDE)).shape == (800, 1050, 3)
    assert np.abs(small_square(data) - full_square(data)).mean() < 0.25


@pytest.mark.parametrize("fit", ["crop", "squash"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_reduced_image_is_upright_and_shows_the_same_part(orientation, fit):
    """The sides are no multiples of 4, so the last pixels of the decoder reach beyond the image."""
    image = photo(2821, 2833)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(turned(image, orientation), "JPEG", quality=92, exif=exif.tobytes())
    reduced = open_reduced(data, SIDE)
    assert image_size(data) == reduced.size == (2821, 2833)
    assert reduced.pixels.shape == (706, 709, 3)
    away = np.abs(small_square(data, fit) - full_square(data, fit))
    assert away.mean() < 0.25 and away.max() <= 3


@pytest.mark.parametrize("options", [{}, {"progressive": True}])
def test_a_truncated_file_is_damaged_at_any_size(large, options):
    data = encode(large, "JPEG", quality=92, **options)
    for cut in (30, len(data) // 3, len(data) * 9 // 10):
        with pytest.raises(CorruptImage, match="damaged or truncated"):
            open_image(data[:cut], at_least=enough_for(SIDE))
    part = open_image(data[: len(data) // 2], truncated="accept", at_least=enough_for(SIDE))
    assert part.shape == (800, 1050, 3)


def test_many_scans_are_refused_at_any_size():
    for at_least in (None, 16):
        with pytest.raises(ImageTooLarge, match="more than 100 scans"):
            open_image(scan_bomb(200, 200), at_least=at_least)


def test_bytes_that_look_like_scans_are_not_scans():
    """The quick count is too high here; the markers are followed."""
    comment = b"\xff\xda" * 1000
    data = encode(picture(), "JPEG")
    segment = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
    assert np.array_equal(open_image(data[:2] + segment + data[2:]), open_image(data))


@pytest.mark.parametrize("fmt", ["PNG", "WEBP", "TIFF", "BMP"])
def test_other_formats_are_decoded_in_full(fmt):
    data = encode(photo(1100, 1200), fmt)
    assert np.array_equal(open_image(data, at_least=enough_for(SIDE)), open_image(data))


def test_small_photos_are_equal_to_the_bit():
    data = encode(photo(375, 500), "JPEG")
    for side in (32, 112, 256):
        assert np.array_equal(open_image(data, at_least=enough_for(side)), open_image(data))


def test_indexing_training_and_asking_decode_alike(jpeg, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg)
    digesting = DigestingImages([path])
    sources = [FileImages([path]), MemoryImages([jpeg]), digesting]
    squares = [next(decode(each, PREPROCESS, batch_size=1)).pixels[0] for each in sources]
    data = LabelledImages(FileImages([path]), np.array(["a"]), np.zeros(1, int), ("x",))
    squares.append(PixelStore.build(data, PREPROCESS).pixels[0].numpy())
    squares.append(in_memory(data, PREPROCESS).images[0].transpose(2, 0, 1))
    limits = {"max_pixels": 10**7, "max_bytes": 10**7, "max_side": 10**4}
    _, content = decode_worker.perform(
        {"kind": "square", "side": SIDE, "fit": "crop"} | limits, jpeg
    )
    squares.append(np.frombuffer(content, np.uint8).reshape(SIDE, SIDE, 3).transpose(2, 0, 1))
    expected = small_square(jpeg).transpose(2, 0, 1)
    assert all(np.array_equal(each, expected) for each in squares)
    assert not np.array_equal(expected, full_square(jpeg).transpose(2, 0, 1))
    assert digesting.records[path][1] == hashlib.sha256(jpeg).digest()  # of the whole file


def test_reading_without_a_size_is_a_full_decode(jpeg, large, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg)
    for images in (FileImages([path]), MemoryImages([jpeg]), DigestingImages([path])):
        assert images[0].shape == large.shape
        assert read_reduced(images, 0, SIDE).pixels.shape == (800, 1050, 3)


def test_pixels_and_pil_images_are_taken_as_they_are(jpeg, large):
    lazy = Image.open(io.BytesIO(jpeg))
    assert read_reduced(MemoryImages([lazy]), 0, SIDE).pixels.shape == large.shape
    assert lazy.size == (2100, 1600)
    assert read_reduced(MemoryImages([large]), 0, SIDE).pixels is large


def test_pages_and_thumbnails_decode_small(jpeg, tmp_path, monkeypatch):
    from hadahash.visuals import duplicates_sheet, search_sheet

    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg)
    asked = []

    def watched(source: object, side: int, **options: object) -> Reduced:
        reduced = open_reduced(source, side, **options)  # type: ignore[arg-type]
        asked.append((side, reduced.scale))
        return reduced

    for each in (duplicates_sheet, search_sheet, decode_worker):
        monkeypatch.setattr(each, "open_reduced", watched)
    shown = duplicates_sheet._show(duplicates_sheet.ShownFile("a", str(path), 1234))
    assert "2100 x 1600 pixels" in shown.facts
    assert search_sheet._picture(Path(path)).source
    limits = {"max_pixels": 10**7, "max_bytes": 10**7, "max_side": 10**4}
    task = {"kind": "thumbnail", "side": 300, "path": str(path)} | limits
    answer, content = decode_worker.perform(task, b"")
    assert answer["type"] == "image/jpeg" and image_size(content) == (229, 300)
    assert asked == [(320, 2), (360, 2), (300, 2)]


def test_one_module_decides_the_reduction():
    """No other module names a factor: what is needed comes from `enough_for`."""
    root = Path(module.__file__).parents[1]
    users = [path for path in root.rglob("*.py") if ".draft(" in path.read_text()]
    assert users == [Path(module.__file__)]
