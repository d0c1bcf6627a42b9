"""A folder of photos with altered copies, for the benchmark of duplicates.

Every original is there as it is, with one copy per alteration; other photos have no copies. The
name of a file begins with the number of its photo: `00017-crop90.jpg` is a copy of photo 17.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

Alter = Callable[[Image.Image, np.random.Generator], Image.Image]
_QUALITY = 95  # of the JPEG files of copies


def crop(fraction: float) -> Alter:
    """Keep this fraction of width and height, at a random place."""

    def alter(image: Image.Image, random: np.random.Generator) -> Image.Image:
        width, height = (max(1, round(fraction * side)) for side in image.size)
        left = int(random.integers(image.width - width + 1))
        top = int(random.integers(image.height - height + 1))
        return image.crop((left, top, left + width, top + height))

    return alter


def resize(fraction: float) -> Alter:
    """Scale width and height."""
    return lambda image, random: image.resize(
        [max(1, round(fraction * side)) for side in image.size], Image.Resampling.LANCZOS
    )


def compress(quality: int) -> Alter:
    """Save as JPEG of this quality and read again."""

    def alter(image: Image.Image, random: np.random.Generator) -> Image.Image:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer).convert("RGB")

    return alter


ALTERATIONS: dict[str, Alter] = {
    "crop90": crop(0.9),
    "crop80": crop(0.8),
    "resize50": resize(0.5),
    "jpeg50": compress(50),
    "bright": lambda image, random: ImageEnhance.Brightness(image).enhance(1.3),
    "dark": lambda image, random: ImageEnhance.Brightness(image).enhance(0.7),
    "mirror": lambda image, random: ImageOps.mirror(image),
}


def write_copies(
    photos: Sequence[Path], folder: Path, *, originals: int, others: int, seed: int
) -> None:
    """Write the folder.

    Args:
        photos: Files to choose from, at least `originals + others`.
        folder: The folder to write; it must not exist.
        originals: Number of photos that get copies.
        others: Number of photos without copies.
        seed: Seed of the choice and of the crops.

    Raises:
        SystemExit: There are too few photos.
    """
    if len(photos) < originals + others:
        raise SystemExit(f"{originals + others:,} photos are needed, got {len(photos):,}.")
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(photos))[: originals + others]
    folder.mkdir(parents=True)
    for number, row in enumerate(chosen.tolist()):
        path = photos[row]
        shutil.copyfile(path, folder / f"{number:05d}-original{path.suffix.lower()}")
        if number >= originals:
            continue
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
        for name, alter in ALTERATIONS.items():
            copy = alter(image, random)
            copy.save(folder / f"{number:05d}-{name}.jpg", "JPEG", quality=_QUALITY)
