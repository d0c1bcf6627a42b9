"""Read images and data sets (by name, from a table or from a folder) and split them."""

from __future__ import annotations

from .base import (
    ArrayImages,
    DataWarning,
    FileImages,
    Images,
    ImageSource,
    LabelledImages,
    MemoryImages,
)
from .datasets import DATASETS, DatasetInfo, list_datasets
from .datasets.cifar10 import ChangedDataWarning, pixels_sha256
from .datasets.nuswide import MissingImagesWarning
from .folder import list_images, read_folder
from .images import ImageLimits, image_size, open_image
from .labels import Labels
from .sources import as_images, as_labelled, find_dataset, open_dataset
from .splits import Split, list_protocols, make_split, validation_split
from .squares import shrink_to_square
from .table import DoubtfulLabelWarning, read_table

__all__ = [
    "DATASETS",
    "ArrayImages",
    "ChangedDataWarning",
    "DataWarning",
    "DatasetInfo",
    "DoubtfulLabelWarning",
    "FileImages",
    "ImageLimits",
    "ImageSource",
    "Images",
    "LabelledImages",
    "Labels",
    "MemoryImages",
    "MissingImagesWarning",
    "Split",
    "as_images",
    "as_labelled",
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
