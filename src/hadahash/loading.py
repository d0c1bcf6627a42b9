"""Load a saved model. `HashModel.load` is the way in."""

from __future__ import annotations

from pathlib import Path

import torch

from .building import choose_device
from .data.preprocess import Preprocess
from .errors import HadaHashError
from .model import OLD_ID, HashModel
from .model_files import DamagedModelError, MissingPluginError, StoredModel, read_model
from .ranking import Ranking
from .restoring import empty_network, fill_network, stored_config
from .settings import from_mapping

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
        **fitted,
    )
    if same:  # the digest of the file has been checked
        model.__dict__["weights_sha256"] = manifest["weights_sha256"]
    return model
