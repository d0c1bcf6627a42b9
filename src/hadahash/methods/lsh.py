"""LSH: random projections (Charikar 2002), the baseline that learns nothing.

b = sign(W^T (x - mean) / |x - mean|), W Gaussian. Features of a ReLU network are not negative, so without centring almost
all bits would agree; the mean is the training set's. The norm does not change a sign and is left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .base import METHODS, NoSettings, ShallowMethod, Task


@METHODS.register("lsh")
class LSH(ShallowMethod):
    mean: Tensor
    directions: Tensor

    def __init__(self, task: Task, settings: NoSettings) -> None:
        super().__init__(task, settings)
        self.register_buffer("mean", torch.zeros(task.features))
        self.register_buffer("directions", torch.zeros(task.features, task.bits))

    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        self.mean.copy_(features.mean(0))
        self.directions.copy_(torch.randn(self.directions.shape, generator=generator))

    def values(self, features: Tensor) -> Tensor:
        return (features - self.mean) @ self.directions
