"""HCDH: Hadamard Codebook based Deep Hashing (Chen et al., AAAI 2020), and the paper's three variants.

Each class has a codeword (a row of the codebook). The hash layer, tanh of a linear layer, is pulled to the codeword of the
image's class by a squared error L_H, and a linear classifier on the hash layer adds L_CE (cross entropy; binary cross entropy
when images have several labels): L = L_H + lambda * L_CE (the paper's last equation).

    hcdh     both losses, the classifier on the hash layer
    hcdh-h   lambda = 0: the codebook alone
    hcdh-c   the classification loss alone, no codebook
    hcdh-2   both losses, but hash layer and classifier side by side on the features ("two streams")

Where this differs from the paper's text, and why:

* L_H is the mean over images and bits (`reduction="mean"`). The paper writes half the sum, as which lambda in {1, .1, .01} and
  its learning rate make no sense: the sum is thousands of times larger. `reduction="sum"` is the paper's formula per image:
  half the sum over bits, averaged over the batch.
* The softmax runs over the C classes; the paper's index runs over "n", which it never defines.
* For several labels the classification loss is the sigmoid form of binary cross entropy; the paper prints a softmax in it.
* For several labels the paper's target is the plain sum of the codewords, whose entries tanh cannot reach. `multilabel_target`
  chooses: "sign" of the sum with ties broken by one fixed random vector (default), "masked" (the same, tied bits left out of
  the loss), "mean" of the codewords, or "sum" as printed.
* HCDH-2: the paper calls it "the two-stream architecture of SSDH", but SSDH has one stream; here it means that the classifier
  reads the features and not the hash layer.
* The codebook is `codebook="far"` by default (codewords as far apart as can be had); "paper" is the paper's Algorithm 1.
* lambda is 1 for every data set unless set; the paper uses 1, .1 and .01 for its three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..codebooks import codebook
from ..config import require
from ..networks import HashHead
from .base import METHODS, Batch, DeepMethod, Task
from .common import classification_loss, majority, random_signs


@dataclass(frozen=True)
class HCDHSettings:
    lam: float = 1.0  # weight of the classification loss, the paper's lambda
    codebook: str = "far"  # design of the codebook: far, paper, ...
    codebook_seed: int | None = None  # None: the run's seed
    codebook_permutation: int | None = (
        None  # seed of a random reassignment of the codewords to the classes; None: as designed
    )
    reduction: Literal["mean", "sum"] = (
        "mean"  # of L_H: the mean over images and bits, or the paper's half sum
    )
    multilabel_target: Literal["sign", "masked", "mean", "sum"] = (
        "sign"  # what the codewords of several labels make
    )

    def __post_init__(self) -> None:
        require(
            0 <= self.lam < math.inf,
            f"lam={self.lam} is not possible: the weight lambda must be at least 0.",
        )


@METHODS.register("hcdh")
class HCDH(DeepMethod):
    Settings = HCDHSettings
    streams = 1
    codebook: Tensor
    tie_break: Tensor

    def __init__(self, task: Task, settings: HCDHSettings) -> None:
        super().__init__(task, settings)
        seed = task.seed if settings.codebook_seed is None else settings.codebook_seed
        book = codebook(task.classes, task.bits, design=settings.codebook, seed=seed)
        if settings.codebook_permutation is not None:
            book = book[np.random.default_rng(settings.codebook_permutation).permutation(len(book))]
        self.register_buffer("codebook", torch.from_numpy(book).float())
        self.register_buffer("tie_break", random_signs(task.bits, seed=seed))
        self.head = HashHead(
            task.features, task.bits, task.classes if settings.lam > 0 else 0, streams=self.streams
        )

    def values(self, features: Tensor) -> Tensor:
        codes: Tensor = self.head(features)[0]
        return codes

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        values, scores = self.head(batch.features)
        parts = {"hadamard": self.hadamard_loss(values, batch.targets)}
        if scores is not None:
            parts["classification"] = self.settings.lam * classification_loss(
                scores, batch.targets, self.task.multilabel
            )
        return parts

    def hadamard_loss(self, values: Tensor, targets: Tensor) -> Tensor:
        """The squared distance of the hash layer to the target codes."""
        goal, weight = self.target_codes(targets)
        squares = weight * (values.to(targets.dtype) - goal).square()
        if self.settings.reduction == "sum":
            return squares.sum() / (2 * len(values))
        return squares.sum() / weight.sum().clamp(min=1)

    def target_codes(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Target values (n, bits) and the weight (n, bits) of each bit, from the labels (n, classes)."""
        total = targets @ self.codebook
        everything = torch.ones_like(total)
        policy = self.settings.multilabel_target
        if not self.task.multilabel or policy == "sum":
            return total, everything
        if policy == "mean":
            return total / targets.sum(1, keepdim=True).clamp(min=1), everything
        goal = majority(targets, self.codebook, self.tie_break)
        return goal, (total != 0).to(goal.dtype) if policy == "masked" else everything


@METHODS.register("hcdh-h")
class HCDHHadamardOnly(HCDH):
    """The codebook alone: HCDH with lambda = 0."""

    def __init__(self, task: Task, settings: HCDHSettings) -> None:
        super().__init__(task, replace(settings, lam=0.0))


@METHODS.register("hcdh-c")
class HCDHClassifierOnly(HCDH):
    """The classification loss alone, on tanh of the hash layer."""

    def __init__(self, task: Task, settings: HCDHSettings) -> None:
        require(
            settings.lam > 0,
            "hcdh-c learns from the classification loss alone: lam must be greater than 0.",
        )
        super().__init__(task, settings)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        return {"classification": super().loss(batch)["classification"]}


@METHODS.register("hcdh-2")
class HCDHTwoStreams(HCDH):
    """Both losses, hash layer and classifier side by side on the features."""

    streams = 2
