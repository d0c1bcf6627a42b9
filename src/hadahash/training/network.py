"""The whole network of a run: backbone, method, and the threshold that turns values into bits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..methods import Method
from ..networks import Backbone


class HashNetwork(nn.Module):
    """pixels (n, 3, size, size) in 0..255 to code values (n, bits); a bit is 1 where its value is >= 0."""

    threshold: Tensor

    def __init__(self, backbone: Backbone, method: Method) -> None:
        super().__init__()
        self.backbone, self.method = backbone, method
        self.register_buffer("threshold", torch.zeros(method.task.bits))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.code_values(self.backbone(pixels))

    def code_values(self, features: Tensor) -> Tensor:
        return self.method.values(features).float() - self.threshold
