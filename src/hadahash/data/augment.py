"""Random augmentation of training images, in whole batches on the device.

The augmentations of an epoch are sampled at once as a table of numbers, from a generator that the
caller seeds. Training can therefore be resumed at any step without saving a random state of the
device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .preprocess import resample

if TYPE_CHECKING:
    from ..config import AugmentConfig

# Columns of the parameters: center x, center y, half width (negative: mirrored) and half height of
# the crop, where the square is [-1, 1]; factors of brightness, contrast and saturation; weight of
# the image itself in mixup.


def sample_augmentations(
    count: int, config: AugmentConfig, crop: float, generator: torch.Generator
) -> Tensor:
    """Sample the augmentations of some images.

    Args:
        count: Number of images.
        config: Ranges of the random changes.
        crop: Central part of the square that counts as the whole image, as a fraction of its side.
        generator: Source of randomness, on the CPU.

    Returns:
        float32 (count, 8), one row of parameters per image, for `augment` and `mix_targets`.
    """

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(count, generator=generator) * (high - low) + low

    root = uniform(config.crop_area, 1.0).sqrt()
    log_aspect = torch.tensor(config.crop_aspect).log().item()
    stretch = (uniform(-log_aspect, log_aspect) / 2).exp()
    stretch = stretch.clamp(min=root, max=1 / root)  # no side longer than that of the square
    width, height = root * stretch * crop, root / stretch * crop
    shift = config.crop_shift
    x, y = uniform(-shift, shift) * (1 - width), uniform(-shift, shift) * (1 - height)
    width = torch.where(uniform(0, 1) < config.flip, -width, width)
    colors = [uniform(1 - config.jitter, 1 + config.jitter) for _ in range(3)]
    weights = _mixup_weights(count, config.mixup, generator)
    return torch.stack([x, y, width, height, *colors, weights], dim=1)


def augment(pixels: Tensor, params: Tensor, size: int) -> Tensor:
    """Crop, mirror, jitter and mix a batch.

    Mixup takes the partner of each image from the batch in reverse order, as `mix_targets` does.

    Args:
        pixels: uint8 (n, 3, side, side).
        params: float32 (n, 8) of `sample_augmentations`.
        size: Side of the result in pixels.

    Returns:
        float32 (n, 3, size, size) in [0, 255].
    """
    images = resample(pixels, params[:, :4], size)
    brightness, contrast, saturation = (params[:, 4 + i, None, None, None] for i in range(3))
    images = images * brightness
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = (images - mean) * contrast + mean
    gray = images.mean(dim=1, keepdim=True)
    images = ((images - gray) * saturation + gray).clamp(0, 255)
    weight = params[:, 7, None, None, None]
    return images * weight + images.flip(0) * (1 - weight)


def mix_targets(targets: Tensor, params: Tensor) -> Tensor:
    """Mix the targets of a batch as `augment` mixes its images.

    Args:
        targets: (n, C).
        params: float32 (n, 8) of `sample_augmentations`.

    Returns:
        Mixed targets (n, C).
    """
    weight = params[:, 7, None]
    return targets * weight + targets.flip(0) * (1 - weight)


def _mixup_weights(count: int, alpha: float, generator: torch.Generator) -> Tensor:
    """Beta(alpha, alpha) folded to [1/2, 1], from two gamma variates; 1 when alpha is 0."""
    if alpha == 0:
        return torch.ones(count)
    gammas = torch._standard_gamma(torch.full((2, count), float(alpha)), generator=generator)
    weight: Tensor = gammas[0] / gammas.sum(0).clamp(min=1e-9)
    return torch.maximum(weight, 1 - weight)
