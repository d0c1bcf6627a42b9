"""Images at addresses: every kind of storage gives what the local folder gives."""

from __future__ import annotations

import os
import pickle
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from storages import (
    FlakyFileSystem,
    image_files,
    parquet_bytes,
    put,
    put_folder,
    tar_bytes,
    zip_bytes,
)

from hadahash.data.decode import decode
from hadahash.data.preprocess import Preprocess
from hadahash.data.remote import is_stored, listing, place
from hadahash.data.remote.cache import ImageCache, image_cache
from hadahash.data.sources import as_images, as_labelled, as_training, find_dataset
from hadahash.errors import DataError, HadaHashError, UsageError

_KINDS = ("memory", "zip", "zip in memory", "zip folder", "tar", "tar classes", "tar in memory")
_TABLES = ("parquet", "parquet text", "parquet in memory", "parquet shards")


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[FlakyFileSystem]]:
    """The bad network, with a cache folder of its own and without pauses."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(place, "_PAUSES", (0.0, 0.0))
    FlakyFileSystem.reset()
    yield FlakyFileSystem
    FlakyFileSystem.reset()


def _store(kind: str, files: dict[str, bytes], tmp_path: Path) -> str | Path:
    """Put files into a storage; return what a user gives."""
    memory = f"memory://{tmp_path.name}"
    if kind == "memory":
        return put_folder(f"{memory}/photos", files)
    inner = {f"inner/{name}": data for name, data in files.items()}
    classes = {name.replace("/", "-"): data for name, data in files.items()}
    classes |= {f"{name[:-4].replace('/', '-')}.cls": name.split("/")[0].encode() for name in files}
    half = len(files) // 2
    first, second = dict(list(files.items())[:half]), dict(list(files.items())[half:])
    contents = {
        "zip": ("a.zip", zip_bytes(files)),
        "zip in memory": ("a.zip", zip_bytes(files)),
        "zip folder": ("a.zip", zip_bytes(inner)),
        "tar": ("a.tar", tar_bytes(files)),
        "tar in memory": ("a.tar", tar_bytes(files)),
        "tar classes": ("a.tar", tar_bytes(classes)),
        "parquet": ("a.parquet", parquet_bytes(files)),
        "parquet text": ("a.parquet", parquet_bytes(files, classes=False)),
        "parquet in memory": ("a.parquet", parquet_bytes(files)),
        "parquet shards": ("train-0.parquet", parquet_bytes(first)),
    }
    name, content = contents[kind]
    if "memory" in kind:
        return put(f"{memory}/{name}", content)
    (tmp_path / name).write_bytes(content)
    if kind == "zip folder":
        return f"zip://inner::{tmp_path / name}"
    if kind == "parquet shards":
        (tmp_path / "train-1.parquet").write_bytes(parquet_bytes(second))
        return f"{tmp_path}/train-*.parquet"
    return tmp_path / name


@pytest.mark.parametrize("kind", [*_KINDS, *_TABLES])
def test_a_storage_equals_the_folder(kind: str, toy_folder: Path, tmp_path: Path) -> None:
    source = _store(kind, image_files(toy_folder), tmp_path)
    expected, found = as_labelled(toy_folder), as_labelled(source)
    ids = expected.ids.tolist()
    assert found.ids.tolist() == [
        each.replace("/", "-") if "classes" in kind else each for each in ids
    ]
    assert found.classes == expected.classes
    assert np.array_equal(found.labels.array, expected.labels.array)
    for row in (0, 7, len(ids) - 1, 3):
        assert np.array_equal(found.images[row], expected.images[row])
    assert as_images(source).ids.tolist() == found.ids.tolist()
    assert find_dataset(source).protocol == "holdout"


@pytest.mark.parametrize("kind", ["zip", "tar", "parquet"])
def test_a_source_survives_pickling(kind: str, toy_folder: Path, tmp_path: Path) -> None:
    source = as_images(_store(kind, image_files(toy_folder), tmp_path))
    source.images[0]
    again = pickle.loads(pickle.dumps(source))
    assert np.array_equal(again.images[5], source.images[5])
    assert again.fingerprint() == source.fingerprint()


def test_a_long_cls_file_is_not_read_whole(toy_folder: Path, tmp_path: Path) -> None:
    one, two = list(image_files(toy_folder).values())[:2]
    path = tmp_path / "a.tar"
    text = b"red " + bytes(50_000_000)
    path.write_bytes(tar_bytes({"0.png": one, "0.cls": text, "1.png": two, "1.cls": b"blue"}))
    tracemalloc.start()
    assert as_labelled(path).classes == ("blue", "red")
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_tar_labels_of_cls_files(toy_folder: Path, tmp_path: Path) -> None:
    found = as_labelled(_store("tar classes", image_files(toy_folder), tmp_path))
    assert found.ids[0] == "blue-000.png"
    assert found.classes == ("blue", "green", "red", "yellow")


def test_rows_without_paths_are_numbered(toy_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_bytes(image_files(toy_folder), paths=False))
    assert as_images(path).ids.tolist() == [str(row) for row in range(48)]


def test_a_fingerprint_changes_with_an_image(tmp_path: Path, toy_folder: Path) -> None:
    files = image_files(toy_folder)
    address = put_folder(f"memory://{tmp_path.name}/f", files)
    before = as_images(address).fingerprint()
    assert as_images(address).fingerprint() == before
    put(f"{address}/blue/000.png", files["red/002.png"])
    assert as_images(address).fingerprint() != before


def test_a_single_image_and_a_list(tmp_path: Path, toy_folder: Path) -> None:
    address = put_folder(f"memory://{tmp_path.name}/one", image_files(toy_folder))
    assert as_images(f"{address}/blue/000.png").ids.tolist() == ["000.png"]
    names = [f"{address}/blue/000.png", f"{address}/gone.png"]
    listed = as_images(names)
    assert listed.ids.tolist() == names
    parts = list(decode(listed.images, Preprocess(side=32), batch_size=4))
    assert [(row, "exist" in reason) for row, reason in parts[0].failed] == [(1, True)]


def test_hidden_excluded_and_other_files(tmp_path: Path, toy_folder: Path) -> None:
    from hadahash.data.remote import list_stored

    files = image_files(toy_folder) | {".x/a.png": b"", "blue/.b.png": b"", "notes.txt": b""}
    address = put_folder(f"memory://{tmp_path.name}/h", files)
    found = list_stored(address, exclude=["red", "green/0*"])
    assert (len(found.names), found.left.hidden, len(found.left.others)) == (24, 2, 1)
    with pytest.warns(UserWarning, match="1 .txt"):
        as_labelled(address)


@pytest.mark.usefixtures("flaky")
def test_damage_never_stops_a_job(tmp_path: Path, toy_folder: Path) -> None:
    files = image_files(toy_folder)
    files["blue/000.png"] = b"no image"
    files["red/002.png"] = b""
    FlakyFileSystem.broken.add("/d/green/001.png")
    FlakyFileSystem.failures["/d/yellow/003.png"] = 2
    source = as_images(put_folder("flaky://d", files))
    parts = list(decode(source.images, Preprocess(side=32), batch_size=16))
    failed = {source.ids[row]: reason for part in parts for row, reason in part.failed}
    assert sorted(failed) == ["blue/000.png", "green/001.png", "red/002.png"]
    assert failed["green/001.png"] == "connection reset by peer (3 attempts)"
    assert "not an image" in failed["blue/000.png"]
    assert FlakyFileSystem.reads["/d/yellow/003.png"] == 3
    assert FlakyFileSystem.reads["/d/green/001.png"] == 3


def test_a_damaged_row_group_costs_its_rows_only(tmp_path: Path, toy_folder: Path) -> None:
    from pyarrow.parquet import ParquetFile

    path, content = tmp_path / "a.parquet", bytearray(parquet_bytes(image_files(toy_folder)))
    path.write_bytes(content)
    column = ParquetFile(path).metadata.row_group(4).column(0)
    start, size = column.dictionary_page_offset, column.total_compressed_size
    content[start + 100 : start + size - 100] = bytes(size - 200)
    path.write_bytes(content)
    source = as_images(path)
    expected = as_images(toy_folder)
    parts = list(decode(source.images, Preprocess(side=32), batch_size=16))
    failed = {row for part in parts for row, _ in part.failed}
    assert failed == {12, 13, 14}
    for row in set(range(48)) - failed:
        assert np.array_equal(source.images[row], expected.images[row])


def test_an_archive_that_became_shorter(tmp_path: Path, toy_folder: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes(image_files(toy_folder)))
    source = as_images(path)
    with path.open("r+b") as file:
        file.truncate(30_000)
    parts = list(decode(source.images, Preprocess(side=32), batch_size=48))
    assert 0 < len(parts[0].failed) < 48
    assert {reason for _, reason in parts[0].failed} <= {"the file has become shorter"}


@pytest.mark.usefixtures("flaky")
def test_a_storage_that_is_gone_stops_the_job(toy_folder: Path) -> None:
    source = as_images(put_folder("flaky://gone", image_files(toy_folder)))
    FlakyFileSystem.broken.update(FlakyFileSystem.store)
    with pytest.raises(DataError, match=r"not reachable: \d+ images in a row .* again to continue"):
        list(decode(source.images, Preprocess(side=32), batch_size=64))


@pytest.mark.usefixtures("flaky")
def test_images_are_fetched_once(toy_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = image_files(toy_folder)
    address = put_folder("flaky://once", files)
    for _ in range(2):
        source = as_images(address)
        for row in range(len(source)):
            source.images[row]
    assert set(FlakyFileSystem.reads.values()) == {1}
    put(f"{address}/blue/000.png", files["red/002.png"])  # another version
    assert np.array_equal(as_images(address).images[0], as_images(toy_folder).images[24])
    assert FlakyFileSystem.reads["/once/blue/000.png"] == 2
    monkeypatch.setenv("HADAHASH_IMAGE_CACHE", "off")
    as_images(address).images[0]
    assert FlakyFileSystem.reads["/once/blue/000.png"] == 3
    monkeypatch.setenv("HADAHASH_IMAGE_CACHE", "lots")
    with pytest.raises(UsageError, match="HADAHASH_IMAGE_CACHE must be a size"):
        image_cache()


def test_the_cache_is_bounded_and_forgets_the_oldest(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path / "images", limit=10_000)
    for number in range(30):
        cache.put(f"{number}", bytes([number]) * 968)
        cache.get("0")  # used again and again
        for path in (tmp_path / "images").glob("*/*"):
            status = path.stat()  # a clock that is finer than that of the file system
            os.utime(path, ns=(0, status.st_mtime_ns - 1_000_000_000))
        cache.get("0")
        assert cache.size() <= 10_000
    assert cache.get("0") == bytes(968)
    assert cache.get("29") is not None
    assert cache.get("1") is None
    cache.put("big", bytes(5000))
    assert cache.get("big") is None


def test_a_damaged_entry_is_fetched_again(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path / "images")
    cache.put("key", b"content")
    (entry,) = (tmp_path / "images").glob("*/*")
    entry.write_bytes(entry.read_bytes()[:-1])
    assert cache.get("key") is None
    assert not entry.exists()


def test_errors_have_one_line_with_a_remedy(tmp_path: Path, toy_folder: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(b"nothing")
    (tmp_path / "bad.tar").write_bytes(b"nothing" * 200)
    flat = {name.replace("/", "-"): data for name, data in image_files(toy_folder).items()}
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name in ("train-0.parquet", "test-0.parquet"):
        (mixed / name).write_bytes(parquet_bytes(image_files(toy_folder)))
    cases = {
        "nowhere://x": "Unknown kind of address",
        f"memory://{tmp_path.name}/none": "it does not exist. Check the address",
        str(tmp_path / "bad.zip"): "bad.zip: File is not a zip file. Is the file complete?",
        str(tmp_path / "bad.tar"): "bad.tar is not a .tar file",
        "http://127.0.0.1:1/x.zip": "it cannot be reached. Check the address",
        put_folder(f"memory://{tmp_path.name}/t", {"a.txt": b""}): "contains no images. Skipped 1",
        put_folder(f"memory://{tmp_path.name}/flat", flat): "but no class folders",
        f"file://{mixed}": "look like splits (test, train). Give one of them",
    }
    for address, text in cases.items():
        with pytest.raises(HadaHashError) as caught:
            as_labelled(address)
        assert text in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "package", "remedy"),
    [
        ("s3://b/x", "s3fs", "'hadahash[s3]'"),
        ("gs://b/x", "gcsfs", "gcsfs"),
        ("hf://datasets/a/b", "huggingface_hub", "'hadahash[hf]'"),
        ("az://b/x", "adlfs", "adlfs"),
    ],
)
def test_a_missing_package_is_named(
    address: str, package: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.registry import _registry

    kind = address.partition(":")[0]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(_registry, kind, raising=False)
    with pytest.raises(UsageError) as caught:
        as_images(address)
    expected = f"Addresses {kind}:// need the package {package}, which is not installed. "
    assert str(caught.value) == f"{expected}Install it with: pip install {remedy}"


def test_an_address_of_hugging_face_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DataError, match="Cannot read hf://datasets/nobody/nothing: ") as caught:
        as_images("hf://datasets/nobody/nothing")
    assert "\n" not in str(caught.value)


def test_a_damaged_local_file_is_refused_at_once(
    tmp_path: Path, toy_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it again does not help; errors of a network may pass."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(listing, "_PAUSES", (600.0,))
    path = tmp_path / "a.parquet"
    data = bytearray(parquet_bytes(image_files(toy_folder)))
    path.write_bytes(data)
    column = parquet.ParquetFile(path).metadata.row_group(0).column(1)  # the names
    start = column.dictionary_page_offset
    data[start : start + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.parquet: .* Is the file complete\?"):
        as_images(path)


def test_local_paths_stay_local(tmp_path: Path, toy_folder: Path) -> None:
    assert not is_stored(toy_folder)
    assert not is_stored("cifar10")
    assert not is_stored(tmp_path / "none.tar")
    assert not is_stored("C:/photos")


def test_training_data_without_labels(tmp_path: Path, toy_folder: Path) -> None:
    flat = {name.replace("/", "-"): data for name, data in image_files(toy_folder).items()}
    data = as_training(put_folder(f"memory://{tmp_path.name}/u", flat), need_labels=False)
    assert (len(data), data.classes) == (48, ())
