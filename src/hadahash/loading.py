"""Save and load models. `HashModel.save` and `HashModel.load` are the way in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from .building import choose_device
from .data.preprocess import Preprocess
from .errors import HadaHashError
from .model import OLD_ID, HashModel
from .model_files import (
    DamagedModelError,
    MissingPluginError,
    StoredModel,
    read_model,
    write_model,
)
from .ranking import Ranking
from .restoring import empty_network, fill_network, stored_config
from .settings import from_mapping, require

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
    """Write model.json and the weights into a folder, atomically.

    Args:
        model: The model.
        folder: The folder; it is created if it does not exist.

    Raises:
        StorageError: A file cannot be written.
        UsageError: The model was shortened with `HashModel.prefix`.
    """
    whole = model.network.bits == len(model.network.threshold)
    require(whole, f"A model shortened to {model.bits} bits cannot be saved. Save the whole one.")
    manifest = {
        "id": model.id,
        "config": model.config.to_dict(),
        "classes": list(model.classes),
        "multilabel": model.multilabel,
        "features": model.network.backbone.features,
        "preprocess": asdict(model.preprocess),
        "precision": model.precision,
        "info": dict(model.info),
        "ranking": model.ranking.to_dict(),
        "weights_sha256": model.weights_sha256,
    }
    write_model(folder, manifest, model.weights)


def load_model(folder: Path, device: str) -> HashModel:
    """Load a saved model; torch's random state is not touched.

    Args:
        folder: The folder.
        device: "auto", "cpu" or "cuda".

    Returns:
        The model.

    Raises:
        StorageError: There is no model, its files are damaged, or its plugin cannot be loaded.
    """
    where = choose_device(device)
    stored = read_model(folder)
    try:
        return _from_stored(stored, where)
    except (DamagedModelError, MissingPluginError):
        raise
    except _MALFORMED as error:
        reason = " ".join(str(error).split())
        raise stored.damaged(f"it does not match this version: {reason}") from error


def _from_stored(stored: StoredModel, device: torch.device) -> HashModel:
    """Fill an empty network with stored weights."""
    manifest = stored.manifest
    config = stored_config(stored)
    info = dict(manifest.get("info") or {"train_images": manifest.get("train_images")})
    if stored.format == 1:
        info[OLD_ID] = manifest["weights_sha256"]
    network = empty_network(stored, config, train_images=int(info["train_images"]))
    same = fill_network(network, stored, device)
    fitted = {"ranking": Ranking.from_dict(manifest["ranking"])} if stored.format >= 3 else {}
    model = HashModel(
        network=network,
        preprocess=from_mapping(Preprocess, manifest["preprocess"]),
        classes=tuple(map(str, manifest["classes"])),
        multilabel=bool(manifest["multilabel"]),
        config=config,
        info=info,
        precision=str(manifest.get("precision", "bf16")),  # version 0.1 encoded in bf16 on a GPU
        folder=stored.path.parent.resolve(),
        **fitted,
    )
    if same:  # the digest of the file has been checked
        model.__dict__["weights_sha256"] = manifest["weights_sha256"]
    return model
