"""Fit the projection to content bits: ITQ of the features of the original backbone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .methods.itq import rotated_directions
from .networks.content import ContentProjection as ContentProjection
from .settings import require

ITERATIONS = 50
MOST_IMAGES = 10_000  # more do not change the projection noticeably
IMAGES_PER_BIT = 2  # fewer images would fit the rotation to themselves


def fit_content(
    features: Tensor,
    bits: int,
    seed: int = 0,
    *,
    info: Callable[[str], object] = lambda text: None,
) -> ContentProjection:
    """Fit the projection to content bits, without labels.

    ITQ: the features are centered, projected onto their principal directions, and rotated to
    minimize the quantization error. With too few images the rotation is random.

    Args:
        features: Features of the original backbone (n, d), at least two rows.
        bits: Number of content bits, at most d.
        seed: Seed of the rotation.
        info: Receives a line if there are too few images for ITQ.

    Returns:
        The projection. Its values have unit variance per bit over `features`.

    Raises:
        UsageError: `bits` is not in 1..d, or there are fewer than two images.

    Example:
        >>> features = torch.randn(100, 16, generator=torch.Generator().manual_seed(0))
        >>> projection = fit_content(features, 8, seed=0)
        >>> projection.values(features).var(0, correction=0).sqrt().allclose(torch.ones(8))
        True
    """
    count, width = features.shape
    require(1 <= bits <= width, f"bits must be >= 1 and <= {width}, the features, got {bits}.")
    require(count >= 2, f"Content bits need at least 2 images, got {count}.")
    enough = count >= IMAGES_PER_BIT * bits
    if not enough:
        info(
            f"{count:,} images are too few to fit {bits} content bits by ITQ, which takes "
            f"{IMAGES_PER_BIT * bits:,}: a random rotation of the principal directions is used."
        )
    X = features.detach().cpu().double()
    generator = torch.Generator().manual_seed(seed)
    mean, directions = rotated_directions(X, bits, ITERATIONS if enough else 0, generator)
    spread = ((X - mean) @ directions).std(0, correction=0)
    scale = torch.where(spread > 0, spread, torch.ones_like(spread))
    return ContentProjection(mean, directions, scale)


def content_bits_that_fit(bits: int, features: int) -> int:
    """The largest multiple of 8 that is at most `bits` and at most the number of features.

    >>> content_bits_that_fit(128, 1280), content_bits_that_fit(128, 30)
    (128, 24)
    """
    return min(bits, features) // 8 * 8
