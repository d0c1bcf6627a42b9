"""Pascal VOC 2012, the main task: photographs with any of 20 classes in them.

    JPEGImages/<id>.jpg
    ImageSets/Main/<class>_train.txt, <class>_val.txt     an image's id and 1, 0 or -1 a line

1: the class is in the image; -1: it is not; 0: there are only objects of it that are marked as difficult to see. An image
counts as having a class where it says 1: 0 is taken as absent, because such an object can hardly be recognised. Images that
have no class left stay in, without a label. The folder may be VOC2012, VOCdevkit or the one that holds VOCdevkit. Ids are
train/<id> and val/<id>; the training set comes first.
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
    "Expected is the folder VOCdevkit/VOC2012 with JPEGImages and ImageSets/Main; "
    "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/ has it (VOCtrainval_11-May-2012.tar)."
)


def locate_voc2012(root: str | Path | None = None, **options: Any) -> Path:
    """The folder VOC2012; it is not fetched."""
    return locate_dataset(
        "voc2012", root, _fits, below=("VOCdevkit/VOC2012", "VOC2012"), expected=_EXPECTED
    )


def read_voc2012(root: str | Path) -> LabelledImages:
    """All images of the training and the validation set, with labels (n, 20) of 0 and 1."""
    root = locate_voc2012(root)
    ids, labels, paths = [], [], []
    for part in ("train", "val"):
        names, present = _read_part(root / "ImageSets" / "Main", part)
        ids += [f"{part}/{name}" for name in names]
        paths += [root / "JPEGImages" / f"{name}.jpg" for name in names]
        labels.append(present)
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise DataError(
            f"{root / 'JPEGImages'} lacks {len(missing)} of {len(paths)} images, for example {missing[0]}. {AGAIN}"
        )
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
    """The images of a part and their labels (n, 20); every class's file must list the same images."""
    names: list[str] = []
    columns: list[NDArray[np.int64]] = []
    for label in CLASSES:
        path = folder / f"{label}_{part}.txt"
        own, present = _read_class(path)
        if columns and own != names:
            raise DataError(
                f"{path} does not list the images that {CLASSES[0]}_{part}.txt lists. {AGAIN}"
            )
        names = own
        columns.append(present)
    return names, np.stack(columns, axis=1)


def _read_class(path: Path) -> tuple[list[str], NDArray[np.int64]]:
    rows = [line.split() for line in read_text(path).splitlines()]
    for number, row in enumerate(rows, 1):
        if row and (len(row) != 2 or row[1] not in ("1", "0", "-1")):
            raise DataError(
                f"{path} line {number}: {' '.join(row)!r} is not an image's id and 1, 0 or -1. {AGAIN}"
            )
    rows = [row for row in rows if row]
    if not rows:
        raise DataError(f"{path} is empty. {AGAIN}")
    return [name for name, _ in rows], np.array([mark == "1" for _, mark in rows], np.int64)


DATASETS.register("voc2012")(DatasetInfo("voc2012", "voc2012", None, read_voc2012, locate_voc2012))
