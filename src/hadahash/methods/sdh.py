"""SDH: supervised discrete hashing (Shen et al., CVPR 2015).

min ||Y - W^T B||^2 + lam ||W||^2 + nu ||B - F(X)||^2 over codes B of +-1, a classifier W and the hash function F = P^T
phi(x), where phi are kernel features of 1,000 anchors and a constant. W and P are ridge solutions; B is solved bit by bit
(discrete cyclic coordinate descent). New images are coded by F alone. P is solved with a ridge of .01, as the authors' code
has it. The kernel's width is the mean squared distance to the anchors instead of the authors' fixed .4, which fits only
features scaled as theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import METHODS, Task
from .common import sign
from .kernels import KernelMethod


@dataclass(frozen=True)
class SDHSettings:
    sdh_anchors: int = 1000  # training images that the kernel compares with
    sdh_iterations: int = 5  # turns of W, B and P
    sdh_sweeps: int = 10  # over all bits in each turn
    sdh_lam: float = 1.0  # weight of ||W||^2
    sdh_nu: float = 1e-5  # weight of the distance between codes and hash function
    sdh_width: float = 1.0  # of the kernel, times the mean squared distance to the anchors


@METHODS.register("sdh")
class SDH(KernelMethod):
    Settings = SDHSettings
    directions: Tensor

    def __init__(self, task: Task, settings: SDHSettings) -> None:
        super().__init__(task, settings, anchors=settings.sdh_anchors)
        self.register_buffer("directions", torch.zeros(len(self.anchors) + 1, task.bits))

    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        self.place(features.float(), width=self.settings.sdh_width, generator=generator)
        phi, Y = self.kernel(features).double(), targets.double()
        B = sign(torch.randn(len(phi), self.task.bits, generator=generator, dtype=torch.float64))
        hash_function = RidgeSolver(phi, 1e-2)
        P = hash_function.solve(B)
        for _ in range(self.settings.sdh_iterations):
            W = RidgeSolver(B, self.settings.sdh_lam).solve(Y)
            B = solve_codes(
                B, W, Y @ W.T + self.settings.sdh_nu * (phi @ P), self.settings.sdh_sweeps
            )
            P = hash_function.solve(B)
        self.directions.copy_(P)

    def kernel(self, features: Tensor) -> Tensor:
        near = self.near(features)
        return torch.cat([near, torch.ones(len(near), 1, device=near.device)], dim=1)

    def values(self, features: Tensor) -> Tensor:
        return self.kernel(features) @ self.directions


class RidgeSolver:
    """RidgeSolver(X, weight).solve(Y) = (X^T X + weight I)^-1 X^T Y; the factors of X are computed once."""

    def __init__(self, X: Tensor, weight: float) -> None:
        self.X = X
        eye = torch.eye(X.shape[1], dtype=X.dtype, device=X.device)
        self.factor = torch.linalg.cholesky(X.T @ X + weight * eye)

    def solve(self, Y: Tensor) -> Tensor:
        return torch.cholesky_solve(self.X.T @ Y, self.factor)


def solve_codes(B: Tensor, W: Tensor, Q: Tensor, sweeps: int) -> Tensor:
    """min ||Y - B W||^2 - 2 tr(B^T Q') over B of +-1, bit by bit: b_k = sign(q_k - B_-k W_-k w_k), where Q (n, K) = Y W^T + ...

    A value of exactly 0 leaves the bit as it is, so no sweep ever raises the objective.
    """
    B = B.clone()
    G = W @ W.T  # (K, K)
    for _ in range(sweeps):
        before = B.clone()
        for k in range(B.shape[1]):
            pull = Q[:, k] - B @ G[:, k] + B[:, k] * G[k, k]
            B[:, k] = torch.where(pull == 0, B[:, k], sign(pull))
        if torch.equal(B, before):
            break
    return B
