"""Save and load models. `HashModel.save` and `HashModel.load` are the way in."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .data.preprocess import Preprocess
from .errors import HadaHashError
from .lazy import is_installed
from .light import has_graphs, is_exported, light_network, save_graphs
from .model import OLD_ID, HashModel
from .model_files import (
    DamagedModelError,
    MissingPluginError,
    StoredModel,
    read_model,
    write_manifest,
    write_model,
)
from .ranking import Ranking
from .runtime.choice import prefers_torch, requested
from .settings import from_mapping, require

if TYPE_CHECKING:
    import torch

# What building a network from a malformed manifest can raise.
_MALFORMED = (
    HadaHashError,
    AttributeError,
    KeyError,
    MemoryError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)


def save_model(model: HashModel, folder: Path) -> None:
    """Write model.json and the weights into a folder, atomically; of an exported model, its graphs.

    Args:
        model: The model.
        folder: The folder; it is created if it does not exist.

    Raises:
        StorageError: A file cannot be written.
        UsageError: The model was shortened with `HashModel.prefix`.
    """
    light = model.runtime.name == "onnx"
    longest = model.network.facts.bits if light else len(model.network.threshold)
    whole = model.runtime.bits == longest
    require(whole, f"A model shortened to {model.bits} bits cannot be saved. Save the whole one.")
    weights = model.network.weights_content() if light else model.weights
    if weights is None:
        write_manifest(folder, manifest_of(model))
    else:
        write_model(folder, manifest_of(model), weights)
    if light:
        save_graphs(model.network, folder)


def manifest_of(model: HashModel) -> dict[str, Any]:
    """The facts about a model that model.json holds.

    Args:
        model: The model.

    Returns:
        Names and JSON values.
    """
    return {
        "id": model.id,
        "config": model.config.to_dict(),
        "classes": list(model.classes),
        "multilabel": model.multilabel,
        "features": model.runtime.width,
        "preprocess": asdict(model.preprocess),
        "precision": model.precision,
        "info": dict(model.info),
        "ranking": model.ranking.to_dict(),
        "weights_sha256": model.weights_sha256,
    }


def load_model(folder: Path, device: str, runtime: str | None = None) -> HashModel:
    """Load a saved model; torch's random state is not touched.

    Args:
        folder: The folder.
        device: "auto", "cpu" or "cuda".
        runtime: "torch" or "onnx"; None: see `hadahash.runtime.choice.prefers_torch`.

    Returns:
        The model.

    Raises:
        StorageError: There is no model, its files are damaged, or its plugin cannot be loaded.
        MissingExtraError: The runtime is not installed.
    """
    stored = read_model(folder)
    weights = stored.weights.exists()
    for_torch = weights and is_installed("torch")
    graphs = is_exported(stored) if for_torch else has_graphs(stored)
    if prefers_torch(runtime, device, weights=weights or not graphs, graphs=graphs):
        return _load_weights(stored, device)
    if not for_torch or requested(runtime) is not None:
        return _load_graphs(stored, device)
    try:
        model = _load_graphs(stored, device)
        model.network.open()
    except HadaHashError as error:
        warnings.warn(f"torch runs the model: {error}", RuntimeWarning, stacklevel=3)
        return _load_weights(stored, device)
    return model


def _load_weights(stored: StoredModel, device: str) -> HashModel:
    from .building import choose_device

    where = choose_device(device)
    _ = stored.tensors  # damaged weights are reported as such
    return _checked(stored, lambda: _from_weights(stored, where))


def _load_graphs(stored: StoredModel, device: str) -> HashModel:
    network = light_network(stored, device)
    return _checked(stored, lambda: _with_facts(stored, network, stored.light_config()))


def _checked(stored: StoredModel, load: Callable[[], HashModel]) -> HashModel:
    """Load a model; what a malformed manifest causes is reported as damage."""
    try:
        return load()
    except (DamagedModelError, MissingPluginError):
        raise
    except _MALFORMED as error:
        reason = " ".join(str(error).split())
        raise stored.damaged(f"it does not match this version: {reason}") from error


def _from_weights(stored: StoredModel, device: torch.device) -> HashModel:
    """Fill an empty network with stored weights."""
    from .restoring import empty_network, fill_network, stored_config

    config, train_images = stored_config(stored), int(_info(stored)["train_images"])
    network = empty_network(stored, config, train_images=train_images)
    same = fill_network(network, stored, device)
    model = _with_facts(stored, network, config)
    if same:  # the digest of the file has been checked
        model.__dict__["weights_sha256"] = stored.manifest["weights_sha256"]
    return model


def _info(stored: StoredModel) -> dict[str, Any]:
    manifest = stored.manifest
    info = dict(manifest.get("info") or {"train_images": manifest.get("train_images")})
    if stored.format == 1:
        info[OLD_ID] = manifest["weights_sha256"]
    return info


def _with_facts(stored: StoredModel, network: Any, config: Any) -> HashModel:
    """The model of a network."""
    manifest = stored.manifest
    fitted = {"ranking": Ranking.from_dict(manifest["ranking"])} if stored.format >= 3 else {}
    return HashModel(
        network=network,
        preprocess=from_mapping(Preprocess, manifest["preprocess"]),
        classes=tuple(map(str, manifest["classes"])),
        multilabel=bool(manifest["multilabel"]),
        config=config,
        info=_info(stored),
        precision=str(manifest.get("precision", "bf16")),  # version 0.1 encoded in bf16 on a GPU
        folder=stored.path.parent.resolve(),
        **fitted,
    )
