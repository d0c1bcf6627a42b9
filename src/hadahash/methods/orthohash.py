"""OrthoHash (Hoe et al., NeurIPS 2021): cosines between the hash layer and fixed codewords.

The hash layer u passes a batch normalization, which balances the bits. The loss is a cross entropy
over s (cos(u, codeword_c) - m [c = y]) with s = 8 and m = .2. For multi-label images the targets
are divided by their sum.

Deviations from the authors:

* The codewords maximize the minimum Hamming distance (`codebook="far"`). The paper draws them at
  random: `codebook="random"`, where codewords that repeat are drawn again because equal ones cannot
  be separated.
* A batch of one image is normalized by the running statistics, because it has no variance of its
  own.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ..settings import Checked, setting
from .base import METHODS, Batch, DeepMethod, Task
from .codewords import CodewordMethod
from .common import batch_norm, products


@dataclass(frozen=True)
class OrthoHashSettings(Checked):
    """Settings of OrthoHash."""

    codebook: str = setting("far", "Codebook design: far, random, paper or csq.")
    orthohash_scale: float = setting(8.0, "Scale s of the cosines.", gt=0)
    orthohash_margin: float = setting(
        0.2, "Margin m, subtracted from the cosine of the true class.", ge=0
    )


@METHODS.register("orthohash")
class OrthoHash(CodewordMethod, DeepMethod):
    """OrthoHash: cross entropy over the cosines to the codewords."""

    Settings = OrthoHashSettings

    def __init__(self, task: Task, settings: OrthoHashSettings) -> None:
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits, bias=False)
        self.norm = nn.BatchNorm1d(task.bits)

    def values(self, features: Tensor) -> Tensor:
        """Compute the hash layer after batch normalization, (n, bits)."""
        return batch_norm(self.norm, self.hash(features))

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the cross entropy over the scaled cosines ("cosine")."""
        values = self.values(batch.features).to(batch.targets.dtype)
        cosines = products(F.normalize(values), F.normalize(self.codebook.to(values.dtype)))
        probabilities = batch.targets / batch.targets.sum(1, keepdim=True).clamp(min=1)
        margins = self.settings.orthohash_margin * (batch.targets > 0)
        logits = self.settings.orthohash_scale * (cosines - margins)
        return {"cosine": F.cross_entropy(logits, probabilities)}
