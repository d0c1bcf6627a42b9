"""How a network is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..config import require


@dataclass(frozen=True)
class TrainSettings:
    epochs: int = 30  # how often each image is seen
    batch: int = 128  # images in a step
    lr: float = 0.1  # learning rate of the head
    backbone_lr: float = 0.2  # times lr: learning rate of the backbone
    schedule: Literal["onecycle", "paper"] = (
        "onecycle"  # learning rate: rise and cosine; or halved every 50 epochs
    )
    warmup: float = 0.15  # share of the steps in which the learning rate rises (onecycle)
    momentum: float = 0.9  # of SGD, in the form of Nesterov
    weight_decay: float = 5e-4  # pulls weights to 0, but no biases and norms
    ema: float = (
        0.998  # decay of the moving average of the weights that is kept in the end; 0 = off
    )
    precision: Literal["auto", "bf16", "fp32"] = "auto"  # auto: bf16 on a GPU, fp32 on a CPU
    compile: bool = False  # fuse the backbone's kernels on a GPU: a minute more to start, then about 1.4 times as fast
    deterministic: bool = (
        False  # repeat a training to the bit on one GPU and torch version; turns compile off, slower
    )
    threshold: Literal["zero", "mean", "median"] = (
        "zero"  # what a bit's value is compared with: 0, or its training average
    )
    checkpoint_seconds: float = (
        60.0  # least time between two checkpoints; one is written on Ctrl-C too
    )

    def __post_init__(self) -> None:
        require(self.epochs >= 1, f"epochs={self.epochs} is not possible: train at least 1 epoch.")
        require(
            self.batch >= 1, f"batch={self.batch} is not possible: a batch holds at least 1 image."
        )
        require(
            self.lr > 0, f"lr={self.lr} is not possible: the learning rate must be greater than 0."
        )
        require(
            self.backbone_lr >= 0,
            f"backbone_lr={self.backbone_lr} is not possible: it must be at least 0.",
        )
        require(
            0 <= self.momentum < 1,
            f"momentum={self.momentum} is not possible: it must be 0 <= momentum < 1.",
        )
        require(
            self.weight_decay >= 0,
            f"weight_decay={self.weight_decay} is not possible: it must be at least 0.",
        )
        require(0 <= self.ema < 1, f"ema={self.ema} is not possible: it must be 0 <= ema < 1.")
        require(
            0 <= self.warmup <= 1,
            f"warmup={self.warmup} is not possible: it is a share, 0 <= warmup <= 1.",
        )
