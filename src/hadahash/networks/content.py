"""The content part of a network: bits that tell images apart, beside those that tell classes apart.

A projection of backbone features gives the values whose signs are the content bits. The features
are those of the original backbone, before training, because training makes the images of a class
alike.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..projections import Projection
from .backbones import Backbone


class ContentProjection(nn.Module):
    """Values z = (x - mean) matrix / scale of features x, with about unit variance per bit.

    Args:
        mean: Mean of the features (d,).
        matrix: Directions (d, bits).
        scale: Standard deviation of each projected feature (bits,).

    Example:
        >>> projection = ContentProjection(torch.zeros(3), torch.eye(3)[:, :2], torch.ones(2))
        >>> projection.values(torch.tensor([[1.0, -2.0, 5.0]])).tolist(), projection.bits
        ([[1.0, -2.0]], 2)
    """

    mean: Tensor
    matrix: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, matrix: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("matrix", matrix.float().contiguous())
        self.register_buffer("scale", scale.float())

    @property
    def bits(self) -> int:
        """Number of content bits."""
        return int(self.matrix.shape[1])

    @property
    def fingerprint(self) -> str:
        """sha256 of mean, matrix and scale: content bits of equal fingerprints can be compared."""
        return self.arrays().fingerprint

    def arrays(self) -> Projection:
        """The same projection in numpy."""
        parts = (self.mean, self.matrix, self.scale)
        return Projection(*(each.detach().cpu().numpy() for each in parts))

    def values(self, features: Tensor) -> Tensor:
        """Project features, always in float32.

        Args:
            features: Features of the original backbone (n, d).

        Returns:
            Float32 (n, bits). A content bit is 1 where its value is >= 0.
        """
        with torch.autocast(features.device.type, enabled=False):
            return (features.float() - self.mean) @ self.matrix / self.scale


class ContentPart(nn.Module):
    """The projection to content bits, and the backbone whose features it takes.

    Args:
        projection: The projection.
        backbone: The original backbone; None where it is the backbone of the network.
    """

    def __init__(self, projection: ContentProjection, backbone: Backbone | None = None) -> None:
        super().__init__()
        self.projection, self.backbone = projection, backbone

    @staticmethod
    def empty(bits: int, features: int, backbone: Backbone | None) -> ContentPart:
        """A content part without values, for a state_dict that is loaded next.

        Args:
            bits: Number of content bits.
            features: Width of the features.
            backbone: The original backbone, or None.

        Returns:
            The content part.
        """
        shapes = ((features,), (features, bits), (bits,))
        return ContentPart(ContentProjection(*map(torch.zeros, shapes)), backbone)
