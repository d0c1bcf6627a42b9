"""Images and data sets: what is read, by name, from a table or from a folder, and how it is divided into queries and database.

A new data set is one file with a reader (and, if it can be fetched, a getter), and one line in `DATASETS` below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import unknown
from ..registry import Registry
from .base import ArrayImages, DataWarning, FileImages, Images, LabelledImages
from .datasets.cifar10 import ChangedDataWarning, get_cifar10, pixels_sha256, read_cifar10
from .datasets.digits import get_digits, read_digit_pairs, read_digits
from .datasets.imagenet import (
    get_imagenet100,
    get_tinyimagenet100,
    read_imagenet100,
    read_tinyimagenet100,
)
from .datasets.nuswide import MissingImagesWarning, get_nuswide21, read_nuswide21
from .datasets.voc import get_voc2012, read_voc2012
from .folder import list_images, read_folder
from .images import ImageLimits, image_size, open_image, shrink_to_square
from .splits import Split, list_protocols, make_split, validation_split
from .table import DoubtfulLabelWarning, is_table, read_table, table_protocol

__all__ = [
    "DATASETS",
    "ArrayImages",
    "ChangedDataWarning",
    "DataSet",
    "DataWarning",
    "DoubtfulLabelWarning",
    "FileImages",
    "ImageLimits",
    "Images",
    "LabelledImages",
    "MissingImagesWarning",
    "Split",
    "find_dataset",
    "image_size",
    "list_datasets",
    "list_images",
    "list_protocols",
    "make_split",
    "open_dataset",
    "open_image",
    "pixels_sha256",
    "read_folder",
    "read_table",
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
DATASETS.register("digit-pairs")(
    DataSet("digit-pairs", "holdout", None, read_digit_pairs, get_digits)
)
DATASETS.register("imagenet100")(
    DataSet("imagenet100", "imagenet100", 1_000, read_imagenet100, get_imagenet100)
)
DATASETS.register("nuswide21")(
    DataSet("nuswide21", "nuswide21", 5_000, read_nuswide21, get_nuswide21)
)
DATASETS.register("tinyimagenet100")(
    DataSet("tinyimagenet100", "tinyimagenet100", 1_000, read_tinyimagenet100, get_tinyimagenet100)
)
DATASETS.register("voc2012")(DataSet("voc2012", "voc2012", None, read_voc2012, get_voc2012))


def list_datasets() -> list[str]:
    """The names of the data sets that can be asked for."""
    return DATASETS.names()


def find_dataset(spec: str | Path) -> DataSet:
    """The data set of this name, a table, or a folder of class folders. A folder called like a data set is given as ./name."""
    if isinstance(spec, str) and spec in DATASETS:
        return DATASETS.get(spec)
    path = Path(spec)
    if is_table(path):
        return DataSet(
            path.stem, table_protocol(path), None, read_table, lambda root, **options: path
        )
    if isinstance(spec, str) and path.name == spec and not path.exists():
        raise unknown("data set or folder", spec, list_datasets())
    return DataSet(path.resolve().name, "holdout", None, read_folder, lambda root, **options: path)


def open_dataset(
    spec: str | Path,
    root: str | Path | None = None,
    *,
    download: bool = True,
    say: Say = lambda text: None,
) -> LabelledImages:
    """A data set by its name (its files are in `root`, in the cache, or fetched), a table, or a folder of class folders."""
    entry = find_dataset(spec)
    return entry.read(entry.get(root, download=download, say=say))
