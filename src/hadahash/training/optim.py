"""Optimizer, learning rate schedules and the moving average of the weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..config import TrainConfig
from ..networks.hash_network import HashNetwork


def make_optimizer(network: HashNetwork, config: TrainConfig) -> torch.optim.Optimizer:
    """SGD with momentum, and separate learning rates for backbone and head.

    Biases and norms have no weight decay.

    Args:
        network: Its parameters that require gradients are optimized.
        config: Learning rates, momentum and weight decay.

    Returns:
        The optimizer; every group has its `base_lr`.
    """
    rates = {"backbone": config.lr * config.backbone_lr, "method": config.lr}
    groups = []
    for part, rate in rates.items():
        parameters = [p for p in getattr(network, part).parameters() if p.requires_grad]
        for decay, chosen in (
            (config.weight_decay, [p for p in parameters if p.ndim > 1]),
            (0.0, [p for p in parameters if p.ndim <= 1]),
        ):
            if chosen:
                groups.append(
                    {"params": chosen, "lr": rate, "base_lr": rate, "weight_decay": decay}
                )
    on_gpu = groups[0]["params"][0].is_cuda  # type: ignore[index]
    return torch.optim.SGD(
        groups,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.momentum > 0,
        fused=on_gpu,
    )


def rate_factor(step: int, steps: int, steps_per_epoch: int, config: TrainConfig) -> float:
    """Factor of the base learning rates at this step.

    "onecycle": linear warm-up over the first `warmup` fraction of the steps, then cosine decay to
    0. "paper": halved every 50 epochs.
    """
    if config.schedule == "paper":
        return float(0.5 ** (step // steps_per_epoch // 50))
    rise = max(1, round(config.warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set every learning rate to its base rate times `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor


class WeightAverage:
    """Exponential moving average of weights, with a shorter window in early steps."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.live = (
            {k: v for k, v in network.state_dict().items() if v.is_floating_point()}
            if decay > 0
            else {}
        )
        self.shadow = {k: v.clone() for k, v in self.live.items()}

    def update(self, step: int) -> None:
        """Update the average with the current weights after a step."""
        if self.shadow:
            decay = min(self.decay, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(self.shadow.values()), list(self.live.values()), 1 - decay)

    def tensors(self) -> dict[str, Tensor]:
        """The averaged tensors by name."""
        return self.shadow

    @torch.no_grad()
    def apply(self) -> None:
        """Copy the averaged weights into the network."""
        for key, value in self.shadow.items():
            self.live[key].copy_(value)
