"""Write a torch network as ONNX graphs; see `hadahash.runtime.files` for the files."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..config import EMBEDDINGS
from ..data.preprocess import Preprocess, view_matrix
from ..data.squares import enough_for
from ..errors import MissingExtraError, UsageError
from ..lazy import is_installed
from ..networks.hash_network import HashNetwork
from ..packing import pack
from .files import ACTIVATION, HEAD, NETWORK, Graph, GraphFacts, write_facts, write_graph
from .onnx import open_session
from .torch import TorchRuntime, backbone_digests

OPSET = 18
_PACKAGES = ("torch", "onnx")
_TOLERANCE = 1e-3  # of values, relative to the largest one


class Squares(nn.Module):
    """The central part of squares as network input: `data.views.center_view` as two products.

    Args:
        preprocess: Part of the square and size of the result.
    """

    matrix: Tensor

    def __init__(self, preprocess: Preprocess) -> None:
        super().__init__()
        matrix = view_matrix(preprocess)
        self.register_buffer("matrix", torch.from_numpy(matrix).float())
        chosen = matrix.argmax(1)
        self.whole = bool(np.allclose(matrix.max(1), 1, atol=1e-4))  # a plain crop
        self.start, self.end = int(chosen[0]), int(chosen[-1]) + 1

    def forward(self, pixels: Tensor) -> Tensor:
        """Return float32 (n, 3, size, size) in [0, 255] of uint8 (n, 3, side, side)."""
        if self.whole:
            inner = slice(self.start, self.end)
            return pixels[:, :, inner, inner].float()
        return self.matrix @ pixels.float() @ self.matrix.T


class WholeNetwork(nn.Module):
    """Pixels to features, values and packed codes.

    Args:
        network: The network.
        preprocess: How squares become its input.
    """

    def __init__(self, network: HashNetwork, preprocess: Preprocess) -> None:
        super().__init__()
        self.network, self.squares = network, Squares(preprocess)
        self.mirror = preprocess.mirror
        self.head = HeadGraph(network)

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        """Return the outputs by name."""
        view, content = self.squares(pixels), self.network.content
        found = {"features": self._features(self.network.backbone, view)}
        if content is not None and content.backbone is not None:
            found["original_features"] = self._features(content.backbone, view)
        found |= self.head(found["features"], found.get("original_features"))
        found["codes"] = packed(found["values"])
        if "content_values" in found:
            found["content_codes"] = packed(found["content_values"])
        return found

    def _features(self, backbone: nn.Module, view: Tensor) -> Tensor:
        features: Tensor = backbone(view)
        if self.mirror:
            features = (features + backbone(view.flip(-1))) / 2
        return features


class ViewNetwork(nn.Module):
    """Network input in [0, 255], as `data.preprocess.center_array` gives it, to features.

    Args:
        network: The network.
    """

    def __init__(self, network: HashNetwork) -> None:
        super().__init__()
        self.backbone = network.backbone

    def forward(self, view: Tensor) -> dict[str, Tensor]:
        """Return the features."""
        return {"features": self.backbone(view)}


class HeadGraph(nn.Module):
    """Features to values, content values and scores.

    Args:
        network: The network.
    """

    def __init__(self, network: HashNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, features: Tensor, original_features: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the outputs by name."""
        content, found = self.network.content, {"values": self.network.values(features)}
        if content is not None:
            original = features if original_features is None else original_features
            found["content_values"] = content.projection.values(original)
        scores = self.network.class_scores(features)
        return found if scores is None else {**found, "scores": scores}


class ActivationGraph(nn.Module):
    """Values to the continuous code that the loss sees.

    Args:
        network: The network.
    """

    def __init__(self, network: HashNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, values: Tensor) -> dict[str, Tensor]:
        """Return the continuous code."""
        return {"relaxed": self.network.relaxed(values).float()}


def packed(values: Tensor) -> Tensor:
    """Pack values (n, bits) into codes, uint8 (n, ceil(bits / 8)), as `packing.pack` does."""
    bits = (values >= 0).to(values.dtype)
    bits = nn.functional.pad(bits, (0, -bits.shape[1] % 8))
    weights = 2.0 ** torch.arange(7, -1, -1, dtype=values.dtype)
    rows: Tensor = bits.reshape(-1, bits.shape[1] // 8, 8) @ weights
    return rows.to(torch.uint8)


def export_network(
    network: HashNetwork,
    folder: Path,
    *,
    preprocess: Preprocess,
    model_id: str,
    weights_sha256: str,
    fixed_backbone: bool,
    codes: bool = True,
) -> GraphFacts:
    """Write the graphs of a network and onnx.json into the folder of its model.

    Args:
        network: The network, on the CPU and in evaluation mode.
        folder: The folder.
        preprocess: How images become its input.
        model_id: Id of the model.
        weights_sha256: Digest of its weights.
        fixed_backbone: Whether the backbone has its initial weights.
        codes: False: write the graph from network input to features alone, for any preprocessing
            of this size; the projection of itq and lsh is read from the weights.

    Returns:
        What was written to onnx.json.

    Raises:
        MissingExtraError: onnx is not installed.
        UsageError: onnxruntime cannot run the graph, or its results differ from those of torch.
        StorageError: A file cannot be written.
    """
    runtime = TorchRuntime(network, preprocess)
    words = runtime.codewords()
    own, original = backbone_digests(network)
    facts: dict[str, Any] = {
        "model_id": model_id,
        "weights_sha256": weights_sha256,
        "backbone": runtime.backbone,
        "width": runtime.width,
        "bits": runtime.bits,
        "content_bits": 0 if network.content is None else network.content.projection.bits,
        "has_original": runtime.has_original,
        "fixed_backbone": fixed_backbone,
        "backbone_sha256": own,
        "original_sha256": original,
        "fingerprint": runtime.fingerprint,
        "codewords": None if words is None else tuple(row.tobytes().hex() for row in pack(words)),
        "opset": OPSET,
        "preprocessing": describe(preprocess, view=not codes),
        "made_with": {name: metadata.version(name) for name in _PACKAGES},
    }
    about = {key: facts[key] for key in ("model_id", "bits", "content_bits", "preprocessing")}
    graphs = _write_graphs(network, folder, preprocess, about, codes=codes)
    written = GraphFacts(**facts, graphs=graphs)
    write_facts(folder, written)
    return written


def describe(preprocess: Preprocess, *, view: bool = False) -> dict[str, Any]:
    """What happens to an image before and inside the network graph.

    Args:
        preprocess: How images become network input.
        view: Whether the graph takes network input, as `ViewNetwork` does, instead of squares.

    Returns:
        Texts, and the settings.
    """
    mirror = ", and the average with the mirror image." if preprocess.mirror and not view else "."
    inside = "scaling by mean and standard deviation" + mirror
    if not view:
        inside = f"Crop of the center, bilinear resampling to the input size, {inside}"
    return {
        "before": _square_text(preprocess) + (_center_text(preprocess) if view else ""),
        "inside": inside[0].upper() + inside[1:],
        **asdict(preprocess),
    }


def _square_text(preprocess: Preprocess) -> str:
    side = preprocess.side
    return (
        "Decode, turn upright and convert to RGB. A JPEG is decoded at 1/2, 1/4 or 1/8 "
        "of its size, the smallest of which both sides are at least "
        f"{enough_for(side)} pixels; if there is none, and any other format, in full. Resize to "
        f"{side} x {side} with an antialiased bilinear filter (fit: {preprocess.fit}): Pillow's "
        "BILINEAR, which rounds after each of two passes; a JPEG that was decoded smaller is "
        "rounded once, at the end, and the part to resize is that of the full image divided by 2, "
        f"4 or 8, not rounded to pixels. uint8 (n, 3, {side}, {side})."
    )


def _center_text(preprocess: Preprocess) -> str:
    side, size, crop = preprocess.side, preprocess.size, preprocess.crop
    return (
        f" Take the center of the square, {crop:g} of its side, and sample it at {size} x {size} "
        "points, bilinearly and without antialiasing: point i of an axis is at pixel "
        f"(i + 0.5) * {crop:g} * {side} / {size} + {1 - crop:g} * {side} / 2 - 0.5; a neighbor "
        "outside of the square is its edge. "
        f"float32 (n, 3, {size}, {size}) in [0, 255]."
    )


def _write_graphs(
    network: HashNetwork,
    folder: Path,
    preprocess: Preprocess,
    about: Mapping[str, Any],
    *,
    codes: bool,
) -> dict[str, Graph]:
    width, side, size = network.backbone.features, preprocess.side, preprocess.size
    found = {}
    if not codes:
        view = 255 * torch.rand(2, 3, size, size)
        return {NETWORK: _write(folder, NETWORK, ViewNetwork(network), {"view": view}, about)}
    if network.backbone.name != EMBEDDINGS:
        whole = WholeNetwork(network, preprocess)
        pixels = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8)
        found[NETWORK] = _write(folder, NETWORK, whole, {"pixels": pixels}, about)
    names = ["features"]
    if TorchRuntime(network, preprocess).has_original:
        names.append("original_features")
    given = {name: torch.randn(2, width) for name in names}
    found[HEAD] = _write(folder, HEAD, HeadGraph(network), given, about)
    activation, values = ActivationGraph(network), torch.randn(2, network.bits)
    with torch.no_grad():
        same = torch.equal(activation(values)["relaxed"], values)
    if not same:
        found[ACTIVATION] = _write(folder, ACTIVATION, activation, {"values": values}, about)
    return found


def _write(
    folder: Path,
    name: str,
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    about: Mapping[str, Any],
) -> Graph:
    with torch.no_grad():
        outputs = module.eval()(*inputs.values())
    content = to_onnx(module, inputs, list(outputs), {"hadahash": json.dumps(about)})
    if is_installed("onnxruntime"):
        _verify(name, module, content, {key: each[[0, 1, 0]] for key, each in inputs.items()})
    return write_graph(
        folder, name, content, inputs=_described(inputs), outputs=_described(outputs)
    )


def _verify(name: str, module: nn.Module, content: bytes, inputs: Mapping[str, Tensor]) -> None:
    """Run a graph on another number of rows than it was traced with, and compare."""
    given = {key: each.numpy() for key, each in inputs.items()}
    with torch.no_grad():
        expected = module(*inputs.values())
    try:
        found = open_session(content).run(list(expected), given)
    except Exception as error:  # onnxruntime raises types of its own
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"The {name} of this model cannot be run by onnxruntime: {reason}"
        ) from error
    for (key, own), other in zip(expected.items(), found, strict=True):
        limit = _TOLERANCE * (1 + float(own.abs().max()))
        if own.dtype == torch.float32 and float(np.abs(own.numpy() - other).max()) > limit:
            raise UsageError(
                f"The exported {name} gives other {key} than torch. The method or the backbone "
                "uses operations that cannot be exported."
            )


def _described(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {
        name: f"{str(each.dtype).removeprefix('torch.')} (n, {', '.join(map(str, each.shape[1:]))})"
        for name, each in tensors.items()
    }


def to_onnx(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    facts: Mapping[str, str],
) -> bytes:
    """Export a module.

    Args:
        module: The module; it returns tensors by name.
        inputs: Examples of its inputs by name, two rows each. The number of rows is left open.
        outputs: Names of its outputs, in their order.
        facts: Metadata of the file.

    Returns:
        Content of the ONNX file.

    Raises:
        MissingExtraError: onnx is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "train") from None
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(inputs.values()),
            buffer,  # type: ignore[arg-type]
            dynamo=False,  # ten times as fast as the other exporter, with the same results
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: {0: "n"} for name in (*inputs, *outputs)},
            opset_version=OPSET,
        )
    model = onnx.load_from_string(buffer.getvalue())
    for key, value in facts.items():
        model.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content
