"""The files of an exported model: onnx.json and the ONNX graphs that it names.

onnx.json records the model, the opset, what each graph takes and gives, the sha256 of each graph,
and a checksum of itself. There are up to three graphs:

    network     pixels to features, values and packed codes
    head        features to values
    activation  values to the continuous code of real-valued queries; without it they are equal

A model whose code is a projection of features (itq, lsh) needs no head: the projection is read from
the weights of the model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from .. import files
from ..errors import NewerFileError, StorageError

FORMAT = 2  # 1: without the digests of the backbones
FACTS = "onnx.json"
NETWORK, HEAD, ACTIVATION = "network", "head", "activation"
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("model_id", "weights_sha256", "backbone"), (str,)),
    **dict.fromkeys(("backbone_sha256", "original_sha256", "fingerprint"), (str, NoneType)),
    **dict.fromkeys(("width", "bits", "content_bits"), (int,)),
    **dict.fromkeys(("has_original", "fixed_backbone"), (bool,)),
}  # of the values of onnx.json that are used
_GRAPH = re.compile(r"[a-z]+-[0-9a-f]{12}\.onnx")


@dataclass(frozen=True)
class Graph:
    """One ONNX file.

    Attributes:
        file: Its name.
        sha256: Digest of its content.
        inputs: What it takes, in words.
        outputs: What it gives, in words.
    """

    file: str
    sha256: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GraphFacts:
    """The content of onnx.json.

    Attributes:
        model_id: Id of the model.
        weights_sha256: Digest of its weights.
        backbone: Name of the backbone; "embeddings" for a model on given vectors.
        width: Number of features.
        bits: Code length.
        content_bits: Number of content bits.
        has_original: Whether content bits take the features of a second, original backbone.
        fixed_backbone: Whether the backbone has its initial weights.
        backbone_sha256: Digest of the weights of the backbone; None in files of format 1.
        original_sha256: Digest of the weights of the original backbone, if there is one.
        fingerprint: Identifies the projection to content bits; None without content bits.
        codewords: Codewords of the classes, packed, in hexadecimal digits; None if there are none.
        opset: Version of the operators of the graphs; None without a graph.
        preprocessing: What happens to an image before and inside the network graph.
        made_with: Versions of the packages that wrote the graphs.
        graphs: The graphs by name.
    """

    model_id: str
    weights_sha256: str
    backbone: str
    width: int
    bits: int
    content_bits: int = 0
    has_original: bool = False
    fixed_backbone: bool = True
    backbone_sha256: str | None = None
    original_sha256: str | None = None
    fingerprint: str | None = None
    codewords: tuple[str, ...] | None = None
    opset: int | None = None
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, str] = field(default_factory=dict)
    graphs: Mapping[str, Graph] = field(default_factory=dict)


def write_facts(folder: Path, facts: GraphFacts) -> None:
    """Write onnx.json; the graphs are there already.

    Args:
        folder: The folder of the model.
        facts: The content.

    Raises:
        StorageError: The file cannot be written.
    """
    content: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, **asdict(facts)}))
    files.write_json(folder / FACTS, content | {"sha256": _digest(content)})


def read_facts(folder: Path) -> GraphFacts | None:
    """Read onnx.json.

    Args:
        folder: The folder of the model.

    Returns:
        The content; None if the folder has no such file.

    Raises:
        StorageError: The file is damaged.
        NewerFileError: A later version wrote it.
    """
    path = folder / FACTS
    if not path.exists():
        return None
    content = files.read_json(path)
    try:
        digest, version = content.pop("sha256"), int(content.pop("format"))
        if version > FORMAT:
            raise NewerFileError(
                f"{path} was written by a later version. Update with: pip install -U hadahash"
            )
        if digest != _digest({"format": version, **content}):
            raise damaged(path, "its checksum does not match")
        return _facts(content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error


def _facts(content: dict[str, Any]) -> GraphFacts:
    """The content of onnx.json with values of the right types."""
    graphs = {name: Graph(**each) for name, each in content.pop("graphs").items()}
    words = content.pop("codewords")
    facts = GraphFacts(**content, codewords=None if words is None else tuple(words), graphs=graphs)
    wrong = [name for name, kinds in _KINDS.items() if type(getattr(facts, name)) not in kinds]
    for name, graph in graphs.items():
        kinds = [type(each) for each in (graph.file, graph.sha256, graph.inputs, graph.outputs)]
        wrong += [name] if kinds != [str, str, dict, dict] else []
    if wrong:
        raise TypeError(f"'{wrong[0]}' has another type")
    if not all(is_graph_file(graph.file) for graph in graphs.values()):
        raise ValueError("a graph has no valid file name")
    sizes = {len(bytes.fromhex(word)) for word in facts.codewords or ()}
    if facts.codewords is not None and sizes != {-(-facts.bits // 8)}:
        raise ValueError("codewords of another length")
    return facts


def read_graph(folder: Path, graph: Graph) -> bytes:
    """Read and verify a graph.

    Args:
        folder: The folder of the model.
        graph: The graph.

    Returns:
        Content of the file.

    Raises:
        StorageError: The file is missing or damaged.
    """
    path = folder / graph.file
    try:
        content = files.require_regular(path).read_bytes()
    except OSError as error:
        raise files.storage_error("read", path, error) from error
    if hashlib.sha256(content).hexdigest() != graph.sha256:
        raise damaged(path, f"its checksum differs from {FACTS}")
    return content


def write_graph(
    folder: Path,
    name: str,
    content: bytes,
    *,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
) -> Graph:
    """Write a graph under a name that follows from its content.

    Args:
        folder: The folder of the model.
        name: "network", "head" or "activation".
        content: Content of the file.
        inputs: What the graph takes, in words.
        outputs: What it gives, in words.

    Returns:
        Name and digest of the file.

    Raises:
        StorageError: The file cannot be written.
    """
    digest = hashlib.sha256(content).hexdigest()
    file = f"{name}-{digest[:12]}.onnx"
    files.write_bytes(folder / file, content)
    return Graph(file, digest, dict(inputs), dict(outputs))


def graph_file_names(folder: Path) -> list[str]:
    """The names of the files of an exported model: the graphs, then onnx.json.

    Args:
        folder: The folder of the model.

    Returns:
        The names; empty if the model was not exported, or onnx.json is damaged.
    """
    try:
        facts = read_facts(folder)
    except StorageError:
        return [FACTS]
    if facts is None:
        return []
    return [*(graph.file for graph in facts.graphs.values()), FACTS]


def is_graph_file(name: str) -> bool:
    """Return whether a name is one that `write_graph` gives, without a folder."""
    return _GRAPH.fullmatch(name) is not None


def damaged(path: Path, reason: str) -> StorageError:
    """The error for a file of an exported model that cannot be used."""
    return StorageError(
        f"{path} is damaged ({reason}). Restore it, or export again: "
        f"hadahash export {path.parent} --onnx"
    )


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
