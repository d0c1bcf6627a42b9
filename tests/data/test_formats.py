"""AVIF, and HEIC with the extra: pixels, rotation, limits, damage, and the extra missing."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from make_images import encode, exif, flat, picture, turned
from PIL import Image, features

from hadahash.data.folder import scan
from hadahash.data.formats import image_suffixes
from hadahash.data.images import ImageLimits, image_size, open_image
from hadahash.errors import CorruptImage, ImageError, ImageTooLarge, UnsupportedImage

HEIC = Path(__file__).parent / "heic"  # `picture()`, and the same stored with orientation 6

avif = pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")


@pytest.fixture
def heif():
    pytest.importorskip("pi_heif")


def distance(image: np.ndarray, expected: np.ndarray) -> float:
    assert image.shape == expected.shape and image.dtype == np.uint8
    return float(np.abs(image.astype(int) - expected).mean())


@pytest.mark.parametrize("name", ["plain", "turned"])
def test_heic_is_decoded_upright(heif, name):
    path = HEIC / f"{name}.heic"
    assert distance(open_image(path), picture()) < 4
    assert distance(open_image(path.read_bytes()), picture()) < 4
    assert image_size(path) == picture().shape[:2]


def test_the_heif_library_is_loaded_with_the_first_file(heif, tmp_path):
    (tmp_path / "a.png").write_bytes(encode(picture(), "PNG"))
    code = (
        "import sys; from hadahash.data.images import open_image\n"
        f"open_image({str(tmp_path / 'a.png')!r}); assert 'pi_heif' not in sys.modules\n"
        f"open_image({str(HEIC / 'plain.heic')!r}); assert 'pi_heif' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_the_extra_the_message_has_the_command(without_heif):
    with pytest.raises(UnsupportedImage, match=r"HEIC.*pip install 'hadahash\[heif\]'$") as caught:
        open_image(HEIC / "plain.heic")
    assert "\n" not in str(caught.value)


def test_damaged_heic_stays_in_the_error_tree(heif):
    data = (HEIC / "plain.heic").read_bytes()
    rng = np.random.default_rng(0)
    with pytest.raises(CorruptImage):
        open_image(data[:100])
    for length in range(0, len(data), 23):
        with pytest.raises(ImageError):
            open_image(data[:length])
    for _ in range(200):
        changed = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            changed[place] ^= 1 << rng.integers(8)
        try:
            image = open_image(bytes(changed), limits=ImageLimits(max_pixels=100_000))
        except ImageError:
            continue
        assert image.ndim == 3


def test_a_heic_larger_than_the_limit_is_refused_before_decoding(heif):
    with pytest.raises(ImageTooLarge, match="max_pixels"):
        open_image(HEIC / "plain.heic", limits=ImageLimits(max_pixels=1000))


@avif
@pytest.mark.parametrize("orientation", range(1, 9))
def test_avif_is_decoded_upright(orientation):
    data = encode(turned(picture(), orientation), "AVIF", quality=90, exif=exif(orientation))
    assert distance(open_image(data), picture()) < 4
    assert image_size(data) == picture().shape[:2]


@avif
def test_transparent_and_animated_avif():
    clear = flat("RGBA", (0, 0, 0, 0))
    assert np.abs(open_image(encode(clear, "AVIF")).astype(int) - 255).max() <= 2
    frames = [Image.new("RGB", (8, 8), color) for color in ((200, 0, 0), (0, 0, 200))]
    buffer = io.BytesIO()
    frames[0].save(buffer, "AVIF", save_all=True, append_images=frames[1:], quality=90)
    red, _, blue = open_image(buffer.getvalue()).reshape(-1, 3).mean(0)
    assert red > 150 and blue < 50


@avif
def test_tags_of_an_avif_that_claim_gigabytes_are_not_read():
    entries = 60_000
    directory = b"".join(
        struct.pack("<HHII", 40_000 + number % 20_000, 7, 12 * entries, 8)
        for number in range(entries)
    )
    block = b"II*\0" + struct.pack("<IH", 8, entries) + directory + bytes(4)
    nothing = b"II*\0" + struct.pack("<IH", 8, 0) + bytes(len(block) - 10)
    data = encode(picture(), "AVIF", exif=b"Exif\0\0" + nothing)
    assert nothing in data
    data = data.replace(nothing, block)
    code = (
        "import resource, sys; from hadahash.data.images import open_image, image_size\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "data = sys.stdin.buffer.read(); print(open_image(data).shape, image_size(data))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, timeout=60, check=True
    )
    assert found.stdout.decode().split() == ["(40,", "56,", "3)", "(40,", "56)"]


@avif
def test_damaged_avif_is_refused():
    data = encode(picture(), "AVIF")
    for length in (20, 100, len(data) // 2):
        with pytest.raises(CorruptImage):
            open_image(data[:length])


def test_suffixes_follow_the_extra(heif, tmp_path, request):
    for name in ("a.HEIC", "b.heif", "c.HIF", "d.avif", "e.mov"):
        (tmp_path / name).write_bytes(b"x")
    assert [path.name for path in scan(tmp_path).images] == ["a.HEIC", "b.heif", "c.HIF", "d.avif"]
    request.getfixturevalue("without_heif")
    listing = scan(tmp_path)
    assert [path.name for path in listing.images] == ["d.avif"]
    assert ".heic" not in image_suffixes()
    assert listing.skipped.endswith("To read HEIC: pip install 'hadahash[heif]'")
