"""Whatever a caller holds - a path, a list of files, pixels - as images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, UsageError
from .base import ArrayImages, FileImages, Images, LabelledImages
from .folder import list_images, read_folder
from .table import is_table, read_table


def read_collection(data: Any, labels: Any = None) -> LabelledImages:
    """Labelled images to learn from: a folder of class folders, a table, a LabelledImages, or pixels with their labels.

    Of a table with a column split only the rows of the split train are given. Pixels are uint8 (n, h, w, 3).
    """
    if isinstance(data, LabelledImages):
        return data
    if isinstance(data, (str, Path)) and is_table(data):
        table = read_table(data)
        return table if table.parts is None else table.take(np.flatnonzero(table.parts == "train"))
    if isinstance(data, (str, Path)):
        return read_folder(Path(data))
    images, ids = open_source(data)
    if labels is None:
        raise UsageError(
            "Pixels or a list of files need labels: fit(images, labels), labels of the shape (n,) or (n, C)."
        )
    labels = np.asarray(labels)
    if labels.ndim not in (1, 2) or len(labels) != len(images):
        raise UsageError(
            f"{len(images)} images need {len(images)} labels of the shape (n,) or (n, C), got {labels.shape}."
        )
    if labels.ndim == 2 and not np.isin(labels, (0, 1)).all():
        raise UsageError(
            "Labels of the shape (n, C) must be 0 and 1: whether the image has the class."
        )
    names, numbers = (
        (None, labels.astype(np.int64))
        if labels.ndim == 2
        else np.unique(labels, return_inverse=True)
    )
    classes = tuple(map(str, range(labels.shape[1]) if names is None else names))
    return LabelledImages(images, ids.astype(str), numbers, classes)


class Collection(NamedTuple):
    """Images with an id each."""

    images: Images
    ids: NDArray[Any]


def open_source(source: Any) -> Collection:
    """Images and their ids: names relative to a folder, the given paths of a list, numbers for pixels."""
    if isinstance(source, Collection):
        return source
    if isinstance(source, LabelledImages):
        return Collection(source.images, source.ids)
    if (
        isinstance(source, np.ndarray)
        and source.dtype == np.uint8
        and source.ndim == 4
        and source.shape[3] == 3
    ):
        return Collection(ArrayImages(source), np.arange(len(source)))
    if isinstance(source, (str, Path)):
        path = Path(source)
        if path.is_file():
            return Collection(FileImages([path]), np.array([path.name]))
        if not path.exists():
            raise DataError(
                f"There is no image or folder {path}: No such file or directory. Check the path."
            )
        paths = list_images(path)
        return Collection(
            FileImages(paths), np.array([p.relative_to(path).as_posix() for p in paths], dtype=str)
        )
    if isinstance(source, Sequence) and all(isinstance(item, (str, Path)) for item in source):
        return Collection(
            FileImages([Path(p) for p in source]), np.array([str(p) for p in source], dtype=str)
        )
    raise UsageError(
        "Give an image file, a folder, a list of files, or uint8 pixels of the shape (n, height, width, 3)."
    )
