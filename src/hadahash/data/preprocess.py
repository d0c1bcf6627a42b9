"""How images become network input: the settings, and how they are chosen.

Every image is first resized to a square of `side` pixels on the CPU (`squares.shrink_to_square`)
and kept as uint8. The rest is one bilinear resampling on the device: `views.center_view` when
encoding, `augment.augment` when training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ImageError, UsageError
from .base import ArrayImages, FileImages, Images, MemoryImages
from .embeddings import are_embeddings
from .images import image_size
from .remote import RemoteImages

if TYPE_CHECKING:
    from ..config import InputConfig

_CROP = 0.875  # fraction of the side that is used of large photographs
_SAMPLE = 200  # number of images whose size is read


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes network input; stored with the model.

    Attributes:
        side: Side of the stored square in pixels.
        size: Input size of the network in pixels when encoding.
        train_size: Input size in training.
        crop: Central part of the square that encoding uses, as a fraction of its side.
        fit: What happens to images that are not square: cropped or squashed.
        mirror: Whether the features of an image and its mirror image are averaged.
    """

    side: int = 256
    size: int = 224
    train_size: int = 224
    crop: float = _CROP
    fit: Literal["crop", "squash"] = "crop"
    mirror: bool = False


def choose_preprocess(images: Images, backbone_size: int, config: InputConfig) -> Preprocess:
    """Choose how images reach the network.

    Photographs larger than the input are stored a little larger and cropped; small images are not
    cropped.

    Args:
        images: The training images; the sizes of a sample of them are read.
        backbone_size: Input size that the backbone was made for.
        config: User settings; fields that are None are derived.

    Returns:
        The preprocessing.

    Raises:
        UsageError: The sizes are too small for any network.
    """
    if are_embeddings(images):
        return Preprocess()  # not used
    train_size = backbone_size if config.size is None else config.size
    size = train_size if config.encode_size is None else config.encode_size
    full_side = round(size / _CROP)
    side = min(full_side, _typical_side(images)) if config.side is None else config.side
    crop = (_CROP if side >= full_side else 1.0) if config.crop is None else config.crop
    if size < 8 or side < 4:
        raise UsageError(f"size must be >= 8 and side >= 4, got size={size} and side={side}.")
    return Preprocess(side, size, train_size, crop, config.fit, config.mirror)


def center_array(pixels: NDArray[np.uint8], preprocess: Preprocess) -> NDArray[np.float32]:
    """Resample the central part of each square, as `views.center_view` does, without torch.

    Args:
        pixels: uint8 (n, 3, side, side).
        preprocess: Part of the square and size of the result.

    Returns:
        float32 (n, 3, size, size) in [0, 255].
    """
    low, high, weight = _samples(preprocess)
    if np.allclose(weight, weight.round(), atol=1e-4):  # a plain crop
        rows = low + weight.round().astype(np.int64)
        inner = slice(int(rows[0]), int(rows[-1]) + 1)
        return pixels[:, :, inner, inner].astype(np.float32)
    view, w = pixels.astype(np.float32), weight.astype(np.float32)
    view = view.take(low, 2) * (1 - w[:, None]) + view.take(high, 2) * w[:, None]
    return view.take(low, 3) * (1 - w) + view.take(high, 3) * w


def view_matrix(preprocess: Preprocess) -> NDArray[np.float64]:
    """The weights of bilinear sampling of the center of a square, along one axis.

    Args:
        preprocess: Part of the square and size of the result.

    Returns:
        float64 (size, side). Rows sum to 1.
    """
    low, high, weight = _samples(preprocess)
    matrix = np.zeros((preprocess.size, preprocess.side))
    rows = np.arange(preprocess.size)
    matrix[rows, low] = 1 - weight
    matrix[rows, high] += weight
    return matrix


def _samples(
    preprocess: Preprocess,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The two pixels of the square for each pixel of the view, and the weight of the second."""
    side, size, crop = preprocess.side, preprocess.size, preprocess.crop
    places = ((2 * np.arange(size) + 1) / size - 1) * crop  # in [-1, 1], centers of pixels
    places = ((places + 1) * side - 1) / 2
    places = np.clip(places, 0, side - 1)  # reflected at the border, which is between two pixels
    low = np.minimum(np.floor(places).astype(np.int64), max(side - 2, 0))
    return low, np.minimum(low + 1, side - 1), places - low


def _typical_side(images: Images) -> int:
    """The median short side of a sample of the images."""
    if isinstance(images, ArrayImages):
        return int(min(images.pixels.shape[1:3]))
    sides = list(_short_sides(images, range(0, len(images), max(1, len(images) // _SAMPLE))))
    return int(np.median(sides)) if sides else 256


def _short_sides(images: Images, rows: Iterable[int]) -> Iterable[int]:
    for row in rows:
        try:
            item = images.items[row] if isinstance(images, MemoryImages) else None
            if isinstance(images, FileImages):
                yield min(image_size(images.paths[row]))
            elif isinstance(images, RemoteImages):
                yield min(images.image_size(row))
            elif isinstance(item, bytes):
                yield min(image_size(item))
            else:
                yield min(images[row].shape[:2])
        except ImageError:
            continue
