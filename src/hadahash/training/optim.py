"""Optimiser, learning-rate schedules and the moving average of the weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..networks.hash_network import HashNetwork
from .settings import TrainSettings


def make_optimizer(network: HashNetwork, settings: TrainSettings) -> torch.optim.Optimizer:
    """SGD with momentum; backbone and head have learning rates of their own, and vectors (biases, norms) no weight decay."""
    rates = {"backbone": settings.lr * settings.backbone_lr, "method": settings.lr}
    groups = []
    for part, rate in rates.items():
        parameters = [p for p in getattr(network, part).parameters() if p.requires_grad]
        for decay, chosen in (
            (settings.weight_decay, [p for p in parameters if p.ndim > 1]),
            (0.0, [p for p in parameters if p.ndim <= 1]),
        ):
            if chosen:
                groups.append(
                    {"params": chosen, "lr": rate, "base_lr": rate, "weight_decay": decay}
                )
    on_gpu = groups[0]["params"][0].is_cuda  # type: ignore[index]
    return torch.optim.SGD(
        groups,
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.momentum > 0,
        fused=on_gpu,
    )


def rate_factor(step: int, steps: int, steps_per_epoch: int, settings: TrainSettings) -> float:
    """What the base learning rates are multiplied by at this step.

    "onecycle": a linear rise over the first `warmup` share of the steps, then half a cosine down to zero.
    "paper": halved every 50 epochs.
    """
    if settings.schedule == "paper":
        return float(0.5 ** (step // steps_per_epoch // 50))
    rise = max(1, round(settings.warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor


class Average:
    """An exponential moving average of a network's weights and statistics; early steps are averaged over a shorter past."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.live = (
            {k: v for k, v in network.state_dict().items() if v.is_floating_point()}
            if decay > 0
            else {}
        )
        self.shadow = {k: v.clone() for k, v in self.live.items()}

    def update(self, step: int) -> None:
        if self.shadow:
            decay = min(self.decay, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(self.shadow.values()), list(self.live.values()), 1 - decay)

    def tensors(self) -> dict[str, Tensor]:
        return self.shadow

    @torch.no_grad()
    def apply(self) -> None:
        """Give the averaged weights to the network."""
        for key, value in self.shadow.items():
            self.live[key].copy_(value)
