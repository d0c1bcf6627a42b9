"""What an address holds: images, their names, and their labels if they are stored beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from ...errors import DataError, HadaHashError
from ..folder import Listing, matches, no_images
from ..formats import image_suffixes
from .address import SHARDS, Storage, has_wildcards, open_storage, unreadable
from .place import FileContainer, Place, may_pass
from .shards import Shard, read_parquet, read_tar

T = TypeVar("T")

_PAUSES = (0.5, 2.0)  # seconds before each repetition of a listing
_TAGS = ("ETag", "etag", "e_tag", "md5Hash", "blob_id", "CRC", "checksum")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created", "last_commit")
_SPLITS = ("train", "test", "validation", "valid", "val")


@dataclass(frozen=True, eq=False)
class Found:
    """The images of an address.

    Attributes:
        root: The address.
        names: Path of each image below the address.
        places: Where each image is.
        labels: The labels of each image, from a column or from .cls files; None: there are none,
            and folders may be classes.
        classes: The names of all classes, in order, where they are stored.
        left: What is left out: hidden and excluded files, and those without an image extension.
    """

    root: str
    names: list[str]
    places: list[Place]
    labels: list[tuple[str, ...]] | None = None
    classes: tuple[str, ...] | None = None
    left: Listing = field(default_factory=Listing)

    def label_of(self, row: int) -> tuple[str, ...]:
        """Return the labels of an image; its top-level folder if no labels are stored."""
        if self.labels is not None:
            return self.labels[row]
        top, slash, _ = self.names[row].partition("/")
        return (top,) if slash else ()


def list_stored(source: Any, *, exclude: Sequence[str] = ()) -> Found:
    """List the images of an address, by names and sizes; no image is read.

    Args:
        source: An address; the path of an archive or shard; a pattern of shards.
        exclude: Patterns of names to leave out, as for a folder.

    Returns:
        The images, in an order that depends on their names alone, or in that of a .parquet file.

    Raises:
        DataError: There are no images, or the address cannot be read.
        UsageError: A package is missing, or the kind of address is unknown.
    """
    storage = open_storage(source)
    try:
        root, entries = _repeated(storage, lambda: _entries(storage))
        found = _found(storage, root, entries, exclude)
    except HadaHashError:
        raise
    except Exception as error:
        raise unreadable(storage.address, error) from error
    if not found.names:
        raise no_images(storage.address, found.left)
    return found


def place_of(container: FileContainer, path: str, name: str) -> Place:
    """Return where a file is; a file that does not exist is reported when it is read.

    Args:
        container: The file system.
        path: The file.
        name: Its address.

    Returns:
        The place.
    """
    try:
        info = container.files.info(path)
    except Exception:
        info = {}
    return Place(container, path, name, info.get("size"), version_of(info))


def version_of(info: Mapping[str, Any]) -> str:
    """Return a text that changes when a file does: its tag, or its time, with its size.

    Args:
        info: What the file system says about the file.

    Returns:
        The text; empty if neither tag nor time is known.
    """
    for key in (*_TAGS, *_TIMES):
        if info.get(key):
            return f"{key} {info[key]} {info.get('size')}"
    return ""


def _repeated(storage: Storage, work: Callable[[], T]) -> T:
    """Call a function; errors of a network that may pass are repeated."""
    for pause in _PAUSES:
        try:
            return work()
        except Exception as error:
            if not (storage.far and may_pass(error)):
                raise
            time.sleep(pause)
    return work()


def _entries(storage: Storage) -> tuple[str, dict[str, dict[str, Any]]]:
    """The folder that names are relative to, and what is known about every file."""
    files, path = storage.files, storage.path
    files.invalidate_cache()
    if has_wildcards(path):
        start = path[: min(path.index(mark) for mark in "*?[" if mark in path)]
        found = files.glob(path, detail=True)
        return start.rpartition("/")[0], _only_files(found)
    if path.strip("/") and (info := files.info(path))["type"] == "file":
        return path.rpartition("/")[0], {path: info}
    return path, _only_files(files.find(path, detail=True))


def _only_files(found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: info
        for name, info in found.items()
        if info.get("type", "file") == "file" and not name.endswith("/")
    }


def _found(
    storage: Storage, root: str, entries: dict[str, dict[str, Any]], exclude: Sequence[str]
) -> Found:
    below = {path: path.removeprefix(root).lstrip("/") for path in entries}
    hidden = [path for path, name in below.items() if f"/{name}".find("/.") >= 0]
    left_out = {path for path, name in below.items() if matches(name, exclude)} - set(hidden)
    order = sorted(set(below) - left_out - set(hidden), key=lambda path: below[path].split("/"))
    suffixes = image_suffixes()
    images = [path for path in order if PurePosixPath(path).suffix.lower() in suffixes]
    shards = [path for path in order if PurePosixPath(path).suffix.lower() in SHARDS]
    if shards and not images:
        found = _of_shards(storage, shards, below, entries, exclude)
    else:
        container = FileContainer(storage.files, storage.far)
        places = [_place(storage, container, path, entries[path]) for path in images]
        found = Found(storage.address, [below[path] for path in images], places)
    taken = {*images, *(shards if found.names and not images else [])}
    found.left.others += [Path(below[path]) for path in order if path not in taken]
    found.left.hidden += len(hidden)
    found.left.excluded += len(left_out)
    return found


def _place(storage: Storage, container: FileContainer, path: str, info: Mapping[str, Any]) -> Place:
    return Place(container, path, address_of(storage, path), info.get("size"), version_of(info))


def address_of(storage: Storage, path: str) -> str:
    """Return the address of a file in a file system.

    Args:
        storage: The file system, and an address in it.
        path: The file.

    Returns:
        The address; of a local file its path.
    """
    address: str = storage.files.unstrip_protocol(path)
    _, chained, archive = storage.address.partition("::")
    return address.removeprefix("file://") + (f"::{archive}" if chained else "")


def _of_shards(
    storage: Storage,
    paths: list[str],
    below: Mapping[str, str],
    entries: Mapping[str, dict[str, Any]],
    exclude: Sequence[str],
) -> Found:
    """The images of .tar or .parquet files, in the order of the files."""
    _refuse_splits(storage, [below[path] for path in paths])
    shards = []
    for path in paths:
        read = read_tar if path.lower().endswith(".tar") else read_parquet
        name, version = address_of(storage, path), version_of(entries[path])
        work = partial(read, storage, path, name, version)
        shards.append(_repeated(storage, work))
    names = _names(shards, [below[path] for path in paths])
    keep = [row for row, name in enumerate(names) if not matches(name, exclude)]
    places = [place for shard in shards for place in shard.places]
    labels = _labels(shards)
    return Found(
        storage.address,
        [names[row] for row in keep],
        [places[row] for row in keep],
        None if labels is None else [labels[row] for row in keep],
        shards[0].classes if all(each.classes == shards[0].classes for each in shards) else None,
        left=Listing(excluded=len(names) - len(keep)),
    )


def _refuse_splits(storage: Storage, names: list[str]) -> None:
    """Files of a training and of a test set must not become one data set."""
    kinds = {PurePosixPath(name).name.partition("-")[0] for name in names} & set(_SPLITS)
    if len(kinds) > 1:
        raise DataError(
            f"The files of {storage.address} look like splits ({', '.join(sorted(kinds))}). "
            f"Give one of them: {storage.address.rstrip('/')}/train-*"
        )


def _names(shards: list[Shard], files: list[str]) -> list[str]:
    """The names of all images: paths where all are known and distinct, else file and row."""
    given = [name for shard in shards for name in shard.names]
    if all(given) and len(set(given)) == len(given):
        return [str(name).lstrip("/") for name in given]
    names = []
    for file, shard in zip(files, shards, strict=True):
        own = shard.names if all(shard.names) and len(set(shard.names)) == len(shard.names) else []
        inner = [str(name).lstrip("/") for name in own or range(len(shard.names))]
        names += [f"{file}/{name}" for name in inner] if len(shards) > 1 else inner
    return names


def _labels(shards: list[Shard]) -> list[tuple[str, ...]] | None:
    if all(shard.labels is None for shard in shards):
        return None
    return [row for shard in shards for row in shard.labels or [()] * len(shard.names)]
