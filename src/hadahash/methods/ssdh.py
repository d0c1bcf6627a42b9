"""SSDH: supervised semantics-preserving deep hashing (Yang, Lin and Chen, TPAMI 2018), as its authors coded it.

a = sigmoid of the hash layer, a classifier on a, and three terms with weight 1: the classification loss; minus half the mean
square distance of a from .5 (towards 0 and 1); and half the squared distance of each IMAGE's mean bit from .5. The last one
balances the bits of a code, not a bit over the images. The paper's margin loss for several labels is replaced by binary
cross entropy. The authors train the classifier at 10 times the rate of the hash layer; here both have one rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import METHODS, Batch, DeepMethod, Task
from .common import classification_loss


@dataclass(frozen=True)
class SSDHSettings:
    ssdh_binary: float = 1.0  # weight of the term towards 0 and 1
    ssdh_balance: float = 1.0  # weight of the balance term


@METHODS.register("ssdh")
class SSDH(DeepMethod):
    Settings = SSDHSettings

    def __init__(self, task: Task, settings: SSDHSettings) -> None:
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits)
        self.classifier = nn.Linear(task.bits, task.classes)

    def values(self, features: Tensor) -> Tensor:
        values: Tensor = self.hash(features)  # sigmoid(u) >= .5 exactly where u >= 0
        return values

    def relaxed(self, values: Tensor) -> Tensor:
        return 2 * torch.sigmoid(values) - 1  # the paper's values lie between 0 and 1

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        active = torch.sigmoid(self.hash(batch.features))
        scores = self.classifier(active)
        active = active.to(batch.targets.dtype)
        return {
            "classification": classification_loss(scores, batch.targets, self.task.multilabel),
            "binary": -self.settings.ssdh_binary * (active - 0.5).square().mean() / 2,
            "balance": self.settings.ssdh_balance * (active.mean(1) - 0.5).square().mean() / 2,
        }
