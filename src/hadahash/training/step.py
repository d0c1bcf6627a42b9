"""One training step: the losses and the gradients of a batch."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from ..config import TrainConfig
from ..data.augment import augment, mix_targets, own_share
from ..methods import Batch, DeepMethod
from ..networks.compiling import compile_cached
from ..networks.hash_network import HashNetwork
from .distributed import Losses, ProcessGroup
from .graph import Step, record

StepInputs = tuple[Tensor, Tensor, Tensor, Tensor]


def effective_precision(config: TrainConfig, device: torch.device) -> str:
    """The precision that "auto" selects on this device: "bf16" on a GPU, else "fp32"."""
    if config.precision != "auto":
        return config.precision
    return "bf16" if device.type == "cuda" else "fp32"


def optimizes(device: torch.device, processes: ProcessGroup) -> bool:
    """Whether a step may be compiled and recorded as a CUDA graph: on a GPU, by one process.

    Neither has been tried together with `DistributedDataParallel` and SyncBatchNorm, whose
    communication a graph would have to contain.
    """
    return device.type == "cuda" and processes.count == 1


def compiles(config: TrainConfig, device: torch.device, processes: ProcessGroup) -> bool:
    """Whether a backbone that is trained is compiled."""
    return config.compile and not config.deterministic and optimizes(device, processes)


def make_step(
    network: HashNetwork,
    config: TrainConfig,
    size: int,
    frozen: bool,
    processes: ProcessGroup,
    example: StepInputs,
) -> Step:
    """Make the function of one step; a single process on a GPU records it as a CUDA graph.

    Args:
        network: The network.
        config: Settings of the loop.
        size: Side of the augmented images in pixels.
        frozen: Whether the inputs are features.
        processes: The processes that train together.
        example: Tensors with the shapes of all steps.

    Returns:
        A function of the inputs of this process (pixels or features), and the targets, rows and
        augmentations of the whole batch. It returns the parts of the loss and sets the gradients.
    """
    losses = processes.parallel(network, _losses(network, config, size, frozen, processes))

    def step(*tensors: Tensor) -> dict[str, Tensor]:
        parts = losses(*tensors)
        torch.stack(list(parts.values())).sum().backward()  # type: ignore[no-untyped-call]
        return parts

    if optimizes(network.device, processes):
        return record(step, network, *example)

    def plain(*tensors: Tensor) -> dict[str, Tensor]:
        network.zero_grad(set_to_none=True)
        return step(*tensors)

    return plain


def _losses(
    network: HashNetwork, config: TrainConfig, size: int, frozen: bool, processes: ProcessGroup
) -> Losses:
    """The losses of a batch. Autocast covers the backbone only; head and loss run in float32."""
    device = network.device
    half = effective_precision(config, device) == "bf16"
    method = cast(DeepMethod, network.method)
    compiled = not frozen and compiles(config, device, processes)
    backbone = compile_cached(network.backbone) if compiled else network.backbone

    def losses(inputs: Tensor, targets: Tensor, rows: Tensor, table: Tensor) -> dict[str, Tensor]:
        if frozen:
            return method.loss(Batch(inputs.float(), targets, rows))
        images = augment(inputs, processes.part(table), size)
        with torch.autocast(device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            features = backbone(images).float()
        features = processes.join(features, len(rows))
        mixed, share = mix_targets(targets, table), own_share(table)
        return method.loss(Batch(features, mixed, rows, unmixed=targets, share=share))

    return losses
