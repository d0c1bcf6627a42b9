"""HC-SDH: ridge regression from features to Hadamard codewords (Koutaki et al., IEEE TIP 2018).

B = codewords of the labels, P = (X^T X + weight I)^-1 X^T B on features with a constant 1: three lines, and a measure of
what the codebook alone is worth. The authors' code has neither weight nor constant; without a weight, features that depend
on one another have no single solution. The codewords are far apart by default ("far") instead of rows of a Hadamard matrix
("paper"). Several labels: the sign of the sum of their codewords, ties by one fixed random vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..codebooks import codebook
from .base import METHODS, ShallowMethod, Task
from .common import majority, random_signs
from .sdh import RidgeSolver


@dataclass(frozen=True)
class HCSDHSettings:
    codebook: str = "far"  # design of the codebook: far, paper, ...
    ridge: float = 1.0  # times the mean square of the features


@METHODS.register("hcsdh")
class HCSDH(ShallowMethod):
    Settings = HCSDHSettings
    directions: Tensor

    def __init__(self, task: Task, settings: HCSDHSettings) -> None:
        super().__init__(task, settings)
        self.register_buffer("directions", torch.zeros(task.features + 1, task.bits))

    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        book = codebook(
            self.task.classes, self.task.bits, design=self.settings.codebook, seed=self.task.seed
        )
        goal = majority(
            targets,
            torch.from_numpy(book).to(targets.dtype),
            random_signs(self.task.bits, seed=self.task.seed),
        )
        X = with_constant(features.double())
        weight = self.settings.ridge * float(X.square().mean().clamp(min=1e-12))
        self.directions.copy_(RidgeSolver(X, weight).solve(goal.double()))

    def values(self, features: Tensor) -> Tensor:
        return with_constant(features.to(self.directions.dtype)) @ self.directions


def with_constant(features: Tensor) -> Tensor:
    return torch.cat(
        [features, torch.ones(len(features), 1, dtype=features.dtype, device=features.device)],
        dim=1,
    )
