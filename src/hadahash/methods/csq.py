"""CSQ: central similarity quantisation (Yuan et al., CVPR 2020).

Each class has a hash centre; the loss is the binary cross entropy between (tanh u + 1) / 2 and the centre's bits, and a
term that pulls |tanh u| to 1. Centres are rows of a Hadamard matrix and their negatives while there are enough (K a
Hadamard order and C <= 2 K), otherwise codes drawn at random with half of the bits set, as in the paper; equal ones are
drawn again. An image of several labels has the majority of its centres, ties by one fixed random vector. (tanh u + 1) / 2 =
sigmoid(2 u), which makes the cross entropy stable. The second term's weight is the 1e-4 of the authors' AlexNet runs for
every backbone; with ResNet the paper has .05.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ..codebooks import codebook
from .base import METHODS, Batch, DeepMethod, Task
from .common import majority, random_signs


@dataclass(frozen=True)
class CSQSettings:
    codebook: str = "csq"  # design of the hash centers: csq, paper, far, random, ...
    csq_quantisation: float = 1e-4  # weight of the term towards +-1


@METHODS.register("csq")
class CSQ(DeepMethod):
    Settings = CSQSettings
    centers: Tensor
    tie_break: Tensor

    def __init__(self, task: Task, settings: CSQSettings) -> None:
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits)
        book = codebook(task.classes, task.bits, design=settings.codebook, seed=task.seed)
        self.register_buffer("centers", torch.from_numpy(book).float())
        self.register_buffer("tie_break", random_signs(task.bits, seed=task.seed))

    def values(self, features: Tensor) -> Tensor:
        values: Tensor = self.hash(features)
        return values

    def relaxed(self, values: Tensor) -> Tensor:
        return torch.tanh(values)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        outputs = self.values(batch.features).to(batch.targets.dtype)
        if self.task.multilabel:
            goal = majority(
                batch.targets, self.centers.to(outputs.dtype), self.tie_break.to(outputs.dtype)
            )
        else:
            goal = batch.targets @ self.centers.to(outputs.dtype)
        quantisation = (self.relaxed(outputs).abs() - 1).square().mean()
        return {
            "center": F.binary_cross_entropy_with_logits(2 * outputs, (goal + 1) / 2),
            "quantisation": self.settings.csq_quantisation * quantisation,
        }


def hash_centers(classes: int, bits: int, seed: int) -> NDArray[np.int8]:
    """The centers of the CSQ paper: int8 (classes, bits) of +-1, all distinct."""
    return codebook(classes, bits, design="csq", seed=seed)
