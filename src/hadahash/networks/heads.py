"""The layers on top of a backbone: the hash layer and the classifier, on one stream or two."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class HashHead(nn.Module):
    """A linear hash layer with tanh and, if `classes` > 0, a linear classifier.

    With one stream the classifier reads tanh of the hash layer, so that its gradient shapes the
    code. With two streams it reads the features, in parallel to the hash layer.

    Args:
        features: Width of the input.
        bits: Units of the hash layer.
        classes: Units of the classifier; 0 for none.
        streams: 1 or 2.
    """

    def __init__(self, features: int, bits: int, classes: int = 0, *, streams: int = 1) -> None:
        super().__init__()
        self.streams = streams
        self.hash = nn.Linear(features, bits)
        inputs = bits if streams == 1 else features
        self.classifier = nn.Linear(inputs, classes) if classes else None

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute values and class scores.

        Args:
            features: Float (n, features).

        Returns:
            Values (n, bits) in (-1, 1), and scores (n, classes) or None.
        """
        values = torch.tanh(self.hash(features))
        if self.classifier is None:
            return values, None
        return values, self.classifier(values if self.streams == 1 else features)
