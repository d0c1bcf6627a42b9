"""The training loop: the only one.

All random choices of a step (order, augmentation, dropout) follow from the seed and the step's number, so a run that was
killed goes on from its last checkpoint exactly as if it had never stopped.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ..data.transforms import AugmentSettings, Preprocess, augment, draw, mix_targets
from ..errors import HadaHashError
from ..methods import Batch, DeepMethod
from .checkpoint import Checkpoint, State
from .graph import Step, record
from .log import Log
from .network import HashNetwork
from .optim import Average, make_optimizer, rate_factor, set_rates
from .settings import TrainSettings


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """What the network is trained on: pixels, or features of a frozen backbone, with the targets."""

    inputs: Tensor  # uint8 pixels (n, 3, side, side), or float features (n, d)
    targets: Tensor  # float (n, classes)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def frozen(self) -> bool:
        return self.inputs.ndim == 2


@dataclass(frozen=True)
class Outcome:
    """What a finished training took; the rate leaves out the start (recording, compiling)."""

    steps: int
    seconds: float
    images_per_second: float


def train(
    network: HashNetwork, data: TrainingSet, settings: TrainSettings, *,
    augmentation: AugmentSettings, preprocess: Preprocess, seed: int, log: Log, checkpoint: Checkpoint | None = None,
) -> Outcome:  # fmt: skip
    """Train the network in place; at the end it holds the averaged weights of the last step."""
    device = network.threshold.device
    batch = min(settings.batch, len(data))
    steps_per_epoch = len(data) // batch
    steps = settings.epochs * steps_per_epoch
    network.backbone.requires_grad_(not data.frozen)
    optimizer = make_optimizer(network, settings)
    state = State(network, optimizer, Average(network, settings.ema))
    if checkpoint is not None:
        checkpoint.restore(state)
    log.begin(state.step, steps)
    method, step_once, table, order = cast(DeepMethod, network.method), None, torch.empty(0), torch.empty(0)
    started = running = time.perf_counter()
    first, sums = state.step, {}  # type: ignore[var-annotated]
    network.train(not data.frozen)
    method.train()
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        torch.backends.cudnn.flags(enabled=True, benchmark=True),
    ):
        while state.step < steps:
            epoch, place = divmod(state.step, steps_per_epoch)
            if place == 0 or state.step == first:
                order, table = _plan(len(data), augmentation, preprocess.crop, seed, epoch, device)
            rows = order[place * batch : (place + 1) * batch]
            given = (data.inputs[rows.to(data.inputs.device)].to(device), data.targets[rows], rows, table[rows])
            method.before_step(state.step, steps)
            set_rates(optimizer, rate_factor(state.step, steps, steps_per_epoch, settings))
            torch.manual_seed(_mix(seed, state.step))
            if step_once is None:
                step_once = _make_step(network, settings, preprocess.train_size, data.frozen, given)
                running = time.perf_counter()
            parts = step_once(*given)
            optimizer.step()
            state.average.update(state.step)
            state.step += 1
            sums = {key: sums.get(key, 0) + value.detach() for key, value in parts.items()}
            log.advance(state.step)
            if place == steps_per_epoch - 1:
                done = min(steps_per_epoch, state.step - first)
                _log_epoch(log, state.step, epoch + 1, {key: float(value) / done for key, value in sums.items()}, optimizer)
                sums = {}
            if checkpoint is not None:
                checkpoint.save_if_due(state)
    state.average.apply()
    network.eval()
    now = time.perf_counter()
    return Outcome(steps, now - started, (steps - first) * batch / (now - running))


def _make_step(network: HashNetwork, settings: TrainSettings, size: int, frozen: bool, example: tuple[Tensor, ...]) -> Step:
    """The function of one step: losses and gradients of a batch. On a GPU it is recorded once and replayed."""
    device = network.threshold.device
    on_gpu = device.type == "cuda"
    precision = settings.precision if settings.precision != "auto" else ("bf16" if on_gpu else "fp32")
    method = cast(DeepMethod, network.method)
    backbone = torch.compile(network.backbone, dynamic=False) if settings.compile and on_gpu else network.backbone

    def step(inputs: Tensor, targets: Tensor, rows: Tensor, table: Tensor) -> dict[str, Tensor]:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            if frozen:
                features = inputs
            else:
                features = backbone(augment(inputs, table, size))
                targets = mix_targets(targets, table)
            parts = method.loss(Batch(features, targets, rows))
        total = torch.stack(list(parts.values())).sum()
        total.backward()  # type: ignore[no-untyped-call]
        return parts

    if on_gpu:
        return record(step, network, *example)

    def plain(*tensors: Tensor) -> dict[str, Tensor]:
        network.zero_grad(set_to_none=True)
        return step(*tensors)

    return plain


def _plan(
    count: int, augmentation: AugmentSettings, crop: float, seed: int, epoch: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The order of the images in this epoch, and the augmentation of each."""
    generator = torch.Generator().manual_seed(_mix(seed, epoch) + 1)
    order = torch.randperm(count, generator=generator)
    return order.to(device), draw(count, augmentation, crop, generator).to(device)


def _mix(seed: int, number: int) -> int:
    """A seed of its own for each pair of numbers."""
    return (seed * 1_000_003 + number) * 2_654_435_761 % (1 << 62)


def _log_epoch(log: Log, step: int, epoch: int, parts: dict[str, float], optimizer: torch.optim.Optimizer) -> None:
    loss = sum(parts.values())
    if not math.isfinite(loss):
        raise HadaHashError(f"The loss is {loss} after epoch {epoch}: training fell apart. Lower the rate with --set lr=...")
    log.write(step=step, epoch=epoch, loss=loss, **parts, lr=optimizer.param_groups[-1]["lr"])
