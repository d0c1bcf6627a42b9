"""Kernel features of KSH and SDH: the similarity of an image to each of some training images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .base import ShallowMethod, Task


class KernelMethod(ShallowMethod):
    """Base class of methods on kernel features: Gaussian similarities to anchor images.

    Args:
        task: The sizes to build for.
        settings: The settings of the method.
        anchors: Number of anchors; all training images if there are fewer.
    """

    anchors: Tensor
    width: Tensor

    def __init__(self, task: Task, settings: Any, *, anchors: int) -> None:
        super().__init__(task, settings)
        self.register_buffer("anchors", torch.zeros(min(anchors, task.train_images), task.features))
        self.register_buffer("width", torch.ones(()))

    def fit_kernel(self, features: Tensor, *, width: float, generator: torch.Generator) -> None:
        """Draw the anchors and set the width of the kernel.

        Args:
            features: Float (n, d), of the training images.
            width: Width as a multiple of the mean squared distance to the anchors.
            generator: Source of the draw.
        """
        # Fewer than expected if some images could not be read.
        self.anchors = choose_anchors(features, len(self.anchors), generator).clone()
        self.width.copy_(width * squared_distances(features, self.anchors).mean().clamp(min=1e-12))

    def kernel_features(self, features: Tensor) -> Tensor:
        """Compute the kernel features (n, anchors)."""
        return gaussian(features.float(), self.anchors, self.width)


def choose_anchors(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` rows without repetition, or all rows if there are fewer.

    Args:
        features: Float (n, d).
        count: Number of rows.
        generator: Source of the draw.

    Returns:
        Float (min(count, n), d).
    """
    return features[torch.randperm(len(features), generator=generator)[:count]]


def squared_distances(features: Tensor, anchors: Tensor) -> Tensor:
    """Compute squared Euclidean distances (n, m) of features (n, d) to anchors (m, d)."""
    return torch.cdist(features, anchors).square()


def gaussian(features: Tensor, anchors: Tensor, width: Tensor) -> Tensor:
    """Compute exp(-||x - a||^2 / (2 width)).

    Args:
        features: Float (n, d).
        anchors: Float (m, d).
        width: Scalar, a mean of squared distances.

    Returns:
        Float (n, m).
    """
    return torch.exp(-squared_distances(features, anchors) / (2 * width))
