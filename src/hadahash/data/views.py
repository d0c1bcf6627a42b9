"""From stored squares to network input, in whole batches on the device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from .preprocess import Preprocess


def center_view(pixels: Tensor, preprocess: Preprocess) -> Tensor:
    """Resample the central part of each square, as encoding does.

    Args:
        pixels: uint8 (n, 3, side, side).
        preprocess: Part of the square and size of the result.

    Returns:
        float32 (n, 3, size, size) in [0, 255].
    """
    if preprocess.crop == 1.0 and pixels.shape[-1] == preprocess.size:
        return pixels.float()
    box = torch.tensor([0.0, 0.0, preprocess.crop, preprocess.crop], device=pixels.device)
    return resample(pixels, box.expand(len(pixels), 4), preprocess.size)


def resample(pixels: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Resample one box of each image, bilinearly.

    Args:
        pixels: uint8 (n, 3, side, side).
        boxes: float32 (n, 4): center x, center y, half width and half height, in units where the
            square is [-1, 1]. A negative half width mirrors.
        size: Side of the result in pixels.

    Returns:
        float32 (n, 3, size, size) in [0, 255].
    """
    x, y, half_width, half_height = boxes.unbind(dim=1)
    zero = torch.zeros_like(x)
    theta = torch.stack([half_width, zero, x, zero, half_height, y], dim=1).view(-1, 2, 3)
    grid = F.affine_grid(theta, [len(pixels), 3, size, size], align_corners=False)
    return F.grid_sample(
        pixels.float(), grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )
