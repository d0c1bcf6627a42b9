"""The training loop: the only one.

All random choices of a step (order, augmentation, dropout) follow from the seed and the step's number, so a run that was
killed goes on from its last checkpoint exactly as if it had never stopped. One that is told to stop writes it first.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ..data.preprocess import AugmentSettings, Preprocess, augment, draw, mix_targets
from ..errors import FellApart
from ..methods import Batch, DeepMethod
from ..networks.hash_network import HashNetwork
from .checkpoint import Checkpoint, State
from .distributed import Alone, Workers
from .graph import Step, record
from .interrupt import Interrupt
from .log import Log
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

    def batch(self, rows: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What a step is given: inputs, targets, numbers of the images and their augmentations."""
        inputs = self.inputs[rows.to(self.inputs.device)].to(self.targets.device)
        return inputs, self.targets[rows], rows, table


@dataclass(frozen=True)
class Outcome:
    """What a finished training took; the rate leaves out the start (recording, compiling)."""

    steps: int
    seconds: float
    images_per_second: float


def train(
    network: HashNetwork,
    data: TrainingSet,
    settings: TrainSettings,
    *,
    augmentation: AugmentSettings,
    preprocess: Preprocess,
    seed: int,
    log: Log,
    checkpoint: Checkpoint | None = None,
    workers: Workers | None = None,
) -> Outcome:
    """Train the network in place; at the end it holds the averaged weights of the last step."""
    device, workers, method = (
        network.threshold.device,
        workers or Alone(),
        cast(DeepMethod, network.method),
    )
    plan = Plan(data, settings, augmentation, preprocess.crop, seed)
    network.backbone.requires_grad_(not data.frozen)
    optimizer = make_optimizer(network, settings)
    state = State(network, optimizer, Average(network, settings.ema))
    if checkpoint is not None:
        checkpoint.restore(state)
    workers.share(state)
    log.begin(state.step, plan.steps)
    network.train(not data.frozen)
    method.train()
    started = running = time.perf_counter()
    first, step_once, sums = state.step, None, {}  # type: ignore[var-annotated]
    interrupt = Interrupt(workers, device, hold=checkpoint is not None or workers.count > 1)
    with (
        _own_randomness(device),
        kernels(device, deterministic=settings.deterministic),
        interrupt,
    ):
        while state.step < plan.steps:
            given = data.batch(*(workers.slice(part) for part in plan.at(state.step)))
            method.before_step(state.step, plan.steps)
            set_rates(
                optimizer, rate_factor(state.step, plan.steps, plan.steps_per_epoch, settings)
            )
            torch.manual_seed(_mix(seed, state.step) + workers.rank)
            if step_once is None:
                step_once = _make_step(network, settings, preprocess.train_size, data.frozen, given)
                running = time.perf_counter()
            parts = step_once(*given)
            workers.reduce(network)
            optimizer.step()
            state.average.update(state.step)
            state.step += 1
            sums = {key: sums.get(key, 0) + value.detach() for key, value in parts.items()}
            log.advance(state.step)
            epoch, rest = divmod(state.step, plan.steps_per_epoch)
            if rest == 0:
                done = min(plan.steps_per_epoch, state.step - first)
                means = {key: float(value) / done for key, value in workers.mean(sums).items()}
                _log_epoch(log, state.step, epoch, means, optimizer)
                sums = {}
            _keep(state, checkpoint, interrupt)
    state.average.apply()
    network.eval()
    now = time.perf_counter()
    return Outcome(plan.steps, now - started, (plan.steps - first) * plan.batch / (now - running))


class Plan:
    """Which images each step sees, and how they are augmented: a function of the seed and the step's number."""

    def __init__(
        self,
        data: TrainingSet,
        settings: TrainSettings,
        augmentation: AugmentSettings,
        crop: float,
        seed: int,
    ) -> None:
        self.count, self.device = len(data), data.targets.device
        self.batch = min(settings.batch, self.count)
        self.steps_per_epoch = (
            self.count // self.batch
        )  # what does not fill a batch is left out; the order changes
        self.steps = settings.epochs * self.steps_per_epoch
        self._augmentation, self._crop, self._seed = augmentation, crop, seed
        self._epoch = -1

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """The numbers of the images of this step (batch,), and their augmentations (batch, 8)."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(_mix(self._seed, epoch) + 1)
            self._order = torch.randperm(self.count, generator=generator).to(self.device)
            self._table = draw(self.count, self._augmentation, self._crop, generator).to(
                self.device
            )
            self._epoch = epoch
        rows = self._order[place * self.batch : (place + 1) * self.batch]
        return rows, self._table[rows]


def _make_step(
    network: HashNetwork,
    settings: TrainSettings,
    size: int,
    frozen: bool,
    example: tuple[Tensor, ...],
) -> Step:
    """The function of one step: losses and gradients of a batch. On a GPU it is recorded once and replayed."""
    device = network.threshold.device
    on_gpu = device.type == "cuda"
    precision = (
        settings.precision if settings.precision != "auto" else ("bf16" if on_gpu else "fp32")
    )
    method = cast(DeepMethod, network.method)
    backbone = (
        torch.compile(network.backbone, dynamic=False)
        if settings.compile and on_gpu and not settings.deterministic
        else network.backbone
    )

    def step(inputs: Tensor, targets: Tensor, rows: Tensor, table: Tensor) -> dict[str, Tensor]:
        if frozen:
            features = inputs
        else:
            with torch.autocast(
                device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False
            ):
                features = backbone(augment(inputs, table, size))
            targets = mix_targets(targets, table)
        parts = method.loss(Batch(features.float(), targets, rows))  # the head is always float32
        total = torch.stack(list(parts.values())).sum()
        total.backward()  # type: ignore[no-untyped-call]
        return parts

    if on_gpu:
        return record(step, network, *example)

    def plain(*tensors: Tensor) -> dict[str, Tensor]:
        network.zero_grad(set_to_none=True)
        return step(*tensors)

    return plain


def _keep(state: State, checkpoint: Checkpoint | None, interrupt: Interrupt) -> None:
    """Write a checkpoint when it is time; also when the process is told to stop, which happens then."""
    stop = interrupt.wanted()
    if checkpoint is not None:
        (checkpoint.save if stop else checkpoint.save_if_due)(state)
    if stop:
        interrupt.give_in()


@contextmanager
def _own_randomness(device: torch.device) -> Iterator[None]:
    """Dropout draws from torch's global generators, which each step seeds: the caller's are put back afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


@contextmanager
def kernels(device: torch.device, *, deterministic: bool) -> Iterator[None]:
    """Choose the fastest kernels, or only those that give the same bits every time."""
    before = torch.are_deterministic_algorithms_enabled()
    if deterministic and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic or before, warn_only=True)
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=not deterministic, deterministic=deterministic
        ):
            yield
    finally:
        torch.use_deterministic_algorithms(before)


def _mix(seed: int, number: int) -> int:
    """A seed of its own for each pair of numbers."""
    return (seed * 1_000_003 + number) * 2_654_435_761 % (1 << 62)


def _log_epoch(
    log: Log, step: int, epoch: int, parts: dict[str, float], optimizer: torch.optim.Optimizer
) -> None:
    loss = sum(parts.values())
    if not math.isfinite(loss):
        raise FellApart(
            f"The loss is {loss} after epoch {epoch}: training fell apart. Lower the rate with --set lr=..."
        )
    log.write(step=step, epoch=epoch, loss=loss, **parts, lr=optimizer.param_groups[-1]["lr"])
