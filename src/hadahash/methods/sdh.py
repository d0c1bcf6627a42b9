"""SDH: supervised discrete hashing (Shen et al., CVPR 2015).

min ||Y - W^T B||^2 + lam ||W||^2 + nu ||B - F(X)||^2 over codes B of +-1, a classifier W and the
hash function F = P^T phi(x), where phi are kernel features of 1,000 anchors and a constant. W and P
are ridge solutions; B is solved bit by bit (discrete cyclic coordinate descent). New images are
encoded by F alone. P is solved with a ridge of .01, as in the authors' code.

Deviation: the width of the kernel is the mean squared distance to the anchors instead of the
authors' fixed .4, which fits only features of their scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..settings import Checked, setting
from .base import METHODS, Task
from .common import sign
from .kernels import KernelMethod


@dataclass(frozen=True)
class SDHSettings(Checked):
    """Settings of SDH."""

    sdh_anchors: int = setting(1000, "Number of anchor images of the kernel.", ge=1)
    sdh_iterations: int = setting(5, "Alternating updates of W, B and P.", ge=0)
    sdh_sweeps: int = setting(10, "Maximum sweeps over all bits per update of B.", ge=1)
    sdh_lam: float = setting(1.0, "Weight of ||W||^2.", gt=0)
    sdh_nu: float = setting(1e-5, "Weight of the distance of codes and hash function.", ge=0)
    sdh_width: float = setting(
        1.0, "Kernel width as a multiple of the mean squared distance to the anchors.", gt=0
    )


@METHODS.register("sdh")
class SDH(KernelMethod):
    """SDH: discrete codes, a linear classifier on them, and a kernel hash function."""

    Settings = SDHSettings
    directions: Tensor

    def __init__(self, task: Task, settings: SDHSettings) -> None:
        super().__init__(task, settings, anchors=settings.sdh_anchors)
        self.register_buffer("directions", torch.zeros(len(self.anchors) + 1, task.bits))

    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        """Alternate the updates of W, B and P."""
        settings = self.settings
        self.fit_kernel(features.float(), width=settings.sdh_width, generator=generator)
        phi, Y = self.phi(features).double(), targets.double()
        B = sign(torch.randn(len(phi), self.task.bits, generator=generator, dtype=torch.float64))
        hash_function = RidgeSolver(phi, 1e-2)
        P = hash_function.solve(B)
        for _ in range(settings.sdh_iterations):
            W = RidgeSolver(B, settings.sdh_lam).solve(Y)
            B = solve_codes(B, W, Y @ W.T + settings.sdh_nu * (phi @ P), settings.sdh_sweeps)
            P = hash_function.solve(B)
        self.directions = P.float()

    def phi(self, features: Tensor) -> Tensor:
        """Compute kernel features and a constant, (n, anchors + 1)."""
        kernel = self.kernel_features(features)
        return torch.cat([kernel, kernel.new_ones(len(kernel), 1)], dim=1)

    def values(self, features: Tensor) -> Tensor:
        """Compute P^T phi(x), (n, bits)."""
        return self.phi(features) @ self.directions


class RidgeSolver:
    """Solves ridge regressions on the same inputs; the inputs are factorized once.

    Args:
        X: Inputs (n, d).
        weight: Weight of the ridge.
    """

    def __init__(self, X: Tensor, weight: float) -> None:
        self.X = X
        eye = torch.eye(X.shape[1], dtype=X.dtype, device=X.device)
        self.factor = torch.linalg.cholesky(X.T @ X + weight * eye)

    def solve(self, Y: Tensor) -> Tensor:
        """Return (X^T X + weight I)^-1 X^T Y, (d, m), for targets Y (n, m)."""
        return self.solve_product(self.X.T @ Y)

    def solve_product(self, product: Tensor) -> Tensor:
        """Return (X^T X + weight I)^-1 product, for product = X^T Y (d, m)."""
        return torch.cholesky_solve(product, self.factor)


def solve_codes(B: Tensor, W: Tensor, Q: Tensor, sweeps: int) -> Tensor:
    """Minimize ||Y - B W||^2 - 2 tr(B^T Q') over B of +-1, bit by bit.

    The update of bit k is b_k = sign(q_k - B_-k W_-k w_k). A value of exactly 0 leaves the bit as
    it is, so that no sweep increases the objective.

    Args:
        B: The current codes (n, K).
        W: The classifier (K, classes).
        Q: (n, K), Y W^T plus the linear term Q' of the objective.
        sweeps: Maximum number of sweeps over all bits.

    Returns:
        The new codes (n, K).
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
