"""ITQ: iterative quantisation (Gong and Lazebnik, CVPR 2011).

The features are centred and projected on their K first principal directions, V = (X - mean) P; then a rotation R is found
that brings V R near to its signs: min ||B - V R||^2 by turns, B = sign(V R) and R from the singular vectors of B^T V. There
is no whitening, and labels are not used. Needs K <= number of features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..settings import require
from .base import METHODS, ShallowMethod, Task
from .common import sign


@dataclass(frozen=True)
class ITQSettings:
    itq_iterations: int = 50  # turns of codes and rotation


@METHODS.register("itq")
class ITQ(ShallowMethod):
    Settings = ITQSettings
    mean: Tensor
    directions: Tensor

    def __init__(self, task: Task, settings: ITQSettings) -> None:
        super().__init__(task, settings)
        require(
            task.bits <= task.features,
            f"itq takes one bit from each direction: {task.bits} bits need at least as many features, "
            f"got {task.features}. Use fewer bits or a wider backbone.",
        )
        self.register_buffer("mean", torch.zeros(task.features))
        self.register_buffer("directions", torch.zeros(task.features, task.bits))

    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        X = features.double()
        mean = X.mean(0)
        centred = X - mean
        P = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, : self.task.bits]
        R = rotate(centred @ P, self.settings.itq_iterations, generator)
        self.mean.copy_(mean)
        self.directions.copy_(P @ R)

    def values(self, features: Tensor) -> Tensor:
        return (features - self.mean) @ self.directions


def rotate(V: Tensor, iterations: int, generator: torch.Generator) -> Tensor:
    """The rotation R (K, K) after so many turns, from a random one."""
    bits = V.shape[1]
    R: Tensor = torch.linalg.svd(torch.randn(bits, bits, dtype=V.dtype, generator=generator)).U
    for _ in range(iterations):
        R = turn(V, R)
    return R


def turn(V: Tensor, R: Tensor) -> Tensor:
    """One turn: the rotation nearest to taking V to the signs of V R; ||B - V R|| never rises by it."""
    U, _, Zt = torch.linalg.svd(sign(V @ R).T @ V)
    turned: Tensor = Zt.T @ U.T
    return turned
