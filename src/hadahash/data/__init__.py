"""Images and data sets: what is read, by name or from a folder, and how it is divided into queries and database.

A new data set is one file with a reader (and, if it can be fetched, a getter), and one line in `DATASETS` below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import unknown
from ..registry import Registry
from .base import ArrayImages, FileImages, Images, LabelledImages
from .cifar10 import ChangedDataWarning, get_cifar10, pixels_sha256, read_cifar10
from .digits import get_digits, read_digits
from .folder import list_images, read_folder
from .images import ImageLimits, image_size, open_image, shrink_to_square
from .protocols import Split, make_split, protocols, validation_split

__all__ = [
    "DATASETS",
    "ArrayImages",
    "ChangedDataWarning",
    "DataSet",
    "FileImages",
    "ImageLimits",
    "Images",
    "LabelledImages",
    "Split",
    "datasets",
    "find_dataset",
    "image_size",
    "list_images",
    "make_split",
    "open_dataset",
    "open_image",
    "pixels_sha256",
    "protocols",
    "read_folder",
    "shrink_to_square",
    "validation_split",
]


Say = Callable[[str], object]


@dataclass(frozen=True)
class DataSet:
    """A data set one can ask for: how it is found and read, and how results on it are measured by default."""

    name: str
    protocol: str
    depth: int | None  # how many results mAP looks at; None: all
    read: Callable[[Path], LabelledImages]
    get: Callable[..., Path]  # (root or None, *, download: bool, say: Say) -> what `read` takes


DATASETS: Registry[DataSet] = Registry("data set")
DATASETS.register("cifar10")(DataSet("cifar10", "cifar10", None, read_cifar10, get_cifar10))
DATASETS.register("digits")(DataSet("digits", "holdout", None, read_digits, get_digits))


def datasets() -> list[str]:
    """The names of the data sets that can be asked for."""
    return DATASETS.names()


def find_dataset(spec: str | Path) -> DataSet:
    """The data set of this name, or a folder of class folders. A folder called like a data set is given as ./name."""
    if isinstance(spec, str) and spec in DATASETS:
        return DATASETS.get(spec)
    folder = Path(spec)
    if isinstance(spec, str) and folder.name == spec and not folder.exists():
        raise unknown("data set or folder", spec, datasets())
    return DataSet(folder.resolve().name, "holdout", None, read_folder, lambda root, **options: folder)


def open_dataset(
    spec: str | Path, root: str | Path | None = None, *, download: bool = True, say: Say = lambda text: None
) -> LabelledImages:
    """A data set by its name (its files are in `root`, in the cache, or fetched), or a folder of class folders."""
    entry = find_dataset(spec)
    return entry.read(entry.get(root, download=download, say=say))
