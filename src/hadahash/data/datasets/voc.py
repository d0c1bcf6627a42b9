"""Pascal VOC 2012, main task: photographs that contain objects of 20 classes.

    JPEGImages/<id>.jpg
    ImageSets/Main/<class>_train.txt, <class>_val.txt     one line per image: id and 1, 0 or -1

1: the class is in the image; -1: it is not; 0: only objects marked as difficult are. An image has a
class where its line has 1; 0 counts as absent. Images without any class are kept, without labels.
The folder may be VOC2012, VOCdevkit or the one that holds VOCdevkit. Ids are train/<id> and
val/<id>; the training set comes first.

The published results of this project use smaller copies of the photographs, which
`hadahash data prepare voc2012-112px` makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..base import FileImages, LabelledImages, name_ids
from ..labels import Labels
from ..text import AGAIN, read_text
from . import DATASETS, DatasetInfo
from .locations import locate_dataset

CLASSES = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)

_EXPECTED = (
    "Expected: the folder VOCdevkit/VOC2012 with JPEGImages and ImageSets/Main, from "
    "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/ (VOCtrainval_11-May-2012.tar)."
)


def locate_voc2012(root: str | Path | None = None, **options: Any) -> Path:
    """Find the folder VOC2012.

    Args:
        root: Where to look; None for the cache folder.
        **options: Ignored.

    Returns:
        The folder.

    Raises:
        DataError: There is no such folder.
    """
    return locate_dataset(
        "voc2012", root, _fits, below=("VOCdevkit/VOC2012", "VOC2012"), expected=_EXPECTED
    )


def read_voc2012(root: str | Path) -> LabelledImages:
    """Read the training and the validation set.

    Args:
        root: The folder VOC2012, or one that holds it.

    Returns:
        Multi-label images of 20 classes; the validation set is the part "query".

    Raises:
        DataError: Files are missing or damaged.
    """
    root = locate_voc2012(root)
    ids, labels, paths = [], [], []
    for part in ("train", "val"):
        names, present = _read_part(root / "ImageSets" / "Main", part)
        ids += [f"{part}/{name}" for name in names]
        paths += [root / "JPEGImages" / f"{name}.jpg" for name in names]
        labels.append(present)
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        lacks = f"{len(missing)} of {len(paths)} images are missing"
        raise DataError(f"{root / 'JPEGImages'}: {lacks}, for example {missing[0]}. {AGAIN}")
    parts = ["train"] * len(labels[0]) + ["query"] * len(labels[1])
    return LabelledImages(
        FileImages(paths),
        name_ids(ids),
        Labels.from_array(np.concatenate(labels)),
        CLASSES,
        "voc2012",
        np.array(parts),
    )


def _fits(folder: Path) -> bool:
    return (folder / "ImageSets" / "Main").is_dir() and (folder / "JPEGImages").is_dir()


def _read_part(folder: Path, part: str) -> tuple[list[str], NDArray[np.int64]]:
    """The images of a part and their labels (n, 20); all files must list the same images."""
    names: list[str] = []
    columns: list[NDArray[np.int64]] = []
    for label in CLASSES:
        path = folder / f"{label}_{part}.txt"
        listed, present = _read_class(path)
        if columns and listed != names:
            raise DataError(
                f"{path} does not list the images that {CLASSES[0]}_{part}.txt lists. {AGAIN}"
            )
        names = listed
        columns.append(present)
    return names, np.stack(columns, axis=1)


def _read_class(path: Path) -> tuple[list[str], NDArray[np.int64]]:
    rows = [line.split() for line in read_text(path).splitlines()]
    for number, row in enumerate(rows, 1):
        if row and (len(row) != 2 or row[1] not in ("1", "0", "-1")):
            got = f"expected an id and 1, 0 or -1, got {' '.join(row)!r}"
            raise DataError(f"{path} line {number}: {got}. {AGAIN}")
    rows = [row for row in rows if row]
    if not rows:
        raise DataError(f"{path} is empty. {AGAIN}")
    return [name for name, _ in rows], np.array([mark == "1" for _, mark in rows], np.int64)


DATASETS.register("voc2012")(DatasetInfo("voc2012", "voc2012", None, read_voc2012, locate_voc2012))
