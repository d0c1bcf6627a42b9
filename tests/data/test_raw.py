"""RAW files: previews, development, orientation, and what happens without the extra."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hadahash.data import raw
from hadahash.data.folder import scan
from hadahash.data.images import ImageLimits, image_size, open_image
from hadahash.data.sources import as_images
from hadahash.errors import CorruptImage, ImageTooLarge, UnsupportedImage

FORMATS = {1: "B", 3: "H", 4: "I", 5: "II", 10: "ii"}  # of TIFF types; 2: text


def entry(tag: int, kind: int, *values: Any) -> tuple[int, int, int, bytes]:
    """A tag of a TIFF directory: number, type, count and data."""
    if kind == 2:
        return tag, kind, len(values[0]) + 1, values[0].encode() + b"\0"
    parts = [value if isinstance(value, tuple) else (value,) for value in values]
    data = b"".join(struct.pack("<" + FORMATS[kind], *part) for part in parts)
    return tag, kind, len(values), data


def directory(entries: list[tuple[int, int, int, bytes]], place: int) -> bytes:
    """A directory at this place of the file, followed by its data."""
    head, extra = struct.pack("<H", len(entries)), b""
    for tag, kind, count, data in entries:
        start = place + 2 + 12 * len(entries) + 4 + len(extra)
        value = data.ljust(4, b"\0") if len(data) <= 4 else struct.pack("<I", start)
        extra += b"" if len(data) <= 4 else data + b"\0" * (len(data) % 2)
        head += struct.pack("<HHI", tag, kind, count) + value
    return head + bytes(4) + extra


def dng(preview: Image.Image, *, orientation: int = 1) -> bytes:
    """A DNG file: a JPEG preview and a gray Bayer image of 96 x 64."""
    buffer = io.BytesIO()
    preview.save(buffer, "JPEG", quality=95)
    jpeg, bayer = buffer.getvalue(), np.full((64, 96), 8000, "<u2").tobytes()
    identity = [(int(i == j), 1) for i in range(3) for j in range(3)]

    def directories(second: int, image: int, pixels: int) -> tuple[bytes, bytes]:
        first = directory(
            [
                *(entry(254, 4, 1), entry(256, 4, preview.width), entry(257, 4, preview.height)),
                *(entry(258, 3, 8, 8, 8), entry(259, 3, 7), entry(262, 3, 6)),
                *(entry(271, 2, "Maker"), entry(272, 2, "Camera"), entry(273, 4, image)),
                *(entry(274, 3, orientation), entry(277, 3, 3), entry(278, 4, preview.height)),
                *(entry(279, 4, len(jpeg)), entry(330, 4, second), entry(50706, 1, 1, 4, 0, 0)),
                *(entry(50721, 10, *identity), entry(50728, 5, (1, 1), (1, 1), (1, 1))),
            ],
            8,
        )
        other = [
            *(entry(254, 4, 0), entry(256, 4, 96), entry(257, 4, 64), entry(258, 3, 16)),
            *(entry(259, 3, 1), entry(262, 3, 32803), entry(273, 4, pixels), entry(277, 3, 1)),
            *(entry(278, 4, 64), entry(279, 4, len(bayer)), entry(33421, 3, 2, 2)),
            *(entry(33422, 1, 0, 1, 1, 2), entry(50717, 4, 65535)),
        ]
        return first, directory(other, 8 + len(first))

    first, other = directories(0, 0, 0)
    second, image = 8 + len(first), 8 + len(first) + len(other)
    first, other = directories(second, image, image + len(jpeg) + len(jpeg) % 2)
    return b"II*\0" + struct.pack("<I", 8) + first + other + jpeg + bytes(len(jpeg) % 2) + bayer


def two_colors(width: int = 400, height: int = 300) -> Image.Image:
    """Blue on the left, red on the right."""
    image = Image.new("RGB", (width, height), (200, 30, 30))
    image.paste((20, 20, 220), (0, 0, width // 2, height))
    return image


@pytest.fixture
def rawpy():
    return pytest.importorskip("rawpy")


def test_the_preview_is_read_upright(rawpy, tmp_path):
    for orientation, blue in ((1, "left"), (3, "right"), (6, "top"), (8, "bottom")):
        data = dng(two_colors(), orientation=orientation)
        (tmp_path / "photo.dng").write_bytes(data)
        pixels = open_image(tmp_path / "photo.dng")
        assert pixels.shape == ((300, 400, 3) if orientation in (1, 3) else (400, 300, 3))
        assert image_size(data) == pixels.shape[:2]
        assert np.array_equal(open_image(data), pixels)
        where = {
            "left": pixels[:, :100],
            "right": pixels[:, -100:],
            "top": pixels[:100],
            "bottom": pixels[-100:],
        }[blue]
        assert np.abs(where.reshape(-1, 3).mean(0) - (20, 20, 220)).max() < 3


def test_a_file_with_a_thumbnail_only_is_developed(rawpy):
    data = dng(two_colors(160, 120), orientation=6)
    assert open_image(data).shape == (48, 32, 3)  # half of 96 x 64, upright
    with pytest.raises(ImageTooLarge, match=r"RAW of more than 6,000 pixels \(max_pixels\)"):
        open_image(data, limits=ImageLimits(max_pixels=6000))


def test_raw_files_of_a_folder_are_images(rawpy, tmp_path):
    for name in ("a.dng", "b.CR2", "c.nef"):
        (tmp_path / name).write_bytes(dng(two_colors()))
    assert as_images(tmp_path).ids.tolist() == ["a.dng", "b.CR2", "c.nef"]


@pytest.mark.parametrize("kept", [100, 300, 2000])
def test_a_truncated_file_is_damaged(rawpy, kept):
    with pytest.raises((CorruptImage, UnsupportedImage)):
        open_image(dng(two_colors())[:kept])


def test_flipped_bytes_never_raise_anything_else(rawpy):
    data, random = dng(two_colors()), np.random.default_rng(0)
    for _ in range(100):
        changed = bytearray(data)
        for place in random.integers(0, 700, 3).tolist():  # header, tags, start of the JPEG
            changed[place] ^= 1 << int(random.integers(8))
        with suppress(CorruptImage, UnsupportedImage, ImageTooLarge):
            assert open_image(bytes(changed)).ndim == 3


def test_without_the_extra_the_message_names_it(monkeypatch, tmp_path):
    (tmp_path / "a.dng").write_bytes(dng(two_colors()))
    for module in ("raw", "formats", "folder"):
        monkeypatch.setattr(f"hadahash.data.{module}.raw_installed", lambda: False)
    with pytest.raises(
        UnsupportedImage, match=r"RAW needs an extra: pip install 'hadahash\[raw\]'"
    ):
        open_image(tmp_path / "a.dng")
    listing = scan(tmp_path)
    assert not listing.images and listing.notice.endswith("pip install 'hadahash[raw]'")


def test_files_are_recognized_by_their_content(tmp_path):
    starts = (
        b"II*\0\x10\0\0\0CR\2\0",
        b"\0\0\0\x18ftypcrx ",
        b"FUJIFILMCCD-RAW 0201",
        b"IIRO\x08\0",
    )
    for start in starts:
        assert raw._is_raw(io.BytesIO(start.ljust(64, b"\0")))
    for kind in ("TIFF", "JPEG", "PNG"):
        buffer = io.BytesIO()
        two_colors(8, 8).save(buffer, kind)
        buffer.seek(0)
        assert not raw._is_raw(buffer)
    assert not raw._is_raw(io.BytesIO(b"II*\0\xff\xff\xff\x7f"))
    scanned = directory([entry(256, 4, 8), entry(271, 2, "Scanner")], 8)
    assert not raw._is_raw(io.BytesIO(b"II*\0\x08\0\0\0" + scanned))
    assert raw._is_raw(io.BytesIO(dng(two_colors(8, 8))))
    assert Path("x.NEF").suffix.lower() in raw.RAW_SUFFIXES
