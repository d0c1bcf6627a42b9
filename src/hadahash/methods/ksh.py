"""KSH: supervised hashing with kernels (Liu et al., CVPR 2012).

Bits are signs of a linear function of kernel features. They are learned one after the other so that
the inner products of codes approach S0, which is +1 for pairs that share a label and -1 otherwise:
min ||H H^T / K - S0||^2. For each bit the relaxed problem is an eigenproblem. Its solution is
refined on a smooth version of the sign by accelerated gradient descent, and the refined one is kept
only if it is better. The width of the kernel is the mean squared distance to the anchors, as in the
authors' code.

Deviations from the authors:

* S0 depends on the labels alone, so products with it are computed over the distinct label sets, and
  no matrix of images by images is made. Up to 20,000 labelled images are used instead of 2,000.
* 1e-6 I is added to the matrix of the eigenproblem, which may be singular.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..settings import Checked, setting
from .base import METHODS, Task
from .common import share_a_label, sign
from .kernels import KernelMethod


@dataclass(frozen=True)
class KSHSettings(Checked):
    """Settings of KSH."""

    ksh_anchors: int = setting(300, "Number of anchor images of the kernel.", ge=1)
    ksh_images: int = setting(20_000, "Maximum number of labelled images used.", ge=1)
    ksh_refinements: int = setting(500, "Maximum steps of the refinement of a bit.", ge=0)
    ksh_width: float = setting(
        1.0, "Kernel width as a multiple of the mean squared distance to the anchors.", gt=0
    )


@METHODS.register("ksh")
class KSH(KernelMethod):
    """KSH: greedy bits on kernel features."""

    Settings = KSHSettings
    center: Tensor
    directions: Tensor

    def __init__(self, task: Task, settings: KSHSettings) -> None:
        super().__init__(task, settings, anchors=settings.ksh_anchors)
        self.register_buffer("center", torch.zeros(len(self.anchors)))
        self.register_buffer("directions", torch.zeros(len(self.anchors), task.bits))

    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        """Learn the bits one after the other."""
        used = torch.randperm(len(features), generator=generator)[: self.settings.ksh_images]
        features, targets = features[used].float(), targets[used]
        self.fit_kernel(features, width=self.settings.ksh_width, generator=generator)
        kernel = self.kernel_features(features)
        self.center = kernel.mean(0)
        residual = Residual(targets, self.task.bits)
        directions = learn_bits(kernel - self.center, residual, self.task.bits, self.settings)
        self.directions = directions.float()

    def values(self, features: Tensor) -> Tensor:
        """Compute the linear function of the centered kernel features, (n, bits)."""
        return (self.kernel_features(features) - self.center) @ self.directions


class Residual:
    """The matrix R = K S0 - sum of y y^T over the bits y found so far, without its n x n entries.

    Args:
        targets: Float (n, classes).
        bits: Code length K.
    """

    def __init__(self, targets: Tensor, bits: int) -> None:
        label_sets, self.label_set = torch.unique(targets, dim=0, return_inverse=True)
        self.table = bits * (2 * share_a_label(label_sets, label_sets) - 1)
        self.found = torch.zeros(len(targets), 0)

    def __matmul__(self, x: Tensor) -> Tensor:
        """Return R x for x (n,) or (n, m)."""
        sums = torch.zeros(len(self.table), *x.shape[1:], dtype=x.dtype)
        sums.index_add_(0, self.label_set, x)
        found = self.found.to(x.dtype)
        return (self.table.to(x.dtype) @ sums)[self.label_set] - found @ (found.T @ x)

    def remove(self, y: Tensor) -> None:
        """Subtract y y^T for a bit y (n,)."""
        self.found = torch.cat([self.found, y[:, None].to(self.found.dtype)], dim=1)


def learn_bits(kernel: Tensor, residual: Residual, bits: int, settings: KSHSettings) -> Tensor:
    """Learn the directions greedily; the residual shrinks with every bit.

    Args:
        kernel: Centered kernel features (n, anchors).
        residual: The residual, which is updated.
        bits: Number of bits.
        settings: Settings of KSH.

    Returns:
        The directions (anchors, bits).
    """
    directions, relaxed = [], Relaxed(kernel, residual)
    for _ in range(bits):
        start = relaxed.solution()
        refined = refine(kernel, residual, start, settings.ksh_refinements)
        best = max((start, refined), key=lambda a: float(_gain(sign(kernel @ a), residual)))
        bit = sign(kernel @ best)
        residual.remove(bit)
        relaxed.remove(bit)
        directions.append(best)
    return torch.stack(directions, dim=1)


def whitening(kernel: Tensor) -> Tensor:
    """Compute V with V^T (Kl^T Kl + 1e-6 I) V = I, in double precision.

    A smooth kernel is nearly singular: in single precision its smallest directions are noise.

    Args:
        kernel: Centered kernel features Kl (n, anchors).

    Returns:
        V (anchors, anchors), float64.
    """
    exact = kernel.double()
    eye = torch.eye(kernel.shape[1], dtype=torch.float64)
    values, vectors = torch.linalg.eigh(exact.T @ exact + 1e-6 * eye)
    return torch.as_tensor(vectors / values.clamp(min=1e-6).sqrt())


class Relaxed:
    """The relaxed problem of a bit: (Kl^T R Kl) a = lam (Kl^T Kl) a, for the largest lam.

    With whitened features W, a bit y that is removed from R changes W^T R W by a matrix of rank
    one, so no product over all images is needed per bit.

    Args:
        kernel: Centered kernel features Kl (n, anchors).
        residual: The residual R of the first bit.
    """

    def __init__(self, kernel: Tensor, residual: Residual) -> None:
        self._kernel, self._white = kernel, whitening(kernel)
        self._features = kernel.double() @ self._white
        self._matrix = self._features.T @ (residual @ self._features)

    def solution(self) -> Tensor:
        """Return the solution a (anchors,), scaled so that |Kl a|^2 = n."""
        vectors = torch.linalg.eigh(self._matrix).eigenvectors
        a = (self._white @ vectors[:, -1]).to(self._kernel.dtype)
        length = (self._kernel @ a).norm().clamp(min=1e-12)
        return torch.as_tensor(a * (len(self._kernel) ** 0.5 / length))

    def remove(self, y: Tensor) -> None:
        """Subtract y y^T from R for a bit y (n,)."""
        projected = self._features.T @ y.double()
        self._matrix -= torch.outer(projected, projected)


def refine(kernel: Tensor, residual: Residual, start: Tensor, steps: int) -> Tensor:
    """Minimize -y^T R y with y = tanh(Kl a / 2) by Nesterov's method with backtracking.

    Kl a is linear in a, so the values of a step and of its backtracking are combinations of known
    ones: a step takes one product with Kl^T for the slope, and one with Kl.

    Args:
        kernel: Centered kernel features Kl (n, anchors).
        residual: The residual R.
        start: The initial a (anchors,).
        steps: Maximum number of steps.

    Returns:
        The refined a (anchors,).
    """

    def pulled(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.tanh(values / 2)
        pull = residual @ y
        return -(y @ pull), y, pull

    a = before = start
    values = values_before = kernel @ start
    scale, momentum, last = 1.0, 0.0, float(pulled(values)[0])
    for _ in range(steps):
        momentum, previous = (1 + (1 + 4 * momentum**2) ** 0.5) / 2, momentum
        share = (previous - 1) / momentum
        ahead = a + share * (a - before)
        values_ahead = values + share * (values - values_before)
        value, y, pull = pulled(values_ahead)
        slope = -(kernel.T @ (pull * (1 - y.square())))
        values_slope, steepness = kernel @ slope, slope @ slope
        for _ in range(50):
            moved_values = values_ahead - values_slope / scale
            now = pulled(moved_values)[0]
            if now <= value - steepness / (2 * scale):
                break
            scale *= 2
        before, a = a, ahead - slope / scale
        values_before, values = values, moved_values
        if abs(float(now) - last) / len(kernel) <= 1e-2:
            break
        last = float(now)
    return a


def _gain(y: Tensor, residual: Residual) -> Tensor:
    return y @ (residual @ y)
