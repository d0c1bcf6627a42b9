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

from ..settings import require


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes network input when it is encoded; stored with the model."""

    side: int = 256  # pixels of the stored square
    size: int = 224  # pixels of the network's input when encoding
    train_size: int = 224  # and in training
    crop: float = 0.875  # the central part of the square that is used, as a share of its side
    fit: Literal["crop", "squash"] = "crop"  # what happens to images that are not square
    mirror: bool = False  # average the features of the image and of its mirror image


@dataclass(frozen=True)
class AugmentSettings:
    """Random changes to training images; the defaults suit fine-tuning on a few thousand images."""

    crop_area: float = 0.5  # random crops keep at least this share of the square
    crop_aspect: float = (
        4 / 3
    )  # and are at most this many times wider than high, or higher than wide
    crop_shift: float = 1.0  # they move from the centre by up to this share of the room there is
    flip: float = 0.5  # probability of a mirror image
    jitter: float = 0.5  # brightness, contrast and saturation change by up to this factor
    mixup: float = 0.0  # Beta parameter of mixing each image with another one; 0 = never

    def __post_init__(self) -> None:
        require(
            0 < self.crop_area <= 1,
            f"crop_area={self.crop_area} is not possible: it is a share, 0 < crop_area <= 1.",
        )
        require(
            self.crop_aspect >= 1,
            f"crop_aspect={self.crop_aspect} is not possible: it must be at least 1.",
        )
        require(
            0 <= self.crop_shift <= 1,
            f"crop_shift={self.crop_shift} is not possible: it is a share, from 0 to 1.",
        )
        require(
            0 <= self.flip <= 1,
            f"flip={self.flip} is not possible: it is a probability, 0 <= flip <= 1.",
        )
        require(
            0 <= self.jitter < 1,
            f"jitter={self.jitter} is not possible: it must be 0 <= jitter < 1.",
        )
        require(self.mixup >= 0, f"mixup={self.mixup} is not possible: it must be at least 0.")


# The 8 columns of an augmentation table: centre and half size of the crop in units where the square is [-1, 1] (a negative half
# width mirrors), factors of brightness, contrast and saturation, and the weight of the image itself when mixed.


def draw(count: int, settings: AugmentSettings, crop: float, generator: torch.Generator) -> Tensor:
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


def center(pixels: Tensor, preprocess: Preprocess) -> Tensor:
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
