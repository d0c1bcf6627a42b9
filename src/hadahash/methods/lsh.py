"""LSH: random projections (Charikar 2002), the baseline that learns nothing.

b = sign(W^T (x - mean) / |x - mean|) with a Gaussian matrix W. The features of a ReLU network are
not negative, so without centering almost all bits would agree; the mean is that of the training
images. The norm does not change a sign and is left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .base import METHODS, NoSettings, ShallowMethod, Task


@METHODS.register("lsh")
class LSH(ShallowMethod):
    """LSH: signs of random projections of centered features."""

    uses_labels = False
    mean: Tensor
    directions: Tensor

    def __init__(self, task: Task, settings: NoSettings) -> None:
        super().__init__(task, settings)
        self.register_buffer("mean", torch.zeros(task.features))
        self.register_buffer("directions", torch.zeros(task.features, task.bits))

    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        """Compute the mean and draw the projections; the targets are not used."""
        self.mean.copy_(features.mean(0))
        self.directions.copy_(torch.randn(self.directions.shape, generator=generator))

    def values(self, features: Tensor) -> Tensor:
        """Compute W^T (x - mean), (n, bits)."""
        return (features - self.mean) @ self.directions
