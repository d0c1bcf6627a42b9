"""DPSH: deep pairwise-supervised hashing (Li, Wang and Kang, IJCAI 2016).

min sum_ij [log(1 + e^Theta_ij) - S_ij Theta_ij] + eta sum_i ||sign(u_i) - u_i||^2, Theta_ij = u_i . u_j / 2, no tanh. A
bank keeps the last output of every training image; a batch is compared with the whole bank, and the gradient flows through
the batch's side only, which halves it: eta weighs twice as much as in the sum over i and j. Both terms are means (over
pairs, and over images and bits), so eta does not depend on the sizes; the authors' 10 to 50 belong to another scale.
Theta is a sum over bits, so its curvature grows with K, and a learning rate that suits 16 bits makes 64 fall apart: the pairs'
term is divided by K / 16 where K > 16. Images that have not been seen yet have outputs 0 in the bank and so no gradient.
The hash layer is a linear one on centred features (`CentredLinear`): on plain ones a few hundred steps at a useful rate blow
the outputs up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import METHODS, Batch, DeepMethod, Task
from .common import CentredLinear, pair_likelihood, products, share_a_label, sign


class PairBank(nn.Module):
    """The last outputs and the labels of all training images: in checkpoints, but not in a saved model or in its average."""

    outputs: Tensor
    targets: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.register_buffer("outputs", torch.zeros(task.train_images, task.bits), persistent=False)
        self.register_buffer(
            "targets", torch.zeros(task.train_images, task.classes), persistent=False
        )

    @torch.no_grad()
    def keep(self, outputs: Tensor, batch: Batch) -> None:
        self.outputs.index_copy_(0, batch.indices, outputs.to(self.outputs.dtype))
        self.targets.index_copy_(0, batch.indices, batch.targets.to(self.targets.dtype))

    def likelihood(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The mean over (batch x bank) of the pairs' negative log likelihood, over K / 16; the bank holds the batch already."""
        similar = share_a_label(batch.targets, self.targets.to(batch.targets.dtype))
        pairs = pair_likelihood(products(outputs, self.outputs.to(outputs.dtype)) / 2, similar)
        return pairs.mean() / max(1.0, outputs.shape[1] / 16)


@dataclass(frozen=True)
class DPSHSettings:
    dpsh_eta: float = 0.1  # weight of the quantisation term


@METHODS.register("dpsh")
class DPSH(DeepMethod):
    Settings = DPSHSettings

    def __init__(self, task: Task, settings: DPSHSettings) -> None:
        super().__init__(task, settings)
        self.hash = CentredLinear(task.features, task.bits)
        self.bank = PairBank(task)

    def values(self, features: Tensor) -> Tensor:
        values: Tensor = self.hash(features)
        return values

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        outputs = self.values(batch.features).to(batch.targets.dtype)
        self.bank.keep(outputs, batch)
        quantisation = (outputs - sign(outputs.detach())).square().mean()
        return {
            "pairs": self.bank.likelihood(outputs, batch),
            "quantisation": self.settings.dpsh_eta * quantisation,
        }
