"""Named alterations of an image: what a copy of a photo goes through before it is searched again.

- none: unchanged;
- crop80: the middle, 80 % of the width and of the height;
- resize50: half the width and half the height;
- jpeg50: saved as JPEG with quality 50;
- dark: brightness x 0.6;
- color: saturation x 0.5;
- mirror: left and right exchanged.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from ..errors import unknown
from .base import Images, Rows
from .images import open_image

Pixels = NDArray[np.uint8]


def _crop(image: Image.Image) -> Image.Image:
    width, height = (max(1, round(0.8 * length)) for length in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _resize(image: Image.Image) -> Image.Image:
    width, height = (max(1, length // 2) for length in image.size)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def _jpeg(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=50)
    return Image.fromarray(open_image(file.getvalue()))


ALTERATIONS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "none": lambda image: image,
    "crop80": _crop,
    "resize50": _resize,
    "jpeg50": _jpeg,
    "dark": lambda image: ImageEnhance.Brightness(image).enhance(0.6),
    "color": lambda image: ImageEnhance.Color(image).enhance(0.5),
    "mirror": ImageOps.mirror,
}


def alter(image: Pixels, name: str) -> Pixels:
    """Alter one image.

    Args:
        image: uint8 (height, width, 3).
        name: Name of the alteration.

    Returns:
        uint8 (height, width, 3); crops and resized images are smaller.

    Raises:
        UsageError: The alteration is unknown.

    Example:
        >>> alter(np.zeros((10, 20, 3), np.uint8), "crop80").shape
        (8, 16, 3)
    """
    check_alterations([name])
    return np.asarray(ALTERATIONS[name](Image.fromarray(image)), np.uint8)


def check_alterations(names: Iterable[str]) -> None:
    """Raise an error unless all names are known.

    Args:
        names: Names of alterations.

    Raises:
        UsageError: One of them is unknown.
    """
    for name in names:
        if name not in ALTERATIONS:
            raise unknown("alteration", name, tuple(ALTERATIONS))


@dataclass(frozen=True, eq=False)
class AlteredImages:
    """Images that are altered when they are read.

    Attributes:
        images: The images.
        name: Name of the alteration.
    """

    images: Images
    name: str

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Pixels:
        return alter(self.images[index], self.name)

    def take(self, indices: Rows) -> AlteredImages:
        """Return the images with these indices, in this order."""
        return AlteredImages(self.images.take(indices), self.name)
