"""From stored pixels to what the network sees, in whole batches on the device.

Every image is first brought to one square of `side` pixels on the CPU (`images.shrink_to_square`) and kept as uint8; all else
happens here, in one resampling: the square is cropped, mirrored and scaled to the network's input by a single affine grid.
The augmentation of an epoch is drawn at once as one table of numbers, from a generator that the caller seeds, so training
can be resumed at any step and needs no random state of its own on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ..config import AugmentConfig, InputConfig
from ..errors import ImageError
from .base import ArrayImages, Images
from .images import image_size


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes network input when it is encoded; stored with the model."""

    side: int = 256  # pixels of the stored square
    size: int = 224  # pixels of the network's input when encoding
    train_size: int = 224  # and in training
    crop: float = 0.875  # the central part of the square that is used, as a share of its side
    fit: Literal["crop", "squash"] = "crop"  # what happens to images that are not square
    mirror: bool = False  # average the features of the image and of its mirror image


# The 8 columns of an augmentation table: centre and half size of the crop in units where the square is [-1, 1] (a negative half
# width mirrors), factors of brightness, contrast and saturation, and the weight of the image itself when mixed.


def sample_augmentations(
    count: int, settings: AugmentConfig, crop: float, generator: torch.Generator
) -> Tensor:
    """Draw augmentations for `count` images: float32 (count, 8). `crop` is the part of the square that counts as whole."""

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(count, generator=generator) * (high - low) + low

    area = uniform(settings.crop_area, 1.0)
    log_aspect = torch.tensor(settings.crop_aspect).log().item()
    root = area.sqrt()
    stretch = (
        (uniform(-log_aspect, log_aspect) / 2).exp().clamp(min=root, max=1 / root)
    )  # no side beyond the square's
    wide, high = root * stretch * crop, root / stretch * crop
    shift = settings.crop_shift
    across, down = uniform(-shift, shift) * (1 - wide), uniform(-shift, shift) * (1 - high)
    wide = torch.where(uniform(0, 1) < settings.flip, -wide, wide)
    colours = [uniform(1 - settings.jitter, 1 + settings.jitter) for _ in range(3)]
    return torch.stack(
        [across, down, wide, high, *colours, _mix_weights(count, settings.mixup, generator)], dim=1
    )


def _mix_weights(count: int, alpha: float, generator: torch.Generator) -> Tensor:
    """Beta(alpha, alpha) folded to [1/2, 1], from two gammas; 1 when alpha is 0."""
    if alpha == 0:
        return torch.ones(count)
    gammas = torch._standard_gamma(torch.full((2, count), float(alpha)), generator=generator)
    weight: Tensor = gammas[0] / gammas.sum(0).clamp(min=1e-9)
    return torch.maximum(weight, 1 - weight)


def augment(pixels: Tensor, table: Tensor, size: int) -> Tensor:
    """uint8 (n, 3, side, side) to float32 (n, 3, size, size) in 0..255, changed as the rows of `table` say.

    Mixing takes each image's partner from the batch in reverse order; `mix_targets` does the same to the targets.
    """
    images = _sample(pixels, table[:, :4], size)
    brightness, contrast, saturation = (table[:, 4 + i, None, None, None] for i in range(3))
    images = images * brightness
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = (images - mean) * contrast + mean
    grey = images.mean(dim=1, keepdim=True)
    images = ((images - grey) * saturation + grey).clamp(0, 255)
    weight = table[:, 7, None, None, None]
    return images * weight + images.flip(0) * (1 - weight)


def mix_targets(targets: Tensor, table: Tensor) -> Tensor:
    weight = table[:, 7, None]
    return targets * weight + targets.flip(0) * (1 - weight)


def center_view(pixels: Tensor, preprocess: Preprocess) -> Tensor:
    """uint8 (n, 3, side, side) to float32 (n, 3, size, size): the plain central view that encoding uses."""
    if preprocess.crop == 1.0 and pixels.shape[-1] == preprocess.size:
        return pixels.float()
    box = torch.tensor([0.0, 0.0, preprocess.crop, preprocess.crop], device=pixels.device)
    return _sample(pixels, box.expand(len(pixels), 4), preprocess.size)


def _sample(pixels: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Resample a box (centre x, centre y, half width, half height) of each image to size x size, bilinear."""
    across, down, wide, high = boxes.unbind(dim=1)
    zero = torch.zeros_like(wide)
    theta = torch.stack([wide, zero, across, zero, high, down], dim=1).view(-1, 2, 3)
    grid = F.affine_grid(theta, [len(pixels), 3, size, size], align_corners=False)
    return F.grid_sample(
        pixels.float(), grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )


def choose_preprocess(images: Images, backbone_size: int, config: InputConfig) -> Preprocess:
    """Photos larger than the input are stored a little larger and cropped; small ones are used whole."""
    train_size = config.size or backbone_size
    size = config.encode_size or train_size
    wanted = round(size / 0.875)
    side = config.side or min(wanted, _typical_side(images))
    crop = config.crop or (0.875 if side >= wanted else 1.0)
    return Preprocess(
        side=side, size=size, train_size=train_size, crop=crop, fit=config.fit, mirror=config.mirror
    )


def _typical_side(images: Images) -> int:
    """The median short side of a sample of the images."""
    import numpy as np

    if isinstance(images, ArrayImages):
        return int(min(images.pixels.shape[1:3]))
    sides = []
    for path in getattr(images, "paths", [])[:: max(1, len(images) // 200)]:
        try:
            sides.append(min(image_size(path)))
        except ImageError:
            continue
    return int(np.median(sides)) if sides else 256
