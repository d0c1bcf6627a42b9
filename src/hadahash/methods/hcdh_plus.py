"""HCDH-plus: HCDH with a loss on the class probabilities that its codewords give.

Three parts share one hash layer u, with v = tanh u and codewords w_c:

    code            squared error of v to the target code, as in HCDH, or the cross entropy of each
                    bit, as in CSQ (`code_loss`)
    posterior       cross entropy of P(c | v) = softmax_c(s (<v, w_c> / K - m [c = y])): the
                    probability by which a search ranks images, with a margin m as in OrthoHash
    classification  a linear classifier on v, as in HCDH

The posterior compares codewords with each other: it moves v where the wrong codeword is near, and
leaves an image alone whose class is already certain. The code loss alone treats all bits alike.

For multi-label images the posterior is P(c | v) = sigmoid(s (<v, w_c> / K - m) + b_c) with a
learned offset b_c, because a code that combines several codewords is near each of them but equal to
none. Target codes are those of HCDH.

`hash_norm` adds OrthoHash's batch normalization before tanh, which centers and scales each bit.

This method is not in the paper. Codebook designs, prefixes, label smoothing and the assignment of
codewords are those of HCDH; the default codebook is "far".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ..settings import setting
from .base import METHODS, Batch, Task
from .common import batch_norm, classification_loss, products
from .hcdh import HCDH, HCDHFarSettings

_MULTILABEL_MARGIN = 0.25  # between <v, w_c> / K of an absent label (0) and one of two (1/2)


@dataclass(frozen=True)
class HCDHPlusSettings(HCDHFarSettings):
    """Settings of HCDH-plus."""

    lam: float = setting(0.1, "Weight lambda of the classification loss.", ge=0)
    multilabel_loss: Literal["mean", "sum"] = setting(
        "sum", "Binary cross entropy of a multi-label image: mean or sum over the classes."
    )
    code_loss: Literal["squared", "logistic"] = setting(
        "squared", "Loss between hash layer and target code: squared error, or cross entropy."
    )
    posterior: float = setting(
        0.1, "Weight of the cross entropy of the class probabilities of the codewords.", ge=0
    )
    posterior_scale: float = setting(8.0, "Scale s of the class probabilities.", gt=0)
    posterior_margin: float = setting(
        0.2, "Margin m, subtracted from <v, w_c> / K of the true class.", ge=0
    )
    hash_norm: bool = setting(False, "Normalize the hash layer over the batch before tanh.")


@METHODS.register("hcdh-plus")
class HCDHPlus(HCDH):
    """HCDH with a loss on the class probabilities of its codewords."""

    Settings = HCDHPlusSettings

    def __init__(self, task: Task, settings: HCDHPlusSettings) -> None:
        super().__init__(task, settings)
        self.norm = nn.BatchNorm1d(task.bits) if settings.hash_norm else None
        self.offset = nn.Parameter(torch.zeros(task.classes)) if task.multilabel else None

    def values(self, features: Tensor) -> Tensor:
        """Compute tanh of the hash layer, (n, bits)."""
        return torch.tanh(self.hash_layer(features))

    def class_scores(self, features: Tensor) -> Tensor | None:
        """Compute the classifier's scores (n, classes); None if lambda is 0."""
        if self.head.classifier is None:
            return None
        scores: Tensor = self.head.classifier(self.values(features))
        return scores

    def hash_layer(self, features: Tensor) -> Tensor:
        """Compute the hash layer before tanh.

        Args:
            features: Float (n, d).

        Returns:
            Float (n, bits).
        """
        values: Tensor = self.head.hash(features)
        return values if self.norm is None else batch_norm(self.norm, values)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the parts "code", "posterior" and "classification"; those of weight 0 are absent.

        Args:
            batch: Features, targets and image positions.

        Returns:
            The weighted parts.
        """
        own = self.settings
        raw = self.hash_layer(batch.features).to(batch.targets.dtype)
        values, codes = torch.tanh(raw), self.batch_codes(batch)
        logistic = own.code_loss == "logistic"
        parts = {
            "code": self.over_prefixes(self._bit_entropy, raw, *codes)
            if logistic
            else self.over_prefixes(self.code_loss, values, *codes)
        }
        if own.posterior > 0:
            posterior = partial(self.posterior_loss, targets=batch.targets)
            parts["posterior"] = own.posterior * self.over_prefixes(posterior, values)
        if self.head.classifier is not None:
            scores = self.head.classifier(values)
            classify = partial(self.prefix_classification, scores=scores, targets=batch.targets)
            parts["classification"] = own.lam * self.over_prefixes(classify, values)
        return parts

    def posterior_loss(self, values: Tensor, targets: Tensor) -> Tensor:
        """Compute the cross entropy of the class probabilities that the codewords give.

        Args:
            values: Float (n, length), the first bits of the hash layer after tanh.
            targets: Float (n, classes).

        Returns:
            A scalar, the mean over the images.
        """
        own, length = self.settings, values.shape[1]
        near = products(values, self.codebook[:, :length].to(values.dtype)) / length
        if self.offset is not None:
            scores = own.posterior_scale * (near - _MULTILABEL_MARGIN) + self.offset
            return classification_loss(scores, targets, True, own.multilabel_loss, own.smoothing)
        scores = own.posterior_scale * (near - own.posterior_margin * targets)
        return classification_loss(scores, targets, False, smoothing=own.smoothing)

    def _bit_entropy(self, raw: Tensor, codes: Tensor, weight: Tensor) -> Tensor:
        """The binary cross entropy of the bits; (tanh u + 1) / 2 = sigmoid(2 u)."""
        entropy = F.binary_cross_entropy_with_logits(2 * raw, (codes + 1) / 2, reduction="none")
        return (weight * entropy).sum() / weight.sum().clamp(min=1)
