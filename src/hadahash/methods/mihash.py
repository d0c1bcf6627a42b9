"""MIHash: hashing with mutual information (Cakir, He, Bargal and Sclaroff, TPAMI 2019).

For each image of a batch as anchor, the distances to the others are put into soft histograms, one of those that share a
label and one of the rest; the mutual information between distance and similarity, H(D) - P+ H(D|+) - P- H(D|-), is
maximised. phi = tanh(a u / 2), d = (K - phi_i . phi_j) / 2, bins at l K / n, l = 0..n, with a triangular kernel. The anchor
itself is left out of both. Anchors without a positive or without a negative count for nothing. The loss is minus the mean
over anchors, in bits.

Where this differs from the authors: their default is n = K / 2 bins; here n = 16 whatever K, as in their own runs on
NUS-WIDE and ImageNet-100 (they took 12 and 32 on CIFAR-10), so that a bin holds as many pairs of a batch at every K and the
histograms, batch x batch x (n + 1) numbers, do not grow with it. The two agree at 32 bits. `mihash_bins` sets another n. The
slope a = 5 lies between their 1 and 30, which they choose for each data set.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..settings import require
from .base import METHODS, Batch, DeepMethod, Task
from .common import products, share_a_label


@dataclass(frozen=True)
class MIHashSettings:
    mihash_bins: int = 16  # n; the authors' default is half the bits
    mihash_slope: float = 5.0  # a in tanh(a u / 2); the authors use 1 to 30

    def __post_init__(self) -> None:
        require(
            self.mihash_bins >= 1,
            f"mihash_bins={self.mihash_bins} is not possible: a histogram has at least 1 step.",
        )


@METHODS.register("mihash")
class MIHash(DeepMethod):
    Settings = MIHashSettings
    centers: Tensor

    def __init__(self, task: Task, settings: MIHashSettings) -> None:
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits)
        self.register_buffer("centers", torch.linspace(0, task.bits, settings.mihash_bins + 1))

    def values(self, features: Tensor) -> Tensor:
        values: Tensor = self.hash(features)
        return values

    def relaxed(self, values: Tensor) -> Tensor:
        return torch.tanh(self.settings.mihash_slope / 2 * values)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        codes = self.relaxed(self.values(batch.features).to(batch.targets.dtype))
        distances = (self.task.bits - products(codes, codes)) / 2
        similar = share_a_label(batch.targets, batch.targets)
        return {
            "information": -mutual_information(
                distances, similar, self.centers.to(distances.dtype)
            ).mean()
        }


def mutual_information(distances: Tensor, similar: Tensor, centers: Tensor) -> Tensor:
    """The mutual information (n,) between distance and similarity, for each row as anchor; 0 where it means nothing."""
    width = centers[1] - centers[0]
    bins = (1 - (distances[:, :, None] - centers).abs() / width).clamp(min=0)  # (n, n, bins)
    others = 1 - torch.eye(len(distances), dtype=distances.dtype, device=distances.device)
    positive, negative = (similar * others)[:, :, None], ((1 - similar) * others)[:, :, None]
    alike, unlike = (bins * positive).sum(1), (bins * negative).sum(1)  # (n, bins)
    many, few = positive.sum((1, 2)), negative.sum((1, 2))
    total = (many + few).clamp(min=1)
    whole = entropy((alike + unlike) / total[:, None])
    parts = many * entropy(alike / many.clamp(min=1)[:, None]) + few * entropy(
        unlike / few.clamp(min=1)[:, None]
    )
    return (whole - parts / total) * ((many > 0) & (few > 0)).to(distances.dtype)


def entropy(p: Tensor) -> Tensor:
    """-sum p log2 p over the last axis, with 0 log 0 = 0."""
    return -(p * p.clamp(min=1e-12).log2()).sum(-1)
