"""What a kernel of a training step is for, by its name, and the bytes it moves at least."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

NORM_FORWARD = "norms and activations, forward"
NORM_BACKWARD = "norms and activations, backward"
ACTIVATION = "activations alone"
DEPTHWISE_FORWARD = "depthwise convolutions, forward"
DEPTHWISE_DATA = "depthwise convolutions, gradient of the input"
DEPTHWISE_WEIGHT = "depthwise convolutions, gradient of the weights"
PRODUCTS = "other convolutions and matrix products"
OPTIMIZER = "optimizer and average"
COPIES = "copies and augmentation"
OTHER = "loss and other"

# The first pattern that is found in a name, in lower case, decides.
_PATTERNS = (
    (OPTIMIZER, r"multi_tensor|fusedsgd"),
    (DEPTHWISE_DATA, r"dgrad2d_(c1_k1|grouped)|depthwise2d_backward|depthwise.*dgrad"),
    (DEPTHWISE_WEIGHT, r"wgrad2d_(c1_k1|grouped)|depthwise2d_grad_weight|depthwise.*wgrad"),
    (DEPTHWISE_FORWARD, r"conv2d_(c1_k1|grouped)|depthwise"),
    (PRODUCTS, r"triton_tem_"),
    (NORM_BACKWARD, r"batch_?norm.*(backward|bwd|_bw)|bn_bw"),
    (NORM_FORWARD, r"batch_?norm|bn_fw"),
    (COPIES, r"nchwtonhwc|nhwctonchw|converttensor|addpadding"),
    (PRODUCTS, r"^(?!triton_).*(nvjet|gemm|gemv|cutlass|xmma|convolve|splitk|cudnn::cnn)"),
    (PRODUCTS, r"^(?!triton_).*(dgrad|wgrad|fprop|cudnn.*conv)"),
    (ACTIVATION, r"hardtanh|clamp|relu|silu|hardswish"),
    (COPIES, r"^mem(cpy|set)|copy|fillfunctor|catarray|grid_sampler|gather|index_(elem|select)"),
)
_COMPILED = tuple((name, re.compile(pattern)) for name, pattern in _PATTERNS)
CLASSES = tuple(dict.fromkeys([*(name for name, _ in _PATTERNS), OTHER]))


class Kernel(NamedTuple):
    """A kernel of one step.

    Attributes:
        name: Its whole name.
        calls: How often it is launched.
        seconds: The time of all its launches.
    """

    name: str
    calls: float
    seconds: float


def class_of(name: str) -> str:
    """What a kernel is for, one of `CLASSES`.

    A kernel of the compiler is named after all operations in it; norms come before activations and
    copies, which they are fused with.

    Args:
        name: Name of the kernel, as the profiler reports it.
    """
    lowered = name.lower()
    return next((each for each, pattern in _COMPILED if pattern.search(lowered)), OTHER)


def classified(
    kernels: Sequence[Kernel], augmentation: Sequence[Kernel] = ()
) -> list[tuple[str, Kernel]]:
    """Kernels with their classes.

    Augmentation, head and loss run kernels of the same name; so those that the augmentation runs
    when it is alone are counted as its own.

    Args:
        kernels: All kernels of a step.
        augmentation: Those of the augmentation alone.

    Returns:
        Class and kernel, the longest first. A kernel may be in two parts.
    """
    own = {each.name: each for each in augmentation}
    found = []
    for each in kernels:
        usual = class_of(each.name)
        drawn = own.get(each.name)
        if drawn is None:
            found.append((usual, each))
            continue
        calls, seconds = min(drawn.calls, each.calls), min(drawn.seconds, each.seconds)
        if calls == each.calls:
            seconds = each.seconds
        parts = (COPIES, calls, seconds), (usual, each.calls - calls, each.seconds - seconds)
        found += [(name, Kernel(each.name, n, time)) for name, n, time in parts if n > 0]
    return sorted(found, key=lambda pair: -pair[1].seconds)


def totals(
    kernels: Sequence[tuple[str, Kernel]], moved: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """Time and launches of each class that occurs, the longest first.

    Args:
        kernels: What `classified` returned.
        moved: Bytes by class, as `bytes_moved` returns them.

    Returns:
        `seconds`, `calls` and, where they are known, `bytes`, by class.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, kernel in kernels:
        entry = found.setdefault(name, {"seconds": 0.0, "calls": 0})
        entry["seconds"] += kernel.seconds
        entry["calls"] += kernel.calls
    for name, entry in found.items():
        entry |= {"bytes": moved[name]} if name in moved else {}
    return dict(sorted(found.items(), key=lambda item: -item[1]["seconds"]))


# ---- Bytes ---------------------------------------------------------------------------------------


class Layer(NamedTuple):
    """A layer that was run on one image.

    Attributes:
        module: The layer.
        read: Numbers in its input.
        written: Numbers in its output.
        first: Whether its input is the image, which needs no gradient.
    """

    module: nn.Module
    read: int
    written: int
    first: bool


def bytes_moved(
    layers: Sequence[Layer], batch: int, weights: int, number: int = 2
) -> dict[str, int]:
    """Bytes that each class of kernels reads and writes at least in a step.

    Each kernel reads its inputs and writes its output once. A batch norm passes over its input
    twice, forward and backward: the sums have to be complete first.

    Args:
        layers: The layers, as `Layer`.
        batch: Images in a step.
        weights: Numbers in all weights, of 32 bits.
        number: Bytes of a number in an output.

    Returns:
        Bytes by class; classes that do not follow from the layers are left out.
    """
    found = dict.fromkeys((NORM_FORWARD, NORM_BACKWARD, PRODUCTS), 0)
    found |= dict.fromkeys((DEPTHWISE_FORWARD, DEPTHWISE_DATA, DEPTHWISE_WEIGHT), 0)
    for module, read, written, first in layers:
        both = number * batch * (read + written)
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            found[NORM_FORWARD] += number * batch * (2 * read + written)
            found[NORM_BACKWARD] += number * batch * (2 * read + 2 * written + read)
        elif isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1:
            for name in (DEPTHWISE_FORWARD, DEPTHWISE_DATA, DEPTHWISE_WEIGHT):
                found[name] += both
        elif isinstance(module, (nn.Conv2d, nn.Linear)):
            found[PRODUCTS] += both * (2 if first else 3)
    # SGD reads weight, gradient and momentum and writes two; the average reads two and writes one.
    return found | {OPTIMIZER: 8 * 4 * weights}
