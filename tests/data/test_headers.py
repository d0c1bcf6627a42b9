"""Claims of image headers are checked before decoding."""

from __future__ import annotations

import io
import struct
import subprocess
import sys

import pytest
from make_images import encode, picture, tiff

from hadahash.data.headers import block_claims_too_much, count_scans, guard_tags
from hadahash.data.images import ImageLimits, image_size, open_image
from hadahash.errors import ImageTooLarge

BASIC = [
    (256, 4, 1, 1),
    (257, 4, 1, 1),
    (258, 3, 1, 8),
    (262, 3, 1, 1),
    (273, 4, 1, 8),
    (279, 4, 1, 1),
]


def directory(entries: int, size: int, *, tail: int, order: str = "<", big: bool = False) -> bytes:
    """A TIFF with many tags that all claim the same bytes."""
    mark = b"II" if order == "<" else b"MM"
    tags = range(40_000, 40_000 + entries)
    if big:
        body = b"".join(struct.pack(f"{order}HHQQ", tag, 7, size, 16) for tag in tags)
        head = mark + struct.pack(f"{order}HHHQQ", 43, 8, 0, 16, entries)
    else:
        body = b"".join(struct.pack(f"{order}HHII", tag, 7, size, 8) for tag in tags)
        head = mark + struct.pack(f"{order}HIH", 42, 8, entries)
    return head + body + bytes(8 + tail)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("big", [False, True])
def test_tags_that_claim_the_same_bytes_again_and_again(order, big):
    if big and order == ">":
        pytest.skip("Pillow reads such a header as a classic one")
    assert block_claims_too_much(directory(300, 99_000, tail=99_000, order=order, big=big))
    assert not block_claims_too_much(directory(3, 99_000, tail=99_000, order=order, big=big))
    with pytest.raises(ValueError, match="tags claim more data"):
        guard_tags(io.BytesIO(directory(300, 99_000, tail=99_000, order=order, big=big)))


def test_what_is_claimed_beyond_the_end_does_not_count():
    assert not block_claims_too_much(tiff([*BASIC, (700, 7, 2**32 - 1, 8)]))
    assert not block_claims_too_much(tiff([(tag, 7, 2**31, 2**31) for tag in range(900)]))


@pytest.mark.parametrize("block", [b"", b"II*\0", b"Exif\0\0", b"II*\0\xff\xff\xff\xff", b"x" * 50])
def test_damaged_blocks_claim_nothing(block):
    assert not block_claims_too_much(block)


def test_ordinary_files_pass_unchanged():
    for fmt in ("JPEG", "PNG", "TIFF", "GIF"):
        data = encode(picture(), fmt)
        file = io.BytesIO(data)
        assert guard_tags(file) is file
        assert file.read() == data


def test_scans_are_counted_up_to_the_limit():
    assert count_scans(encode(picture(), "JPEG"), 100) == 1
    progressive = encode(picture(), "JPEG", progressive=True)
    assert 1 < count_scans(progressive, 100) < 20
    assert count_scans(progressive, 2) == 3


def test_long_thin_images_are_refused():
    limits = ImageLimits(max_side=55)
    with pytest.raises(ImageTooLarge, match="56 x 40 pixels; max_side is 55"):
        open_image(encode(picture(), "PNG"), limits=limits)
    with pytest.raises(ImageTooLarge, match="max_side"):
        image_size(encode(picture(), "PNG"), limits=limits)
    assert open_image(encode(picture(), "PNG"), limits=ImageLimits(max_side=56)).shape


def test_a_hostile_file_writes_nothing_to_the_log(tmp_path):
    tags = [(tag, 7, 2**31, 12_080) for tag in range(40_000, 41_000)]
    (tmp_path / "x.tif").write_bytes(tiff([*BASIC, *tags]))
    script = "import sys; from hadahash.data import open_image; open_image(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "x.tif"], capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stderr == b""
