"""KSH: supervised hashing with kernels (Liu et al., CVPR 2012).

Bits are signs of a linear function of kernel features. They are learned one after the other so that the inner products of
codes come near to S0, +1 for pairs that share a label and -1 for others: min ||H H^T / K - S0||^2. For each bit the relaxed
problem is an eigenproblem; its solution is then refined on a smooth version of the sign by accelerated descent and kept
only if it is better. S0 depends on an image's labels alone, so its products are taken over the different sets of labels and
no matrix of images by images is ever made; so up to 20,000 labelled images are used, where the authors take 2,000. The
kernel's width is the mean squared distance to the anchors, as the authors' code has it, and 1e-6 I is added to the matrix of
the eigenproblem so that it can be solved.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import METHODS, Task
from .common import share_a_label, sign
from .kernels import KernelMethod


@dataclass(frozen=True)
class KSHSettings:
    ksh_anchors: int = 300  # training images that the kernel compares with
    ksh_images: int = 20_000  # labelled images used at most
    ksh_refinements: int = 500  # steps of the refinement at most
    ksh_width: float = 1.0  # of the kernel, times the mean squared distance to the anchors


@METHODS.register("ksh")
class KSH(KernelMethod):
    Settings = KSHSettings
    center: Tensor
    directions: Tensor

    def __init__(self, task: Task, settings: KSHSettings) -> None:
        super().__init__(task, settings, anchors=settings.ksh_anchors)
        self.register_buffer("center", torch.zeros(len(self.anchors)))
        self.register_buffer("directions", torch.zeros(len(self.anchors), task.bits))

    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        used = torch.randperm(len(features), generator=generator)[: self.settings.ksh_images]
        features, targets = features[used].float(), targets[used]
        self.place(features, width=self.settings.ksh_width, generator=generator)
        kernel = self.near(features)
        self.center.copy_(kernel.mean(0))
        residual = Residual(targets, self.task.bits)
        self.directions.copy_(
            learn_bits(kernel - self.center, residual, self.task.bits, self.settings)
        )

    def values(self, features: Tensor) -> Tensor:
        return (self.near(features) - self.center) @ self.directions


class Residual:
    """R = K S0 - the sum of y y^T over the bits y found so far, as something that vectors can be multiplied by."""

    def __init__(self, targets: Tensor, bits: int) -> None:
        kinds, self.kind = torch.unique(
            targets, dim=0, return_inverse=True
        )  # the different sets of labels
        self.table = bits * (2 * share_a_label(kinds, kinds) - 1)
        self.found = torch.zeros(len(targets), 0)

    def __matmul__(self, x: Tensor) -> Tensor:
        """R x for x (n,) or (n, m)"""
        sums = torch.zeros(len(self.table), *x.shape[1:], dtype=x.dtype).index_add_(0, self.kind, x)
        found = self.found.to(x.dtype)
        return (self.table.to(x.dtype) @ sums)[self.kind] - found @ (found.T @ x)

    def remove(self, y: Tensor) -> None:
        self.found = torch.cat([self.found, y[:, None].to(self.found.dtype)], dim=1)


def learn_bits(kernel: Tensor, residual: Residual, bits: int, settings: KSHSettings) -> Tensor:
    """The directions (anchors, bits), greedily; the residual shrinks with every bit."""
    directions, white = [], whitening(kernel)
    for _ in range(bits):
        start = first_guess(kernel, residual, white)
        refined = refine(kernel, residual, start, settings.ksh_refinements)
        best = max((start, refined), key=lambda a: float(_gain(sign(kernel @ a), residual)))
        residual.remove(sign(kernel @ best))
        directions.append(best)
    return torch.stack(directions, dim=1)


def whitening(kernel: Tensor) -> Tensor:
    """V (anchors, anchors) with V^T (Kl^T Kl + 1e-6 I) V = I, in double precision.

    A smooth kernel is nearly singular: in single precision its smallest directions are noise.
    """
    exact = kernel.double()
    values, vectors = torch.linalg.eigh(
        exact.T @ exact + 1e-6 * torch.eye(kernel.shape[1], dtype=torch.float64)
    )
    return torch.as_tensor(vectors / values.clamp(min=1e-6).sqrt())


def first_guess(kernel: Tensor, residual: Residual, white: Tensor) -> Tensor:
    """The largest generalised eigenvector of (Kl^T R Kl) a = lam (Kl^T Kl) a, scaled so that |Kl a|^2 = number of images."""
    exact = kernel.double() @ white
    a = (white @ torch.linalg.eigh(exact.T @ (residual @ exact)).eigenvectors[:, -1]).to(
        kernel.dtype
    )
    scaled: Tensor = a * (len(kernel) ** 0.5 / (kernel @ a).norm().clamp(min=1e-12))
    return scaled


def refine(kernel: Tensor, residual: Residual, start: Tensor, steps: int) -> Tensor:
    """Nesterov's accelerated descent on -y^T R y, y = tanh(Kl a / 2), with a step that is halved until it is safe."""

    def cost(a: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(kernel @ a / 2)
        pull = residual @ y
        return -(y @ pull), -(kernel.T @ (pull * (1 - y.square())))

    a = before = start
    scale, momentum, last = 1.0, 0.0, float(cost(start)[0])
    for _ in range(steps):
        momentum, previous = (1 + (1 + 4 * momentum**2) ** 0.5) / 2, momentum
        ahead = a + (previous - 1) / momentum * (a - before)
        value, slope = cost(ahead)
        for _ in range(50):
            moved = ahead - slope / scale
            change = moved - ahead
            now = cost(moved)[0]
            if now <= value + slope @ change + scale / 2 * (change @ change):
                break
            scale *= 2
        before, a = a, moved
        if abs(float(now) - last) / len(kernel) <= 1e-2:
            break
        last = float(now)
    return a


def _gain(y: Tensor, residual: Residual) -> Tensor:
    return y @ (residual @ y)
