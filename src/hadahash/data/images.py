"""Image decoding: a file, bytes or a stream in, uint8 (height, width, 3) out.

This is the only module that opens images. The result is what an image viewer shows:

- EXIF orientation is applied; damaged EXIF is ignored;
- of an animation the first frame is used, of a file with many pages the first page, of a RAW file
  the preview;
- colors become 8-bit RGB as `colors.to_rgb` describes.

A large JPEG of which only a small square is needed is decoded at 1/2, 1/4 or 1/8 of its size, by
the decoder itself. `squares.enough_for` decides how small, for models and thumbnails alike.

The format is detected from the content of a file, never from its name. Only the formats of
`formats.py` are decoded, none of which can contain programs, as EPS, PS, PDF and SVG can. Sizes are
checked against `ImageLimits` before memory for the pixels is allocated. Images may be opened from
any number of threads. Importing this module disables warnings of Pillow; a file can cause many.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from ..errors import (
    CorruptImage,
    ImageTooLarge,
    MissingExtraError,
    UnreadableImage,
    UnsupportedImage,
    install_command,
    unknown,
)
from .colors import to_rgb
from .formats import FORMATS, formats_for, is_known_start
from .headers import block_claims_too_much, count_scans, guard_tags
from .raw import developed
from .squares import Reduced, enough_for

warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")

ImageInput = str | Path | bytes | BinaryIO

_SCAN = b"\xff\xda"  # the marker of a scan of a JPEG
_MAX_SCANS = 100  # a progressive JPEG has about 10; each costs a pass over all pixels
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

# What Pillow and its plug-ins raise for damaged files.
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
    """Size limits of an image.

    Attributes:
        max_pixels: Largest number of pixels. Pillow refuses more than twice the default.
        max_bytes: Largest file.
        max_side: Largest width and height in pixels.
    """

    max_pixels: int = 89_478_485
    max_bytes: int = 200_000_000
    max_side: int = 65_535


LIMITS = ImageLimits()


def open_image(
    source: ImageInput,
    *,
    limits: ImageLimits = LIMITS,
    truncated: Literal["refuse", "accept"] = "refuse",
    at_least: int | None = None,
) -> NDArray[np.uint8]:
    """Decode an image.

    Args:
        source: A path, the bytes of a file, or a binary stream.
        limits: Largest image.
        truncated: "accept" returns the part of a truncated or damaged file that can be decoded; the
            rest is black or gray.
        at_least: Allows a JPEG to be decoded at 1/2, 1/4 or 1/8 of its size while both sides stay
            at least this long, which is several times faster. The pixels are not exactly those of
            a full decode; `open_reduced` chooses a length that suffices.

    Returns:
        uint8 (height, width, 3), RGB, upright; a new array.

    Raises:
        ImageError: The file cannot be read, is not an image, is damaged or is too large.
        UsageError: The value of `truncated` is unknown.

    Example:
        >>> open_image(b"P6 1 1 255 " + bytes([255, 128, 0])).tolist()
        [[[255, 128, 0]]]
    """
    return _decode(source, limits, truncated, at_least).pixels


def open_reduced(
    source: ImageInput, side: int, *, limits: ImageLimits = LIMITS, preview: bool = False
) -> Reduced:
    """Decode an image, a large JPEG no larger than a result of `side` pixels needs.

    Args:
        source: A path, the bytes of a file, or a binary stream.
        side: Side of the result in pixels; see `squares.enough_for`.
        limits: Largest image.
        preview: Whether the result is shown to people, not to a network.

    Returns:
        The image, its full size and how much it was reduced.

    Raises:
        ImageError: As `open_image`.

    Example:
        >>> open_reduced(b"P6 1 1 255 " + bytes([255, 128, 0]), 224).scale
        1
    """
    return _decode(source, limits, "refuse", enough_for(side, preview=preview))


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


def image_size(source: ImageInput, *, limits: ImageLimits = LIMITS) -> tuple[int, int]:
    """Read the size of an image from the header of its file.

    Args:
        source: A path, the bytes of a file, or a binary stream.
        limits: Largest image.

    Returns:
        (height, width) of what `open_image` would return.

    Raises:
        ImageError: The file cannot be read, is not an image, or is too large.

    Example:
        >>> image_size(b"P6 640 480 255 ")
        (480, 640)
    """
    name = _name(source)
    with _opened(source, name, limits) as file:
        start = file.read(16)
        file.seek(0)
        with _typed_errors(name, start), _parse(file, name, limits) as image:
            # Pillow has swapped the size of a TIFF already.
            swapped = image.format != "TIFF" and _orientation(image) in (5, 6, 7, 8)
            return (image.width, image.height) if swapped else (image.height, image.width)


def _decode(
    source: ImageInput, limits: ImageLimits, truncated: str, at_least: int | None
) -> Reduced:
    if truncated not in ("refuse", "accept"):
        raise unknown("policy for truncated images", truncated, ("refuse", "accept"))
    name = _name(source)
    with _opened(source, name, limits) as file:
        data = _read(file, name, limits)
    if truncated == "accept" and data.startswith(b"\xff\xd8"):
        data += b"\xff\xd9"  # with an end marker, libjpeg returns what came before it
    with _typed_errors(name, data), _parse(io.BytesIO(data), name, limits) as image:
        if image.format in ("JPEG", "MPO") and _has_many_scans(data):
            raise ImageTooLarge(name, f"more than {_MAX_SCANS} scans in a JPEG")
        full, scale = image.size, 1
        if at_least is not None and (drafted := image.draft(None, (at_least, at_least))):
            scale = round(full[0] / drafted[1][2])
        _load(image, truncated)
        # After loading: Pillow rotates a TIFF itself and drops its tag.
        return Reduced.turned(_upright(image), full, scale, _orientation(image))


def _name(source: ImageInput) -> str:
    if isinstance(source, bytes):
        return "<bytes>"
    return str(source if isinstance(source, (str, Path)) else getattr(source, "name", "<stream>"))


@contextmanager
def _opened(source: ImageInput, name: str, limits: ImageLimits) -> Iterator[BinaryIO]:
    """The source as a seekable file; a stream is read into memory, up to the limit."""
    try:
        if isinstance(source, bytes):
            file: BinaryIO = io.BytesIO(source)
        elif isinstance(source, (str, Path)):
            _require_regular(source, name)
            file = Path(source).open("rb")  # noqa: SIM115 (closed below)
        else:
            file = io.BytesIO(source.read(limits.max_bytes + 1))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name, or a closed stream
        raise UnreadableImage(name, _reason(error)) from error
    with file:
        with _typed_errors(name, b"RAW"):
            image = developed(file, name, max_bytes=limits.max_bytes, max_pixels=limits.max_pixels)
        yield image


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
        raise UnreadableImage(name, _reason(error)) from error
    if size > limits.max_bytes:
        raise ImageTooLarge(name, f"more than {limits.max_bytes:,} bytes (max_bytes)")
    return data


def _parse(file: BinaryIO, name: str, limits: ImageLimits) -> Image.Image:
    """Read the header only, and refuse what is too large before anything is decoded."""
    start = file.read(64)
    file.seek(0)
    try:
        formats = formats_for(start)
    except MissingExtraError as error:
        reason = f"HEIC needs an extra: {install_command('heif')}"
        raise UnsupportedImage(name, reason) from error
    image = Image.open(guard_tags(file), formats=formats)
    _check_size(image, name, limits)
    return image


def _check_size(image: Image.Image, name: str, limits: ImageLimits) -> None:
    width, height = image.size
    size = f"{width:,} x {height:,} pixels"
    if width * height > limits.max_pixels:
        raise ImageTooLarge(name, f"{size}; max_pixels is {limits.max_pixels:,}")
    if max(width, height) > limits.max_side:
        raise ImageTooLarge(name, f"{size}; max_side is {limits.max_side:,}")
    if min(width, height) < 1:
        raise CorruptImage(name, size)


def _upright(image: Image.Image) -> NDArray[np.uint8]:
    turn = _TURNS.get(_orientation(image))
    return np.array(to_rgb(image) if turn is None else to_rgb(image).transpose(turn))


def _load(image: Image.Image, truncated: str) -> None:
    try:
        image.load()
    except _PILLOW_ERRORS:
        if truncated == "refuse" or getattr(image, "_im", None) is None:
            raise
        image.tile = []  # type: ignore[attr-defined]  # keep the rows decoded so far
        image.load()


def _has_many_scans(data: bytes) -> bool:
    # A count of bytes is never too low. Following the markers takes as long as a small decode.
    return data.count(_SCAN) > _MAX_SCANS and count_scans(data, _MAX_SCANS) > _MAX_SCANS


def _orientation(image: Image.Image) -> int:
    try:
        if image.format != "TIFF" and block_claims_too_much(_exif_block(image)):
            return 1
        return int(image.getexif().get(_ORIENTATION, 1))
    except _PILLOW_ERRORS:
        return 1


def _exif_block(image: Image.Image) -> bytes:
    """The EXIF block where Pillow looks for it; in a PNG it may be hexadecimal text."""
    block = image.info.get("exif")
    if block is None and "Raw profile type exif" in image.info:
        text: str = image.info["Raw profile type exif"]
        return bytes.fromhex("".join(text.split("\n")[3:]))
    return block if isinstance(block, bytes) else b""


@contextmanager
def _typed_errors(name: str, data: bytes) -> Iterator[None]:
    """Turn what Pillow raises into an `ImageError`. `data` is at least the start of the file."""
    try:
        yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLarge(name, "more pixels than Pillow decodes") from error
    except MemoryError as error:
        raise ImageTooLarge(name, "out of memory while decoding") from error
    except UnidentifiedImageError as error:
        if not data:
            raise CorruptImage(name, "the file is empty") from error
        if is_known_start(data):
            raise CorruptImage(name, "damaged or truncated in its header") from error
        raise UnsupportedImage(
            name, f"not an image of a supported format ({', '.join(FORMATS)})"
        ) from error
    except _PILLOW_ERRORS as error:
        raise CorruptImage(name, f"damaged or truncated ({_reason(error)})") from error


def _reason(error: BaseException) -> str:
    text = (
        (error.strerror if isinstance(error, OSError) else None)
        or str(error)
        or type(error).__name__
    )
    return " ".join(text.split())
