"""Run an exported network with onnxruntime, without torch."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from ..config import EMBEDDINGS
from ..data.preprocess import Preprocess, center_array
from ..errors import MissingExtraError, UsageError
from ..native import usable_cores
from ..outputs import Floats
from ..packing import unpack
from ..projections import PARTS, Projection
from .base import Features, HeadValues, Pixels, facts_of_torch
from .files import ACTIVATION, HEAD, NETWORK, Graph, GraphFacts, damaged, read_graph

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class Head(Protocol):
    """Computes values from features, without torch."""

    def __call__(self, features: Floats, original: Floats | None, *, scores: bool) -> HeadValues:
        """See `Runtime.head`."""


@dataclass(frozen=True, eq=False)
class LinearHead:
    """A projection of centered features, as of itq and lsh.

    Attributes:
        mean: float32 (d,).
        directions: float32 (d, bits).
        threshold: float32 (bits,).
    """

    mean: Floats
    directions: Floats
    threshold: Floats

    def __call__(self, features: Floats, original: Floats | None, *, scores: bool) -> HeadValues:
        """Compute the values; there are neither content bits nor scores."""
        values = (features - self.mean) @ self.directions - self.threshold
        return HeadValues(values.astype(np.float32, copy=False))


class OnnxNetwork:
    """An exported network; it is its own runtime, see `hadahash.runtime.base.Runtime`.

    Graphs are verified and loaded on first use, or by `open`.

    Args:
        folder: The folder with the graphs.
        facts: The content of onnx.json.
        preprocess: How images become squares.
        device: "auto", "cpu" or "cuda".
        head: Computes values; None: the graph of the head.
        weights: Content of the file of the weights, or the file, which need not exist.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        UsageError: The device is unknown, or no GPU is available to onnxruntime.
    """

    name = "onnx"

    def __init__(
        self,
        folder: Path,
        facts: GraphFacts,
        preprocess: Preprocess,
        device: str = "auto",
        head: LinearHead | None = None,
        weights: bytes | Path | None = None,
    ) -> None:
        self.folder, self.facts, self.preprocess = folder, facts, preprocess
        self.device = choose_device(device) if facts.graphs else "cpu"
        self.linear, self._weights = head, weights
        self.bits = facts.bits

    @property
    def backbone(self) -> str:
        """Name of the backbone."""
        return self.facts.backbone

    @property
    def width(self) -> int:
        """Number of features of an image."""
        return self.facts.width

    @property
    def has_original(self) -> bool:
        """Whether content bits take the features of a second, original backbone."""
        return self.facts.has_original

    @property
    def fixed_backbone(self) -> bool:
        """Whether the backbone has its initial weights."""
        return self.facts.fixed_backbone

    @property
    def fingerprint(self) -> str | None:
        """Identifies the projection to content bits; None without content bits."""
        return self.facts.fingerprint

    @property
    def projection(self) -> Projection | None:
        """The projection to content bits, from the weights; None if they are not there."""
        content = None if self.fingerprint is None else self.weights_content()
        if content is None:
            return None
        try:
            tensors = safetensors.numpy.load(content)
            found = Projection(*(tensors[f"content.projection.{name}"] for name in PARTS))
        except (safetensors.SafetensorError, KeyError):  # they may be of another model
            return None
        return found if found.fingerprint == self.fingerprint else None

    @property
    def weights_sha256(self) -> str:
        """Digest of the weights that the graphs were made of."""
        return self.facts.weights_sha256

    def weights_content(self) -> bytes | None:
        """Return the content of the file of the weights; None if it is not there."""
        if not isinstance(self._weights, Path):
            return self._weights
        return self._weights.read_bytes() if self._weights.is_file() else None

    def open(self) -> None:
        """Verify and load all graphs now; later the folder is not needed.

        Raises:
            StorageError: A graph is missing or damaged, or onnxruntime cannot run it.
        """
        if NETWORK in self.facts.graphs:
            _ = self._network
        if ACTIVATION in self.facts.graphs:
            _ = self._activation
        _ = self._head

    def load(self, pixels: Pixels) -> Pixels:
        """Return the pixels in the order that the graph takes."""
        return np.ascontiguousarray(pixels)

    def start(self, pixels: Pixels, *, original: bool = True) -> Callable[[], Features]:
        """Compute features.

        Args:
            pixels: Result of `load`.
            original: Also compute those of the original backbone, where there is one. They
                are computed anyway.

        Returns:
            A function that returns float32 (n, d), and those of the original backbone, or None.
        """
        names = ["features", *(["original_features"] if self.has_original else [])]
        given: dict[str, Any] = {"pixels": pixels}
        if "view" in self.facts.graphs[NETWORK].inputs:
            given = {"view": center_array(pixels, self.preprocess)}
        found = self._network.run(names, given)
        return lambda: (found[0], found[1] if self.has_original and original else None)

    def head(self, features: Floats, original: Floats | None, *, scores: bool) -> HeadValues:
        """Compute values from features.

        Args:
            features: float32 (n, d).
            original: Features of the original backbone if `has_original`.
            scores: Also compute the scores of the classifier.

        Returns:
            Values, content values and scores.
        """
        found = self._head(features, original, scores=scores)
        return found._replace(values=found.values[:, : self.bits])

    def relaxed(self, values: Floats) -> Floats:
        """Map values (n, bits) to the continuous code that the method's loss sees."""
        if ACTIVATION not in self.facts.graphs:
            return values
        (found,) = self._activation.run(["relaxed"], {"values": values})
        return cast("Floats", found)

    def codewords(self) -> NDArray[np.int8] | None:
        """Return the codewords of the classes, int8 (C, bits) of -1 and +1, if there are any."""
        if self.facts.codewords is None:
            return None
        rows = [np.frombuffer(bytes.fromhex(row), np.uint8) for row in self.facts.codewords]
        return unpack(np.stack(rows), self.facts.bits)[:, : self.bits]

    def feature_facts(self) -> tuple[object, ...]:
        """Return what determines features; its `repr` is the key of the cache on disk."""
        facts = self.facts
        known = (facts.backbone_sha256, facts.original_sha256)
        network = known if facts.backbone_sha256 else (facts.graphs[NETWORK].sha256,)
        return "onnx", *network, self.preprocess, self.device

    def equal_facts(self) -> tuple[object, ...] | None:
        """Return the facts of torch on a CPU, whose features differ by rounding only."""
        facts = self.facts
        if facts.backbone_sha256 is None:
            return None
        digests = (facts.backbone_sha256, facts.original_sha256)
        return facts_of_torch(digests, self.preprocess, "cpu", "fp32")

    def original_facts(self) -> tuple[object, ...] | None:
        """Return what determines the features of the original backbone.

        Returns:
            The facts; None if there is none, or if it cannot be left out of `features`.
        """
        return None

    def prefix(self, bits: int) -> OnnxNetwork:
        """Return a network that computes the first bits only; it shares all weights."""
        short = copy.copy(self)
        short.bits = bits
        return short

    @cached_property
    def _network(self) -> Any:
        if self.backbone == EMBEDDINGS:
            raise UsageError(f"This model takes embeddings of {self.width:,} floats, got images.")
        return self._session(self.facts.graphs[NETWORK])

    @cached_property
    def _head(self) -> Head:
        if self.linear is not None:
            return self.linear
        return OnnxHead(self._session(self.facts.graphs[HEAD]))

    @cached_property
    def _activation(self) -> Any:
        return self._session(self.facts.graphs[ACTIVATION])

    def _session(self, graph: Graph) -> Any:
        try:
            return open_session(read_graph(self.folder, graph), self.device)
        except RuntimeError as error:  # errors of onnxruntime
            reason = " ".join(str(error).split())[:200]
            raise damaged(self.folder / graph.file, reason) from error


class OnnxHead:
    """The graph from features to values.

    Args:
        session: A session of onnxruntime.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs = {each.name for each in session.get_inputs()}
        self._outputs = [each.name for each in session.get_outputs()]

    def __call__(self, features: Floats, original: Floats | None, *, scores: bool) -> HeadValues:
        """Compute values, content values and scores."""
        given = {"features": features, "original_features": original}
        if not len(features):  # some operators refuse empty arrays
            given = {name: np.zeros((1, features.shape[1]), np.float32) for name in given}
        names = [name for name in self._outputs if scores or name != "scores"]
        found = self._session.run(names, {name: given[name] for name in self._inputs})
        rows = (each[: len(features)] for each in found)
        return HeadValues(**dict(zip(_fields(names), rows, strict=True)))


def _fields(names: Sequence[str]) -> list[str]:
    """The fields of `HeadValues` for outputs of a graph."""
    return ["content" if name == "content_values" else name for name in names]


def open_session(graph: bytes, device: str = "cpu", threads: int | None = None) -> Any:
    """Open a graph.

    Args:
        graph: Content of an ONNX file.
        device: "cpu" or "cuda".
        threads: Number of threads; None: OMP_NUM_THREADS, as torch, or one per usable core.

    Returns:
        The session of onnxruntime.

    Raises:
        MissingExtraError: onnxruntime is not installed.
    """
    runtime = _import_runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or _usual_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that spin while they wait slow down every other process on the machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers = list(dict.fromkeys([_PROVIDERS[device], _PROVIDERS["cpu"]]))
    return runtime.InferenceSession(graph, options, providers=providers)


def _usual_threads() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(given), usable_cores()) if given.isdecimal() and int(given) else usable_cores()


def choose_device(name: str) -> str:
    """Return the kind of device that onnxruntime uses.

    Args:
        name: "auto", "cpu" or "cuda".

    Returns:
        "cpu" or "cuda".

    Raises:
        UsageError: The name is unknown, or no GPU is available to onnxruntime.
    """
    kind = name.partition(":")[0]
    if kind not in ("auto", *_PROVIDERS):
        raise UsageError(f"Unknown device '{name}'. Use auto, cpu or cuda.")
    available = _PROVIDERS["cuda"] in _import_runtime().get_available_providers()
    if kind == "cuda" and not available:
        raise UsageError("No GPU is available to onnxruntime. Use --device cpu.")
    return "cuda" if available and kind != "cpu" else "cpu"


def _import_runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("onnxruntime", "onnx") from None
    return onnxruntime


def with_linear_head(facts: GraphFacts, **changes: Any) -> GraphFacts:
    """Facts of a network whose features are projected by another model.

    Args:
        facts: Facts of the network.
        **changes: Facts of the model.

    Returns:
        The facts, with the graph of the network alone.
    """
    graphs = {NETWORK: facts.graphs[NETWORK]} if facts.graphs else {}
    return replace(facts, graphs=graphs, **changes)
