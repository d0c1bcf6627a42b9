"""NUS-WIDE with its 21 most frequent concepts: photographs from Flickr with several labels each.

    ImageList/Imagelist.txt                              a path a line, with backslashes: actor\\0001_2124494179.jpg
    Groundtruth/AllLabels/Labels_<concept>.txt           0 or 1 a line, for the images of that list
        or in two parts, training images first:
    ImageList/TrainImagelist.txt, TestImagelist.txt
    Groundtruth/TrainTestLabels/Labels_<concept>_Train.txt, Labels_<concept>_Test.txt
    Flickr/<path> or images/<path>                       the photographs

The concepts are counted over the whole list. Images that have none of the 21 are left out: 195,834 of 269,648 remain. The
photographs are not given out with the lists, and many are gone from Flickr: those that are missing are left out too, with a
warning that counts them and has them all in `.missing`. Ids are the paths, with slashes.
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
OFFICIAL_LIST, OFFICIAL_IMAGES = (
    269_648,
    195_834,
)  # images in the list, and those of them with any of the 21 concepts

_PHOTOS = ("Flickr", "images")
_EXPECTED = (
    "Expected are the folders ImageList, Groundtruth and Flickr (or images), which has the photographs; "
    "https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html has them."
)


class MissingImagesWarning(DataWarning):
    """Images of the list are not on the disk: `.missing` has their ids."""

    def __init__(self, text: str, missing: tuple[str, ...]) -> None:
        super().__init__(text)
        self.missing = missing


class Listed(NamedTuple):
    """The images of the list that have any of the concepts, and how many have none."""

    ids: Ids  # (n,)
    labels: Labels  # multi-label, of the concepts
    concepts: tuple[str, ...]
    unlabelled: int


def locate_nuswide21(
    root: str | Path | None = None, *, info: Info = lambda text: None, **options: Any
) -> Path:
    """The folder that holds the lists and the photographs; it is not fetched. `info` is told what is left out."""
    place = locate_dataset("nuswide21", root, _fits, below=("NUS-WIDE",), expected=_EXPECTED)
    found = read_lists(place)
    info(
        f"nuswide21: {len(found.ids):,} images have any of the concepts {', '.join(found.concepts)}; "
        f"{found.unlabelled:,} others are left out."
    )
    return place


def read_nuswide21(root: str | Path) -> LabelledImages:
    """The images that are on the disk and have any of the 21 concepts, with labels (n, 21) of 0 and 1."""
    root = Path(root)
    found = read_lists(root)
    photos = _photos(root)
    there = np.array([os.path.isfile(photos / name) for name in found.ids], bool)  # noqa: PTH113 (200,000 of them)
    if not there.any():
        raise DataError(
            f"None of the {len(there):,} listed images is in {photos}, for example {found.ids[0]}. {_EXPECTED}"
        )
    if not there.all():
        missing = tuple(found.ids[~there].tolist())
        text = f"{len(missing):,} of {len(there):,} images are not in {photos}, for example {missing[0]}. They are left out."
        warnings.warn(MissingImagesWarning(text, missing), stacklevel=2)
    ids = found.ids[there]
    images = FileImages([photos / name for name in ids])
    return LabelledImages(images, ids, found.labels.take(there), found.concepts, "nuswide21")


def read_lists(root: str | Path, *, count: int = CONCEPTS) -> Listed:
    """The lists alone: images, labels and the `count` most frequent concepts in the order of their names."""
    root = Path(root)
    ids, columns = _read_whole(root) or _read_halves(root)
    if len(columns) < count:
        raise DataError(
            f"{root / 'Groundtruth'} has labels for {len(columns)} concepts, {count} are needed. {_EXPECTED}"
        )
    frequent = sorted(columns, key=lambda concept: (-int(columns[concept].sum()), concept))
    concepts = tuple(sorted(frequent[:count]))
    labels = np.stack([columns[concept] for concept in concepts], axis=1)
    used = labels.any(axis=1)
    if len(ids) == OFFICIAL_LIST and count == CONCEPTS and used.sum() != OFFICIAL_IMAGES:
        text = f"{root} was changed: {used.sum():,} images have any of the 21 concepts, officially {OFFICIAL_IMAGES:,}."
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
    """All images and the labels of each concept, from the list of all; None where there is none."""
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
            f"{root / 'Groundtruth'} holds neither AllLabels nor TrainTestLabels. {_EXPECTED}"
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
            raise DataError(
                f"{path} line {number}: {name} is in line {line_of[name]} already. {AGAIN}"
            )
        if name:
            line_of[name] = number
    if not line_of:
        raise DataError(f"{path} is empty. {AGAIN}")
    return list(line_of)


def _read_labels(path: Path, count: int) -> NDArray[np.bool_]:
    digits = np.frombuffer(_bytes(path).translate(None, b" \t\r\n"), np.uint8)
    if len(digits) != count or not np.isin(digits, (ord("0"), ord("1"))).all():
        raise DataError(
            f"{path} must have 0 or 1 for each of the {count:,} images of its list; it has {len(digits):,} digits. {AGAIN}"
        )
    present: NDArray[np.bool_] = digits == ord("1")
    return present


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise files.storage_error("read", path, error) from error


DATASETS.register("nuswide21")(
    DatasetInfo("nuswide21", "nuswide21", 5_000, read_nuswide21, locate_nuswide21)
)
