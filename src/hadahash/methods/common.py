"""Layers and losses that several methods share."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ..codes import is_one


class CenteredLinear(nn.Linear):
    """A linear layer on standardized features, with one scale for all and small initial weights.

    Most of a feature vector is common to all images. In a loss of products of unbounded outputs
    that part dominates: dissimilar pairs, which are the majority, push it back and forth, and the
    outputs grow without limit. In training, mean and scale are those of the batch; otherwise their
    running averages, so that the values of an image do not depend on the other images in the batch.
    The layer can represent the same functions as a plain linear layer.

    Args:
        features: Width of the input.
        bits: Width of the output.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, features: int, bits: int) -> None:
        super().__init__(features, bits)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("spread", torch.ones(()))
        with torch.no_grad():
            # Outputs of about .07: products of pairs start where the likelihood is steepest.
            self.weight.div_(8)
            self.bias.div_(8)

    def forward(self, features: Tensor) -> Tensor:
        """Compute the outputs (n, bits) of features (n, d)."""
        features = features.to(self.weight.dtype)
        mean, spread = self.mean, self.spread
        if self.training:
            mean = features.mean(0)
            spread = ((features - mean).square().mean() + 1e-5).sqrt()
            with torch.no_grad():
                self.mean.lerp_(mean, 0.1)
                self.spread.lerp_(spread, 0.1)
        return super().forward((features - mean) / spread)


def classification_loss(
    scores: Tensor,
    targets: Tensor,
    multilabel: bool,
    reduction: str = "mean",
    smoothing: float = 0.0,
) -> Tensor:
    """Compute the cross entropy, or the binary one over the classes for multi-label images.

    Args:
        scores: Logits (n, classes).
        targets: Float (n, classes).
        multilabel: Whether an image can have any number of labels.
        reduction: Over the classes of multi-label images: "mean" or "sum".
        smoothing: Part of the targets that is spread over all classes; of multi-label targets the
            part that is replaced by 1/2.

    Returns:
        A scalar in the type of the targets, the mean over the images.
    """
    if multilabel:
        targets = targets * (1 - smoothing) + smoothing / 2
        loss = F.binary_cross_entropy_with_logits(scores.to(targets.dtype), targets)
        return loss * targets.shape[1] if reduction == "sum" else loss
    return F.cross_entropy(scores.to(targets.dtype), targets, label_smoothing=smoothing)


def batch_norm(norm: nn.BatchNorm1d, values: Tensor) -> Tensor:
    """Normalize a batch; a batch of one image by the running statistics.

    Args:
        norm: The layer; in training its running statistics are updated.
        values: (n, bits).

    Returns:
        (n, bits).
    """
    return F.batch_norm(
        values,
        norm.running_mean,
        norm.running_var,
        norm.weight,
        norm.bias,
        training=norm.training and len(values) > 1,
        momentum=0.1,
        eps=norm.eps,
    )


def share_a_label(left: Tensor, right: Tensor) -> Tensor:
    """Compute the similarity S of images: 1 for a common label, 0 otherwise.

    Args:
        left: Targets (n, classes).
        right: Targets (m, classes).

    Returns:
        (n, m) in the type of the targets.
    """
    return (left @ right.T > 0).to(left.dtype)


def products(left: Tensor, right: Tensor) -> Tensor:
    """Compute left @ right.T in the precision of its inputs; bfloat16 would round to three digits.

    Args:
        left: (n, k).
        right: (m, k).

    Returns:
        (n, m).
    """
    with torch.autocast(left.device.type, enabled=False):
        return left @ right.T


def pair_likelihood(theta: Tensor, similar: Tensor) -> Tensor:
    """Compute -log p(S | Theta) = log(1 + exp(Theta)) - S Theta of each pair, without overflow.

    Args:
        theta: (n, m), the scaled inner products.
        similar: (n, m) of 0 and 1.

    Returns:
        (n, m).
    """
    return F.softplus(theta) - similar * theta


def sign(values: Tensor) -> Tensor:
    """Return the bits of values as +1 and -1, in the type of the values.

    Example:
        >>> sign(torch.tensor([-0.5, -0.0, 0.0, 2.0])).tolist()
        [-1.0, 1.0, 1.0, 1.0]
    """
    return torch.where(is_one(values), 1.0, -1.0).to(values.dtype)


def random_signs(*shape: int, seed: int) -> Tensor:
    """Draw +1 and -1 with equal probability.

    Args:
        *shape: Shape of the result.
        seed: Seed of the draw.

    Returns:
        Float tensor of this shape.
    """
    return torch.randint(2, shape, generator=torch.Generator().manual_seed(seed)) * 2.0 - 1.0
