"""The image formats that are read, and how their files are recognized.

HEIC and HEIF need the extra `heif`, RAW files the extra `raw` (see `raw.py`). Their libraries are
loaded when the first such file is opened.
"""

from __future__ import annotations

import re
from functools import cache

# The plug-ins of exactly the allowed formats; importing them registers them.
from PIL import (
    AvifImagePlugin,  # noqa: F401
    BmpImagePlugin,  # noqa: F401
    GifImagePlugin,  # noqa: F401
    JpegImagePlugin,  # noqa: F401
    PngImagePlugin,  # noqa: F401
    PpmImagePlugin,  # noqa: F401
    TiffImagePlugin,  # noqa: F401
    WebPImagePlugin,  # noqa: F401
)

from ..errors import MissingExtraError
from ..lazy import is_installed
from .headers import TIFF_START
from .raw import RAW_SUFFIXES

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
_SUFFIXES = "jpg jpeg jpe jfif png apng webp gif bmp tif tiff ppm pgm pbm pnm avif"
IMAGE_SUFFIXES = frozenset(f".{suffix}" for suffix in _SUFFIXES.split())
HEIF_SUFFIXES = frozenset((".heic", ".heif", ".hif"))

_HEIF = "HEIF"
_START = re.compile(rb"\xff\xd8|\x89PNG|RIFF....WEBP|GIF8|BM|P[1-6]\s|....ftypavi[fs]", re.DOTALL)
_HEIF_START = re.compile(rb"....ftyp(?:hei[cmsx]|hev[cmsx]|mif1|msf1)", re.DOTALL)


def image_suffixes() -> frozenset[str]:
    """Return the file extensions of readable images, in lower case with the dot."""
    heif = HEIF_SUFFIXES if is_installed("pi_heif") else frozenset()
    return IMAGE_SUFFIXES | heif | (RAW_SUFFIXES if is_installed("rawpy") else frozenset())


def formats_for(start: bytes) -> tuple[str, ...]:
    """Choose the Pillow formats to try on a file.

    Args:
        start: The first 64 bytes of the file, or more.

    Returns:
        Names of Pillow formats; with HEIF if the file may be one.

    Raises:
        MissingExtraError: The file may be HEIC or HEIF, and the extra is not installed.
    """
    if not _HEIF_START.match(start) or b"avif" in start[8:64]:  # among the compatible brands
        return FORMATS
    if not is_installed("pi_heif"):
        raise MissingExtraError("pi_heif", "heif")
    _register_heif()
    return (*FORMATS, _HEIF)


def is_known_start(start: bytes) -> bool:
    """Return whether a file begins like an image of a supported format."""
    return any(pattern.match(start) for pattern in (_START, _HEIF_START, TIFF_START))


@cache
def _register_heif() -> None:
    from pi_heif import register_heif_opener

    register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
