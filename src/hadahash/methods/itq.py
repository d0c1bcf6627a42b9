"""ITQ: iterative quantization (Gong and Lazebnik, CVPR 2011).

The features are centered and projected onto their first K principal directions, V = (X - mean) P.
Then a rotation R is sought that brings V R close to its signs: min ||B - V R||^2, alternating
B = sign(V R) and R from the singular vectors of B^T V. There is no whitening, and labels are not
used. K must be at most the number of features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..projections import ITQSettings
from ..settings import require
from .base import METHODS, ShallowMethod, Task
from .common import sign


@METHODS.register("itq")
class ITQ(ShallowMethod):
    """ITQ: principal directions, rotated to minimize the quantization error."""

    Settings = ITQSettings
    uses_labels = False
    mean: Tensor
    directions: Tensor

    def __init__(self, task: Task, settings: ITQSettings) -> None:
        super().__init__(task, settings)
        require(
            task.bits <= task.features,
            f"bits must be <= {task.features} for itq, the number of features, got {task.bits}. "
            "Use fewer bits, a wider backbone, or lsh.",
        )
        self.register_buffer("mean", torch.zeros(task.features))
        self.register_buffer("directions", torch.zeros(task.features, task.bits))

    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        """Find principal directions and rotation; the targets are not used."""
        iterations = self.settings.itq_iterations
        mean, directions = rotated_directions(features, self.task.bits, iterations, generator)
        self.mean.copy_(mean)
        self.directions.copy_(directions)

    def values(self, features: Tensor) -> Tensor:
        """Compute R^T P^T (x - mean), (n, bits)."""
        return (features - self.mean) @ self.directions


def rotated_directions(
    features: Tensor, bits: int, iterations: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Find the principal directions of features, rotated to minimize the quantization error.

    Args:
        features: Float (n, d).
        bits: Number of directions K, at most d.
        iterations: Updates of the rotation; 0: a random one.
        generator: Source of the initial rotation.

    Returns:
        The mean (d,), and the directions P R (d, K), in float64.
    """
    centered = features.to(torch.float64, copy=True)
    mean = centered.mean(0)
    centered -= mean
    P = torch.linalg.eigh(centered.T @ centered).eigenvectors.flip(1)[:, :bits]
    R = find_rotation(centered @ P, iterations, generator)
    return mean, P @ R


def find_rotation(V: Tensor, iterations: int, generator: torch.Generator) -> Tensor:
    """Start from a random rotation and update it.

    Args:
        V: Projected features (n, K).
        iterations: Number of updates.
        generator: Source of the initial rotation.

    Returns:
        The rotation R (K, K).
    """
    bits = V.shape[1]
    R: Tensor = torch.linalg.svd(torch.randn(bits, bits, dtype=V.dtype, generator=generator)).U
    for _ in range(iterations):
        R = update_rotation(V, R)
    return R


def update_rotation(V: Tensor, R: Tensor) -> Tensor:
    """Return the rotation that brings V closest to the signs of V R; ||B - V R|| never increases.

    Args:
        V: Projected features (n, K).
        R: The current rotation (K, K).

    Returns:
        The next rotation (K, K).
    """
    U, _, Zt = torch.linalg.svd(sign(V @ R).T @ V)
    rotation: Tensor = Zt.T @ U.T
    return rotation
