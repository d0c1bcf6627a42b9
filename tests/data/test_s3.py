"""A bucket of a local S3 server gives what the local folder gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from s3_server import s3_server
from storages import image_files, parquet_bytes, tar_bytes, zip_bytes
from toys import make_toy, tiny_hasher, write_folder

from hadahash import HashModel, Index
from hadahash.data.sources import as_images, as_labelled
from hadahash.errors import DataError
from hadahash.photos import BuildOptions, build_or_update

s3fs = pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server, to which s3:// leads."""
    with s3_server() as address:
        yield address


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 toy images in class folders."""
    return write_folder(tmp_path_factory.mktemp("toy"), *make_toy(16, seed=2))


@pytest.fixture(scope="module")
def filled(server: str, folder: Path) -> str:
    """A bucket with the toy folder, also as .zip, .tar and .parquet."""
    files, store = image_files(folder), s3fs.S3FileSystem()
    store.mkdir("photos")
    contents = {f"photos/folder/{path}": content for path, content in files.items()}
    contents |= {
        "photos/a.zip": zip_bytes(files),
        "photos/a.tar": tar_bytes(files),
        "photos/data/train-0.parquet": parquet_bytes(files),
    }
    store.pipe(contents)
    return "s3://photos"


@pytest.fixture
def bucket(filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The bucket, with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return filled


@pytest.mark.parametrize("name", ["folder", "a.zip", "a.tar", "data", "data/*.parquet"])
def test_a_bucket_equals_the_folder(bucket: str, name: str, folder: Path) -> None:
    expected, found = as_labelled(folder), as_labelled(f"{bucket}/{name}")
    assert found.ids.tolist() == expected.ids.tolist()
    assert np.array_equal(found.labels.array, expected.labels.array)
    for row in (0, 5, 15):
        assert np.array_equal(found.images[row], expected.images[row])


def test_a_read_image_is_in_the_cache(bucket: str) -> None:
    store = s3fs.S3FileSystem()
    store.copy(f"{bucket}/folder/blue/000.png", f"{bucket}/once/000.png")
    source = as_images(f"{bucket}/once")
    pixels = source.images[0]
    store.rm(f"{bucket}/once/000.png")
    assert np.array_equal(source.images[0], pixels)


def test_missing_buckets_are_named(bucket: str) -> None:
    with pytest.raises(DataError, match="Cannot read s3://no-such-bucket/x: it does not exist"):
        as_images("s3://no-such-bucket/x")


def test_train_encode_and_index(bucket: str, folder: Path, saved: Path, tmp_path: Path) -> None:
    address = f"{bucket}/folder"
    hasher = tiny_hasher(epochs=1).fit(address)
    assert hasher.model_.id == tiny_hasher(epochs=1).fit(folder).model_.id
    expected = HashModel.load(saved, device="cpu").encode(folder)
    options = BuildOptions(device="cpu")
    build_or_update(address, tmp_path / "i", run=saved, options=options)
    index = Index.open(tmp_path / "i")
    assert np.array_equal(index.codes(expected.ids.tolist()).packed, expected.packed)
    assert index.get(["red/002.png"])[0].path == f"{address}/red/002.png"
    done: list[str] = []
    build_or_update(address, tmp_path / "i", run=saved, options=options, info=done.append)
    assert "0 encoded, 16 unchanged" in done[0]
