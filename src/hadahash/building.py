"""Build configurations and networks from names; shared by fitting and loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from .config import Config
from .data.memory import keep_freed_memory
from .errors import UsageError
from .methods import METHODS, DeepMethod, Method, ShallowMethod, Task
from .networks import Backbone, build_backbone
from .networks.hash_network import HashNetwork
from .networks.initialization import OwnRandomness
from .plugins import load_plugins, plugin_name
from .settings import require

DEFAULT_METHOD = "hcdh-far"  # recommended; "hcdh" is the method of the paper
DEFAULT_CONTENT_BITS = 128  # of methods that use labels


def make_config(
    method: str,
    *,
    bits: int = 64,
    backbone: str = "efficientnet_lite0",
    weights: str | Path = "imagenet",
    seed: int = 0,
    split_seed: int | None = None,
    plugins: Sequence[str | Path] = (),
    content_bits: int | None = 0,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Config:
    """Build and check a configuration.

    Args:
        method: Name of the hashing method.
        bits: Code length.
        backbone: Name of the network.
        weights: "imagenet", "none", or a file.
        seed: Random seed.
        split_seed: Seed of the data split; None: `seed`.
        plugins: Files or modules that define methods.
        content_bits: Number of content bits; None: 128, or 0 for a method that uses no labels,
            whose code follows the content already.
        device: "auto", "cpu" or "cuda": without a GPU, a pretrained backbone stays fixed unless
            the settings say otherwise. None: the settings as given.
        settings: Settings of training, augmentation, input and method by name.

    Returns:
        The configuration.

    Raises:
        UsageError: An unknown method or setting, or a value out of range.
    """
    load_plugins(plugins)
    kind, settings = METHODS.get(method), settings or {}
    if content_bits is None:
        content_bits = DEFAULT_CONTENT_BITS if kind.uses_labels else 0
    require(
        kind.uses_labels or not content_bits,
        f"content_bits must be 0 for {method}, whose code follows the content already, "
        f"got {content_bits}.",
    )
    if device is not None and _stays_fixed(kind, weights, settings, choose_device(device)):
        settings = {**settings, "frozen": True}
    return Config.from_flat(
        kind.Settings,
        settings,
        method=method,
        bits=bits,
        backbone=backbone,
        weights=weights,
        seed=seed,
        split_seed=split_seed,
        plugins=tuple(plugin_name(path) for path in plugins),
        content_bits=content_bits,
    )


def _stays_fixed(
    kind: type[Method], weights: str | Path, settings: Mapping[str, Any], device: torch.device
) -> bool:
    """Whether a backbone is kept fixed because training it on a CPU would take too long."""
    chosen = "frozen" in settings or "backbone_lr" in settings
    pretrained = str(weights) != "none"
    return device.type == "cpu" and issubclass(kind, DeepMethod) and pretrained and not chosen


def build_network(
    config: Config,
    backbone: Backbone,
    *,
    classes: int,
    multilabel: bool,
    train_images: int,
    device: torch.device,
    create: bool,
) -> HashNetwork:
    """Put a method on a backbone.

    Args:
        config: The configuration.
        backbone: The backbone.
        classes: Number of classes.
        multilabel: Whether images have several labels.
        train_images: Number of training images.
        device: Device of the network.
        create: Search the codebook and initialize; False: empty modules on the CPU, for
            `assign_state`.

    Returns:
        The network, in evaluation mode.
    """
    kind = METHODS.get(config.method)
    rows = train_images if create or issubclass(kind, ShallowMethod) else 0
    task = Task(config.bits, classes, backbone.features, multilabel, rows, config.seed)
    # A model may be loaded while another thread trains, so loading leaves global generators alone.
    with seeded(config.seed) if create else OwnRandomness(config.seed):
        make = kind.create if create else kind
        method = make(task, config.method_settings)
    network = HashNetwork(backbone, method, config.bits).eval()
    if create:
        network.to(memory_format=torch.channels_last).to(device)
    return network


def assign_state(
    network: HashNetwork, tensors: Mapping[str, torch.Tensor], device: torch.device
) -> None:
    """Give an empty network its weights, with one copy of each tensor.

    The layout in memory is that of a network that `build_network` creates, so that results are the
    same to the last bit.

    Args:
        network: The network, from `build_network` with create=False.
        tensors: All tensors of its state_dict, in the right shapes.
        device: Where to put the network.
    """
    wanted = network.state_dict()
    state = {}
    for name, tensor in tensors.items():
        layout = torch.channels_last if tensor.ndim == 4 else torch.contiguous_format
        state[name] = tensor.to(device, dtype=wanted[name].dtype, copy=True, memory_format=layout)
    network.load_state_dict(state, assign=True)
    network.to(device)  # buffers that are not stored


def initial_backbone(config: Config) -> Backbone:
    """The backbone of a configuration with its initial weights."""
    with seeded(config.seed):
        backbone = build_backbone(
            config.backbone,
            weights=config.weights,
            partial_weights=config.input.partial_weights,
            img_size=config.input.size,
        )
    encode_size = config.input.encode_size
    require(
        not backbone.fixed_size or encode_size in (None, backbone.size),
        f"encode_size must be {backbone.size} for backbone '{config.backbone}', got {encode_size}. "
        "It takes images of one size only.",
    )
    return backbone


def has_fixed_backbone(config: Config, method: Method) -> bool:
    """Whether the backbone of a trained model has its initial weights.

    Args:
        config: The configuration that ran.
        method: The method of the model.

    Returns:
        True for shallow methods, and where training kept the backbone fixed.
    """
    return isinstance(method, ShallowMethod) or (config.train is not None and config.train.frozen)


def _cuda_in_use() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators, which layers initialize from, and restore them afterwards."""
    devices = list(range(torch.cuda.device_count())) if _cuda_in_use() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def choose_device(name: str) -> torch.device:
    """Return the torch device; "auto" selects the GPU if there is one.

    For a CPU, `keep_freed_memory` prepares the process.

    Raises:
        UsageError: The device is unknown, or no GPU is available.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"Unknown device '{name}'. Use auto, cpu or cuda.") from None
    available = device.type != "cuda" or torch.cuda.is_available()
    require(available, "No GPU is available to torch. Use --device cpu.")
    if device.type == "cpu":
        keep_freed_memory()
    return device
