"""What callers hold: every kind of images, at every way in, gives the same codes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from toys import make_toy, one_line, tiny_hasher

from hadahash import Index
from hadahash.errors import DataError, HadaHashError, UsageError
from hadahash.photos import find_similar

COUNT = 8
PIXELS, LABELS = make_toy(COUNT, seed=5)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("matrix")
    for number, pixels in enumerate(PIXELS):
        (folder / f"{number}.png").write_bytes(png(pixels))
    return [folder / f"{number}.png" for number in range(COUNT)]


def table(paths: list[Path]) -> Path:
    path = paths[0].parent / "photos.csv"
    path.write_text("path\n" + "\n".join(each.name for each in paths))
    return path


def pandas_series(paths: list[Path]):
    return pytest.importorskip("pandas").Series([str(each) for each in paths])


# Several images: paths -> what a caller holds.
MANY = {
    "folder": lambda paths: paths[0].parent,
    "folder as text": lambda paths: str(paths[0].parent),
    "table": table,
    "list of text": lambda paths: [str(each) for each in paths],
    "list of paths": lambda paths: paths,
    "tuple of paths": tuple,
    "generator of paths": lambda paths: (each for each in paths),
    "array of text": lambda paths: np.array([str(each) for each in paths]),
    "array of objects": lambda paths: np.array([str(each) for each in paths], object),
    "series of text": pandas_series,
    "list of PIL images": lambda paths: [Image.open(each) for each in paths],
    "generator of PIL images": lambda paths: (Image.open(each) for each in paths),
    "list of bytes": lambda paths: [each.read_bytes() for each in paths],
    "list of bytearrays": lambda paths: [bytearray(each.read_bytes()) for each in paths],
    "list of files": lambda paths: [io.BytesIO(each.read_bytes()) for each in paths],
    "array": lambda paths: PIXELS,
    "float array": lambda paths: PIXELS / 255.0,
    "channels first": lambda paths: PIXELS.transpose(0, 3, 1, 2),
    "list of arrays": lambda paths: list(PIXELS),
    "tensor": lambda paths: torch.from_numpy(PIXELS),
    "tensor, channels first": lambda paths: torch.from_numpy(PIXELS).permute(0, 3, 1, 2),
    "float tensor": lambda paths: torch.from_numpy(PIXELS).permute(0, 3, 1, 2) / 255,
    "list of tensors": lambda paths: [torch.from_numpy(each).permute(2, 0, 1) for each in PIXELS],
    "mixed images": lambda paths: [PIXELS[0], png(PIXELS[1]), *map(Image.open, paths[2:])],
}
# One image: path -> what a caller holds.
ONE = {
    "path": lambda path: path,
    "text": str,
    "PIL image": Image.open,
    "bytes": Path.read_bytes,
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "memoryview": lambda path: memoryview(path.read_bytes()),
    "open file": lambda path: path.open("rb"),
    "array": lambda path: np.asarray(Image.open(path)),
    "array of one": lambda path: np.asarray(Image.open(path))[None],
    "tensor": lambda path: torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1),
    "list of one": lambda path: [path],
}
WRONG = {
    "a number": (3, "int is not a source of images"),
    "a dictionary": ({"a": 1}, "dict is not a source of images"),
    "None": (None, "NoneType is not a source of images"),
    "paths and images": (lambda paths: [paths[0], PIXELS[0]], "either paths or images, not both"),
    "gray arrays": (PIXELS[..., 0], "contains no RGB images"),
    "a list of numbers": ([1, 2, 3], "A list of int is not a source of images"),
    "normalized pixels": (PIXELS / 100.0 - 1, r"Pixels must be uint8, or floats in \[0, 1\]"),
    "16-bit pixels": (PIXELS.astype(np.int16), "Pixels must be uint8"),
    "two dimensions of 3": (np.zeros((2, 3, 5, 3), np.uint8), "channels are ambiguous"),
    "embeddings": (np.zeros((4, 16), np.float32), "takes images, got embeddings"),
    "a file that does not exist": ("no-such-file.png", "Cannot read no-such-file.png"),
}


@pytest.fixture(scope="module")
def expected(fitted) -> np.ndarray:
    return fitted.encode(PIXELS).packed


@pytest.mark.parametrize("kind", MANY)
def test_encode(fitted, paths, expected, kind):
    codes = fitted.encode(MANY[kind](paths))
    assert np.array_equal(codes.packed, expected) and not codes.skipped


@pytest.mark.parametrize("kind", ONE)
def test_encode_one(fitted, paths, expected, kind):
    assert np.array_equal(fitted.encode(ONE[kind](paths[3])).packed, expected[[3]])


@pytest.mark.parametrize(
    "kind", [kind for kind in MANY if kind not in ("folder", "folder as text", "table")]
)
def test_fit(paths, kind):
    hasher = tiny_hasher(epochs=1, bits=8)
    hasher.fit(MANY[kind](paths), LABELS)
    assert hasher.classes == ("0", "1", "2", "3") and hasher.model_.info["train_images"] == COUNT


@pytest.mark.parametrize("kind", MANY)
def test_fit_without_labels(paths, kind):
    hasher = tiny_hasher("lsh", bits=8)
    hasher.fit(MANY[kind](paths))
    assert hasher.encode(PIXELS).packed.shape == (COUNT, 1)


@pytest.mark.parametrize("kind", ONE)
def test_search(fitted, paths, kind):
    index = Index.build(fitted.encode(paths), ranking=fitted.model_.ranking)
    hits = find_similar(index, fitted.model_, ONE[kind](paths[3]), k=COUNT, rank="hamming")
    assert hits[0].distance == 0 and len(hits) == COUNT


@pytest.mark.parametrize("kind", ONE)
def test_queries(fitted, paths, expected, kind):
    queries = fitted.queries(ONE[kind](paths[3]))
    assert np.array_equal(queries.codes().packed, expected[[3]])


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_ambiguous_or_wrong_is_refused_in_one_line(fitted, paths, kind):
    source, message = WRONG[kind]
    source = source(paths) if callable(source) else source
    index = Index.build(fitted.encode(PIXELS), ranking=fitted.model_.ranking)
    for use in (
        fitted.encode,
        lambda given: tiny_hasher(epochs=1).fit(given, [0, 1]),
        lambda given: find_similar(index, fitted.model_, given),
    ):
        with pytest.raises((UsageError, DataError, HadaHashError)) as caught:
            use(source)
        one_line(caught.value)
    with pytest.raises(HadaHashError, match=message):
        fitted.encode(source)


def test_no_images_have_no_codes_and_are_no_query(fitted):
    assert len(fitted.encode([])) == 0
    index = Index.build(fitted.encode(PIXELS))
    with pytest.raises(UsageError, match="Give exactly one image, got 0"):
        find_similar(index, fitted.model_, [])
    with pytest.raises(DataError):
        tiny_hasher(epochs=1).fit([], [])
