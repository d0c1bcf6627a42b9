"""Copies of data sets as the published results use them.

voc2012-112px        Pascal VOC 2012 with a short side of 112 pixels: Lanczos resampling, JPEG
                     of quality 80 with 4:2:0 chroma subsampling
tinyimagenet100      100 classes of Tiny-ImageNet with 400 training images each: the classes of
                     `datasets/tinyimagenet100.txt`, files <wnid>_0.JPEG to <wnid>_399.JPEG
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from .. import files
from ..errors import DataError, StorageError, unknown
from ..native import usable_cores
from .datasets.imagenet import locate_tinyimagenet100, read_wnids, tiny_classes
from .datasets.voc import locate_voc2012, read_voc2012
from .images import open_image

SHORT_SIDE, QUALITY = 112, 80
TRAIN_IMAGES = 400  # per class of Tiny-ImageNet-100

Info = Callable[[str], object]


def list_preparations() -> list[str]:
    """Return the names that `prepare` accepts."""
    return sorted(_PREPARATIONS)


def prepare(
    name: str, source: str | Path, dest: str | Path, *, info: Info = lambda text: None
) -> int:
    """Make a copy of a data set as the published results use it.

    Args:
        name: What to make; see `list_preparations`.
        source: Folder of the data set as its publisher distributes it.
        dest: Folder for the copy; it must be empty or missing.
        info: Receives one-line messages.

    Returns:
        The number of images.

    Raises:
        UsageError: The name is unknown.
        DataError: The data set is incomplete.
        StorageError: The folder is not empty or cannot be written.
    """
    if name not in _PREPARATIONS:
        raise unknown("preparation", name, _PREPARATIONS)
    dest = Path(dest)
    try:
        if dest.exists() and any(dest.iterdir()):
            raise StorageError(f"{dest} is not empty. Give another folder.")
        dest.mkdir(parents=True, exist_ok=True)
        return _PREPARATIONS[name](Path(source), dest, info)
    except OSError as error:
        raise files.storage_error("write", dest, error) from error


def _prepare_voc(source: Path, dest: Path, info: Info) -> int:
    root = locate_voc2012(source)
    data = read_voc2012(root)  # checks the lists and the images
    target = dest / "VOCdevkit" / "VOC2012"
    lists, images = target / "ImageSets" / "Main", target / "JPEGImages"
    images.mkdir(parents=True)
    lists.mkdir(parents=True)
    for path in sorted((root / "ImageSets" / "Main").glob("*.txt")):
        if path.stem in ("train", "val") or path.stem.endswith(("_train", "_val")):
            shutil.copyfile(path, lists / path.name)
    info(f"voc2012-112px: shrinking {len(data):,} images ...")
    sources = list(dict.fromkeys(data.images.paths))  # type: ignore[attr-defined]
    _in_threads(lambda path: _shrink(path, images / path.name), sources)
    return len(data)


def _prepare_tiny(source: Path, dest: Path, info: Info) -> int:
    root, classes = locate_tinyimagenet100(source), tiny_classes()
    data = read_wnids(root, "tinyimagenet100")
    missing = sorted(set(classes) - {str(name).split("/")[1] for name in data.ids})
    if missing:
        raise DataError(
            f"{root} lacks {len(missing)} of the 100 classes, for example {missing[0]}."
        )
    info(f"tinyimagenet100: copying {TRAIN_IMAGES} training images of 100 classes ...")
    count = 0
    for name, path in zip(data.ids, data.images.paths, strict=True):  # type: ignore[attr-defined]
        part, wnid, file = str(name).split("/")
        number = int(Path(file).stem.rpartition("_")[2])
        if wnid not in classes or (part == "train" and number >= TRAIN_IMAGES):
            continue
        target = dest / part / wnid / f"{wnid}_{number}.JPEG"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        count += 1
    files.write_text(dest / "words.txt", "".join(f"{w}\t{n}\n" for w, n in classes.items()))
    return count


def _shrink(source: Path, target: Path) -> None:
    image = Image.fromarray(open_image(source))
    scale = SHORT_SIDE / min(image.size)
    width, height = (round(length * scale) for length in image.size)
    small = image.resize((width, height), Image.Resampling.LANCZOS)
    small.save(target, "JPEG", quality=QUALITY, subsampling="4:2:0", progressive=True)


def _in_threads(work: Callable[[Path], None], paths: Iterable[Path]) -> None:
    with ThreadPoolExecutor(min(16, usable_cores())) as pool:
        for _ in pool.map(work, paths):
            pass  # raises the error of a thread


_PREPARATIONS: dict[str, Callable[[Path, Path, Info], int]] = {
    "tinyimagenet100": _prepare_tiny,
    "voc2012-112px": _prepare_voc,
}
