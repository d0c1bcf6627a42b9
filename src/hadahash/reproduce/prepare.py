"""Prepare the data sets of the stored results from the publishers' files.

    python -m hadahash.reproduce.prepare tinyimagenet100 tiny-imagenet-200 OUT
    python -m hadahash.reproduce.prepare voc2012 VOCdevkit/VOC2012 OUT

The results on tinyimagenet100 use 100 classes with 400 training images each. Those on voc2012 use
photographs whose short side is 112 pixels, saved as JPEG of quality 80. The bytes of the shrunken
photographs depend on the version of Pillow; the sha256 of the pixels that were used is in each
record (`digests.pixels_sha256`).
"""

from __future__ import annotations

import shutil
import sys
from importlib import resources
from pathlib import Path

from PIL import Image

from .. import files
from ..errors import DataError, HadaHashError, UsageError

SHORT_SIDE, QUALITY = 112, 80


def prepare_tinyimagenet100(source: Path, out: Path) -> int:
    """Copy the 100 classes of the stored results from Tiny-ImageNet.

    Args:
        source: The folder tiny-imagenet-200 of the publisher.
        out: New folder, in the layout that `hadahash` reads: {train,val}/<class>/<image>.

    Returns:
        The number of images.

    Raises:
        DataError: If an image is missing.
    """
    plan = files.read_toml(resources.files(__package__) / "tinyimagenet100.toml")
    count = 0
    for name in plan["classes"]:
        images = [f"{name}_{number}.JPEG" for number in range(plan["images_per_class"])]
        count += _copy(source / "train" / name / "images", images, out / "train" / name)
    queries: dict[str, list[str]] = {name: [] for name in plan["classes"]}
    for line in _lines(source / "val" / "val_annotations.txt"):
        image, name, *_ = line.split("\t")
        if name in queries:
            queries[name].append(image)
    for name, images in queries.items():
        count += _copy(source / "val" / "images", images, out / "val" / name)
    shutil.copyfile(source / "words.txt", out / "words.txt")
    return count


def prepare_voc2012(source: Path, out: Path) -> int:
    """Shrink the photographs of PASCAL VOC 2012 (main task, trainval).

    Args:
        source: The folder VOCdevkit/VOC2012 of the publisher.
        out: New folder; VOCdevkit/VOC2012 is made in it.

    Returns:
        The number of images.

    Raises:
        DataError: If an image or a list is missing.
    """
    folder = out / "VOCdevkit" / "VOC2012"
    lists = source / "ImageSets" / "Main"
    if not lists.is_dir():
        raise DataError(f"{lists} is not a folder. Give the folder VOCdevkit/VOC2012.")
    shutil.copytree(lists, folder / "ImageSets" / "Main", dirs_exist_ok=True)
    names = [name for part in ("train", "val") for name in _lines(lists / f"{part}.txt")]
    (folder / "JPEGImages").mkdir(parents=True, exist_ok=True)
    for name in names:
        path = source / "JPEGImages" / f"{name}.jpg"
        if not path.is_file():
            raise DataError(f"{path} is missing.")
        with Image.open(path) as image:
            scale = SHORT_SIDE / min(image.size)
            size = (round(image.width * scale), round(image.height * scale))
            small = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        small.save(folder / "JPEGImages" / f"{name}.jpg", quality=QUALITY, progressive=True)
    return len(names)


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise DataError(f"{path} is missing.")
    return [line.strip() for line in path.read_text().splitlines() if line.strip()]


def _copy(source: Path, names: list[str], out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (source / name).is_file():
            raise DataError(f"{source / name} is missing.")
        shutil.copyfile(source / name, out / name)
    return len(names)


def main(arguments: list[str]) -> int:
    """Prepare a data set by name.

    Args:
        arguments: Name, source and destination.

    Returns:
        The number of images.

    Raises:
        UsageError: If the arguments are wrong.
    """
    known = {"tinyimagenet100": prepare_tinyimagenet100, "voc2012": prepare_voc2012}
    if len(arguments) != 3 or arguments[0] not in known:
        raise UsageError(
            f"usage: python -m hadahash.reproduce.prepare {{{','.join(known)}}} SOURCE OUT"
        )
    return known[arguments[0]](Path(arguments[1]), Path(arguments[2]))


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{main(sys.argv[1:]):,} images in {sys.argv[3]}\n")
    except HadaHashError as error:
        sys.exit(str(error))
