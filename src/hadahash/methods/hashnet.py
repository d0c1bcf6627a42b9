"""HashNet (Cao, Long, Wang and Yu, ICCV 2017): pairwise likelihood with weights, and continuation towards the sign.

h = tanh(beta u); the mean over the pairs of a batch, weighted by w_ij, of log(1 + e^(alpha h_i.h_j)) - alpha S_ij h_i.h_j.
w_ij = c_ij |S|/|S1| for similar pairs and |S|/|S0| for others, counted in the batch; c_ij is the share of common labels (1
for a single label). beta = sqrt(1 + .005 t), taken anew every 200 steps. alpha = 10 / K. An image is not paired with
itself.

Where this differs from the authors' code: it pairs the images of two batches, here they are all pairs of one. Their Caffe
code has a constant 5 in place of |S|/|S1| and the squared cosine of the labels in place of c_ij, their PyTorch code leaves
the weights out; here they are the paper's equation 2. beta follows the number of steps: it is 7 after the authors' 10,000,
and a shorter run ends nearer to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import METHODS, Batch, DeepMethod, Task
from .common import pair_likelihood, products, share_a_label


@dataclass(frozen=True)
class HashNetSettings:
    hashnet_alpha: float = 10.0  # divided by the number of bits
    hashnet_gamma: float = 0.005  # how fast beta grows: sqrt(1 + gamma * step)
    hashnet_refresh: int = 200  # steps between two values of beta


@METHODS.register("hashnet")
class HashNet(DeepMethod):
    Settings = HashNetSettings
    beta: Tensor

    def __init__(self, task: Task, settings: HashNetSettings) -> None:
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits)
        self.register_buffer("beta", torch.ones(()))

    def values(self, features: Tensor) -> Tensor:
        values: Tensor = self.hash(features)  # tanh(beta u) has the same sign
        return values

    def relaxed(self, values: Tensor) -> Tensor:
        return torch.tanh(self.beta * values)

    def before_step(self, step: int, steps: int) -> None:
        started = step - step % self.settings.hashnet_refresh
        self.beta.fill_((1 + self.settings.hashnet_gamma * started) ** 0.5)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        codes = self.relaxed(self.values(batch.features).to(batch.targets.dtype))
        similar = share_a_label(batch.targets, batch.targets)
        theta = self.settings.hashnet_alpha / self.task.bits * products(codes, codes)
        weights = pair_weights(batch.targets, similar)
        return {
            "pairs": (weights * pair_likelihood(theta, similar)).sum()
            / weights.sum().clamp(min=1e-9)
        }


def pair_weights(targets: Tensor, similar: Tensor) -> Tensor:
    """w_ij (n, n) as in the paper's equation 2; 0 for an image with itself."""
    others = 1 - torch.eye(len(targets), dtype=targets.dtype, device=targets.device)
    common = targets @ targets.T
    union = targets.sum(1)[:, None] + targets.sum(1)[None] - common
    alike, unlike = (similar * others).sum(), ((1 - similar) * others).sum()
    pairs = alike + unlike
    shared = common / union.clamp(min=1e-9)
    return others * (
        similar * shared * pairs / alike.clamp(min=1) + (1 - similar) * pairs / unlike.clamp(min=1)
    )
