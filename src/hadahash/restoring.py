"""Restore the configuration and the weights of a saved model, of this version or of 0.1."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import torch

from .building import assign_state, build_network, has_fixed_backbone, make_config
from .config import Config
from .errors import UsageError
from .methods import METHODS, Method
from .model_files import MissingPluginError, StoredModel
from .networks import build_backbone
from .networks.content import ContentPart
from .networks.hash_network import HashNetwork
from .plugins import load_recorded_plugins

_RENAMED_SETTINGS = {"batch": "batch_size"}  # names of version 0.1


def stored_config(stored: StoredModel) -> Config:
    """The configuration of a saved model.

    Args:
        stored: The saved model.

    Returns:
        The configuration.

    Raises:
        MissingPluginError: Its method is defined in a plugin that cannot be loaded.
        UsageError: The configuration does not fit this version.
    """
    return _config_v1(stored.manifest) if stored.format == 1 else _current_config(stored)


def _current_config(stored: StoredModel) -> Config:
    values = stored.manifest["config"]
    try:
        load_recorded_plugins([str(name) for name in values.get("plugins", ())])
    except UsageError as error:
        if values["method"] not in METHODS:  # it was not loaded from elsewhere
            raise MissingPluginError(
                f"{stored.path.parent} needs the method '{values['method']}' of a plugin. "
                f"{str(error).rstrip('.')}. If you trust it, name the file: "
                "hadahash --plugin FILE COMMAND ..., or load_plugins([FILE]) in Python"
            ) from error
    return Config.from_dict(METHODS.get(values["method"]).Settings, values)


def _config_v1(manifest: Mapping[str, Any]) -> Config:
    """Version 0.1 stored the settings as typed; some defaults have changed since."""
    given = manifest["settings"].items()
    settings = {_RENAMED_SETTINGS.get(key, key): value for key, value in given}
    if manifest["method"] in ("hcdh", "hcdh-h", "hcdh-2", "hcdh-c"):
        settings.setdefault("codebook", "far")
    names = ("bits", "backbone", "weights", "seed")
    fields = {name: manifest[name] for name in names}
    return make_config(manifest["method"], **fields, settings=settings)


def empty_network(stored: StoredModel, config: Config, *, train_images: int) -> HashNetwork:
    """The network of a saved model without its weights, for `fill_network`.

    Args:
        stored: The saved model.
        config: Its configuration.
        train_images: Number of training images.

    Returns:
        The network on the CPU, in evaluation mode. Torch's random state is not touched.
    """
    manifest, size = stored.manifest, config.input.size
    build = partial(
        build_backbone,
        config.backbone,
        features=manifest.get("features"),
        empty=True,
        img_size=size,
    )
    network = build_network(
        config,
        build(),
        classes=len(manifest["classes"]),
        multilabel=bool(manifest["multilabel"]),
        train_images=train_images,
        device=torch.device("cpu"),
        create=False,
    )
    if config.content_bits:
        fixed = has_fixed_backbone(config, cast(Method, network.method))
        network.content = ContentPart.empty(
            config.content_bits, network.backbone.features, None if fixed else build()
        ).eval()
    return network


def fill_network(network: HashNetwork, stored: StoredModel, device: torch.device) -> bool:
    """Copy stored tensors into an empty network; all names and shapes must agree.

    Args:
        network: The network, with uninitialized tensors.
        stored: The saved model.
        device: Device of the tensors.

    Returns:
        Whether the file holds exactly the tensors of the network, so that their digests agree.

    Raises:
        DamagedModelError: A tensor is missing, unexpected or of a different shape.
    """
    tensors = network.upgrade_state(dict(stored.tensors))
    current = network.state_dict()
    for name, _ in network.named_buffers():  # version 0.1 saved buffers that only training needs
        if name not in current:
            tensors.pop(name, None)
    shapes = {key: value.shape for key, value in tensors.items()}
    expected = {key: value.shape for key, value in current.items()}
    wrong = sorted(key for key in {*shapes, *expected} if shapes.get(key) != expected.get(key))
    if wrong:
        raise stored.damaged(
            f"{len(wrong)} tensors are missing, unexpected or of a different shape: "
            f"{', '.join(wrong[:5])}"
        )
    assign_state(network, tensors, device)
    original = stored.tensors
    return original.keys() == tensors.keys() and all(
        original[key] is tensors[key] for key in original
    )
