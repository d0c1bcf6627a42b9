"""Run a network with torch, on a CPU or a GPU."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.preprocess import Preprocess
from ..data.views import center_view
from ..networks import Backbone
from ..networks.fused import fuse_backbone
from ..networks.hash_network import HashNetwork
from ..outputs import Floats
from ..projections import Projection
from .base import Features, HeadValues, Pixels, facts_of_torch


@dataclass(frozen=True, eq=False)
class TorchRuntime:
    """Runs a network with torch.

    Attributes:
        network: The network.
        preprocess: How squares become its input.
        precision: Precision of the backbone on a GPU, "bf16" or "fp32"; a CPU always uses fp32.
    """

    network: HashNetwork
    preprocess: Preprocess
    precision: str = "fp32"
    name = "torch"

    def __getstate__(self) -> dict[str, object]:
        """Copies and other processes make streams and faster copies of the network of their own."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def device(self) -> str:
        """Kind of the device: "cpu" or "cuda"."""
        return self.network.device.type

    @property
    def backbone(self) -> str:
        """Name of the backbone."""
        return self.network.backbone.name

    @property
    def width(self) -> int:
        """Number of features of an image."""
        return self.network.backbone.features

    @property
    def bits(self) -> int:
        """Code length."""
        return self.network.bits

    @property
    def has_original(self) -> bool:
        """Whether content bits take the features of a second, original backbone."""
        content = self.network.content
        return content is not None and content.backbone is not None

    @property
    def fingerprint(self) -> str | None:
        """Identifies the projection to content bits; None without content bits."""
        content = self.network.content
        return None if content is None else content.projection.fingerprint

    @property
    def projection(self) -> Projection | None:
        """The projection to content bits; None without content bits."""
        content = self.network.content
        return None if content is None else content.projection.arrays()

    @cached_property
    def backbones(self) -> tuple[Backbone, Backbone | None]:
        """The backbone and the original one; on a GPU in bf16, faster copies of them."""
        self.network.eval()
        content = self.network.content
        original = None if content is None else content.backbone
        if self.device != "cuda" or self.precision != "bf16":
            return self.network.backbone, original
        fused = fuse_backbone(self.network.backbone)
        return fused, None if original is None else fuse_backbone(original)

    def load(self, pixels: Pixels) -> Tensor:
        """Copy pixels to the device; on a GPU beside the computation of another batch.

        Args:
            pixels: uint8 (n, 3, side, side).

        Returns:
            The pixels for `start`.
        """
        host = torch.from_numpy(pixels if pixels.flags.writeable else pixels.copy())
        if self.device != "cuda":
            return host
        pinned = torch.empty_like(host, pin_memory=True).copy_(host)
        with torch.cuda.stream(self._streams.load):
            loaded = pinned.to(self.network.device, non_blocking=True)
        self._streams.load.synchronize()
        return loaded

    @cached_property
    def _streams(self) -> _Streams:
        """Where a GPU does what need not wait for the backbone."""
        device = self.network.device
        torch.cuda.current_stream(device).synchronize()  # the weights may just have been computed
        load, head = (torch.cuda.Stream(device) for _ in range(2))  # type: ignore[no-untyped-call]
        return _Streams(load, head)

    def start(self, pixels: Tensor, *, original: bool = True) -> Callable[[], Features]:
        """Begin to compute features; the batch is halved if memory runs out.

        Args:
            pixels: Result of `load`.
            original: Also compute those of the original backbone, where there is one.

        Returns:
            A function that waits for the features and returns them: float32 (n, d), and those of
            the original backbone, or None.
        """
        if not pixels.is_cuda:
            found = _arrays(self._forward(pixels, original))
            return lambda: found
        stream = torch.cuda.current_stream(pixels.device)
        pixels.record_stream(stream)  # `load` used another one
        own, other = self._forward(pixels, original)
        copies = _begin_copy(own), None if other is None else _begin_copy(other)
        done = stream.record_event()

        def finish() -> Features:
            done.synchronize()
            return _arrays(copies)

        return finish

    def head(self, features: Floats, original: Floats | None, *, scores: bool) -> HeadValues:
        """Compute values from features.

        Args:
            features: float32 (n, d).
            original: Features of the original backbone if `has_original`.
            scores: Also compute the scores of the classifier.

        Returns:
            Values, content values and scores.
        """
        network, content, found = self.network, None, None
        network.eval()
        stream = self._streams.head if self.device == "cuda" else None
        with torch.inference_mode(), torch.cuda.stream(stream):
            own = torch.from_numpy(features).to(network.device)
            values = network.values(own) if len(own) else own.new_empty(0, network.bits)
            if network.content is not None:
                other = own if original is None else torch.from_numpy(original).to(own.device)
                content = _array(network.content.projection.values(other))
            if scores:
                found = network.class_scores(own)
        return HeadValues(_array(values), content, None if found is None else _array(found))

    def relaxed(self, values: Floats) -> Floats:
        """Map values (n, bits) to the continuous code that the method's loss sees."""
        with torch.inference_mode():
            given = torch.from_numpy(values).to(self.network.device)
            return _array(self.network.relaxed(given).float())

    def codewords(self) -> NDArray[np.int8] | None:
        """Return the codewords of the classes, int8 (C, bits) of -1 and +1, if there are any."""
        words = self.network.codewords()
        return None if words is None else words.sign().to(torch.int8).cpu().numpy()

    def feature_facts(self) -> tuple[object, ...]:
        """Return what determines features; its `repr` is the key of the cache on disk."""
        return facts_of_torch(
            backbone_digests(self.network), self.preprocess, self.device, self.precision
        )

    def equal_facts(self) -> None:
        """Return None: features of other runtimes are not used, so training is reproducible."""

    def original_facts(self) -> tuple[object, ...] | None:
        """Return what determines the features of the original backbone.

        Returns:
            The facts; None if there is none, or if it cannot be left out of `features`.
        """
        content = self.network.content
        if content is None or content.backbone is None:
            return None
        precision = self.device == "cuda" and self.precision
        return weights_digest(content.backbone), self.preprocess, self.device, precision

    def prefix(self, bits: int) -> TorchRuntime:
        """Return a runtime that computes the first bits only; it shares all weights."""
        return replace(self, network=self.network.prefix(bits))

    def _forward(self, pixels: Tensor, original: bool) -> tuple[Tensor, Tensor | None]:
        backbone, other = self.backbones
        try:
            with torch.inference_mode(), backbone_kernels(self.network.device, self.precision):
                view = center_view(pixels, self.preprocess)
                own = self._run(backbone, view)
                return own, self._run(other, view) if original and other is not None else None
        except torch.cuda.OutOfMemoryError:
            if len(pixels) == 1:
                raise
        torch.cuda.empty_cache()
        half = len(pixels) // 2
        parts = [self._forward(part, original) for part in (pixels[:half], pixels[half:])]
        others = [part[1] for part in parts if part[1] is not None]
        return torch.cat([part[0] for part in parts]), torch.cat(others) if others else None

    def _run(self, backbone: Backbone, view: Tensor) -> Tensor:
        """The features of a batch, averaged with those of its mirror images if so set."""
        features: Tensor = backbone(view)
        if self.preprocess.mirror:
            features = (features + backbone(view.flip(-1))) / 2
        return features.float()


class _Streams(NamedTuple):
    load: torch.cuda.Stream
    head: torch.cuda.Stream


def _begin_copy(tensor: Tensor) -> Tensor:
    """Begin to copy a tensor to memory of the CPU."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return copy.copy_(tensor, non_blocking=True)


def _arrays(tensors: tuple[Tensor, Tensor | None]) -> Features:
    own, other = tensors
    return own.numpy(), None if other is None else other.numpy()


def _array(tensor: Tensor) -> Floats:
    return cast("Floats", tensor.cpu().numpy())


def backbone_digests(network: HashNetwork) -> list[str | None]:
    """Return digests of the weights of the backbone, and of the original one or None.

    Args:
        network: The network.

    Returns:
        Two digests in hexadecimal.
    """
    content = network.content
    backbones = [network.backbone, content and content.backbone]
    return [None if each is None else weights_digest(each) for each in backbones]


def weights_digest(module: nn.Module) -> str:
    """Return a sha256 that changes with any weight of a module.

    Args:
        module: The module.

    Returns:
        The digest in hexadecimal.
    """
    digest = hashlib.sha256(type(module).__name__.encode())
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def backbone_kernels(device: torch.device, precision: str) -> Iterator[None]:
    """Autocast to bfloat16 and the fastest convolutions on a GPU; nothing on a CPU."""
    on_gpu = device.type == "cuda"
    with (
        torch.autocast(device.type, torch.bfloat16, enabled=on_gpu and precision == "bf16"),
        torch.backends.cudnn.flags(enabled=True, benchmark=on_gpu),
    ):
        yield
