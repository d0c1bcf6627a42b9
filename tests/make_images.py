"""The corpus of unusual image files: each has a name, its bytes and the expected outcome."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 40, 56
GRAY, WHITE, ROSE = (90, 90, 90), (255, 255, 255), (200, 40, 90)


class Case(NamedTuple):
    name: str
    data: bytes
    expected: str  # "ok", or the name of the error
    shape: tuple[int, int] | None = None  # (height, width) of what is decoded
    color: tuple[int, int, int] | None = None  # of every pixel, within `within`
    within: int = 0


def picture(height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """A smooth image (height, width, 3) whose four quarters differ, so that rotations show."""
    y, x = np.mgrid[:height, :width]
    red, green = x * 255 // max(1, width - 1), y * 255 // max(1, height - 1)
    blue = np.where((x < width // 2) & (y < height // 2), 200, 30)
    return np.stack([red, green, blue], -1).astype(np.uint8)


def encode(image: Image.Image | np.ndarray, fmt: str, **options) -> bytes:
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    buffer = io.BytesIO()
    image.save(buffer, fmt, **options)
    return buffer.getvalue()


def flat(mode: str, color: int | tuple[int, ...]) -> Image.Image:
    return Image.new(mode, (WIDTH, HEIGHT), color)


def values(value: float, dtype: type) -> Image.Image:
    return Image.fromarray(np.full((HEIGHT, WIDTH), value, dtype))


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def turned(upright: np.ndarray, orientation: int) -> np.ndarray:
    """The pixels as a camera stores them with this EXIF orientation."""
    inverse: dict[int, Callable[[np.ndarray], np.ndarray]] = {
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
        8: lambda a: np.rot90(a, -1),
    }
    return np.ascontiguousarray(inverse.get(orientation, lambda a: a)(upright))


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, color: int, rows: bytes, *extra: bytes) -> bytes:
    """A PNG of `rows` with their filter bytes; `extra` chunks come before the pixels."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    body = (
        header
        + b"".join(extra)
        + png_chunk(b"IDAT", zlib.compress(rows, 9))
        + png_chunk(b"IEND", b"")
    )
    return b"\x89PNG\r\n\x1a\n" + body


def tiff(
    entries: list[tuple[int, int, int, int]], *, following: int = 0, tail: bytes = b""
) -> bytes:
    """A little-endian TIFF with one directory of (tag, type, count, value); then `tail`."""
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return (
        b"II*\0" + struct.pack("<IH", 8, len(entries)) + body + struct.pack("<I", following) + tail
    )


def scan_bomb(side: int = 8_000, scans: int = 5_000) -> bytes:
    """A progressive JPEG whose last scan, of about 100 bytes, is repeated thousands of times."""
    data = encode(Image.new("L", (side, side)), "JPEG", progressive=True, quality=30)
    last = data.rfind(b"\xff\xda")
    return data[:-2] + data[last:-2] * scans + b"\xff\xd9"


def gray_ramp(top: int) -> np.ndarray:
    return np.tile(np.linspace(0, top, 256), (16, 1))


def animation(fmt: str, frames: int, size: tuple[int, int] = (8, 8)) -> bytes:
    """An animation: red first, then frames that differ from their neighbors."""
    images = [
        Image.new("RGB", size, (255, 0, 0) if i == 0 else (i % 251, 200, i // 251))
        for i in range(frames)
    ]
    options = {"lossless": True} if fmt == "WEBP" else {}
    return encode(images[0], fmt, save_all=True, append_images=images[1:], duration=20, **options)


def _modes() -> list[Case]:
    rgb = Image.fromarray(picture())
    shape = (HEIGHT, WIDTH)
    half = flat("RGBA", (0, 0, 0, 128))
    palette = rgb.quantize(64)
    clear = flat("P", 0)
    clear.putpalette([10, 20, 30] + [0] * 765)
    return [
        Case("mode-1.png", encode(flat("1", 1), "PNG"), "ok", shape, WHITE),
        Case("mode-L.png", encode(flat("L", 77), "PNG"), "ok", shape, (77, 77, 77)),
        Case("mode-L.jpg", encode(flat("L", 77), "JPEG"), "ok", shape, (77, 77, 77), 1),
        Case("mode-LA.png", encode(flat("LA", (0, 128)), "PNG"), "ok", shape, (127,) * 3, 1),
        Case("mode-P.png", encode(palette, "PNG"), "ok", shape),
        Case("mode-P-clear.png", encode(clear, "PNG", transparency=0), "ok", shape, WHITE),
        Case("mode-P-clear.gif", encode(clear, "GIF", transparency=0), "ok", shape, WHITE),
        Case("mode-RGB.png", encode(rgb, "PNG"), "ok", shape),
        Case(
            "mode-RGB-trns.png",
            encode(flat("RGB", (1, 2, 3)), "PNG", transparency=(1, 2, 3)),
            "ok",
            shape,
            WHITE,
        ),
        Case("mode-RGBA.png", encode(half, "PNG"), "ok", shape, (127, 127, 127), 1),
        Case(
            "mode-RGBA.webp", encode(half, "WEBP", lossless=True), "ok", shape, (127, 127, 127), 1
        ),
        Case("mode-RGBA.tif", encode(half, "TIFF"), "ok", shape, (127, 127, 127), 1),
        Case(
            "mode-CMYK.jpg",
            encode(flat("CMYK", (255, 0, 0, 0)), "JPEG", quality=95),
            "ok",
            shape,
            (0, 255, 255),
            4,
        ),
        Case(
            "mode-CMYK.tif",
            encode(flat("CMYK", (0, 255, 255, 0)), "TIFF"),
            "ok",
            shape,
            (255, 0, 0),
            4,
        ),
        Case(
            "mode-YCbCr.jpg",
            encode(flat("RGB", ROSE).convert("YCbCr"), "JPEG", quality=95),
            "ok",
            shape,
            ROSE,
            4,
        ),
        Case(
            "mode-YCbCr.tif",
            encode(flat("RGB", ROSE).convert("YCbCr"), "TIFF"),
            "ok",
            shape,
            ROSE,
            4,
        ),
        Case("mode-LAB.tif", encode(flat("LAB", (255, 128, 128)), "TIFF"), "ok", shape, WHITE, 3),
        Case("mode-I16.png", encode(values(257 * 90, np.uint16), "PNG"), "ok", shape, GRAY),
        Case("mode-I16.tif", encode(values(257 * 90, np.uint16), "TIFF"), "ok", shape, GRAY),
        Case("mode-I.tif", encode(values(257 * 90, np.int32), "TIFF"), "ok", shape, GRAY),
        Case("mode-F.tif", encode(values(0.5, np.float32), "TIFF"), "ok", shape, (128,) * 3),
        Case("mode-F-nan.tif", encode(values(np.nan, np.float32), "TIFF"), "ok", shape, (0,) * 3),
        Case("mode-F-wide.tif", encode(values(-3e38, np.float32), "TIFF"), "ok", shape, (0,) * 3),
        Case(
            "mode-16-bit-gray.pgm",
            b"P5 4 2 65535\n" + struct.pack(">H", 257 * 90) * 8,
            "ok",
            (2, 4),
            GRAY,
        ),
        Case(
            "mode-16-bit-rgb.png",
            png(2, 1, 16, 2, b"\0" + struct.pack(">6H", *[257 * 90] * 6)),
            "ok",
            (1, 2),
            GRAY,
        ),
        Case(
            "mode-16-bit-rgba.png",
            png(1, 1, 16, 6, b"\0" + struct.pack(">4H", 0, 0, 0, 0)),
            "ok",
            (1, 1),
            WHITE,
        ),
        Case("mode-rgb.bmp", encode(rgb, "BMP"), "ok", shape),
        Case("mode-ppm.ppm", encode(rgb, "PPM"), "ok", shape),
        Case("mode-plain.pgm", b"P2 2 1 255 90 90\n", "ok", (1, 2), GRAY),
        Case("mode-pbm.pbm", b"P4 8 1 \0", "ok", (1, 8), WHITE),
        Case("compressed.tif", encode(rgb, "TIFF", compression="tiff_lzw"), "ok", shape),
        Case("progressive.jpg", encode(rgb, "JPEG", progressive=True), "ok", shape),
    ]


def _sizes() -> list[Case]:
    long = Image.new("RGB", (10_000, 1), (9, 8, 7))
    return [
        Case(
            "1x1.png", encode(Image.new("RGB", (1, 1), (9, 8, 7)), "PNG"), "ok", (1, 1), (9, 8, 7)
        ),
        Case("1x1.gif", encode(Image.new("P", (1, 1)), "GIF"), "ok", (1, 1)),
        Case("1x10000.png", encode(long, "PNG"), "ok", (1, 10_000), (9, 8, 7)),
        Case(
            "10000x1.jpg",
            encode(long.transpose(Image.Transpose.ROTATE_90), "JPEG"),
            "ok",
            (10_000, 1),
            (9, 8, 7),
            2,
        ),
        Case("zero-wide.png", png(0, 4, 8, 2, b"\0" * 4), "CorruptImage"),
        Case(
            "zero.bmp",
            encode(Image.new("RGB", (1, 1)), "BMP")[:18] + bytes(8) + bytes(40),
            "CorruptImage",
        ),
    ]


def _exif() -> list[Case]:
    upright = picture()
    cases = [
        Case(
            f"exif-{n}.jpg",
            encode(turned(upright, n), "JPEG", exif=exif(n), quality=95, subsampling=0),
            "ok",
            upright.shape[:2],
        )
        for n in range(9)
    ]
    for n in (3, 6):
        cases.append(
            Case(
                f"exif-{n}.png",
                encode(turned(upright, n), "PNG", exif=exif(n)),
                "ok",
                upright.shape[:2],
            )
        )
        cases.append(
            Case(
                f"exif-{n}.webp",
                encode(turned(upright, n), "WEBP", exif=exif(n), lossless=True),
                "ok",
                upright.shape[:2],
            )
        )
        tagged = encode(turned(upright, n), "TIFF", tiffinfo={0x0112: n})
        cases.append(Case(f"exif-{n}.tif", tagged, "ok", upright.shape[:2]))
    random = np.random.default_rng(0)
    for size in (1, 7, 100, 65_527):
        broken = b"Exif\0\0" + random.bytes(size)
        cases.append(
            Case(
                f"exif-broken-{size}.jpg",
                encode(upright, "JPEG", exif=broken),
                "ok",
                upright.shape[:2],
            )
        )
    overlapping = b"".join(struct.pack("<HHII", tag, 7, 60_000, 8) for tag in range(5_000))
    broken = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 5_000) + overlapping + bytes(4)
    cases.append(
        Case("exif-overlapping.jpg", encode(upright, "JPEG", exif=broken), "ok", upright.shape[:2])
    )
    return cases


def _broken() -> list[Case]:
    big = np.random.default_rng(0).integers(0, 256, (100, 100, 3), dtype=np.uint8)
    cases = []
    for fmt, options in (
        ("JPEG", {}),
        ("PNG", {}),
        ("GIF", {}),
        ("WEBP", {}),
        ("TIFF", {}),
        ("BMP", {}),
        ("PPM", {}),
    ):
        data = encode(big, fmt, **options)
        for percent in (10, 50, 90, 99):
            name = f"truncated-{percent}.{fmt.lower()}"
            cases.append(Case(name, data[: len(data) * percent // 100], "CorruptImage"))
    progressive = encode(big, "JPEG", progressive=True)
    cases.append(
        Case("truncated-progressive.jpg", progressive[: len(progressive) // 2], "CorruptImage")
    )
    flipped = bytearray(encode(big, "PNG"))
    flipped[len(flipped) // 2] ^= 255
    cases.append(Case("bad-crc.png", bytes(flipped), "CorruptImage"))
    cases.append(Case("only-beginning.jpg", b"\xff\xd8\xff\xe0", "CorruptImage"))
    cases.append(Case("only-beginning.png", b"\x89PNG\r\n\x1a\n", "CorruptImage"))
    return cases


def _refused() -> list[Case]:
    rgb = Image.fromarray(picture())
    return [
        Case("empty.jpg", b"", "CorruptImage"),
        Case("text.png", b"This is not an image.\n" * 10, "UnsupportedImage"),
        Case("zeros.jpg", bytes(1_000), "UnsupportedImage"),
        Case("page.pdf.jpg", encode(rgb, "PDF"), "UnsupportedImage"),
        Case("script.eps.jpg", encode(rgb, "EPS"), "UnsupportedImage"),
        Case("script.ps.jpg", b"%!PS-Adobe-3.0\nshowpage\n", "UnsupportedImage"),
        Case("drawing.svg.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "UnsupportedImage"),
        Case("icon.icns.png", encode(rgb.resize((32, 32)), "ICNS"), "UnsupportedImage"),
        Case("icon.ico.png", encode(rgb, "ICO"), "UnsupportedImage"),
        Case("sound.wav.png", b"RIFF\x24\0\0\0WAVEfmt " + bytes(24), "UnsupportedImage"),
        Case("program.jpg", b"\x7fELF" + bytes(100), "UnsupportedImage"),
        Case("archive.jpg", b"PK\x03\x04" + bytes(100), "UnsupportedImage"),
    ]


def _bombs() -> list[Case]:
    text = png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(150_000_000), 9))
    pixel = b"\0\1\2\3"
    basic = [
        (256, 4, 1, 1),
        (257, 4, 1, 1),
        (258, 3, 1, 8),
        (262, 3, 1, 1),
        (273, 4, 1, 8),
        (279, 4, 1, 1),
    ]
    overlapping = [(tag, 7, 400_000, 8) for tag in range(40_000, 50_000)]
    directory = tiff(basic + overlapping, tail=bytes(400_000))
    exif_chunk = png_chunk(b"eXIf", directory)
    plain = encode(picture(), "JPEG")
    pieces = [directory[start : start + 60_000] for start in range(0, len(directory), 60_000)]
    segments = [b"\xff\xe1" + struct.pack(">H", len(p) + 8) + b"Exif\0\0" + p for p in pieces]
    many_segments = plain[:2] + b"".join(segments) + plain[2:]
    bmp = (
        b"BM" + bytes(12) + struct.pack("<IiiHHIIiiII", 40, 60_000, 60_000, 1, 24, 0, 0, 0, 0, 0, 0)
    )
    webp = b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xfe\x3f\0\xfe\x3f\0" + bytes(8)
    gif = bytearray(animation("GIF", 2))
    gif[6:10] = b"\xff\xff\xff\xff"  # the screen is 65,535 x 65,535
    return [
        Case("bomb-50000.png", png(50_000, 50_000, 8, 2, bytes(30_000_000)), "ImageTooLarge"),
        Case("bomb-screen.gif", bytes(gif), "ImageTooLarge"),
        Case("bomb-size.bmp", bmp, "ImageTooLarge"),
        Case("bomb-size.ppm", b"P6 60000 60000 255\n" + bytes(10), "ImageTooLarge"),
        Case(
            "bomb-size.tif",
            tiff([(256, 4, 1, 60_000), (257, 4, 1, 60_000), *basic[2:]]),
            "ImageTooLarge",
        ),
        Case("bomb-size.webp", webp, "ImageTooLarge"),
        Case("bomb-scans.jpg", scan_bomb(), "ImageTooLarge"),
        Case("bomb-text.png", png(1, 1, 8, 2, pixel, text), "CorruptImage"),
        Case(
            "bomb-overlapping-tags.tif",
            tiff(basic + overlapping, tail=bytes(400_000)),
            "CorruptImage",
        ),
        Case("bomb-overlapping-tags.png", png(1, 1, 8, 2, pixel, exif_chunk), "ok", (1, 1)),
        Case("bomb-overlapping-tags.jpg", many_segments, "ok", (HEIGHT, WIDTH)),
        Case("bomb-side.png", png(1, 70_000, 8, 2, bytes(4 * 70_000)), "ImageTooLarge"),
        Case("bomb-directory-loop.tif", tiff(basic, following=8), "ok", (1, 1)),
        Case(
            "bomb-nested-directories.tif",
            tiff([*basic, (330, 4, 1, 8), (34665, 4, 1, 8)]),
            "ok",
            (1, 1),
        ),
        Case("bomb-tag-count.tif", tiff([*basic, (700, 7, 2**32 - 1, 8)]), "ok", (1, 1)),
        Case(
            "bomb-strips.tif",
            tiff([*basic[:4], (273, 4, 2**30, 8), (279, 4, 2**30, 8)]),
            "CorruptImage",
        ),
    ]


def _animations() -> list[Case]:
    red = (255, 0, 0)
    return [
        Case("animated.gif", animation("GIF", 5), "ok", (8, 8), red),
        Case("animated.webp", animation("WEBP", 5), "ok", (8, 8), red),
        Case("animated.apng", animation("PNG", 5), "ok", (8, 8), red),
        Case("pages.tif", animation("TIFF", 5), "ok", (8, 8), red),
        Case("two.mpo", animation("MPO", 2, (16, 16)), "ok", (16, 16), red, 2),
    ]


def corpus() -> list[Case]:
    return [*_modes(), *_sizes(), *_exif(), *_broken(), *_refused(), *_bombs(), *_animations()]


def many_frames(fmt: str, count: int) -> bytes:
    """An animation of `count` frames, red first, made by repeating those of a short one."""
    if fmt == "GIF":
        head, first, *others = animation("GIF", 3)[:-1].split(b"\x21\xf9\x04")
        return b"\x21\xf9\x04".join([head, first, *(others * (count // 2))]) + b";"
    if fmt == "WEBP":
        short = animation("WEBP", 3)
        start = short.index(b"ANMF")
        second = short.index(b"ANMF", start + 4)
        body = short[8:second] + short[second:] * (count // 2)
        return b"RIFF" + struct.pack("<I", len(body)) + body
    frame = struct.pack(">IIIIHHBB", 1, 1, 0, 0, 1, 50, 0, 0)
    chunks = [
        png_chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)),
        png_chunk(b"acTL", struct.pack(">II", count, 0)),
    ]
    chunks += [
        png_chunk(b"fcTL", struct.pack(">I", 0) + frame),
        png_chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")),
    ]
    blue = zlib.compress(b"\0\0\0\xff")
    for number in range(1, 2 * count - 1, 2):
        chunks.append(png_chunk(b"fcTL", struct.pack(">I", number) + frame))
        chunks.append(png_chunk(b"fdAT", struct.pack(">I", number + 1) + blue))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + png_chunk(b"IEND", b"")
