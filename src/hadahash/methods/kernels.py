"""The kernel features of KSH and SDH: how near an image is to each of some training images, the anchors."""

from __future__ import annotations

import torch
from torch import Tensor


def choose_anchors(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` training images drawn without repetition; all of them if there are fewer."""
    return features[torch.randperm(len(features), generator=generator)[:count]]


def squared_distances(features: Tensor, anchors: Tensor) -> Tensor:
    return torch.cdist(features, anchors).square()


def gaussian(features: Tensor, anchors: Tensor, width: Tensor) -> Tensor:
    """exp(-||x - a||^2 / (2 width)), (n, anchors); `width` is a mean of squared distances."""
    return torch.exp(-squared_distances(features, anchors) / (2 * width))
