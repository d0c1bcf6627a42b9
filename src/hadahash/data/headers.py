"""Limits on what the headers of an image file claim, checked before decoding.

A TIFF or EXIF directory of a few bytes can claim gigabytes of tag data, and a JPEG of a few
kilobytes can have thousands of scans. Both are refused before memory or time is spent. The EXIF
block of an AVIF or HEIC file is hidden from the decoder: there the container says how an image is
rotated.
"""

from __future__ import annotations

import io
import os
import re
from typing import BinaryIO

import numpy as np

TIFF_START = re.compile(rb"(?:II|MM)(?:[*+]\0|\0[*+])")

_ISO_EXIF = re.compile(rb"(infe.{4}(?:.{4}|.{6}))Exif", re.DOTALL)  # the item of a box container
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
_EXIF, _MPF = b"Exif\0\0", b"MPF\0"
_SPARE = 1 << 20  # bytes that the tags of any file may claim
_UNITS = np.zeros(1 << 16)  # bytes of one value, by the type of the tag; 0: unknown, not read
_UNITS[1:14] = [1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4]
_UNITS[16:19] = 8


def guard_tags(file: BinaryIO) -> BinaryIO:
    """Protect a decoder from tags that claim more data than their file can hold.

    Too much is more than twice the size of the file or block plus 1 MiB.

    Args:
        file: An image file, open, seekable and at its start.

    Returns:
        The file at its start, or a copy without EXIF of a JPEG whose EXIF claims too much, and of
        any AVIF or HEIC file.

    Raises:
        ValueError: The directory of a TIFF claims too much.
    """
    start = file.read(8)
    if start[4:] == b"ftyp":
        return io.BytesIO(_ISO_EXIF.sub(rb"\1skip", start + file.read()))
    if TIFF_START.match(start) and _overclaims(file):
        raise ValueError("its tags claim more data than the file contains")
    blocks = _jpeg_blocks(file) if start.startswith(b"\xff\xd8") else []
    file.seek(0)
    for kind in (_EXIF, _MPF):
        joined = b"".join(content for _, content, block_kind in blocks if block_kind is kind)
        if block_claims_too_much(joined):
            file = _blanked(
                file, [position for position, _, block_kind in blocks if block_kind is kind]
            )
    return file


def block_claims_too_much(block: bytes) -> bool:
    """Return whether the tags of an EXIF block claim more data than it can hold.

    Args:
        block: A TIFF header and directory, with or without `Exif` before it.

    Returns:
        True if they claim more than twice its size plus 1 MiB.
    """
    block = block.removeprefix(_EXIF)
    return bool(TIFF_START.match(block)) and _overclaims(io.BytesIO(block))


def count_scans(data: bytes, limit: int) -> int:
    """Count the scans of a JPEG by its markers; bytes inside other segments do not count.

    Args:
        data: The file.
        limit: Counting stops beyond this number.

    Returns:
        The number of scans, or `limit` + 1.
    """
    scans, position = 0, 2
    while (found := _MARKER.search(data, position)) and found[1] != b"\xd9" and scans <= limit:
        scans += found[1] == b"\xda"
        length = data[found.end() : found.end() + 2]
        position = found.end() + int.from_bytes(length, "big")
    return scans


def _overclaims(file: BinaryIO) -> bool:
    """Whether the tags of the first directory claim too much; `file` begins with a TIFF header."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    header = file.read(16).ljust(16, b"\0")
    order = "<" if header.startswith(b"II") else ">"
    big = header[2] == 43
    start, width = (header[8:16], 8) if big else (header[4:8], 4)
    position = int(np.frombuffer(start, f"{order}u{width}")[0])
    entry = np.dtype(
        [("tag", f"{order}u2"), ("type", f"{order}u2")]
        + [(name, f"{order}u{width}") for name in ("count", "value")]
    )
    file.seek(min(position, size))
    count_bytes = file.read(8 if big else 2)
    count = int.from_bytes(count_bytes, "little" if order == "<" else "big")
    content = file.read(min(count * entry.itemsize, size))
    entries = np.frombuffer(content[: len(content) // entry.itemsize * entry.itemsize], entry)
    claimed = entries["count"].astype(np.float64) * _UNITS[entries["type"]]
    available = np.maximum(size - entries["value"].astype(np.float64), 0)
    outside = claimed > width  # smaller values are in the entry itself
    return bool(np.minimum(claimed, available)[outside].sum() > 2 * size + _SPARE)


def _jpeg_blocks(file: BinaryIO) -> list[tuple[int, bytes, bytes]]:
    """Position, content and kind of the EXIF and MPF segments of a JPEG."""
    blocks = []
    file.seek(2)
    while (byte := file.read(1)) == b"\xff":
        while byte == b"\xff":
            byte = file.read(1)
        if not byte or byte in b"\xd9\xda":
            break
        if b"\xd0" <= byte <= b"\xd8" or byte == b"\x01":
            continue  # a marker without content
        content = file.read(max(0, int.from_bytes(file.read(2), "big") - 2))
        kind = {b"\xe1": _EXIF, b"\xe2": _MPF}.get(byte)
        if kind and content.startswith(kind):
            blocks.append((file.tell() - len(content), content.removeprefix(kind), kind))
    return blocks


def _blanked(file: BinaryIO, positions: list[int]) -> BinaryIO:
    """A copy in which the names of these segments are overwritten, so that decoders ignore them."""
    content = bytearray(file.read())
    for position in positions:
        content[position : position + 4] = b"\0\0\0\0"
    return io.BytesIO(bytes(content))
