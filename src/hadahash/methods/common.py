"""Small pieces that several methods are made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class CentredLinear(nn.Linear):
    """A linear layer on features less their mean and over their spread, one number for all of them; it starts near 0.

    What all images have in common is most of a feature vector. Where the loss sees products of unbounded outputs, that part
    swamps the rest: dissimilar pairs, which are most, push it back and forth, and the outputs grow without limit. In training
    mean and spread are the batch's; otherwise their running averages, so an image's values do not depend on its company. The
    functions that can be learned are those of a plain linear layer.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, features: int, bits: int) -> None:
        super().__init__(features, bits)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("spread", torch.ones(()))
        with torch.no_grad():
            self.weight.div_(
                8
            )  # outputs of about .07: the products of pairs start where the likelihood is steepest
            self.bias.div_(8)

    def forward(self, features: Tensor) -> Tensor:
        features = features.to(self.weight.dtype)
        mean, spread = self.mean, self.spread
        if self.training:
            mean = features.mean(0)
            spread = ((features - mean).square().mean() + 1e-5).sqrt()
            with torch.no_grad():
                self.mean.lerp_(mean, 0.1)
                self.spread.lerp_(spread, 0.1)
        return super().forward((features - mean) / spread)


def classification_loss(scores: Tensor, targets: Tensor, multilabel: bool) -> Tensor:
    """Cross entropy, or binary cross entropy over the classes when images have several labels."""
    if multilabel:
        return F.binary_cross_entropy_with_logits(scores.to(targets.dtype), targets)
    return F.cross_entropy(scores.to(targets.dtype), targets)


def share_a_label(left: Tensor, right: Tensor) -> Tensor:
    """S (n, m): 1 where the labels (n, C) and (m, C) have a class in common, 0 elsewhere."""
    return (left @ right.T > 0).to(left.dtype)


def products(left: Tensor, right: Tensor) -> Tensor:
    """left @ right.T (n, m) in the precision of its inputs: bfloat16 training would round the sums to three digits."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right.T


def pair_likelihood(theta: Tensor, similar: Tensor) -> Tensor:
    """-log p(S | Theta) of each pair: log(1 + exp(Theta)) - S Theta, in a form that does not overflow."""
    return F.softplus(theta) - similar * theta


def sign(values: Tensor) -> Tensor:
    """+1 where the value is >= 0, -1 elsewhere: the one definition of a bit, as numbers."""
    return torch.where(values >= 0, 1.0, -1.0).to(values.dtype)


def random_signs(*shape: int, seed: int | torch.Generator) -> Tensor:
    """+1 and -1 with equal chance."""
    generator = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
    return torch.randint(2, shape, generator=generator) * 2.0 - 1.0
