"""Training from pixels in memory: fits, and the stages of a step alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple, cast

import common
import numpy as np
import torch
from gpu_plan import BITS, CLASSES, METHOD, Case, Session, rank_of
from gpu_timing import Run, captured, kernels, seconds_of
from torch import Tensor

from hadahash.building import build_network, initial_backbone, make_config
from hadahash.config import AugmentConfig, Config, TrainConfig
from hadahash.data.augment import augment
from hadahash.data.base import ArrayImages, LabelledImages, name_ids
from hadahash.data.labels import Labels
from hadahash.fitting import fit_model
from hadahash.networks.compiling import compile_cached
from hadahash.networks.hash_network import HashNetwork
from hadahash.training.distributed import SingleProcess
from hadahash.training.loop import BatchPlan, TrainingSet
from hadahash.training.optim import WeightAverage, make_optimizer
from hadahash.training.step import StepInputs, compiles, effective_precision, make_step

CIFAR, PHOTOS = "cifar", "photos"  # 32 pixels, and a little larger than the input
SMALL, PHOTO = 32, 0.875


def cases(session: Session) -> Iterator[Case]:
    """Each input size with each batch size; the default batches first."""
    for place, batch in enumerate(session.plan.train_batches):
        for size in session.plan.sizes:
            run = partial(measure, session, size, batch)
            yield Case("train", name_of(size, batch), rank_of(place), run)


def name_of(size: int, batch: int) -> str:
    """Name of a case."""
    return f"train {size} px, batch {batch}"


def measure(session: Session, size: int, batch: int, result: dict[str, Any]) -> None:
    """Measure one case."""
    torch._dynamo.reset()  # a function is compiled for eight shapes at most
    default = batch == session.plan.train_batches[0]
    entry = result.setdefault("train", {}).setdefault(str(size), {"fits": {}, "steps": {}})
    for kind in (CIFAR, PHOTOS) if default else (CIFAR,):
        count = session.plan.fits if default and kind == CIFAR else 1
        rates = [fit(session, size, batch, kind)["images_per_second"] for _ in range(count)]
        found = {"images_per_second": median(rates), "quartiles": common.quartiles(rates)}
        entry["fits"].setdefault(kind, {})[str(batch)] = found
        if default and kind == CIFAR:
            entry["images_per_second"] = median(rates)
    parts = parts_of(session, size, batch) if default else Parts(session, size, batch)
    entry["steps"][str(batch)] = parts.seconds()
    if default:
        entry["kernels"] = kernels(parts.step, session.device)


def fit(
    session: Session, size: int, batch: int, kind: str, *, steps: int | None = None
) -> dict[str, Any]:
    """Fit a model on random images.

    Args:
        session: The run.
        size: Input size in pixels.
        batch: Images per step.
        kind: `CIFAR` or `PHOTOS`.
        steps: Number of steps; None: the epochs of the plan.

    Returns:
        The facts of the model: images_per_second, train_seconds, steps, ...
    """
    data, epochs = images_of(session, size, kind), session.plan.epochs[size]
    if steps is not None:
        data, epochs = data.take(np.arange(steps * batch) % len(data)), 1
    config = config_of(session, size, batch, epochs)
    return dict(fit_model(config, data, device=session.device.type).model.info)


def config_of(session: Session, size: int, batch: int, epochs: int) -> Config:
    """A configuration whose learning rate random weights survive; compiled on a GPU."""
    return make_config(
        METHOD,
        bits=BITS,
        backbone=session.plan.backbone,
        weights=session.weights,
        settings={
            "size": size,
            "batch_size": batch,
            "epochs": epochs,
            "compile": True,
            "lr": 0.001,
        },
    )


def images_of(session: Session, size: int, kind: str) -> LabelledImages:
    """Random images and labels."""
    count, side = session.plan.train_images, SMALL if kind == CIFAR else round(size / PHOTO)

    def make() -> LabelledImages:
        shape = (count, side, side, 3)
        drawn = torch.randint(256, shape, dtype=torch.uint8, device=session.device)
        return LabelledImages(
            ArrayImages(drawn.cpu().numpy()),
            name_ids(range(count)),
            Labels.from_array(np.arange(count) % CLASSES, CLASSES),
            tuple(str(number) for number in range(CLASSES)),
        )

    images: LabelledImages = session.once(("train", side), make)
    return images


# ---- The stages of a step ------------------------------------------------------------------------


class _Ready(NamedTuple):
    network: HashNetwork
    data: TrainingSet
    rows: Tensor
    table: Tensor
    given: StepInputs


def parts_of(session: Session, size: int, batch: int) -> Parts:
    """The stages of a step, which several cases share."""
    parts: Parts = session.once(("parts", size, batch), lambda: Parts(session, size, batch))
    return parts


class Parts:
    """The stages of a step as the loop runs them, each alone.

    What the loop records as one CUDA graph is recorded in parts here.

    Args:
        session: The run.
        size: Input size in pixels.
        batch: Images per step.
    """

    def __init__(self, session: Session, size: int, batch: int) -> None:
        self.session, self.size = session, size
        config = config_of(session, size, batch, 1)
        self.config = cast(TrainConfig, config.train)
        self.ready = _prepare(session, size, config)
        network = self.ready.network
        processes = SingleProcess()
        self.optimizer = make_optimizer(network, self.config)
        self.average = WeightAverage(network, self.config.ema)
        with self._kernels():
            self._step = make_step(network, self.config, size, False, processes, self.ready.given)
        self.compiled = compiles(self.config, network.device, processes)

    def step(self) -> object:
        """Losses and gradients: augmentation, forward and backward."""
        return self._step(*self.ready.given)

    def whole(self) -> None:
        """A step as the loop runs it: the batch, losses and gradients, optimizer and average."""
        self._step(*self._batch())
        self.optimizer.step()
        self.average.update(1)

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage of one step; `backward and loss` is what the others leave."""
        device, least = self.session.device, self.session.plan.stage_seconds
        with self._kernels():
            runs: dict[str, Run] = {
                "batch": self._batch,
                "augmentation": captured(self.augment, device),
                "forward": captured(self._forward(), device),
                "step": self.step,
                "optimizer": self.optimizer.step,
                "average": lambda: self.average.update(1),
            }
            found = {name: seconds_of(run, device, least) for name, run in runs.items()}
        rest = found.pop("step") - found["augmentation"] - found["forward"]
        return found | {"backward and loss": max(0.0, rest)}

    def _batch(self) -> StepInputs:
        data, rows, table = self.ready.data, self.ready.rows, self.ready.table
        return data.batch(data.inputs[rows], rows, table)

    def augment(self) -> Tensor:
        """The augmented images of the batch."""
        return augment(self.ready.given[0], self.ready.given[3], self.size)

    def _forward(self) -> Run:
        network, images = self.ready.network, self.augment()
        backbone = compile_cached(network.backbone) if self.compiled else network.backbone
        half = effective_precision(self.config, network.device) == "bf16"

        def forward() -> Tensor:
            kind = network.device.type
            with torch.autocast(kind, torch.bfloat16, enabled=half, cache_enabled=False):
                features: Tensor = backbone(images).float()
            return features

        return forward

    def _kernels(self) -> Any:
        return torch.backends.cudnn.flags(enabled=True, benchmark=self.session.on_gpu)


def _prepare(session: Session, size: int, config: Config) -> _Ready:
    """A network in training mode and its first batch, with the pixels on the device."""
    network = build_network(
        config,
        initial_backbone(config),
        classes=CLASSES,
        multilabel=False,
        train_images=session.plan.train_images,
        device=session.device,
        create=True,
    ).train()
    images = images_of(session, size, CIFAR)
    pixels = np.ascontiguousarray(cast(ArrayImages, images.images).pixels.transpose(0, 3, 1, 2))
    inputs = torch.from_numpy(pixels).to(session.device)
    data = TrainingSet(inputs, images.labels, session.device)
    order = BatchPlan(
        data, cast(TrainConfig, config.train), cast(AugmentConfig, config.augment), 1.0, 0
    )
    rows, table = order.at(0)
    return _Ready(network, data, rows, table, data.batch(data.inputs[rows], rows, table))
