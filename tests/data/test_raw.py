"""RAW files: previews, development, orientation, and what happens without the extra."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from raw_files import directory, dng, entry, two_colors

from hadahash.data import raw
from hadahash.data.folder import scan
from hadahash.data.images import ImageLimits, image_size, open_image
from hadahash.data.sources import as_images
from hadahash.errors import CorruptImage, ImageTooLarge, UnsupportedImage


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


def test_a_truncated_file_never_shows_another_image(rawpy):
    data = dng(two_colors())
    with rawpy.imread(io.BytesIO(data)) as whole:
        preview = bytes(whole.extract_thumb().data)
    assert raw._is_part(preview, io.BytesIO(data))
    assert not raw._is_part(preview, io.BytesIO(data[:3000]))
    for kept in range(500, 3700, 100):
        open_image(data)  # its preview is in memory that is used again
        with pytest.raises(CorruptImage):
            open_image(data[:kept])


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
        monkeypatch.setattr(f"hadahash.data.{module}.is_installed", lambda package: False)
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
