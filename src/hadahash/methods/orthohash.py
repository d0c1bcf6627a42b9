"""OrthoHash (Hoe et al., NeurIPS 2021): one loss, the cosine between the hash layer and fixed codewords.

u passes a batch normalisation, which balances the bits, and the loss is a cross entropy over s (cos(u, codeword_c) - m [c =
y]), s = 8, m = .2. The codewords are far apart by default ("far"); "bernoulli" draws them at random as the paper does, and
equal ones again, since two classes of one codeword could not be told apart. With several labels the targets are divided by
their sum. A batch of one image is normalised by the running statistics, since it has none of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ..codebooks import codebook
from .base import METHODS, Batch, DeepMethod, Task
from .common import distinct, products, random_signs


@dataclass(frozen=True)
class OrthoHashSettings:
    codebook: str = "far"  # design of the codebook: far, paper, ...
    orthohash_scale: float = 8.0  # s, which multiplies the cosines
    orthohash_margin: float = 0.2  # m, taken off the cosine of the right class


@METHODS.register("orthohash")
class OrthoHash(DeepMethod):
    Settings = OrthoHashSettings
    codebook: Tensor

    def __init__(self, task: Task, settings: OrthoHashSettings) -> None:
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits, bias=False)
        self.norm = nn.BatchNorm1d(task.bits)
        if settings.codebook == "bernoulli":
            book = bernoulli(task.classes, task.bits, task.seed)
        else:
            book = torch.from_numpy(
                codebook(task.classes, task.bits, design=settings.codebook, seed=task.seed)
            ).float()
        self.register_buffer("codebook", book)

    def values(self, features: Tensor) -> Tensor:
        outputs = self.hash(features)
        own = self.norm.training and len(outputs) > 1
        return F.batch_norm(
            outputs,
            self.norm.running_mean,
            self.norm.running_var,
            self.norm.weight,
            self.norm.bias,
            training=own,
            momentum=0.1,
            eps=self.norm.eps,
        )

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        outputs = self.values(batch.features).to(batch.targets.dtype)
        cosines = products(F.normalize(outputs), F.normalize(self.codebook.to(outputs.dtype)))
        shares = batch.targets / batch.targets.sum(1, keepdim=True).clamp(min=1)
        logits = self.settings.orthohash_scale * (
            cosines - self.settings.orthohash_margin * (batch.targets > 0)
        )
        return {"cosine": F.cross_entropy(logits, shares)}


def bernoulli(classes: int, bits: int, seed: int) -> Tensor:
    """Codewords (classes, bits) of random +-1, all different."""
    generator = torch.Generator().manual_seed(seed)
    drawn = (
        word for _ in range(100) for word in random_signs(classes, bits, seed=generator).numpy()
    )
    return torch.from_numpy(np.stack(distinct(drawn, classes)))
