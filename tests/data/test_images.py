"""Opening images: decoded correctly or refused with a typed error, in bounded time and memory."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from make_images import (
    Case,
    animation,
    corpus,
    encode,
    gray_ramp,
    many_frames,
    picture,
    png,
    turned,
)
from PIL import Image, ImageFile, features

from hadahash import errors
from hadahash.data.images import ImageLimits, image_size, open_image
from hadahash.errors import CorruptImage, ImageError, ImageTooLarge, UnreadableImage, UsageError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, about broken EXIF

posix = pytest.mark.skipif(os.name != "posix", reason="needs pipes, links and users")

CORPUS = corpus()
OK = [case for case in CORPUS if case.expected == "ok"]


def by_name(case: Case) -> str:
    return case.name


def test_the_corpus_is_large_enough():
    assert len(CORPUS) >= 60
    assert len({case.name for case in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("case", CORPUS, ids=by_name)
def test_corpus_file_is_decoded_right_or_refused_by_type(case, tmp_path):
    path = tmp_path / case.name
    path.write_bytes(case.data)
    start = time.process_time()
    if case.expected == "ok":
        image = open_image(path)
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape[2] == 3
        assert image.flags.writeable
        assert case.shape is None or image.shape[:2] == case.shape
        if case.color is not None:
            assert np.abs(image.astype(int) - case.color).max() <= case.within
    else:
        with pytest.raises(ImageError) as caught:
            open_image(path)
        assert type(caught.value) is getattr(errors, case.expected)
        assert caught.value.path == str(path)
        assert "\n" not in str(caught.value)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("case", OK, ids=by_name)
def test_image_size_is_that_of_the_decoded_image(case):
    assert image_size(case.data) == open_image(case.data).shape[:2]


@pytest.mark.parametrize("case", [case for case in OK if case.name.startswith("exif")], ids=by_name)
def test_exif_orientation_is_applied(case):
    difference = np.abs(open_image(case.data).astype(int) - picture())
    assert difference.mean() < (3 if case.name.endswith("jpg") else 1e-9)


def test_a_wrongly_rotated_image_would_be_detected():
    for orientation in range(2, 9):
        other = turned(picture(48, 48), orientation).astype(int)
        assert np.abs(other - picture(48, 48)).mean() > 20


RAMP = {
    "uint16.png": lambda: encode(np.rint(gray_ramp(65_535)).astype(np.uint16), "PNG"),
    "uint16.tif": lambda: encode(np.rint(gray_ramp(65_535)).astype(np.uint16), "TIFF"),
    "int32.tif": lambda: encode(np.rint(gray_ramp(65_535)).astype(np.int32), "TIFF"),
    "int32-wide.tif": lambda: encode(np.rint(gray_ramp(2**31 - 1)).astype(np.int32), "TIFF"),
    "float-unit.tif": lambda: encode(gray_ramp(1).astype(np.float32), "TIFF"),
    "float-255.tif": lambda: encode(gray_ramp(255).astype(np.float32), "TIFF"),
    "float-signed.tif": lambda: encode((gray_ramp(6e38) - 3e38).astype(np.float32), "TIFF"),
    "rgb-16.png": lambda: png(
        256, 1, 16, 2, b"\0" + np.repeat(np.rint(gray_ramp(65_535)[0]), 3).astype(">u2").tobytes()
    ),
}


@pytest.mark.parametrize("name", RAMP)
def test_values_of_more_than_8_bits_are_scaled(name):
    ramp = open_image(RAMP[name]()).astype(int)[0, :, 0]
    assert abs(ramp.mean() - gray_ramp(255).mean()) < 1
    assert ramp[0] == 0
    assert ramp[-1] == 255
    assert (np.diff(ramp) >= 0).all()
    assert len(np.unique(ramp)) > 200


def test_cmyk_jpeg_without_the_adobe_mark_has_the_same_colors():
    marked = encode(Image.fromarray(picture()).convert("CMYK"), "JPEG", quality=95)
    start = marked.index(b"\xff\xee")
    length = int.from_bytes(marked[start + 2 : start + 4], "big")
    plain = marked[:start] + marked[start + 2 + length :]
    assert np.array_equal(open_image(plain), open_image(marked))
    assert np.abs(open_image(marked).astype(int) - picture()).mean() < 6


def test_transparent_pixels_are_blended_with_white():
    pixels = np.zeros((1, 3, 4), np.uint8)
    pixels[0, :, 0], pixels[0, :, 3] = 200, [0, 128, 255]
    assert open_image(encode(pixels, "PNG"))[0].tolist() == [
        [255, 255, 255],
        [227, 127, 127],
        [200, 0, 0],
    ]


@pytest.mark.parametrize("fmt", ["GIF", "WEBP", "PNG"])
def test_ten_thousand_frames_cost_no_more_than_the_first(fmt):
    if fmt == "WEBP" and not features.check("webp"):
        pytest.skip("this Pillow has no WebP")
    data = many_frames(fmt, 10_000)
    start = time.process_time()
    image = open_image(data)
    assert time.process_time() - start < 2
    assert (image == [255, 0, 0]).all()
    if fmt != "WEBP":  # the number of frames as reported by Pillow
        assert Image.open(io.BytesIO(many_frames(fmt, 100))).n_frames in (100, 101)


@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "GIF", "TIFF", "BMP", "WEBP", "PPM"])
def test_a_truncated_file_never_gives_other_pixels(fmt):
    """A truncated file is refused, unless all its pixels are complete."""
    random = np.random.default_rng(0)
    data = encode(picture() // 2 + random.integers(0, 99, picture().shape, dtype=np.uint8), fmt)
    whole = open_image(data)
    cuts = [*random.integers(0, len(data), 60).tolist(), len(data) - 1]
    refused = 0
    for cut in cuts:
        try:
            assert np.array_equal(open_image(data[:cut]), whole)
        except ImageError:
            refused += 1
    assert refused >= 55


@pytest.mark.parametrize(
    ("fmt", "options"), [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("BMP", {})]
)
def test_truncated_accept_returns_what_can_be_decoded(fmt, options):
    noise = np.random.default_rng(0).integers(100, 140, (128, 64, 3), dtype=np.uint8)
    data = encode(noise, fmt, **options)
    half = open_image(data[: len(data) * 6 // 10], truncated="accept").astype(int)
    whole = open_image(data).astype(int)
    assert half.shape == whole.shape
    rows = slice(-40, None) if fmt == "BMP" else slice(0, 40)  # a BMP begins at the bottom
    if options:  # all of the image is there, coarsely
        assert np.abs(half - whole)[rows].mean() < 20
    else:
        assert np.array_equal(half[rows], whole[rows])
    assert np.array_equal(open_image(data, truncated="accept"), whole)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_truncated_accept_still_refuses_empty_images():
    with pytest.raises(CorruptImage):
        open_image(encode(picture(), "PNG")[:20], truncated="accept")
    with pytest.raises(UsageError, match="policy"):
        open_image(b"", truncated="maybe")


def test_bombs_take_no_memory(tmp_path):
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak of a process's own memory is read from /proc")
    for case in CORPUS:
        if case.name.startswith("bomb"):
            (tmp_path / case.name).write_bytes(case.data)
    script = """
import re, sys, warnings
from pathlib import Path
from hadahash.data.images import open_image
from hadahash.errors import ImageError
warnings.simplefilter("ignore")
def top():  # in MB; not getrusage, whose peak counts what the parent process had
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
before = top()
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        open_image(path)
    except ImageError:
        pass
    print(top() - before, path.name)
grown = bytearray(b"x") * 300_000_000
print(top() - before, "control")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    *lines, control = done.stdout.splitlines()
    assert len(lines) >= 12
    assert int(control.split()[0]) > 250  # growth is noticed
    assert max(int(line.split()[0]) for line in lines) < 200, done.stdout


@posix
def test_folders_and_pipes_are_unreadable(tmp_path):
    folder = tmp_path / "folder.jpg"
    folder.mkdir()
    loop = tmp_path / "loop.jpg"
    loop.symlink_to(loop)
    pipe = tmp_path / "pipe.jpg"
    os.mkfifo(pipe)
    missing = tmp_path / "missing.jpg"
    for source in (
        folder,
        loop,
        pipe,
        missing,
        str(missing),
        "a\0b.jpg",
        tmp_path / ("x" * 300),
        Path("/dev/zero"),
    ):
        for function in (open_image, image_size):
            with pytest.raises(UnreadableImage) as caught:
                function(source)
            assert "\n" not in caught.value.reason


@posix
def test_no_permission_is_unreadable(tmp_path):
    path = tmp_path / "secret.png"
    path.write_bytes(encode(picture(), "PNG"))
    path.chmod(0)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65_534)
    try:
        with pytest.raises(UnreadableImage):
            open_image(path)
    finally:
        os.seteuid(me)


@pytest.mark.parametrize(
    "name",
    [
        "ä 猫 😀.png",
        "two words.png",
        "two\nlines.png",
        "-rf.png",
        "x" * 251 + ".png",
        os.fsdecode(b"\xff\xfe.png"),
        "no suffix",
    ],
    ids=ascii,
)
def test_any_file_name_is_accepted(name, tmp_path):
    path = tmp_path / name
    try:
        path.write_bytes(encode(picture(), "PNG"))
    except OSError:
        pytest.skip("this file system refuses the name")
    assert np.array_equal(open_image(path), picture())
    assert np.array_equal(open_image(str(path)), picture())


class Stream:
    """A stream without seek and name, as a web server has it."""

    def __init__(self, data: bytes) -> None:
        self.data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self.data.read(size)


def test_bytes_and_streams_are_decoded():
    data = encode(picture(), "PNG")
    for source in (data, io.BytesIO(data), Stream(data)):
        assert np.array_equal(open_image(source), picture())
    assert image_size(Stream(data)) == picture().shape[:2]
    closed = io.BytesIO(data)
    closed.close()
    with pytest.raises(UnreadableImage, match="<stream>"):
        open_image(closed)


def test_limits_are_enforced(tmp_path):
    data = encode(picture(), "PNG")
    path = tmp_path / "x.png"
    path.write_bytes(data)
    for source in (data, path, Stream(data)):
        small = ImageLimits(max_bytes=len(data) - 1)
        with pytest.raises(ImageTooLarge, match=f"{len(data) - 1:,} bytes"):
            open_image(source, limits=small)
    for source in (data, path, Stream(data)):
        few = ImageLimits(max_pixels=picture().shape[0] * picture().shape[1] - 1)
        with pytest.raises(ImageTooLarge, match="56 x 40 pixels; max_pixels is 2,239"):
            open_image(source, limits=few)
    exact = ImageLimits(max_bytes=len(data), max_pixels=picture().shape[0] * picture().shape[1])
    assert np.array_equal(open_image(data, limits=exact), picture())


def test_warnings_turned_into_errors_stay_in_the_error_tree():
    def outcome(data: bytes) -> str | tuple[int, ...]:
        try:
            return open_image(data).shape
        except ImageError as error:
            return type(error).__name__

    plain = [outcome(case.data) for case in CORPUS]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        strict = [outcome(case.data) for case in CORPUS]
    for case, usual, found in zip(CORPUS, plain, strict, strict=True):
        assert found == usual or isinstance(found, str), (
            case
        )  # refused with a typed error, or the same picture


def test_threads_decode_the_same_pixels():
    data = encode(picture(), "PNG")
    cut = data[: len(data) // 2]
    expected = open_image(cut, truncated="accept")

    def one(number: int) -> bool:
        if number % 2:
            return np.array_equal(open_image(cut, truncated="accept"), expected)
        with pytest.raises(CorruptImage):
            open_image(cut)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(200)))


def test_first_frames_are_not_mixed_with_later_ones():
    assert (open_image(animation("GIF", 3)) == [255, 0, 0]).all()


@pytest.mark.parametrize("orientation", range(9))
def test_image_size_needs_only_the_header(orientation):
    case = next(case for case in CORPUS if case.name == f"exif-{orientation}.jpg")
    assert image_size(case.data[: case.data.index(b"\xff\xda") + 20]) == picture().shape[:2]
