"""What bench/gpu.py measures, in which order, and on what."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hadahash.encoding import usual_batch
from hadahash.errors import MissingExtraError
from hadahash.networks.weights import LITE_MODELS, lite_weights

PARTS = ("machine", "work", "encode", "train", "kernels", "compile", "old", "map")
METHOD, BITS, CLASSES = "hcdh-far", 64, 10


@dataclass(frozen=True)
class Plan:
    """Sizes of the measurement; of batches the first one is the default of the library.

    Attributes:
        backbone: Name of the network.
        sizes: Input sizes in pixels.
        encode_batches: Images per batch when encoding, by input size.
        train_batches: Images per step.
        images: Images that are encoded.
        train_images: Images that are trained on.
        epochs: Epochs of a timed fit, by input size.
        fits: Timed fits at the default batch size; one at the others.
        seconds: Shortest time of a round of encoding.
        stage_seconds: Time for one stage.
        matrix: Side of the matrices of the matrix product.
        copied: Bytes that are copied.
        map_epochs: Numbers of epochs of the fits on CIFAR-10, the most important first.
        seeds: Their seeds, which are used nowhere else.
        protocol: Their split.
        settings: Their other settings.
        goal: The mAP to reach.
    """

    backbone: str = "efficientnet_lite0"
    sizes: tuple[int, ...] = (224, 128)
    encode_batches: dict[int, tuple[int, ...]] = field(
        default_factory=lambda: {
            size: (usual_batch("cuda", size), *others)
            for size, others in ((224, (1000, 2000)), (128, (500, 3000)))
        }
    )
    train_batches: tuple[int, ...] = (128, 256, 64)
    images: int = 16_000
    train_images: int = 5_000
    epochs: dict[int, int] = field(default_factory=lambda: {224: 4, 128: 10})
    fits: int = 2
    seconds: float = 2.0
    stage_seconds: float = 0.4
    matrix: int = 8192
    copied: int = 2 << 30
    map_epochs: tuple[int, ...] = (4, 3, 6, 2, 8, 1)
    seeds: tuple[int, ...] = (70, 71)
    protocol: str = "cifar10"
    settings: dict[str, Any] = field(
        default_factory=lambda: {"lr": 0.1, "lam": 1.0, "size": 128, "encode_size": 144}
    )
    goal: float = 0.785


SMOKE = Plan(
    backbone="test_efficientnet",
    sizes=(32,),
    encode_batches={32: (8, 16)},
    train_batches=(8, 16),
    images=16,
    train_images=16,
    epochs={32: 1},
    fits=1,
    seconds=0.0,
    stage_seconds=0.0,
    matrix=64,
    copied=1 << 16,
    map_epochs=(1,),
    seeds=(70,),
    protocol="holdout",
    settings={"size": 32, "batch_size": 16},
    goal=0.0,
)


@dataclass(frozen=True)
class Session:
    """A run of the benchmark.

    Attributes:
        plan: What is measured.
        device: Where.
        weights: Initial weights: "imagenet", "none" or a file.
        cache: Folder of the caches of this run.
        end: When the time is over, of `time.monotonic`.
        compiled: Names of the cases whose compiled code is in the cache.
        kept: Objects that cases of one size share.
    """

    plan: Plan
    device: torch.device
    weights: str
    cache: Path
    end: float
    compiled: set[str] = field(default_factory=set)
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU; elsewhere nothing is compiled."""
        return self.device.type == "cuda"

    def left(self) -> float:
        """Seconds that are left."""
        return self.end - time.monotonic()

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` returns, made on the first call with this key."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def use_cache(self) -> None:
        """Let this process and its children keep compiled code in the cache of this run."""
        os.environ["XDG_CACHE_HOME"] = str(self.cache)
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            os.environ.pop(name, None)


class Case(NamedTuple):
    """One measurement.

    Attributes:
        part: Its part, one of `PARTS`.
        name: Its name.
        rank: Cases of a lower rank come first; the last ones are left out if time runs out.
        run: Measures, and writes to the result.
        least: Seconds that it takes at least on a GPU; it is left out if fewer are left.
    """

    part: str
    name: str
    rank: int
    run: Callable[[dict[str, Any]], None]
    least: float = 0.0


def rank_of(place: int) -> int:
    """The rank of the cases of a batch size; 0.1 and the fits on CIFAR-10 follow the default."""
    return 2 if place == 0 else 4 + place


OLD_RANK, MAP_RANK = 3, 4


def usable_weights(weights: str, backbone: str) -> str:
    """The weights, or "none" if they are those of a package that is not installed."""
    if weights != "imagenet":
        return weights
    try:
        if backbone in LITE_MODELS:
            lite_weights(backbone)
            return weights
    except MissingExtraError:
        pass
    return "none"
