"""Classify, then encode: a code is the codeword of the predicted class (Sablayrolles et al., 2017).

The simplest supervised code: a linear classifier on the features, trained by cross entropy. It
shows how much of a method's mAP is classification. The code of a multi-label image is the sign of
the sum of the codewords of all classes with a score above 0 (or of the best class), ties broken by
one fixed random vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ..settings import Checked, setting
from .base import METHODS, Batch, DeepMethod, Task
from .codewords import CodewordMethod, majority
from .common import classification_loss, random_signs


@dataclass(frozen=True)
class ClassifySettings(Checked):
    """Settings of classify-then-encode."""

    codebook: str = setting("far", "Codebook design: far, paper, csq or random.")
    multilabel_loss: Literal["mean", "sum"] = setting(
        "mean", "Binary cross entropy of a multi-label image: mean or sum over the classes."
    )


@METHODS.register("classify")
class ClassifyThenEncode(CodewordMethod, DeepMethod):
    """A linear classifier; the code is the codeword of the predicted class."""

    Settings = ClassifySettings
    tie_break: Tensor

    def __init__(self, task: Task, settings: ClassifySettings) -> None:
        super().__init__(task, settings)
        self.register_buffer("tie_break", random_signs(task.bits, seed=task.seed))
        self.classifier = nn.Linear(task.features, task.classes)

    def values(self, features: Tensor) -> Tensor:
        """Return the codeword of the predicted class, (n, bits) of +1 and -1."""
        scores = self.class_scores(features)
        chosen = torch.nn.functional.one_hot(scores.argmax(1), self.task.classes).bool()
        if self.task.multilabel:
            chosen = chosen | (scores > 0)
        return majority(chosen.to(self.codebook.dtype), self.codebook, self.tie_break)

    def class_scores(self, features: Tensor) -> Tensor:
        """Compute the classifier's scores (n, classes)."""
        scores: Tensor = self.classifier(features)
        return scores

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the cross entropy of the classifier ("classification")."""
        scores = self.classifier(batch.features)
        loss = classification_loss(
            scores, batch.targets, self.task.multilabel, self.settings.multilabel_loss
        )
        return {"classification": loss}
