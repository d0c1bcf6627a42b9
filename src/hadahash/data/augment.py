"""Random augmentation of training images, in whole batches on the device.

The augmentations of an epoch are sampled at once as a table of numbers, from a generator that the
caller seeds. Training can therefore be resumed at any step without saving a random state of the
device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .views import resample

if TYPE_CHECKING:
    from ..config import AugmentConfig

# Columns of the parameters: center x, center y, half width (negative: mirrored) and half height of
# the crop, where the square is [-1, 1]; factors of brightness, contrast and saturation; weight of
# the image itself in mixup. With CutMix also left, right, top and bottom of the part that shows the
# partner, where the image is [0, 1].
_MIXUP, _CUTMIX = 7, 8


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
        float32 (count, 8), or (count, 12) with CutMix: one row of parameters per image, for
        `augment` and `mix_targets`.
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
    weights = _beta_weights(count, config.mixup, generator)
    table = torch.stack([x, y, width, height, *colors, weights], dim=1)
    return _choose_mixing(table, config, generator)


def _choose_mixing(table: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Add the boxes of CutMix, and select the images that are mixed."""
    both = config.mixup > 0 and config.cutmix > 0
    if config.cutmix > 0:
        table = torch.cat([table, _cutmix_boxes(len(table), config.cutmix, generator)], dim=1)
    if both:
        cut = torch.rand(len(table), generator=generator) < 0.5
        table[cut, _MIXUP] = 1
        table[~cut, _CUTMIX:] = 0
    if config.mix_share < 1:
        plain = torch.rand(len(table), generator=generator) >= config.mix_share
        table[plain, _MIXUP] = 1
        table[plain, _CUTMIX:] = 0
    return table


def augment(pixels: Tensor, params: Tensor, size: int) -> Tensor:
    """Crop, mirror, jitter and mix a batch.

    Mixup and CutMix take the partner of each image from the batch in reverse order, as
    `mix_targets` does.

    Args:
        pixels: uint8 (n, 3, side, side).
        params: float32 (n, 8 or 12) of `sample_augmentations`.
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
    weight = params[:, _MIXUP, None, None, None]
    mixed = images * weight + images.flip(0) * (1 - weight)
    if params.shape[1] == _CUTMIX:
        return mixed
    return torch.where(_inside(params[:, _CUTMIX:], size), images.flip(0), mixed)


def own_share(params: Tensor) -> Tensor:
    """Compute how much of each augmented image is the image itself; the rest is its partner.

    Args:
        params: float32 (n, 8 or 12) of `sample_augmentations`.

    Returns:
        (n, 1), the weight of mixup times the area outside the box of CutMix.
    """
    weight = params[:, _MIXUP, None]
    if params.shape[1] == _CUTMIX:
        return weight
    left, right, top, bottom = params[:, _CUTMIX:].unbind(dim=1)
    return weight * (1 - (right - left) * (bottom - top))[:, None]


def mix_targets(targets: Tensor, params: Tensor) -> Tensor:
    """Mix the targets of a batch as `augment` mixes its images.

    Args:
        targets: (n, C).
        params: float32 (n, 8 or 12) of `sample_augmentations`.

    Returns:
        Mixed targets (n, C).
    """
    weight = own_share(params)
    return targets * weight + targets.flip(0) * (1 - weight)


def _inside(boxes: Tensor, size: int) -> Tensor:
    """bool (n, 1, size, size): the pixels whose centers lie in the box."""
    centers = (torch.arange(size, device=boxes.device) + 0.5) / size
    left, right, top, bottom = boxes[:, :, None].unbind(dim=1)
    across = (centers >= left) & (centers < right)
    down = (centers >= top) & (centers < bottom)
    return (down[:, :, None] & across[:, None, :])[:, None]


def _cutmix_boxes(count: int, alpha: float, generator: torch.Generator) -> Tensor:
    """Boxes (count, 4) at random centers, clipped to the image; at most half of its area."""
    half = (1 - _beta_weights(count, alpha, generator)).sqrt() / 2
    x, y = torch.rand(2, count, generator=generator).unbind(dim=0)
    return torch.stack([x - half, x + half, y - half, y + half], dim=1).clamp(0, 1)


def _beta_weights(count: int, alpha: float, generator: torch.Generator) -> Tensor:
    """Beta(alpha, alpha) folded to [1/2, 1], from two gamma variates; 1 when alpha is 0."""
    if alpha == 0:
        return torch.ones(count)
    gammas = torch._standard_gamma(torch.full((2, count), float(alpha)), generator=generator)
    weight: Tensor = gammas[0] / gammas.sum(0).clamp(min=1e-9)
    return torch.maximum(weight, 1 - weight)
