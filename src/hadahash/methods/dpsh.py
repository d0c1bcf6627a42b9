"""DPSH: deep pairwise-supervised hashing (Li, Wang and Kang, IJCAI 2016).

min sum_ij [log(1 + e^Theta_ij) - S_ij Theta_ij] + eta sum_i ||sign(u_i) - u_i||^2 with
Theta_ij = u_i . u_j / 2, without tanh. A bank keeps the last output of every training image; a
batch is compared with the whole bank.

Deviations from the authors:

* The gradient flows through the batch's side of a pair only, which halves it: eta weighs twice as
  much as in the sum over i and j.
* Both terms are means (over pairs, and over images and bits), so that eta does not depend on their
  sizes. The authors' 10 to 50 belong to sums.
* Theta is a sum over bits, so its curvature grows with K, and a learning rate that suits 16 bits
  diverges at 64. The pairwise term is divided by K / 16 for K > 16.
* Images that have not been seen yet have outputs 0 in the bank, hence no gradient.
* The hash layer is linear on standardized features (`CenteredLinear`). On plain features the
  outputs diverge within a few hundred steps at a useful learning rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ..settings import Checked, setting
from .base import METHODS, Batch, DeepMethod, Task
from .common import CenteredLinear, pair_likelihood, products, share_a_label, sign

_BLOCK = 1 << 24  # labels that are unpacked at a time: 64 MiB


class PairBank(nn.Module):
    """The last outputs and the labels of all training images.

    They are part of checkpoints, but neither of a saved model nor of the moving average of weights.
    Labels are packed, one bit per class, and unpacked in blocks. After mixup an image has all
    labels of its mixture.

    Args:
        task: The sizes to build for.
    """

    outputs: Tensor
    targets: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.classes = task.classes
        outputs = torch.zeros(task.train_images, task.bits)
        targets = torch.zeros(task.train_images, -(-task.classes // 8), dtype=torch.uint8)
        self.register_buffer("outputs", outputs, persistent=False)
        self.register_buffer("targets", targets, persistent=False)

    @torch.no_grad()
    def store(self, outputs: Tensor, batch: Batch) -> None:
        """Store the outputs (n, bits) and labels of a batch."""
        self.outputs.index_copy_(0, batch.indices, outputs.to(self.outputs.dtype))
        self.targets.index_copy_(0, batch.indices, pack_labels(batch.targets))

    def blocks(self) -> Iterator[slice]:
        """Iterate over all rows in blocks whose labels fit into memory."""
        count, rows = len(self.targets), max(1, _BLOCK // self.classes)
        return (slice(start, start + rows) for start in range(0, max(1, count), rows))

    def labels(self, rows: slice, dtype: torch.dtype) -> Tensor:
        """Return the labels (m, classes) of 0 and 1 of some rows."""
        return unpack_labels(self.targets[rows], self.classes).to(dtype)

    def likelihood(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Compute the mean negative log likelihood of the pairs (batch x bank), over K / 16.

        Args:
            outputs: Float (n, bits), of the batch, which has been stored.
            batch: The batch.

        Returns:
            A scalar.
        """
        blocks = (self.labels(rows, batch.targets.dtype) for rows in self.blocks())
        similar = torch.cat([share_a_label(batch.targets, labels) for labels in blocks], dim=1)
        pairs = pair_likelihood(products(outputs, self.outputs.to(outputs.dtype)) / 2, similar)
        return pairs.mean() / max(1.0, outputs.shape[1] / 16)


def pack_labels(targets: Tensor) -> Tensor:
    """Pack targets (n, classes) into uint8 (n, ceil(classes / 8)); a bit is 1 for a target > 0."""
    bits = F.pad((targets > 0).to(torch.uint8), (0, -targets.shape[1] % 8))
    shifts = torch.arange(8, dtype=torch.uint8, device=targets.device)
    packed = (bits.view(len(bits), -1, 8) << shifts).sum(2, dtype=torch.int32)
    return packed.to(torch.uint8)


def unpack_labels(packed: Tensor, classes: int) -> Tensor:
    """Unpack the result of `pack_labels` into uint8 (n, classes) of 0 and 1."""
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, :, None] >> shifts) & 1).flatten(1)[:, :classes]


@dataclass(frozen=True)
class DPSHSettings(Checked):
    """Settings of DPSH."""

    dpsh_eta: float = setting(0.1, "Weight of the quantization term.", ge=0)


@METHODS.register("dpsh")
class DPSH(DeepMethod):
    """DPSH: pairwise likelihood and a quantization term."""

    Settings = DPSHSettings

    def __init__(self, task: Task, settings: DPSHSettings) -> None:
        super().__init__(task, settings)
        self.hash = CenteredLinear(task.features, task.bits)
        self.bank = PairBank(task)

    def values(self, features: Tensor) -> Tensor:
        """Compute the hash layer u, (n, bits)."""
        values: Tensor = self.hash(features)
        return values

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the parts "pairs" and "quantization"."""
        values = self.values(batch.features).to(batch.targets.dtype)
        self.bank.store(values, batch)
        quantization = (values - sign(values.detach())).square().mean()
        return {
            "pairs": self.bank.likelihood(values, batch),
            "quantization": self.settings.dpsh_eta * quantization,
        }
