"""What a hashing method is: a module that turns features into real values whose signs are the code.

A deep method learns by gradient: the training loop sums the named parts of its `loss`. A shallow method learns in one go
from features. Both are found by name in the registry `METHODS`, so a new one costs one file and one import line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..registry import Registry


@dataclass(frozen=True)
class Task:
    """What a method is asked to do."""

    bits: int
    classes: int
    features: int  # width of the backbone's output
    multilabel: bool = False
    train_images: int = 0
    seed: int = 0


@dataclass(frozen=True)
class NoSettings:
    """A method without settings of its own."""


@dataclass(frozen=True)
class Batch:
    """One training batch as a method sees it."""

    features: Tensor  # (n, d)
    targets: Tensor  # float (n, classes): one-hot, multi-hot, or a mixture of them
    indices: Tensor  # int64 (n,): which training images these are


class Method(nn.Module, ABC):
    """The contract of all methods. `values` is the only thing that encoding needs."""

    Settings: ClassVar[type[Any]] = NoSettings

    def __init__(self, task: Task, settings: Any) -> None:
        super().__init__()
        self.task, self.settings = task, settings

    @abstractmethod
    def values(self, features: Tensor) -> Tensor:
        """features (n, d) to real values (n, bits); a bit is 1 where its value is >= 0"""

    def relaxed(self, values: Tensor) -> Tensor:
        """The values (n, bits) as the loss sees them, where it puts a tanh or the like around them: the code before sign."""
        return values


class DeepMethod(Method):
    """Learns by gradient, together with the backbone or alone on its features.

    `loss` must be free of data-dependent control flow and of `.item()`, since the loop may record it as a CUDA graph.
    """

    @abstractmethod
    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The named parts of the loss, weighted; training minimises their sum."""

    def before_step(self, step: int, steps: int) -> None:
        """Called before each of `steps` training steps; for schedules such as HashNet's continuation."""


class ShallowMethod(Method):
    """Learns in one go from the features and targets of all training images."""

    @abstractmethod
    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        """features (n, d), targets float (n, classes)"""


METHODS: Registry[type[Method]] = Registry("method")
