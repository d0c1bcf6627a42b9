"""SSDH: supervised semantics-preserving deep hashing (Yang, Lin and Chen, TPAMI 2018).

As in the authors' code: a = sigmoid of the hash layer, a classifier on a, and three terms of
weight 1: the classification loss; minus half the mean squared distance of a from .5, which drives
it to 0 or 1; and half the squared distance of each image's mean bit from .5. The last term balances
the bits of a code, not a bit over the images.

Deviations from the authors:

* The paper's margin loss for multi-label images is replaced by binary cross entropy.
* The authors train the classifier at 10 times the learning rate of the hash layer; here both have
  one rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ..settings import Checked, setting
from .base import METHODS, Batch, DeepMethod, Task
from .common import classification_loss


@dataclass(frozen=True)
class SSDHSettings(Checked):
    """Settings of SSDH."""

    ssdh_binary: float = setting(1.0, "Weight of the term that drives outputs to 0 or 1.", ge=0)
    ssdh_balance: float = setting(1.0, "Weight of the term that balances each code.", ge=0)
    multilabel_loss: Literal["mean", "sum"] = setting(
        "mean", "Binary cross entropy of a multi-label image: mean or sum over the classes."
    )


@METHODS.register("ssdh")
class SSDH(DeepMethod):
    """SSDH: a classifier on sigmoid outputs that are driven to 0 or 1 and balanced."""

    Settings = SSDHSettings

    def __init__(self, task: Task, settings: SSDHSettings) -> None:
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits)
        self.classifier = nn.Linear(task.bits, task.classes)

    def values(self, features: Tensor) -> Tensor:
        """Compute the hash layer u, (n, bits); sigmoid(u) >= .5 exactly where u >= 0."""
        values: Tensor = self.hash(features)
        return values

    def relaxed(self, values: Tensor) -> Tensor:
        """Return 2 sigmoid(u) - 1, the paper's output scaled to (-1, 1)."""
        return 2 * torch.sigmoid(values) - 1

    def class_scores(self, features: Tensor) -> Tensor:
        """Compute the classifier's scores (n, classes)."""
        scores: Tensor = self.classifier(torch.sigmoid(self.hash(features)))
        return scores

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the parts "classification", "binary" and "balance"."""
        active = torch.sigmoid(self.hash(batch.features))
        scores = self.classifier(active)
        active = active.to(batch.targets.dtype)
        classification = classification_loss(
            scores, batch.targets, self.task.multilabel, self.settings.multilabel_loss
        )
        return {
            "classification": classification,
            "binary": -self.settings.ssdh_binary * (active - 0.5).square().mean() / 2,
            "balance": self.settings.ssdh_balance * (active.mean(1) - 0.5).square().mean() / 2,
        }
