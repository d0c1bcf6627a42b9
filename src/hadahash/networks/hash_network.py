"""The complete network of a model: backbone, hashing method, and the threshold per bit."""

from __future__ import annotations

import copy
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from .backbones import Backbone
from .content import ContentPart


class _Method(Protocol):
    """The part of a method's interface that the network uses; see `hadahash.methods.Method`."""

    def values(self, features: Tensor, /) -> Tensor: ...

    def relaxed(self, values: Tensor, /) -> Tensor: ...

    def class_scores(self, features: Tensor, /) -> Tensor | None: ...

    def codewords(self) -> Tensor | None: ...

    def upgrade_state(self, tensors: dict[str, Tensor], /) -> dict[str, Tensor]: ...


class HashNetwork(nn.Module):
    """A network from pixels in 0..255 to real values (n, bits); a bit is 1 where its value is >= 0.

    The backbone may run in reduced precision. The method's head and the threshold always run in
    float32: kernel methods subtract large sums, and bfloat16 would change up to 4 % of their bits.

    Args:
        backbone: The feature extractor.
        method: The hashing method, a `hadahash.methods.Method`.
        bits: Code length.
        content: The part that gives content bits, or None.
    """

    threshold: Tensor

    def __init__(
        self,
        backbone: Backbone,
        method: nn.Module,
        bits: int,
        content: ContentPart | None = None,
    ) -> None:
        super().__init__()
        self.backbone, self.method, self.bits = backbone, method, bits
        self.content = content
        self.register_buffer("threshold", torch.zeros(bits))

    @property
    def device(self) -> torch.device:
        """The device that holds the weights."""
        return self.threshold.device

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute the values (n, bits) of pixels (n, 3, size, size)."""
        return self.values(self.backbone(pixels))

    def values(self, features: Tensor) -> Tensor:
        """Compute values from features, always in float32.

        Args:
            features: Backbone features (n, d).

        Returns:
            Float32 (n, bits), after subtracting the threshold.
        """
        with torch.autocast(features.device.type, enabled=False):
            values = self._contract.values(features.float()).float() - self.threshold
        return values[:, : self.bits]

    def relaxed(self, values: Tensor) -> Tensor:
        """Map values (n, bits) to the continuous code that the method's loss sees."""
        return self._contract.relaxed(values)

    def class_scores(self, features: Tensor) -> Tensor | None:
        """Compute the scores of the method's classifier, always in float32.

        Args:
            features: Backbone features (n, d).

        Returns:
            Float32 (n, classes), before softmax; None if the method has no classifier.
        """
        with torch.autocast(features.device.type, enabled=False):
            scores = self._contract.class_scores(features.float())
            return None if scores is None else scores.float()

    def codewords(self) -> Tensor | None:
        """Return the codewords (classes, bits) of +1 and -1, or None if the method has none."""
        words = self._contract.codewords()
        return None if words is None else words[:, : self.bits]

    def prefix(self, bits: int) -> HashNetwork:
        """Return a network that computes the first bits only; it shares all weights.

        Args:
            bits: Number of bits.

        Returns:
            The network, for encoding.
        """
        short = copy.copy(self)
        short.bits = bits
        return short

    def upgrade_state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert the tensors of an older model file to the current names and shapes.

        Args:
            tensors: Tensors by name, as in `state_dict()` of the version that wrote the file.

        Returns:
            Tensors by name, as in the current `state_dict()`.
        """
        parts: dict[str, dict[str, Tensor]] = {"": {}, "backbone.": {}, "method.": {}}
        for key, value in tensors.items():
            prefix = next(part for part in ("backbone.", "method.", "") if key.startswith(part))
            parts[prefix][key.removeprefix(prefix)] = value
        parts["backbone."] = self.backbone.upgrade_state(parts["backbone."])
        parts["method."] = self._contract.upgrade_state(parts["method."])
        return {prefix + key: value for prefix in parts for key, value in parts[prefix].items()}

    @property
    def _contract(self) -> _Method:
        return cast(_Method, self.method)
