"""ImageNet-100 and Tiny-ImageNet-100: one folder per class, named by its WordNet ID (wnid).

    train/<wnid>/*.JPEG              or train/<wnid>/images/*.JPEG
    val/<wnid>/*.JPEG                or all of them in val/ or val/images/, and one of these files:
        val/val_annotations.txt                          Tiny-ImageNet: name, wnid, ... (tabs)
        LOC_val_solution.csv                             Kaggle: name, "wnid x y x y ..." (commas)
        ILSVRC2012_validation_ground_truth.txt           devkit: one class number per line, in the
            and meta.mat                                 order of the images, and their wnids
    words.txt or LOC_synset_mapping.txt                  names of the classes; optional
    classes.txt                                          the wnids to use, one per line; optional

If a folder has more than 100 classes, 100 are used: those of classes.txt; else, for Tiny-ImageNet,
the classes of the published results (`tinyimagenet100.txt` in this package) if all of them are
present; else 100 that are drawn once, the same for every seed. Runs with different seeds therefore
differ in their training images but not in their classes. Ids are train/<wnid>/<file> and
val/<wnid>/<file> in every layout.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ..base import FileImages, LabelledImages, name_ids
from ..folder import class_folders, scan
from ..labels import Labels
from ..text import AGAIN, read_text
from . import DATASETS, DatasetInfo
from .locations import locate_dataset

CLASSES = 100

_EXPECTED = "Expected: the folders train/<wnid>/ and val/ with the images"
_TINY = f"{_EXPECTED}, from http://cs231n.stanford.edu/tiny-imagenet-200.zip."
_IMAGENET = f"{_EXPECTED}, from https://www.image-net.org (ILSVRC2012; registration is needed)."


class _Image(NamedTuple):
    part: str  # train or val
    wnid: str
    path: Path

    @property
    def id(self) -> str:
        return f"{self.part}/{self.wnid}/{self.path.name}"


def locate_tinyimagenet100(root: str | Path | None = None, **options: Any) -> Path:
    """Find the folder of Tiny-ImageNet; the arguments are those of `locate_imagenet100`."""
    return locate_dataset(
        "tinyimagenet100", root, _fits, below=("tiny-imagenet-200",), expected=_TINY
    )


def locate_imagenet100(root: str | Path | None = None, **options: Any) -> Path:
    """Find the folder that holds train/ and val/.

    Args:
        root: Where to look; None for the cache folder.
        **options: Ignored.

    Returns:
        The folder.

    Raises:
        DataError: There is no such folder.
    """
    below = ("ILSVRC/Data/CLS-LOC", "Data/CLS-LOC", "ILSVRC2012")
    return locate_dataset("imagenet100", root, _fits, below=below, expected=_IMAGENET)


def read_tinyimagenet100(root: str | Path) -> LabelledImages:
    """Read 100 classes of Tiny-ImageNet, of 64 x 64 pixels, from a folder; see `read_wnids`."""
    return read_wnids(root, "tinyimagenet100")


def read_imagenet100(root: str | Path) -> LabelledImages:
    """Read 100 classes of ILSVRC2012 from a folder; see `read_wnids`."""
    return read_wnids(root, "imagenet100")


def read_wnids(root: str | Path, name: str, *, count: int = CLASSES) -> LabelledImages:
    """Read some classes of a folder of train/<wnid>/ and val/.

    Args:
        root: The folder.
        name: Name of the data set.
        count: Number of classes.

    Returns:
        The images; those of val/ are the part "query".

    Raises:
        DataError: Files are missing or damaged.
    """
    root = Path(root)
    wnids = choose_classes(root, count, prefer=list(tiny_classes()) if "tiny" in name else ())
    images = [
        _Image("train", wnid, path) for wnid in wnids for path in _images_of(root / "train" / wnid)
    ]
    images += _validation(root, wnids)
    repeated = [item for item, times in Counter(image.id for image in images).items() if times > 1]
    if repeated:
        raise DataError(
            f"{root}: {len(repeated)} images occur more than once, for example {repeated[0]}."
        )
    number = {wnid: label for label, wnid in enumerate(wnids)}
    return LabelledImages(
        images=FileImages([image.path for image in images]),
        ids=name_ids(image.id for image in images),
        labels=Labels.from_array([number[image.wnid] for image in images], len(wnids)),
        classes=_names(root, wnids),
        name=name,
        parts=np.array(["train" if image.part == "train" else "query" for image in images]),
    )


def tiny_classes() -> dict[str, str]:
    """Return the wnid and the names of each class of Tiny-ImageNet-100."""
    lines = (resources.files(__package__) / "tinyimagenet100.txt").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {row[0]: row[3] for row in rows}


def choose_classes(root: Path, count: int = CLASSES, *, prefer: Sequence[str] = ()) -> list[str]:
    """Choose the classes to use.

    Args:
        root: The folder that holds train/<wnid>/ and, optionally, classes.txt.
        count: Number of classes.
        prefer: Classes to use if there is no classes.txt and all of them are present.

    Returns:
        Their wnids, in order: those of classes.txt, the preferred ones, all if there are no more
        than `count`, or a fixed random choice.

    Raises:
        DataError: There are no class folders, or classes.txt is wrong.
    """
    wnids = list(class_folders(root / "train"))
    listed = root / "classes.txt"
    if listed.is_file():
        return _listed_classes(listed, root / "train", wnids)
    if not wnids:
        raise DataError(
            f"{root / 'train'} contains no class folders. Put the images into train/<wnid>/."
        )
    if prefer and set(prefer) <= set(wnids):
        return sorted(prefer)
    order = np.argsort(np.random.PCG64(0).random_raw(len(wnids)), kind="stable")
    return sorted(wnids[index] for index in order[:count])


def _listed_classes(path: Path, train: Path, wnids: list[str]) -> list[str]:
    """The wnids in classes.txt, in order; each must have a folder."""
    lines = read_text(
        path, remedy="Write one WordNet ID per line, or delete the file."
    ).splitlines()
    for number, line in enumerate(lines, 1):
        for wnid in line.split():
            if wnid not in wnids:
                raise DataError(f"{path} line {number}: {wnid} has no folder in {train}.")
    if not any(line.split() for line in lines):
        raise DataError(f"{path} is empty. Write one WordNet ID per line, or delete the file.")
    return sorted({wnid for line in lines for wnid in line.split()})


def _fits(folder: Path) -> bool:
    return (folder / "train").is_dir() and (folder / "val").is_dir()


def _images_of(folder: Path) -> list[Path]:
    images = scan(folder).images
    if not images:
        raise DataError(f"{folder} contains no images. {AGAIN}")
    return sorted(images, key=lambda path: path.name)


def _validation(root: Path, wnids: list[str]) -> list[_Image]:
    """The images of val/, class by class, from class folders or by a file of their classes."""
    folder = root / "val"
    if any((folder / wnid).is_dir() for wnid in wnids):
        return [_Image("val", wnid, path) for wnid in wnids for path in _images_of(folder / wnid)]
    paths = _images_of(folder)
    answers = _answers(root, paths)
    unknown = [path.name for path in paths if path.stem not in answers]
    if unknown:
        missing = f"no class for {len(unknown)} images, for example {unknown[0]}"
        raise DataError(f"{folder}: {missing}. {AGAIN}")
    selected = set(wnids)
    images = [
        _Image("val", answers[path.stem], path) for path in paths if answers[path.stem] in selected
    ]
    return sorted(images, key=lambda image: (image.wnid, image.path.name))


def _answers(root: Path, paths: list[Path]) -> dict[str, str]:
    """The wnid of each validation image, by its file name without extension."""
    readers: tuple[tuple[str, Callable[[Path, list[Path]], dict[str, str]]], ...] = (
        ("val_annotations.txt", _tiny_answers),
        ("LOC_val_solution.csv", _kaggle_answers),
        ("ILSVRC2012_validation_ground_truth.txt", _devkit_answers),
    )
    for name, read in readers:
        found = _find(root, name)
        if found:
            return read(found, paths)
    names = ", ".join(name for name, _ in readers)
    missing = f"neither class folders nor a file of classes ({names})"
    raise DataError(f"{root / 'val'} has {missing}. {AGAIN}")


def _find(root: Path, name: str) -> Path | None:
    """A file next to the images, in the devkit folder, or in the parent folder (Kaggle)."""
    tops = (root, root / "val", *(root.resolve().parents[:3] if root.name == "CLS-LOC" else ()))
    for top in tops:
        for folder in ("", "data", "ILSVRC2012_devkit_t12/data"):
            if (top / folder / name).is_file():
                return top / folder / name
    return None


def _tiny_answers(path: Path, paths: list[Path]) -> dict[str, str]:
    return _pairs(path, (line.split("\t") for line in read_text(path).splitlines()))


def _kaggle_answers(path: Path, paths: list[Path]) -> dict[str, str]:
    return _pairs(path, csv.reader(read_text(path).splitlines()), header=True)


def _pairs(path: Path, rows: Iterable[list[str]], *, header: bool = False) -> dict[str, str]:
    """From rows of a file name, its wnid and anything else; empty rows are skipped."""
    answers = {}
    for number, row in enumerate(rows, 1):
        if not any(row) or (header and number == 1):
            continue
        if len(row) < 2 or not row[1].split():
            got = f"expected an image and its class, got '{' '.join(row)}'"
            raise DataError(f"{path} line {number}: {got}. {AGAIN}")
        answers[Path(row[0]).stem] = row[1].split()[0]
    return answers


def _devkit_answers(path: Path, paths: list[Path]) -> dict[str, str]:
    """Line n has the class number of the image whose name ends in _n; meta.mat has the wnids."""
    wnids = _devkit_wnids(path)
    numbers = read_text(path).split()
    answers = {}
    for image in paths:
        ending = re.search(r"_0*([1-9]\d*)$", image.stem)
        place = int(ending[1]) if ending else 0
        if not 1 <= place <= len(numbers) or numbers[place - 1] not in wnids:
            missing = f"{len(numbers)} lines and no class number for {image.name}"
            raise DataError(f"{path} has {missing}. {AGAIN}")
        answers[image.stem] = wnids[numbers[place - 1]]
    return answers


def _devkit_wnids(truth: Path) -> dict[str, str]:
    """The wnid of each class number of the devkit, written as text."""
    meta = truth.with_name("meta.mat")
    if not meta.is_file():
        raise DataError(f"{truth} needs {meta}, which is missing. Copy it from the devkit.")
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        synsets = np.atleast_1d(loadmat(meta, squeeze_me=True)["synsets"])
        return {str(int(synset["ILSVRC2012_ID"])): str(synset["WNID"]) for synset in synsets}
    except (MatReadError, KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"{meta} is damaged ({error}). Copy it from the devkit.") from error


def _names(root: Path, wnids: list[str]) -> tuple[str, ...]:
    """The first name of each class, with its wnid where two are equal; or the wnid alone."""
    words = {}
    for name, separator in (("words.txt", "\t"), ("LOC_synset_mapping.txt", " ")):
        found = _find(root, name)
        lines = read_text(found).splitlines() if found else []
        words.update(
            {
                wnid: text.split(",")[0].strip()
                for wnid, _, text in (line.partition(separator) for line in lines)
            }
        )
    first = [words.get(wnid) or wnid for wnid in wnids]
    times = Counter(first)
    return tuple(
        name if times[name] == 1 else f"{name} ({wnid})"
        for name, wnid in zip(first, wnids, strict=True)
    )


DATASETS.register("imagenet100")(
    DatasetInfo("imagenet100", "imagenet100", 1_000, read_imagenet100, locate_imagenet100)
)
DATASETS.register("tinyimagenet100")(
    DatasetInfo(
        "tinyimagenet100", "tinyimagenet100", 1_000, read_tinyimagenet100, locate_tinyimagenet100
    )
)
