"""RAW files of cameras: the preview that the camera stored, or a quick development.

They need the extra `raw` (rawpy, which contains LibRaw). It is imported when the first RAW file is
opened.
"""

from __future__ import annotations

import io
import os
import re
import struct
from typing import TYPE_CHECKING, BinaryIO

from ..errors import CorruptImage, ImageTooLarge, UnsupportedImage, install_command
from ..lazy import is_installed
from .headers import TIFF_START

if TYPE_CHECKING:
    import rawpy

_SUFFIXES = "dng cr2 cr3 nef nrw arw sr2 orf rw2 pef raf srw 3fr erf kdc iiq"
RAW_SUFFIXES = frozenset(f".{suffix}" for suffix in _SUFFIXES.split())

_SHORT = 256  # pixels; a file with a smaller preview is developed
_START = re.compile(rb"II\*\0.{4}CR|....ftypcrx |FUJIFILMCCD-RAW|IIR[OS]|MMOR|IIU\0", re.DOTALL)
_EXIF = re.compile(rb"\xff\xd8\xff\xe1(..)Exif", re.DOTALL)  # the start of a JPEG
_MAKE, _SUB_IFDS, _DNG_VERSION = 271, 330, 50706


def developed(file: BinaryIO, name: str, *, max_bytes: int, max_pixels: int) -> BinaryIO:
    """Replace a RAW file by an image in it.

    Args:
        file: An image file of any format, seekable and at its start.
        name: Its name, for messages.
        max_bytes: Largest RAW file that is read.
        max_pixels: Largest image that is developed.

    Returns:
        A JPEG file, the largest preview of the RAW file; a PPM file, developed at half its size, if
        it has no preview or only a thumbnail; or `file` itself, at its start, if it is not RAW or
        too large.

    Raises:
        UnsupportedImage: The extra is missing.
        ImageTooLarge: The file has too many pixels to be developed.
        CorruptImage: The file is damaged.
    """
    is_raw = _is_raw(file) and file.seek(0, os.SEEK_END) <= max_bytes
    file.seek(0)
    if not is_raw:
        return file
    if not is_installed("rawpy"):
        raise UnsupportedImage(name, f"RAW needs an extra: {install_command('raw')}")
    import rawpy

    try:
        with rawpy.imread(file) as raw:
            found = _preview(raw, file) or _develop(raw, name, max_pixels)
        return io.BytesIO(found)
    except rawpy.LibRawError as error:
        raise CorruptImage(name, f"damaged or truncated ({error})") from error


def _is_raw(file: BinaryIO) -> bool:
    """Whether a file is RAW, by its first bytes or, if it looks like a TIFF, its first tags."""
    start = file.read(16)
    if _START.match(start):
        return True
    if not TIFF_START.match(start):
        return False
    tags = _first_tags(file, start)
    return _DNG_VERSION in tags or {_MAKE, _SUB_IFDS} <= tags


def _first_tags(file: BinaryIO, start: bytes) -> set[int]:
    """The tags of the first directory of a TIFF; none if it is damaged."""
    order = "<" if start.startswith(b"II") else ">"
    try:
        file.seek(struct.unpack(f"{order}I", start[4:8])[0])
        (count,) = struct.unpack(f"{order}H", file.read(2))
        entries = file.read(12 * count)
    except (struct.error, OSError):
        return set()
    whole = entries[: len(entries) // 12 * 12]
    return {tag for (tag,) in struct.iter_unpack(f"{order}H10x", whole)}


def _preview(raw: rawpy.RawPy, file: BinaryIO) -> bytes | None:
    """The preview as a JPEG file; None if there is none, or a small one."""
    import rawpy
    from PIL import Image

    try:
        found = raw.extract_thumb()
    except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError):
        return None
    if found.format != rawpy.ThumbFormat.JPEG:
        return None
    data = bytes(found.data)
    if not _is_part(data, file):
        return None
    with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
        return data if min(image.size) >= _SHORT else None


def _is_part(jpeg: bytes, file: BinaryIO) -> bool:
    """Whether a file contains this preview.

    LibRaw completes the preview of a truncated file with whatever its memory held before, which
    may be another image.
    """
    file.seek(0)
    content = file.read()
    if jpeg in content:
        return True
    exif = _EXIF.match(jpeg)  # LibRaw inserts a segment where there is none
    if exif is None:
        return False
    (size,) = struct.unpack(">H", exif[1])
    return jpeg[:2] + jpeg[4 + size :] in content


def _develop(raw: rawpy.RawPy, name: str, max_pixels: int) -> bytes:
    """The image at half its size as a PPM file, upright, with the white balance of the camera."""
    sizes = raw.sizes
    if sizes.raw_width * sizes.raw_height > max_pixels:
        raise ImageTooLarge(name, f"RAW of more than {max_pixels:,} pixels (max_pixels)")
    pixels = raw.postprocess(half_size=True, use_camera_wb=True, output_bps=8)
    height, width = pixels.shape[:2]
    return b"P6 %d %d 255\n" % (width, height) + bytes(pixels.data)
