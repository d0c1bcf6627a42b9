"""A small RAW file, made here."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
from PIL import Image

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
