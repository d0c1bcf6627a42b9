"""Models that run without torch: their networks from files, and from projections of features."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import safetensors.numpy

from . import files
from .config import EMBEDDINGS
from .data.preprocess import Preprocess
from .errors import HadaHashError, StorageError, UsageError
from .model_files import FORMAT, StoredModel
from .runtime.files import HEAD, GraphFacts, read_facts, write_facts
from .runtime.onnx import LinearHead, OnnxNetwork
from .settings import from_mapping

LINEAR = ("itq", "lsh")  # methods whose code is a projection of features
_MEAN, _DIRECTIONS, _THRESHOLD = "method.mean", "method.directions", "threshold"


def has_graphs(stored: StoredModel) -> bool:
    """Whether a saved model can be run without torch.

    Args:
        stored: The saved model.

    Returns:
        True if it was exported, or projects embeddings.
    """
    return read_facts(stored.path.parent) is not None or _projects_embeddings(stored)


def is_exported(stored: StoredModel) -> bool:
    """Whether a saved model can be run without torch, by graphs that were made of this model.

    Args:
        stored: The saved model.

    Returns:
        False also if onnx.json is damaged, or of another model.
    """
    try:
        facts = read_facts(stored.path.parent)
        if facts is None:
            return has_graphs(stored)  # a projection of embeddings needs none
    except HadaHashError:
        return False
    return stored.format == FORMAT and facts.model_id == stored.manifest.get("id")


def light_network(stored: StoredModel, device: str) -> OnnxNetwork:
    """The network of a saved model, without torch.

    Args:
        stored: The saved model.
        device: "auto", "cpu" or "cuda".

    Returns:
        The network.

    Raises:
        UsageError: The model was not exported.
        StorageError: Its files are damaged, or belong to different models.
        MissingExtraError: onnxruntime is not installed.
    """
    folder = stored.path.parent
    facts = read_facts(folder)
    if facts is None and _projects_embeddings(stored):
        facts = embedding_facts(stored)
    if facts is None or stored.format < 3:
        raise UsageError(
            f"{folder} was not exported for onnxruntime. Where torch is installed, run: "
            f"hadahash export {folder} --onnx"
        )
    if facts.model_id != stored.manifest["id"]:
        raise StorageError(
            f"{folder} mixes two models: the graphs are of {facts.model_id[:12]}, model.json names "
            f"{stored.manifest['id'][:12]}. Export again: hadahash export {folder} --onnx"
        )
    preprocess = from_mapping(Preprocess, stored.manifest["preprocess"])
    head = None if HEAD in facts.graphs else _linear_head(stored)
    return OnnxNetwork(folder.resolve(), facts, preprocess, device, head, stored.weights)


def save_graphs(network: OnnxNetwork, folder: Path) -> None:
    """Copy the graphs of a network into the folder of a model.

    Args:
        network: The network.
        folder: The folder.

    Raises:
        StorageError: A file cannot be written.
    """
    if not network.facts.graphs or network.folder == folder.resolve():
        return
    for graph in network.facts.graphs.values():
        with files.replacing(folder / graph.file) as temporary:
            shutil.copyfile(network.folder / graph.file, temporary)
    write_facts(folder, network.facts)


def embedding_facts(stored: StoredModel) -> GraphFacts:
    """What onnx.json would say about a projection of embeddings, which needs no graph."""
    manifest = stored.manifest
    return GraphFacts(
        model_id=str(manifest["id"]),
        weights_sha256=str(manifest["weights_sha256"]),
        backbone=EMBEDDINGS,
        width=int(manifest["features"]),
        bits=int(manifest["config"]["bits"]),
    )


def _projects_embeddings(stored: StoredModel) -> bool:
    config = stored.manifest.get("config")
    if not isinstance(config, dict):
        return False
    linear = config.get("method") in LINEAR and config.get("backbone") == EMBEDDINGS
    return linear and stored.format >= 3 and stored.weights.exists()


def _linear_head(stored: StoredModel) -> LinearHead:
    """The projection in the weights of a model."""
    try:
        with safetensors.safe_open(stored.weights, framework="numpy") as file:
            parts = [file.get_tensor(name) for name in (_MEAN, _DIRECTIONS, _THRESHOLD)]
    except (OSError, safetensors.SafetensorError) as error:
        raise stored.damaged(f"its projection cannot be read: {error}") from error
    return LinearHead(*(np.asarray(part, np.float32) for part in parts))
