"""Classify, then encode: the code of an image is the codeword of the class it is taken for (Sablayrolles et al., ICASSP 2017).

The plainest supervised code: a linear classifier on the features, trained by cross entropy. It shows how much of a method's
mAP is classification. Several labels: the sign of the sum of the codewords of all classes scored above 0 (or of the best
one), ties by one fixed random vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..codebooks import codebook
from .base import METHODS, Batch, DeepMethod, Task
from .common import classification_loss, majority, random_signs


@dataclass(frozen=True)
class ClassifySettings:
    codebook: str = "far"  # design of the codebook: far, paper, ...


@METHODS.register("classify")
class ClassifyThenEncode(DeepMethod):
    Settings = ClassifySettings
    codebook: Tensor
    tie_break: Tensor

    def __init__(self, task: Task, settings: ClassifySettings) -> None:
        super().__init__(task, settings)
        book = codebook(task.classes, task.bits, design=settings.codebook, seed=task.seed)
        self.register_buffer("codebook", torch.from_numpy(book).float())
        self.register_buffer("tie_break", random_signs(task.bits, seed=task.seed))
        self.classifier = nn.Linear(task.features, task.classes)

    def values(self, features: Tensor) -> Tensor:
        scores = self.classifier(features)
        chosen = torch.nn.functional.one_hot(scores.argmax(1), self.task.classes).bool()
        if self.task.multilabel:
            chosen = chosen | (scores > 0)
        return majority(chosen.to(self.codebook.dtype), self.codebook, self.tie_break)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        return {
            "classification": classification_loss(
                self.classifier(batch.features), batch.targets, self.task.multilabel
            )
        }
