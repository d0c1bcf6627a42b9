"""MIHash: hashing with mutual information (Cakir, He, Bargal and Sclaroff, TPAMI 2019).

For each image of a batch as anchor, the distances to the others are put into two soft histograms,
one of the images that share a label and one of the rest. The mutual information of distance and
similarity, H(D) - P+ H(D|+) - P- H(D|-), is maximized: the loss is minus its mean over anchors, in
bits. phi = tanh(a u / 2), d = (K - phi_i . phi_j) / 2, bins at l K / n for l = 0..n, with a
triangular kernel. The anchor itself is left out of both histograms. Anchors without a positive or
without a negative have weight 0.

Deviations from the authors:

* Their default is n = K / 2 bins (`mihash_bins=0`). Here n = 16 for every K, as in their runs on
  NUS-WIDE and ImageNet-100 (12 and 32 on CIFAR-10), so that a bin holds as many pairs of a batch at
  every K and the histograms (batch x batch x (n + 1)) do not grow with it. Both agree at 32 bits.
* The slope a = 5 lies between their 1 and 30, which they choose per data set.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..settings import Checked, setting
from .base import METHODS, Batch, DeepMethod, Task
from .common import products, share_a_label


@dataclass(frozen=True)
class MIHashSettings(Checked):
    """Settings of MIHash."""

    mihash_bins: int = setting(16, "Steps n of the histograms; 0: half the code length.", ge=0)
    mihash_slope: float = setting(5.0, "Slope a of tanh(a u / 2).", gt=0)


@METHODS.register("mihash")
class MIHash(DeepMethod):
    """MIHash: mutual information of Hamming distance and similarity."""

    Settings = MIHashSettings
    centers: Tensor

    def __init__(self, task: Task, settings: MIHashSettings) -> None:
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits)
        bins = settings.mihash_bins or max(1, task.bits // 2)
        self.register_buffer("centers", torch.linspace(0, task.bits, bins + 1))

    def values(self, features: Tensor) -> Tensor:
        """Compute the hash layer u, (n, bits)."""
        values: Tensor = self.hash(features)
        return values

    def relaxed(self, values: Tensor) -> Tensor:
        """Return tanh(a u / 2)."""
        return torch.tanh(self.settings.mihash_slope / 2 * values)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute minus the mean mutual information ("information")."""
        codes = self.relaxed(self.values(batch.features).to(batch.targets.dtype))
        distances = (self.task.bits - products(codes, codes)) / 2
        similar = share_a_label(batch.targets, batch.targets)
        information = mutual_information(distances, similar, self.centers.to(distances.dtype))
        return {"information": -information.mean()}


def mutual_information(distances: Tensor, similar: Tensor, centers: Tensor) -> Tensor:
    """Compute the mutual information of distance and similarity for each row as anchor.

    Args:
        distances: Float (n, n).
        similar: (n, n) of 0 and 1.
        centers: Centers of the histogram bins (bins,), equally spaced.

    Returns:
        Float (n,); 0 for anchors without a positive or without a negative.
    """
    width = centers[1] - centers[0]
    weights = (1 - (distances[:, :, None] - centers).abs() / width).clamp(min=0)  # (n, n, bins)
    others = 1 - torch.eye(len(distances), dtype=distances.dtype, device=distances.device)
    positive, negative = (similar * others)[:, :, None], ((1 - similar) * others)[:, :, None]
    alike, unlike = (weights * positive).sum(1), (weights * negative).sum(1)  # (n, bins)
    positives, negatives = positive.sum((1, 2)), negative.sum((1, 2))
    total = (positives + negatives).clamp(min=1)
    whole = entropy((alike + unlike) / total[:, None])
    conditional = positives * entropy(alike / positives.clamp(min=1)[:, None])
    conditional = conditional + negatives * entropy(unlike / negatives.clamp(min=1)[:, None])
    valid = ((positives > 0) & (negatives > 0)).to(distances.dtype)
    return (whole - conditional / total) * valid


def entropy(p: Tensor) -> Tensor:
    """Compute -sum p log2 p over the last axis, with 0 log 0 = 0."""
    return -(p * p.clamp(min=1e-12).log2()).sum(-1)
