"""HC-SDH: ridge regression from features to Hadamard codewords (Koutaki et al., IEEE TIP 2018).

With B the codewords of the labels, P = (X^T X + w I)^-1 X^T B on features X with a constant 1,
which shows what the codebook alone contributes. The target of a multi-label image is the sign of
the sum of its codewords, ties broken by one fixed random vector.

Deviations from the authors' code:

* It has neither the weight w nor the constant. Without a weight, linearly dependent features have
  no unique solution.
* The codewords maximize the minimum Hamming distance (`codebook="far"`). Theirs are rows of a
  Hadamard matrix: `codebook="paper"`.
* Images without any label have no target and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..settings import Checked, setting
from .base import METHODS, ShallowMethod, Task
from .codewords import CodewordMethod, has_label, majority
from .common import random_signs
from .sdh import RidgeSolver


@dataclass(frozen=True)
class HCSDHSettings(Checked):
    """Settings of HC-SDH."""

    codebook: str = setting("far", "Codebook design: far, paper, csq or random.")
    ridge: float = setting(
        1.0, "Weight of the ridge, as a multiple of the mean square of the features.", gt=0
    )


@METHODS.register("hcsdh")
class HCSDH(CodewordMethod, ShallowMethod):
    """HC-SDH: linear regression to the codewords."""

    Settings = HCSDHSettings
    directions: Tensor

    def __init__(self, task: Task, settings: HCSDHSettings) -> None:
        super().__init__(task, settings)
        self.register_buffer("directions", torch.zeros(task.features + 1, task.bits))

    def codewords(self) -> Tensor | None:
        """Return the codebook, or None for a model of version 0.1, which did not store it."""
        return self.codebook if bool(self.codebook.any()) else None

    def upgrade_state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add an empty codebook to the tensors of version 0.1."""
        return {"codebook": torch.zeros_like(self.codebook), **tensors}

    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        """Solve the ridge regression."""
        labelled = has_label(targets)[:, 0] > 0
        features, targets = features[labelled], targets[labelled]
        tie_break = random_signs(self.task.bits, seed=self.task.seed)
        codes = majority(targets, self.codebook.to(targets.dtype), tie_break)
        X = with_constant(features.double())
        weight = self.settings.ridge * float(X.square().mean().clamp(min=1e-12))
        self.directions.copy_(RidgeSolver(X, weight).solve(codes.double()))

    def values(self, features: Tensor) -> Tensor:
        """Compute the linear function of the features, (n, bits)."""
        return with_constant(features.to(self.directions.dtype)) @ self.directions


def with_constant(features: Tensor) -> Tensor:
    """Append a column of ones to features (n, d)."""
    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)
