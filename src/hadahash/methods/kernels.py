"""The kernel features of KSH and SDH: how near an image is to each of some training images, the anchors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .base import ShallowMethod, Task


class KernelMethod(ShallowMethod):
    """A method that sees of an image only how near it is to its anchors."""

    anchors: Tensor
    width: Tensor

    def __init__(self, task: Task, settings: Any, *, anchors: int) -> None:
        super().__init__(task, settings)
        self.register_buffer("anchors", torch.zeros(min(anchors, task.train_images), task.features))
        self.register_buffer("width", torch.ones(()))

    def place(self, features: Tensor, *, width: float, generator: torch.Generator) -> None:
        """Draw the anchors from the training images, and make the kernel `width` times their mean squared distance wide."""
        anchors = choose_anchors(features, len(self.anchors), generator)
        self.anchors[: len(anchors)].copy_(anchors)
        self.width.copy_(width * squared_distances(features, self.anchors).mean().clamp(min=1e-12))

    def near(self, features: Tensor) -> Tensor:
        """The kernel features (n, anchors)."""
        return gaussian(features.float(), self.anchors, self.width)


def choose_anchors(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` training images drawn without repetition; all of them if there are fewer."""
    return features[torch.randperm(len(features), generator=generator)[:count]]


def squared_distances(features: Tensor, anchors: Tensor) -> Tensor:
    return torch.cdist(features, anchors).square()


def gaussian(features: Tensor, anchors: Tensor, width: Tensor) -> Tensor:
    """exp(-||x - a||^2 / (2 width)), (n, anchors); `width` is a mean of squared distances."""
    return torch.exp(-squared_distances(features, anchors) / (2 * width))
