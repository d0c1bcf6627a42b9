"""CSQ: central similarity quantization (Yuan et al., CVPR 2020).

Each class has a codeword, its "hash center". The loss is the binary cross entropy between (tanh u +
1) / 2 and the codeword's bits, plus a term that pulls |tanh u| to 1. The codewords are the design
"csq": rows of a Hadamard matrix and their negatives while there are enough, otherwise random
codewords with half of the bits set.

The target of a multi-label image is the majority of its codewords, ties broken by one fixed random
vector. The cross entropy uses (tanh u + 1) / 2 = sigmoid(2 u), which is numerically stable.

Deviations from the authors:

* Equal random codewords are drawn again.
* The weight of the second term is the 1e-4 of the authors' AlexNet runs for every backbone. The
  paper has .05 for ResNet.
* An image without any label has no target: it has weight 0 in the cross entropy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ..settings import Checked, setting
from .base import METHODS, Batch, DeepMethod, Task
from .codewords import CodewordMethod, has_label, majority, mixed_codes
from .common import random_signs


@dataclass(frozen=True)
class CSQSettings(Checked):
    """Settings of CSQ."""

    codebook: str = setting("csq", "Codebook design: csq, far, paper or random.")
    csq_quantisation: float = setting(1e-4, "Weight of the term that pulls outputs to +-1.", ge=0)


@METHODS.register("csq")
class CSQ(CodewordMethod, DeepMethod):
    """CSQ: binary cross entropy to the codewords, and a quantization term."""

    Settings = CSQSettings
    tie_break: Tensor

    def __init__(self, task: Task, settings: CSQSettings) -> None:
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits)
        self.register_buffer("tie_break", random_signs(task.bits, seed=task.seed))

    def upgrade_state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rename the codewords, which version 0.1 stored as "centers"."""
        return {"codebook" if key == "centers" else key: value for key, value in tensors.items()}

    def values(self, features: Tensor) -> Tensor:
        """Compute the hash layer u, (n, bits)."""
        values: Tensor = self.hash(features)
        return values

    def relaxed(self, values: Tensor) -> Tensor:
        """Return tanh u."""
        return torch.tanh(values)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the cross entropy to the codewords and the quantization term."""
        values = self.values(batch.features).to(batch.targets.dtype)
        codes, weight = self._target_codes(batch)
        entropy = F.binary_cross_entropy_with_logits(2 * values, (codes + 1) / 2, reduction="none")
        quantization = (self.relaxed(values).abs() - 1).square().mean()
        return {
            "center": (weight * entropy).sum() / (weight.sum() * self.task.bits).clamp(min=1),
            "quantization": self.settings.csq_quantisation * quantization,
        }

    def _target_codes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Target codes (n, bits) and the weight (n, 1) of each image."""
        targets = batch.labels
        codewords = self.codebook.to(targets.dtype)
        if not self.task.multilabel:
            return batch.targets @ codewords, has_label(targets)
        codes = majority(targets, codewords, self.tie_break.to(targets.dtype))
        return mixed_codes(batch, codes, has_label(targets))
