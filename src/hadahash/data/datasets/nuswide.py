r"""NUS-WIDE with its 21 most frequent concepts: multi-label photographs from Flickr.

    ImageList/Imagelist.txt                        one path per line: actor\0001_2124494179.jpg
    Groundtruth/AllLabels/Labels_<concept>.txt     0 or 1 per line, for the images of that list
        or in two parts, training images first:
    ImageList/TrainImagelist.txt, TestImagelist.txt
    Groundtruth/TrainTestLabels/Labels_<concept>_Train.txt, Labels_<concept>_Test.txt
    Flickr/<path> or images/<path>                 the photographs

Frequencies are counted over the whole list. Images with none of the 21 are left out: 195,834 of
269,648 remain. The photographs are not distributed with the lists, and many no longer exist on
Flickr: missing ones are left out, with a warning that has their number and lists them in
`.missing`. Ids are the paths, with slashes.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import DataError
from ..base import DataWarning, FileImages, Ids, LabelledImages, name_ids
from ..labels import Labels
from ..text import AGAIN
from . import DATASETS, DatasetInfo
from .cifar10 import ChangedDataWarning, Info
from .locations import locate_dataset

CONCEPTS = 21
OFFICIAL_LIST = 269_648  # images in the list
OFFICIAL_IMAGES = 195_834  # those of them with any of the 21 concepts

_PHOTOS = ("Flickr", "images")
_EXPECTED = (
    "Expected: the folders ImageList, Groundtruth and Flickr (or images, the photographs), from "
    "https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html."
)


class MissingImagesWarning(DataWarning):
    """Images of the list are not on the disk.

    Attributes:
        missing: Ids of these images.
    """

    def __init__(self, text: str, missing: tuple[str, ...]) -> None:
        super().__init__(text)
        self.missing = missing


class Listed(NamedTuple):
    """The images of the list that have any of the concepts.

    Attributes:
        ids: Paths of the images (n,).
        labels: Their concepts, multi-label.
        concepts: Names of the concepts.
        unlabelled: Number of images with none of the concepts.
    """

    ids: Ids
    labels: Labels
    concepts: tuple[str, ...]
    unlabelled: int


def locate_nuswide21(
    root: str | Path | None = None, *, info: Info = lambda text: None, **options: Any
) -> Path:
    """Find the folder that holds the lists and the photographs.

    Args:
        root: Where to look; None for the cache folder.
        info: Receives one line about the images that are left out.
        **options: Ignored.

    Returns:
        The folder.

    Raises:
        DataError: There is no such folder, or its lists are damaged.
    """
    place = locate_dataset("nuswide21", root, _fits, below=("NUS-WIDE",), expected=_EXPECTED)
    found = read_lists(place)
    info(
        f"nuswide21: {len(found.ids):,} images have any of the concepts "
        f"{', '.join(found.concepts)}; {found.unlabelled:,} others are left out."
    )
    return place


def read_nuswide21(root: str | Path) -> LabelledImages:
    """Read the images that are on the disk and have any of the 21 concepts.

    Args:
        root: The folder with the lists and the photographs.

    Returns:
        Multi-label images of 21 classes.

    Raises:
        DataError: The lists are damaged, or there is no photograph.
    """
    root = Path(root)
    found = read_lists(root)
    photos = _photos(root)
    # os.path is faster than pathlib, and there are 200,000 names.
    there = np.array([os.path.isfile(photos / name) for name in found.ids], bool)  # noqa: PTH113
    if not there.any():
        none = f"None of the {len(there):,} listed images is in {photos}"
        raise DataError(f"{none}, for example {found.ids[0]}. {_EXPECTED}")
    if not there.all():
        missing = tuple(found.ids[~there].tolist())
        text = f"{len(missing):,} of {len(there):,} images are not in {photos}"
        text += f", for example {missing[0]}. They are left out."
        warnings.warn(MissingImagesWarning(text, missing), stacklevel=2)
    ids = found.ids[there]
    images = FileImages([photos / name for name in ids])
    return LabelledImages(images, ids, found.labels.take(there), found.concepts, "nuswide21")


def read_lists(root: str | Path, *, count: int = CONCEPTS) -> Listed:
    """Read the lists alone.

    Args:
        root: The folder with the lists.
        count: Number of concepts; the most frequent ones are used, in the order of their names.

    Returns:
        The images with any of the concepts.

    Raises:
        DataError: The lists are incomplete or damaged.
    """
    root = Path(root)
    ids, columns = _read_whole(root) or _read_halves(root)
    if len(columns) < count:
        found = f"labels for {len(columns)} concepts, {count} are needed"
        raise DataError(f"{root / 'Groundtruth'} has {found}. {_EXPECTED}")
    frequent = sorted(columns, key=lambda concept: (-int(columns[concept].sum()), concept))
    concepts = tuple(sorted(frequent[:count]))
    labels = np.stack([columns[concept] for concept in concepts], axis=1)
    used = labels.any(axis=1)
    if len(ids) == OFFICIAL_LIST and count == CONCEPTS and used.sum() != OFFICIAL_IMAGES:
        text = f"{root} was changed: {used.sum():,} images have any of the 21 concepts"
        text += f", officially {OFFICIAL_IMAGES:,}."
        warnings.warn(text, ChangedDataWarning, stacklevel=2)
    return Listed(
        name_ids(ids)[used], Labels.from_array(labels[used]), concepts, int((~used).sum())
    )


def _fits(folder: Path) -> bool:
    return (folder / "ImageList").is_dir() and (folder / "Groundtruth").is_dir()


def _photos(root: Path) -> Path:
    for name in _PHOTOS:
        if (root / name).is_dir():
            return root / name
    raise DataError(
        f"{root} has no folder {' or '.join(_PHOTOS)} with the photographs. {_EXPECTED}"
    )


Columns = dict[str, NDArray[np.bool_]]


def _read_whole(root: Path) -> tuple[list[str], Columns] | None:
    """All images and the labels of each concept, from one list; None where there is none."""
    paths = sorted((root / "Groundtruth" / "AllLabels").glob("Labels_*.txt"))
    if not paths:
        return None
    ids = _read_ids(root / "ImageList" / "Imagelist.txt")
    return ids, {path.stem.removeprefix("Labels_"): _read_labels(path, len(ids)) for path in paths}


def _read_halves(root: Path) -> tuple[list[str], Columns]:
    """The same from the lists of the training and the test images."""
    folder = root / "Groundtruth" / "TrainTestLabels"
    concepts = sorted(
        path.name[len("Labels_") : -len("_Train.txt")] for path in folder.glob("Labels_*_Train.txt")
    )
    if not concepts:
        raise DataError(
            f"{root / 'Groundtruth'} contains neither AllLabels nor TrainTestLabels. {_EXPECTED}"
        )
    lists = {
        part: _read_ids(root / "ImageList" / f"{part}Imagelist.txt") for part in ("Train", "Test")
    }
    columns = {}
    for concept in concepts:
        halves = [
            _read_labels(folder / f"Labels_{concept}_{part}.txt", len(ids))
            for part, ids in lists.items()
        ]
        columns[concept] = np.concatenate(halves)
    return lists["Train"] + lists["Test"], columns


def _read_ids(path: Path) -> list[str]:
    line_of: dict[str, int] = {}
    for number, line in enumerate(_bytes(path).decode("utf-8", "replace").splitlines(), 1):
        name = line.strip().replace("\\", "/")
        if name in line_of:
            known = f"{name} is already in line {line_of[name]}"
            raise DataError(f"{path} line {number}: {known}. {AGAIN}")
        if name:
            line_of[name] = number
    if not line_of:
        raise DataError(f"{path} is empty. {AGAIN}")
    return list(line_of)


def _read_labels(path: Path, count: int) -> NDArray[np.bool_]:
    digits = np.frombuffer(_bytes(path).translate(None, b" \t\r\n"), np.uint8)
    if len(digits) != count or not np.isin(digits, (ord("0"), ord("1"))).all():
        expected = f"0 or 1 for each of the {count:,} images of its list"
        raise DataError(f"{path} must have {expected}, got {len(digits):,} digits. {AGAIN}")
    present: NDArray[np.bool_] = digits == ord("1")
    return present


def _bytes(path: Path) -> bytes:
    files.require_regular(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise files.storage_error("read", path, error) from error


DATASETS.register("nuswide21")(
    DatasetInfo("nuswide21", "nuswide21", 5_000, read_nuswide21, locate_nuswide21)
)
