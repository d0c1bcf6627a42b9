"""Sources: paths, data set names, tables, arrays, tensors, PIL images, bytes and embeddings.

The library, the command line and the service all call `as_images` or `as_labelled`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import DataError, UsageError, unknown
from .base import (
    ArrayImages,
    DataWarning,
    FileImages,
    Ids,
    ImageSource,
    LabelledImages,
    MemoryImages,
    name_ids,
)
from .datasets import DATASETS, DatasetInfo, list_datasets
from .embedding_files import is_embedding_file, open_embeddings, read_values
from .embeddings import as_embeddings
from .folder import read_folder, read_images
from .labels import Labels
from .pixels import ACCEPTED, as_pixels, is_item, is_tensor, one_image
from .remote import is_address, is_stored, open_stored, read_addresses, read_stored
from .table import is_table, read_paths, read_table, table_protocol


def _silent(text: str) -> None:
    """Ignore a message."""


def as_images(source: Any) -> ImageSource:
    """Convert any supported source to images with ids.

    Args:
        source: A path to an image file, a folder (searched recursively) or a table (.csv, .tsv,
            .parquet); an address ("s3://bucket/photos"), a .zip or .tar file, or a .parquet file
            with images; the name of a data set ("cifar10"); a list, tuple, generator or array of
            paths; a PIL image, the bytes of an image file or the open file, an array (h, w, 3), or
            a list of any of these; an array (n, h, w, 3); a torch tensor (n, 3, h, w) or
            (n, h, w, 3); or an `ImageSource` or `LabelledImages`. Pixels are uint8, or floats in
            [0, 1]. Or embeddings: floats (n, d), a list of vectors, or a file that
            `open_embeddings` reads.

    Returns:
        The images. Ids are paths relative to a folder, paths as given in a list or table, the
        name of a single file, or 0 to n - 1 for images without names.

    Raises:
        DataError: A file or folder does not exist.
        UsageError: The argument is none of these.

    Example:
        >>> as_images(np.zeros((2, 32, 32, 3), np.uint8)).ids.tolist()
        [0, 1]
    """
    if isinstance(source, ImageSource):
        return source
    if isinstance(source, LabelledImages):
        return source.source
    if isinstance(source, (str, os.PathLike)):
        return _from_path(source)
    embeddings = as_embeddings(source)
    if embeddings is not None:
        return ImageSource(embeddings, np.arange(len(embeddings)))
    if _is_single(source):
        return _numbered([one_image(source)])
    if isinstance(source, np.ndarray) and source.dtype.kind in "OUT":
        source = source.tolist()
    if isinstance(source, np.ndarray) or is_tensor(source):
        return ImageSource(ArrayImages(as_pixels(source, 4)), np.arange(len(source)))
    if not isinstance(source, Iterable) or isinstance(source, dict):
        raise UsageError(f"{type(source).__name__} is not a source of images. {ACCEPTED}")
    return _from_items(list(source))


def as_labelled(data: Any, labels: ArrayLike | Labels | None = None) -> LabelledImages:
    """Convert any supported source to labelled images for training.

    Of a data set that has parts, such as a table with a column `split` or VOC 2012, only the
    training part is used. Set `parts=None` (`dataclasses.replace`) on images that were selected in
    another way.

    Args:
        data: A folder of class folders, a table, the name of a data set, or a `LabelledImages`,
            all of which have labels; or, together with `labels`, anything `as_images` takes.
        labels: One label per image (n,), of text or numbers, or a matrix (n, C) of 0 and 1.

    Returns:
        The labelled images.

    Raises:
        UsageError: The labels are missing, do not match the images, contain NaN, or would be
            ignored because the data have labels of their own.
        DataError: A file or folder cannot be used.

    Example:
        >>> data = as_labelled(np.zeros((2, 32, 32, 3), np.uint8), ["cat", "dog"])
        >>> data.classes, data.labels.array.tolist()
        (('cat', 'dog'), [0, 1])
    """
    owns_labels = isinstance(data, (str, os.PathLike)) and not is_embedding_file(data)
    if owns_labels or isinstance(data, LabelledImages):
        if labels is not None:
            raise UsageError(
                "labels would be ignored: a folder, table or data set has its own. "
                "Give labels only with a list of files or with pixels."
            )
        return _train_part(
            data if isinstance(data, LabelledImages) else open_dataset(_as_path(data))
        )
    source = as_images(data)
    if labels is None:
        raise UsageError(
            "labels are missing: images without class folders or a table, and embeddings, need "
            "them. The methods itq and lsh learn without labels."
        )
    numbers, classes = _parse_labels(labels, len(source))
    return LabelledImages(source.images, name_ids(source.ids), numbers, classes)


def as_training(data: Any, labels: Any = None, *, need_labels: bool = True) -> LabelledImages:
    """Convert any supported source to training data, with labels where they are needed or known.

    Args:
        data: As for `as_labelled`; for a method that needs no labels also a folder without class
            folders, or anything else that `as_images` takes.
        labels: As for `as_labelled`.
        need_labels: Whether data without labels are an error.

    Returns:
        The training part of the data. Data without labels have no classes.

    Raises:
        UsageError: The labels are missing, or do not match the data.
        DataError: A file or folder cannot be used.
    """
    if need_labels or labels is not None or isinstance(data, LabelledImages):
        return as_labelled(data, labels)
    if isinstance(data, (str, os.PathLike)) and not is_embedding_file(data):
        try:
            return as_labelled(data)
        except DataError:  # no class folders, or no column of labels
            pass
    return without_labels(as_images(data))


def without_labels(source: ImageSource) -> LabelledImages:
    """Make training data of images or embeddings without labels.

    Args:
        source: The images.

    Returns:
        The same images, with no classes.
    """
    return LabelledImages(source.images, name_ids(source.ids), Labels.none(len(source)), ())


def read_embeddings(
    path: str | Path,
    labels: str | Path | None = None,
    *,
    array: str | None = None,
    ids: str | Path | None = None,
) -> LabelledImages:
    """Read a file of embeddings as training data.

    Args:
        path: The file; see `open_embeddings`.
        labels: A text file with one label per line, or a .npy file of labels (n,) or (n, C); or the
            name of a column or array of the file. None: there are no labels.
        array: See `open_embeddings`.
        ids: See `open_embeddings`.

    Returns:
        The embeddings; without labels they have no classes.

    Raises:
        UsageError: The labels do not match, or an array or column does not exist.
        DataError: A file cannot be used.
    """
    source = open_embeddings(path, array=array, ids=ids)
    found = as_labelled(source, read_values(path, labels)) if labels else without_labels(source)
    return replace(found, name=Path(path).stem)


def find_dataset(spec: str | Path) -> DatasetInfo:
    """Look up a data set by name, or a table or folder of class folders by path.

    Args:
        spec: Name or path. A folder with the name of a data set is written ./name.

    Returns:
        How the data set is located and read.

    Raises:
        UsageError: There is no data set and no folder of this name.
    """
    if isinstance(spec, str) and spec in DATASETS:
        return DATASETS.get(spec)
    if is_stored(spec):
        name = PurePosixPath(str(spec)).stem.rstrip("*-") or "images"
        return DatasetInfo(name, "holdout", None, read_stored, _at(spec))
    path = Path(spec)
    if is_embedding_file(path):
        return DatasetInfo(path.stem, "holdout", None, read_embeddings, _at(path))
    if is_table(path):
        return DatasetInfo(path.stem, table_protocol(path), None, read_table, _at(path))
    if isinstance(spec, str) and path.name == spec and not os.path.lexists(spec):
        raise unknown("data set or folder", spec, list_datasets())
    name = Path(os.path.abspath(path)).name  # noqa: PTH100 (Path.resolve fails on links in a loop)
    return DatasetInfo(name, "holdout", None, read_folder, _at(path))


def open_dataset(
    spec: str | Path,
    root: str | Path | None = None,
    *,
    download: bool = True,
    info: Callable[[str], object] = _silent,
) -> LabelledImages:
    """Open a data set by name, a table, or a folder of class folders.

    Args:
        spec: Name or path.
        root: Folder that holds the files of a named data set; by default the cache folder.
        download: Whether missing files may be downloaded.
        info: Receives one-line messages about what is done.

    Returns:
        The whole data set, with its parts where it has any.

    Raises:
        UsageError: The name is unknown.
        DataError: The files are missing or damaged.
    """
    if root is None and spec in DATASETS and os.path.isdir(spec):  # noqa: PTH112
        text = f"'{spec}' names a data set and a folder. Using the data set; write ./{spec}"
        warnings.warn(f"{text} for the folder.", DataWarning, stacklevel=2)
    entry = find_dataset(spec)
    return entry.read(entry.locate(root, download=download, info=info))


def _at(path: str | Path) -> Callable[..., Any]:
    return lambda root=None, **options: path


def _train_part(data: LabelledImages) -> LabelledImages:
    if data.parts is None or (data.parts == "train").all():
        return data
    return data.take(np.flatnonzero(data.parts == "train"))


def _as_path(path: str | os.PathLike[str]) -> str | Path:
    return path if isinstance(path, str) else Path(path)


def _from_path(source: str | os.PathLike[str]) -> ImageSource:
    if isinstance(source, str) and source in DATASETS:
        return open_dataset(source).source
    if is_stored(source):
        return open_stored(source)
    path = Path(source)
    if is_embedding_file(path):
        return open_embeddings(path)
    if is_table(path):
        written, paths = read_paths(path)
        return ImageSource(FileImages(paths), name_ids(written))
    try:
        is_folder = path.is_dir()
        path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"Cannot read {path}: {reason}. Check the path.") from error
    if not is_folder:
        return ImageSource(FileImages([path]), name_ids([path.name]))
    return read_images(path)


def _from_items(items: list[Any]) -> ImageSource:
    paths = [isinstance(item, (str, os.PathLike)) for item in items]
    if all(paths) and any(map(is_address, items)):
        if not all(map(is_address, items)):
            raise UsageError("A list must contain either addresses or local paths, not both.")
        return read_addresses(items)
    if all(paths):
        names = (os.fspath(item) for item in items)
        return ImageSource(FileImages([Path(item) for item in items]), name_ids(names))
    if any(paths):
        raise UsageError("A list must contain either paths or images, not both.")
    wrong = [type(item).__name__ for item in items if not is_item(item)]
    if wrong:
        raise UsageError(f"A list of {wrong[0]} is not a source of images. {ACCEPTED}")
    return _numbered([one_image(item) for item in items])


def _numbered(items: list[Any]) -> ImageSource:
    return ImageSource(MemoryImages(items), np.arange(len(items)))


def _is_single(source: Any) -> bool:
    return isinstance(source, memoryview) or (is_item(source) and getattr(source, "ndim", 3) == 3)


def _parse_labels(labels: Any, count: int) -> tuple[Labels, tuple[str, ...]]:
    """Convert user labels to `Labels` and class names."""
    if isinstance(labels, Labels):
        values, names = labels, tuple(map(str, range(labels.count)))
    else:
        values, names = _parse_array(labels)
    if len(values) != count:
        raise UsageError(f"{count} images need {count} labels, got {len(values)}.")
    return values, names


def _parse_array(labels: Any) -> tuple[Labels, tuple[str, ...]]:
    if is_tensor(labels):
        labels = labels.detach().cpu().numpy()
    try:
        array = np.asarray(labels)
    except ValueError:  # lists of different lengths
        array = np.empty((0, 0, 0))
    if array.ndim == 2 and array.dtype.kind in "iubf" and np.isin(array, (0, 1)).all():
        return Labels.from_array(array.astype(bool)), tuple(map(str, range(array.shape[1])))
    if array.ndim != 1:
        raise UsageError(
            f"labels must have the shape (n,), or (n, C) with values 0 and 1, got {array.shape}."
        )
    if any(label is None or label != label for label in array.tolist()):
        raise UsageError("labels contain NaN or None. Give every image a label, or leave it out.")
    if array.dtype == object and len({type(label) for label in array.tolist()}) > 1:
        raise UsageError("labels must be of one type, got text and numbers mixed.")
    names, numbers = np.unique(array, return_inverse=True)
    return Labels.from_array(numbers, len(names)), tuple(map(str, names.tolist()))


__all__ = [
    "Ids",
    "ImageSource",
    "as_images",
    "as_labelled",
    "as_training",
    "find_dataset",
    "open_dataset",
    "open_embeddings",
    "read_embeddings",
    "without_labels",
]
