"""The complete network of a model: backbone, hashing method, and the threshold per bit."""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import Tensor, nn

from .backbones import Backbone


class _Method(Protocol):
    def values(self, features: Tensor, /) -> Tensor: ...

    def upgrade_state(self, tensors: dict[str, Tensor], /) -> dict[str, Tensor]: ...


class HashNetwork(nn.Module):
    """Maps pixels (n, 3, size, size) in 0..255 to real values (n, bits); a bit is 1 where its value is >= 0.

    The backbone may run in reduced precision. The method's head and the threshold always run in float32:
    kernel methods subtract large sums, and bfloat16 would change up to 4 % of their bits.

    Args:
        backbone: The feature extractor.
        method: The hashing method, a module with `values(features) -> (n, bits)`.
        bits: Code length.
    """

    threshold: Tensor

    def __init__(self, backbone: Backbone, method: nn.Module, bits: int) -> None:
        super().__init__()
        self.backbone, self.method, self.bits = backbone, method, bits
        self.register_buffer("threshold", torch.zeros(bits))

    @property
    def device(self) -> torch.device:
        """The device that holds the weights."""
        return self.threshold.device

    def forward(self, pixels: Tensor) -> Tensor:
        """Values (n, bits) of pixels (n, 3, size, size)."""
        return self.values(self.backbone(pixels))

    def values(self, features: Tensor) -> Tensor:
        """Values (n, bits) of backbone features (n, d), always computed in float32."""
        method = cast(_Method, self.method)
        with torch.autocast(features.device.type, enabled=False):
            return method.values(features.float()).float() - self.threshold

    def upgrade_state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert the tensors of an older model file to the present names and shapes.

        Args:
            tensors: Tensors by name, as in `state_dict()` of the version that wrote the file.

        Returns:
            Tensors by name, as in the present `state_dict()`.
        """
        prefix = "method."
        kept = {key: value for key, value in tensors.items() if not key.startswith(prefix)}
        stored = {key.removeprefix(prefix): tensors[key] for key in tensors.keys() - kept.keys()}
        upgraded = cast(_Method, self.method).upgrade_state(stored)
        return kept | {prefix + key: value for key, value in upgraded.items()}
