"""HashNet (Cao, Long, Wang and Yu, ICCV 2017): weighted pairwise likelihood with continuation.

h = tanh(beta u). The loss is the mean over the pairs of a batch, weighted by w_ij, of
log(1 + e^(alpha h_i.h_j)) - alpha S_ij h_i.h_j with alpha = 10 / K (equation 2 of the paper).
w_ij = c_ij |S|/|S1| for similar pairs and |S|/|S0| for others, counted in the batch; c_ij is the
fraction of common labels, 1 for single labels. beta = sqrt(1 + .005 t) is updated every 200 steps.
An image is not paired with itself.

Deviations from the authors' code:

* It pairs the images of two batches; here all pairs of one batch are used.
* The Caffe code has a constant 5 instead of |S|/|S1| and the squared cosine of the labels instead
  of c_ij; the PyTorch code has no weights. Here they are those of the paper.
* beta depends on the number of steps: 7 after the authors' 10,000. A shorter run ends nearer to 1,
  unless `hashnet_beta` sets the value at the end: then beta = sqrt(1 + (hashnet_beta^2 - 1) p) at a
  fraction p of the training, updated in every step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..settings import Checked, setting
from .base import METHODS, Batch, DeepMethod, Task
from .common import pair_likelihood, products, share_a_label


@dataclass(frozen=True)
class HashNetSettings(Checked):
    """Settings of HashNet."""

    hashnet_alpha: float = setting(10.0, "Scale of the inner products, times the bits.", gt=0)
    hashnet_gamma: float = setting(0.005, "Growth of beta = sqrt(1 + gamma * step).", ge=0)
    hashnet_refresh: int = setting(200, "Steps between two updates of beta.", ge=1)
    hashnet_beta: float | None = setting(
        None, "Beta at the end of training, whatever its length; none: as gamma gives.", ge=1
    )


@METHODS.register("hashnet")
class HashNet(DeepMethod):
    """HashNet: weighted pairwise likelihood of tanh(beta u) with growing beta."""

    Settings = HashNetSettings
    beta: Tensor

    def __init__(self, task: Task, settings: HashNetSettings) -> None:
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits)
        self.register_buffer("beta", torch.ones(()))

    def values(self, features: Tensor) -> Tensor:
        """Compute the hash layer u, (n, bits); tanh(beta u) has the same sign."""
        values: Tensor = self.hash(features)
        return values

    def relaxed(self, values: Tensor) -> Tensor:
        """Return tanh(beta u)."""
        return torch.tanh(self.beta * values)

    def before_step(self, step: int, steps: int) -> None:
        """Update beta."""
        final = self.settings.hashnet_beta
        if final is not None:
            progress = step / max(1, steps - 1)
            self.beta.fill_((1 + (final**2 - 1) * progress) ** 0.5)
            return
        started = step - step % self.settings.hashnet_refresh
        self.beta.fill_((1 + self.settings.hashnet_gamma * started) ** 0.5)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the weighted likelihood ("pairs")."""
        codes = self.relaxed(self.values(batch.features).to(batch.targets.dtype))
        similar = share_a_label(batch.targets, batch.targets)
        theta = self.settings.hashnet_alpha / self.task.bits * products(codes, codes)
        weights = pair_weights(batch.targets, similar)
        total = (weights * pair_likelihood(theta, similar)).sum()
        return {"pairs": total / weights.sum().clamp(min=1e-9)}


def pair_weights(targets: Tensor, similar: Tensor) -> Tensor:
    """Compute the weights w_ij of the paper's equation 2; 0 for an image with itself.

    Args:
        targets: Float (n, classes).
        similar: (n, n) of 0 and 1.

    Returns:
        Float (n, n).
    """
    others = 1 - torch.eye(len(targets), dtype=targets.dtype, device=targets.device)
    common = targets @ targets.T
    union = targets.sum(1)[:, None] + targets.sum(1)[None] - common
    similar_count, dissimilar_count = (similar * others).sum(), ((1 - similar) * others).sum()
    pairs = similar_count + dissimilar_count
    fraction = common / union.clamp(min=1e-9)
    positive = similar * fraction * pairs / similar_count.clamp(min=1)
    return others * (positive + (1 - similar) * pairs / dissimilar_count.clamp(min=1))
