"""The interface of a runtime: pixels to features, features to values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..data.preprocess import Preprocess
from ..outputs import Floats, relaxed_values
from ..projections import Projection

if TYPE_CHECKING:
    from typing_extensions import Self

Pixels = NDArray[np.uint8]
# float32 (n, d), and the features of the original backbone, or None.
Features = tuple[Floats, "Floats | None"]


class HeadValues(NamedTuple):
    """What follows from features.

    Attributes:
        values: float32 (n, bits). A bit is 1 where its value is >= 0.
        content: float32 (n, content bits); None without content bits.
        scores: float32 (n, classes), before softmax; None if they were not asked for, or if the
            method has no classifier.
    """

    values: Floats
    content: Floats | None = None
    scores: Floats | None = None


class Runtime(Protocol):
    """Runs a network. Arrays in, arrays out."""

    @property
    def name(self) -> str:
        """Name of the runtime: "torch" or "onnx"."""

    @property
    def device(self) -> str:
        """Kind of the device: "cpu" or "cuda"."""

    @property
    def backbone(self) -> str:
        """Name of the backbone; "embeddings" for a model on given vectors."""

    @property
    def width(self) -> int:
        """Number of features of an image."""

    @property
    def bits(self) -> int:
        """Code length."""

    @property
    def has_original(self) -> bool:
        """Whether content bits take the features of a second, original backbone."""

    @property
    def fingerprint(self) -> str | None:
        """Identifies the projection to content bits; None without content bits."""

    @property
    def projection(self) -> Projection | None:
        """The projection to content bits; None without content bits, or if no file has it."""

    def load(self, pixels: Pixels) -> Any:
        """Copy pixels to the device. A thread may do so while another one computes features.

        Args:
            pixels: uint8 (n, 3, side, side).

        Returns:
            The pixels for `start`.
        """

    def start(self, pixels: Any, *, original: bool = True) -> Callable[[], Features]:
        """Begin to compute features: a GPU goes on while the caller does something else.

        Args:
            pixels: Result of `load`.
            original: Also compute those of the original backbone, where there is one.

        Returns:
            A function that returns the features when they are computed.
        """

    def head(self, features: Floats, original: Floats | None, *, scores: bool) -> HeadValues:
        """Compute values from features.

        Args:
            features: float32 (n, d).
            original: Features of the original backbone if `has_original`.
            scores: Also compute the scores of the classifier.

        Returns:
            Values, content values and scores.
        """

    def relaxed(self, values: Floats) -> Floats:
        """Map values (n, bits) to the continuous code that the method's loss sees."""

    def codewords(self) -> NDArray[np.int8] | None:
        """Return the codewords of the classes, int8 (C, bits) of -1 and +1, if there are any."""

    def feature_facts(self) -> tuple[object, ...]:
        """Return what determines features; its `repr` is the key of the cache on disk."""

    def equal_facts(self) -> tuple[object, ...] | None:
        """Return the `feature_facts` of another runtime whose features may be used as well.

        Returns:
            The facts of the same network in the runtime that it was trained with, whose features
            differ by rounding only; None if this is that runtime, or if they are not known.
        """

    def original_facts(self) -> tuple[object, ...] | None:
        """Return what determines the features of the original backbone.

        Returns:
            The facts; None if there is none, or if it cannot be left out of `features`.
        """

    def prefix(self, bits: int) -> Self:
        """Return a runtime that computes the first bits only; it shares all weights."""


def facts_of_torch(
    digests: Sequence[str | None], preprocess: Preprocess, device: str, precision: str
) -> tuple[object, ...]:
    """What determines the features that torch computes.

    Args:
        digests: Of the weights of the backbone, and of the original one or None.
        preprocess: How images become its input.
        device: "cpu" or "cuda".
        precision: Precision of the backbone on a GPU.

    Returns:
        The facts; their `repr` is the key of the cache on disk.
    """
    return (*digests, preprocess, device, device == "cuda" and precision)


def runtime_of(network: Any, preprocess: Preprocess, precision: str) -> Runtime:
    """Return the runtime of a network.

    Args:
        network: A `networks.hash_network.HashNetwork`, or a network that is a runtime itself.
        preprocess: How images become its input.
        precision: Precision of the backbone on a GPU.

    Returns:
        The runtime.
    """
    if hasattr(network, "feature_facts"):
        return cast(Runtime, network)
    from .torch import TorchRuntime

    return TorchRuntime(network, preprocess, precision)


def bounded_relaxed(runtime: Runtime, values: Floats) -> Floats:
    """The continuous codes of a network in [-1, 1], for real-valued queries.

    Args:
        runtime: Runs the network.
        values: Its values (n, bits), before the method's activation.

    Returns:
        float32 (n, bits); the signs are those of `values`.
    """
    clamp = runtime.codewords() is not None
    return relaxed_values(values, runtime.relaxed(values), clamp=clamp)
