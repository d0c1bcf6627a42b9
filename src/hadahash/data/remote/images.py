"""Stored images as a source of images, with or without labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..base import ImageSource, LabelledImages, Rows, name_ids
from ..class_names import require_classes, warn_of_albums
from ..folder import warn_of_skipped
from ..labels import Labels
from ..squares import Reduced
from .address import open_storage
from .listing import Found, list_stored, place_of
from .place import FileContainer, Place

THREADS = 16  # reading waits for a network more than for a core


@dataclass(frozen=True, eq=False)
class RemoteImages:
    """Images that are read from a network, an archive or a column when they are needed.

    Attributes:
        places: Where each image is.
    """

    places: Sequence[Place]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        from ..images import open_image

        return open_image(self.places[index])  # type: ignore[arg-type]  # only its `read` is called

    @property
    def threads(self) -> int:
        """How many images are best read at once; 0: as many as there are cores."""
        return threads_for(self.places)

    def read_reduced(self, index: int, side: int) -> Reduced:
        """Return one image, decoded as small as a result of `side` pixels allows."""
        from ..images import open_reduced

        return open_reduced(self.places[index], side)  # type: ignore[arg-type]

    def image_size(self, index: int) -> tuple[int, int]:
        """Return (height, width) of one image."""
        from ..images import image_size

        return image_size(self.places[index])  # type: ignore[arg-type]

    def take(self, indices: Rows) -> RemoteImages:
        """Return the images with these indices, in this order."""
        return RemoteImages([self.places[int(index)] for index in indices])

    def digest(self, index: int) -> bytes:
        """Return the sha256 of one image's content; empty bytes if it cannot be read."""
        return self.places[index].digest()

    def update_digest(self, digest: Any) -> None:
        """Add address, size and version of every image to a digest."""
        for place in self.places:
            text = f"{place.name}\0{place.size}\0{place.version}\0"
            digest.update(text.encode("utf-8", "surrogateescape"))


def threads_for(items: Sequence[Any]) -> int:
    """Return how many images are best read at once; 0: as many as there are cores.

    Args:
        items: Where the images are: places or local paths.

    Returns:
        The number of threads.
    """
    first = items[0] if len(items) else None
    return THREADS if isinstance(first, Place) and first.container.far else 0


def open_stored(source: Any, *, exclude: Sequence[str] = ()) -> ImageSource:
    """Open stored images.

    Args:
        source: An address; the path of an archive or shard; a pattern of shards.
        exclude: Patterns of names to leave out, as for a folder.

    Returns:
        The images. Ids are paths below the address.

    Raises:
        DataError: There are no images, or the address cannot be read.
        UsageError: A package is missing, or the kind of address is unknown.
    """
    found = list_stored(source, exclude=exclude)
    warn_of_skipped(found.root, found.left)
    return ImageSource(RemoteImages(found.places), name_ids(found.names))


def read_addresses(addresses: Sequence[str]) -> ImageSource:
    """Open images by their addresses.

    Args:
        addresses: One address per image.

    Returns:
        The images. Ids are the addresses.

    Raises:
        UsageError: A package is missing, or the kind of address is unknown.
    """
    return ImageSource(RemoteImages(find_places(addresses)), name_ids(addresses))


def find_places(addresses: Sequence[str]) -> list[Place]:
    """Find images by their addresses, also those in .tar and .parquet files.

    Args:
        addresses: One address per image, as `Place.name` has them.

    Returns:
        Where they are; an image that does not exist is reported when it is read.

    Raises:
        UsageError: A package is missing, or the kind of address is unknown.
    """
    containers: dict[int, FileContainer] = {}
    shards = {each: _shard_of(each) for each in addresses}
    known = {
        place.name: place
        for shard in dict.fromkeys(filter(None, shards.values()))
        for place in list_stored(shard).places
    }

    def locate(address: str) -> Place:
        storage = open_storage(address)
        container = FileContainer(storage.files, storage.far)
        container = containers.setdefault(id(storage.files), container)
        return known.get(address) or place_of(container, storage.path, address)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(locate, addresses))


def _shard_of(address: str) -> str | None:
    """The .tar or .parquet file that holds an image."""
    match = re.match(r".*?\.(tar|parquet)(?=/)", address, re.IGNORECASE)
    return None if match is None else match[0]


def read_stored(source: Any, *, exclude: Sequence[str] = ()) -> LabelledImages:
    """Open stored images with their labels.

    Args:
        source: As for `open_stored`.
        exclude: Patterns of names to leave out, as for a folder.

    Returns:
        The images. Labels are those of a column or of .cls files, else the top-level folders.

    Raises:
        DataError: There are no images or no labels, or the address cannot be read.
        UsageError: A package is missing, or the kind of address is unknown.
    """
    found = list_stored(source, exclude=exclude)
    labels, classes = _labels_of(found)
    warn_of_skipped(found.root, found.left)
    images, ids = RemoteImages(found.places), name_ids(found.names)
    name = PurePosixPath(found.root).stem.rstrip("*-") or "images"
    return LabelledImages(images, ids, labels, classes, name).used_classes()


def _labels_of(found: Found) -> tuple[Labels, tuple[str, ...]]:
    """The labels and the names of the classes."""
    if found.labels is None:
        parts = [tuple(name.split("/")) for name in found.names]
        classes = tuple(sorted({part[0] for part in parts if len(part) > 1}))
        require_classes(found.root, classes, parts)
        warn_of_albums(found.root, classes)
        labels: list[tuple[str, ...]] = [part[:1] for part in parts]
    else:
        labels = found.labels
        missing = [name for name, row in zip(found.names, labels, strict=True) if not row]
        if missing:
            raise DataError(
                f"{len(missing):,} of {len(labels):,} images of {found.root} have no label, the "
                f"first one is {missing[0]}. Leave them out, or use a method without labels: itq."
            )
        classes = found.classes or tuple(sorted({each for row in labels for each in row}))
    if len(classes) < 2:
        raise DataError(f"{found.root} has {len(classes)} classes. At least 2 are needed.")
    number = {name: place for place, name in enumerate(classes)}
    if all(len(set(row)) == 1 for row in labels):
        return Labels.from_array([number[row[0]] for row in labels], len(classes)), classes
    return Labels.from_lists(([number[each] for each in row] for row in labels), len(classes)), (
        classes
    )
