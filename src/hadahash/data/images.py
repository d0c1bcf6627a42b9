"""The only place that opens an image: a file, bytes or a stream in, uint8 (height, width, 3) RGB or a typed error out.

What comes out is what a person would see:

- turned as its EXIF orientation says; EXIF that is broken is ignored;
- the first frame of an animation or the first page of a file of many, however many follow;
- transparent parts on white;
- 16-bit values scaled to 8 bits. Values of no fixed range (32-bit integers, floats) are scaled by the smallest of 1,
  255 and 65,535 that holds them all; if none does, or some are negative, the least becomes black, the greatest white;
- colour profiles are not applied; the inks of a CMYK JPEG are taken as inverted, as Adobe writes and browsers do.

A file is judged by what it holds, never by its name. Only the formats of `FORMATS` are decoded, none of which is a
program (EPS, PS, PDF and SVG are). Sizes are checked against `ImageLimits` before memory for the pixels is taken. No
state is shared or changed, so any number of threads may open images at once.
"""

from __future__ import annotations

import io
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

# The plug-ins of exactly the allowed formats; importing them is what makes Pillow know them.
from PIL import (
    BmpImagePlugin,  # noqa: F401
    GifImagePlugin,  # noqa: F401
    Image,
    JpegImagePlugin,  # noqa: F401
    PngImagePlugin,  # noqa: F401
    PpmImagePlugin,  # noqa: F401
    TiffImagePlugin,  # noqa: F401
    UnidentifiedImageError,
    WebPImagePlugin,  # noqa: F401
)

from ..errors import (
    CorruptImage,
    ImageTooLarge,
    UnreadableImage,
    UnsupportedImage,
    UsageError,
    unknown,
)

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
IMAGE_SUFFIXES = frozenset(
    f".{suffix}"
    for suffix in (
        "jpg",
        "jpeg",
        "jpe",
        "jfif",
        "png",
        "apng",
        "webp",
        "gif",
        "bmp",
        "tif",
        "tiff",
        "ppm",
        "pgm",
        "pbm",
        "pnm",
    )
)
Source = str | Path | bytes | BinaryIO

_BEGINNING = re.compile(rb"\xff\xd8|\x89PNG|RIFF....WEBP|GIF8|BM|II\*\0|MM\0\*|P[1-6]\s", re.DOTALL)
_MAX_SCANS = 100  # a progressive JPEG has about 10; each costs a walk over all pixels, and may be only bytes long
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
_FROM_16_BITS = np.rint(np.arange(65_536) / 257).astype(np.uint8)
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Everything Pillow and its plug-ins are known to raise for a file that is not as it should be.
_PILLOW_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    Warning,
    struct.error,
    zlib.error,
)


@dataclass(frozen=True)
class ImageLimits:
    """What one image may cost. Pillow itself warns from 89,478,485 pixels on and refuses more than twice as many."""

    max_pixels: int = 89_478_485
    max_bytes: int = 200_000_000  # of the file


LIMITS = ImageLimits()


def open_image(
    source: Source,
    *,
    limits: ImageLimits = LIMITS,
    truncated: Literal["refuse", "accept"] = "refuse",
    at_least: int | None = None,
) -> NDArray[np.uint8]:
    """The image as uint8 (height, width, 3), RGB, upright; a fresh array that may be written to.

    `truncated="accept"` takes what can be decoded of a file that ends too early or breaks off; the rest of it is black
    or grey. `at_least` allows a JPEG to be decoded at 1/2, 1/4 or 1/8 of its size as long as both sides stay at least
    that long, which is several times faster for a large photograph. The pixels are not exactly those of a full decode:
    ask for twice the side that is wanted in the end (36 to 40 dB on two photographs; with once the side 29 to 35 dB).

    >>> open_image(b"P6 1 1 255 " + bytes([255, 128, 0])).tolist()
    [[[255, 128, 0]]]
    """
    if truncated not in ("refuse", "accept"):
        raise unknown("policy for truncated images", truncated, ("refuse", "accept"))
    name = _name(source)
    with _opened(source, name, limits) as file:
        data = _read(file, name, limits)
    if truncated == "accept" and data.startswith(b"\xff\xd8"):
        data += b"\xff\xd9"  # with an end, libjpeg shows what came before it
    with _typed_errors(name, data), _parse(io.BytesIO(data), name, limits) as image:
        if image.format in ("JPEG", "MPO") and _scans(data) > _MAX_SCANS:
            raise ImageTooLarge(
                name, f"a JPEG of more than {_MAX_SCANS} scans takes too long to decode"
            )
        if at_least is not None:
            image.draft(None, (at_least, at_least))
        _load(image, truncated)
        return _upright(image)  # after loading: a TIFF is turned, and loses its tag, on the way


def from_pil(image: Image.Image, *, limits: ImageLimits = LIMITS) -> NDArray[np.uint8]:
    """Convert a PIL image as `open_image` would convert its file.

    Args:
        image: Any mode; an image that is not loaded yet is loaded.
        limits: Largest size.

    Returns:
        uint8 (height, width, 3), RGB, upright.

    Raises:
        ImageError: The image is too large, or its file is damaged.

    Example:
        >>> from_pil(Image.new("L", (1, 1), 7)).tolist()
        [[[7, 7, 7]]]
    """
    name = str(getattr(image, "filename", "") or "<PIL image>")
    with _typed_errors(name, b"PIL"):
        _check_size(image, name, limits)
        image.load()
        return _upright(image)


def image_size(source: Source, *, limits: ImageLimits = LIMITS) -> tuple[int, int]:
    """(height, width) of what `open_image` would return, from the file's header alone.

    >>> image_size(b"P6 640 480 255 ")
    (480, 640)
    """
    name = _name(source)
    with _opened(source, name, limits) as file:
        beginning = file.read(16)
        with _typed_errors(name, beginning), _parse(file, name, limits) as image:
            swapped = image.format != "TIFF" and _orientation(image) in (
                5,
                6,
                7,
                8,
            )  # a TIFF's size is already swapped
            return (image.width, image.height) if swapped else (image.height, image.width)


def shrink_to_square(
    image: NDArray[np.uint8], side: int, *, fit: Literal["crop", "squash"] = "crop"
) -> NDArray[np.uint8]:
    """An image (height, width, 3) resized, antialiased, to (side, side, 3); it may also grow.

    "crop" keeps the shape of things: the short side becomes `side`, and the middle of the long one is kept. "squash"
    keeps the whole image. An image that has that size already is returned as it is.
    """
    if fit not in ("crop", "squash"):
        raise unknown("fit", fit, ("crop", "squash"))
    if side < 1:
        raise UsageError(f"An image needs at least 1 pixel a side, got side={side}.")
    height, width = image.shape[:2]
    if height == width == side:
        return image
    box = (0, 0, width, height)
    if (
        fit == "crop"
    ):  # cutting first and resizing then is the same, and does no work on what is cut off
        short = min(height, width)
        left, top = (width - short) // 2, (height - short) // 2
        box = (left, top, left + short, top + short)
    return np.array(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR, box=box))


def _name(source: Source) -> str:
    if isinstance(source, bytes):
        return "<bytes>"
    return (
        str(source) if isinstance(source, (str, Path)) else str(getattr(source, "name", "<stream>"))
    )


@contextmanager
def _opened(source: Source, name: str, limits: ImageLimits) -> Iterator[BinaryIO]:
    """The source as a file one may read and seek in; a stream is read into memory, up to the limit."""
    if isinstance(source, bytes):
        yield io.BytesIO(source)
        return
    try:
        if isinstance(source, (str, Path)):
            _require_regular(source, name)
            file: BinaryIO = Path(source).open("rb")  # noqa: SIM115 (closed below)
        else:
            file = io.BytesIO(source.read(limits.max_bytes + 1))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name, or a closed stream
        raise UnreadableImage(name, _words(error)) from error
    with file:
        yield file


def _require_regular(path: str | Path, name: str) -> None:
    mode = Path(path).stat().st_mode
    if stat.S_ISDIR(mode):
        raise UnreadableImage(name, "is a folder, not an image")
    if not stat.S_ISREG(mode):
        raise UnreadableImage(name, "is a pipe, socket or device, not a file")


def _read(file: BinaryIO, name: str, limits: ImageLimits) -> bytes:
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        data = b"" if size > limits.max_bytes else file.read(limits.max_bytes)
    except OSError as error:
        raise UnreadableImage(name, _words(error)) from error
    if size > limits.max_bytes:
        raise ImageTooLarge(
            name, f"a file of more than the {limits.max_bytes:,} bytes that max_bytes allows"
        )
    return data


def _parse(file: BinaryIO, name: str, limits: ImageLimits) -> Image.Image:
    """Read the header only, and refuse what is too large before anything is decoded."""
    image = Image.open(file, formats=FORMATS)
    _check_size(image, name, limits)
    return image


def _check_size(image: Image.Image, name: str, limits: ImageLimits) -> None:
    if image.width * image.height > limits.max_pixels:
        size = f"{image.width:,} x {image.height:,} pixels"
        raise ImageTooLarge(name, f"{size}; max_pixels allows {limits.max_pixels:,}")
    if image.width < 1 or image.height < 1:
        raise CorruptImage(name, f"{image.width} x {image.height} pixels")


def _upright(image: Image.Image) -> NDArray[np.uint8]:
    turn = _TURNS.get(_orientation(image))
    return np.array(_to_rgb(image) if turn is None else _to_rgb(image).transpose(turn))


def _load(image: Image.Image, truncated: str) -> None:
    try:
        image.load()
    except _PILLOW_ERRORS:
        if truncated == "refuse" or getattr(image, "_im", None) is None:
            raise
        image.tile = []  # type: ignore[attr-defined]  # nothing is left to load: the rows decoded so far are the image
        image.load()


def _scans(data: bytes) -> int:
    """How many scans a JPEG has. Counted by its markers, so that bytes inside other segments do not count."""
    scans, at = 0, 2
    while (found := _MARKER.search(data, at)) and found[1] != b"\xd9" and scans <= _MAX_SCANS:
        scans += found[1] == b"\xda"
        length = data[found.end() : found.end() + 2]
        at = found.end() + int.from_bytes(length, "big")
    return scans


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except _PILLOW_ERRORS:
        return 1


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return Image.fromarray(_FROM_16_BITS[np.asarray(image)]).convert("RGB")
    if image.mode in ("I", "F"):
        return Image.fromarray(_to_8_bits(np.array(image, np.float32))).convert("RGB")
    if image.mode in ("La", "RGBa"):
        image = image.convert(image.mode.upper())
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        page = Image.new("RGB", image.size, "white")
        page.paste(image, mask=image)
        return page
    return image.convert("RGB")


def _to_8_bits(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Values of no fixed range (height, width), scaled as the head of this file says; what is not finite becomes 0."""
    np.nan_to_num(values, copy=False, nan=0, posinf=0, neginf=0)
    low, high = float(values.min()), float(values.max())
    tops = [top for top in (1, 255, 65_535) if low >= 0 and high <= top]
    if tops:
        low, high = 0.0, float(tops[0])
    gain = 255 / (high - low) if high > low else 0.0
    scaled: NDArray[np.uint8] = np.rint((values * gain - low * gain).clip(0, 255)).astype(np.uint8)
    return scaled


@contextmanager
def _typed_errors(name: str, data: bytes) -> Iterator[None]:
    """Turn whatever Pillow raises into one of our errors. `data` is at least the beginning of the file."""
    try:
        yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLarge(name, "more pixels than can be decoded safely") from error
    except MemoryError as error:
        raise ImageTooLarge(name, "decoding it needs more memory than there is") from error
    except UnidentifiedImageError as error:
        if not data:
            raise CorruptImage(name, "the file is empty") from error
        if _BEGINNING.match(data):
            raise CorruptImage(name, "broken or truncated within its header") from error
        raise UnsupportedImage(
            name, f"not an image of a format that is read here: {', '.join(FORMATS)}"
        ) from error
    except _PILLOW_ERRORS as error:
        raise CorruptImage(name, f"broken or truncated ({_words(error)})") from error


def _words(error: BaseException) -> str:
    text = (
        (error.strerror if isinstance(error, OSError) else None)
        or str(error)
        or type(error).__name__
    )
    return " ".join(text.split())
