"""The layers on top of a backbone: the hash layer and the classifier, on one stream or two."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class HashHead(nn.Module):
    """A linear hash layer of `bits` units and, if `classes` > 0, a linear classifier.

    With one stream the classifier reads tanh of the hash layer, so its error shapes the code; with two it stands beside
    the hash layer and reads the features.
    """

    def __init__(self, features: int, bits: int, classes: int = 0, *, streams: int = 1) -> None:
        super().__init__()
        self.streams = streams
        self.hash = nn.Linear(features, bits)
        self.classifier = (
            nn.Linear(bits if streams == 1 else features, classes) if classes else None
        )

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """features (n, d) to (code values in (-1, 1) (n, bits), class scores (n, classes) or None)"""
        values = torch.tanh(self.hash(features))
        if self.classifier is None:
            return values, None
        return values, self.classifier(values if self.streams == 1 else features)
