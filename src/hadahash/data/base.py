"""The dataset interface: images that are read one at a time, their ids and their labels."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import DataError, ImageError
from .labels import Labels

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

Rows = NDArray[np.integer[Any]]
Ids = NDArray[Any]  # (n,): str objects, or int64 for images without names


class DataWarning(UserWarning):
    """The data can be used, but results may be misleading."""


class Images(Protocol):
    """Images by index. Reading one may raise an `ImageError`, which never affects the others."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> NDArray[np.uint8]:
        """Return one image as uint8 (height, width, 3), RGB."""
        ...

    def take(self, indices: Rows, /) -> Images:
        """Return the images with these indices, in this order."""
        ...


@dataclass(frozen=True, eq=False)
class ArrayImages:
    """Images of one size in memory.

    Attributes:
        pixels: uint8 (n, height, width, 3), RGB.
    """

    pixels: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        image: NDArray[np.uint8] = self.pixels[index]
        return image

    def take(self, indices: Rows) -> ArrayImages:
        """Return the images with these indices, in this order."""
        return ArrayImages(self.pixels[indices])


@dataclass(frozen=True, eq=False)
class FileImages:
    """Images in files, which are opened when they are read.

    Attributes:
        paths: One file per image.
    """

    paths: Sequence[Path]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        from .images import open_image

        return open_image(self.paths[index])

    def take(self, indices: Rows) -> FileImages:
        """Return the images with these indices, in this order."""
        return FileImages([self.paths[int(index)] for index in indices])


_PIL_LOCK = threading.Lock()  # loading one PIL image from two threads is not safe


@dataclass(frozen=True, eq=False)
class MemoryImages:
    """Images of any sizes in memory: arrays, encoded files or PIL images.

    Attributes:
        items: For each image uint8 (height, width, 3), the bytes of an image file, or a PIL image.
    """

    items: Sequence[NDArray[np.uint8] | bytes | PILImage]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        from .images import from_pil, open_image

        item = self.items[index]
        if isinstance(item, np.ndarray):
            return item
        if isinstance(item, bytes):
            return open_image(item)
        with _PIL_LOCK:
            return from_pil(item)

    def take(self, indices: Rows) -> MemoryImages:
        """Return the images with these indices, in this order."""
        return MemoryImages([self.items[int(index)] for index in indices])


def name_ids(names: Iterable[object]) -> Ids:
    """Make an array of ids whose memory is proportional to the text, not to the longest name.

    Args:
        names: One name per image; other types are converted to text.

    Returns:
        Array (n,) of `str` objects.
    """
    texts = [str(name) for name in names]
    ids = np.empty(len(texts), object)
    ids[:] = texts
    return ids


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Images with one id each.

    Attributes:
        images: The images, read one at a time.
        ids: (n,) of str, or int64 for images without names.
    """

    images: Images
    ids: Ids

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: ArrayLike) -> ImageSource:
        """Select images.

        Args:
            rows: Indices of the images.

        Returns:
            The images with these indices, in this order.
        """
        indices = np.asarray(rows, np.int64)
        return ImageSource(self.images.take(indices), self.ids[indices])

    def fingerprint(self) -> str:
        """Identify these images.

        Files are identified by absolute path, size and time of modification, other images by their
        pixels. The result is cached.

        Returns:
            A sha256 in hexadecimal that changes when an id, a file or a pixel changes.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(f"{len(self)} {self.ids.dtype.kind == 'i'}\0".encode())
        for name in self.ids:
            digest.update(_framed(str(name)))
        _add_images(digest, self.images)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """A data set: images, their ids, their labels and the names of the classes.

    Attributes:
        images: The images, read one at a time.
        ids: (n,) of str, one per image.
        labels: The classes of each image. An array is converted by `Labels.from_array`.
        classes: Names of the classes, by class number.
        name: Name of the data set.
        parts: (n,) "train", "query" or "database" for a data set that comes with such parts.
    """

    images: Images
    ids: Ids
    labels: Labels
    classes: tuple[str, ...]
    name: str = ""
    parts: NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.labels, Labels):
            object.__setattr__(self, "labels", Labels.from_array(self.labels, len(self.classes)))
        if not len(self.images) == len(self.ids) == len(self.labels):
            raise DataError(
                f"Got {len(self.images)} images, {len(self.ids)} ids and {len(self.labels)} labels;"
                " their numbers must be equal."
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def multilabel(self) -> bool:
        """Whether an image may have any number of classes."""
        return self.labels.multilabel and bool(self.classes)

    @property
    def source(self) -> ImageSource:
        """The images and their ids, without the labels."""
        return self._source

    @cached_property
    def _source(self) -> ImageSource:
        return ImageSource(self.images, self.ids)

    def take(self, rows: ArrayLike) -> LabelledImages:
        """Select images.

        Args:
            rows: Indices of the images.

        Returns:
            The images with these indices, in this order, with all classes.
        """
        indices = np.asarray(rows, np.int64)
        return LabelledImages(
            self.images.take(indices),
            self.ids[indices],
            self.labels.take(indices),
            self.classes,
            self.name,
            None if self.parts is None else self.parts[indices],
        )

    def used_classes(self) -> LabelledImages:
        """The same images without the classes that no image has."""
        used = np.flatnonzero(self.labels.class_counts())
        if len(used) == len(self.classes):
            return self
        names = tuple(self.classes[number] for number in used)
        return replace(self, labels=self.labels.restrict(used), classes=names)

    def fingerprint(self) -> str:
        """Identify this data set.

        Returns:
            A sha256 in hexadecimal that changes with the images (see `ImageSource.fingerprint`),
            the labels, the names of the classes, or the parts.
        """
        digest = hashlib.sha256(f"{self.source.fingerprint()} {self.labels.digest()}\0".encode())
        for name in (*self.classes, *([] if self.parts is None else self.parts)):
            digest.update(_framed(str(name)))
        return digest.hexdigest()


def _framed(text: str) -> bytes:
    content = text.encode("utf-8", "surrogateescape")
    return len(content).to_bytes(8, "little") + content


def _add_images(digest: Any, images: Images) -> None:
    if isinstance(images, FileImages):
        for path in images.paths:
            digest.update(_framed(f"{os.path.abspath(path)}\0{_file_state(path)}"))  # noqa: PTH100
    elif isinstance(images, ArrayImages):
        _add_array(digest, images.pixels)
    elif hasattr(images, "update_digest"):
        images.update_digest(digest)
    else:
        for index in range(len(images)):
            _add_one(digest, images, index)


def _add_one(digest: Any, images: Images, index: int) -> None:
    item = images.items[index] if isinstance(images, MemoryImages) else None
    if isinstance(item, bytes):
        digest.update(len(item).to_bytes(8, "little") + item)
        return
    try:
        _add_array(digest, images[index])
    except ImageError as error:  # reported when the image is read
        digest.update(_framed(f"{type(error).__name__} {error.reason}"))


def _add_array(digest: Any, pixels: NDArray[np.uint8]) -> None:
    digest.update(_framed(str(pixels.shape)))
    digest.update(np.ascontiguousarray(pixels).data)


def _file_state(path: Path) -> str:
    try:
        status = os.stat(path)  # noqa: PTH116 (a million of them)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return "unreadable"
    return f"{status.st_size} {status.st_mtime_ns}"
