"""The training loop of all deep methods.

All random choices of a step (order, augmentation, dropout) depend on the seed and the step number
only. An interrupted run therefore resumes from its last checkpoint exactly as if it had not
stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from ..config import AugmentConfig, TrainConfig
from ..data.augment import sample_augmentations
from ..data.labels import Labels
from ..data.prefetch import Prefetcher
from ..data.preprocess import Preprocess
from ..errors import TrainingDivergedError
from ..methods import DeepMethod
from ..networks.hash_network import HashNetwork
from .checkpoint import Checkpoint, TrainingState
from .distributed import (
    ProcessGroup,
    SingleProcess,
    noticing_lost_processes,
    synchronized_norms,
)
from .graph import Step
from .interrupt import Interrupt
from .log import Log
from .optim import WeightAverage, make_optimizer, rate_factor, set_rates
from .sampling import draw_order
from .step import StepInputs, compiles, effective_precision, make_step
from .targets import BatchTargets

_RESUME = "Run the same command again with --resume to continue."


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The inputs and labels that a network is trained on.

    Attributes:
        inputs: uint8 pixels (n, 3, side, side), or float features (n, d) of a frozen backbone. They
            may be on a different device than the network, or in a memory-mapped file.
        labels: Labels of the n images; dense targets exist per batch only.
        device: Device of the network.
        on_disk: Whether the inputs are in a memory-mapped file.
    """

    inputs: Tensor
    labels: Labels
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    on_disk: bool = False

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def targets(self) -> BatchTargets:
        """Makes the targets of a batch."""
        return BatchTargets(self.labels, self.device)

    @property
    def frozen(self) -> bool:
        """Whether the inputs are features, so the backbone is not trained."""
        return self.inputs.ndim == 2

    @property
    def resident(self) -> bool:
        """Whether the inputs are in the memory of the device, so reading them takes no time."""
        return self.inputs.device.type == self.device.type and not self.on_disk

    def batch(self, inputs: Tensor, rows: Tensor, augmentations: Tensor) -> StepInputs:
        """Put a batch on the device of the network and add its targets.

        Args:
            inputs: Pixels or features (n, ...), of the whole batch or a part of it.
            rows: Indices of the images of the batch (batch,).
            augmentations: Their augmentations (batch, 8 or 12).

        Returns:
            Inputs, targets, rows and augmentations.
        """
        rows = rows.to(self.device)
        targets = self.targets(rows)
        return inputs.to(self.device), targets, rows, augmentations.to(self.device)


@dataclass(frozen=True)
class TrainingResult:
    """Statistics of a finished training run.

    Attributes:
        steps: Number of steps.
        seconds: Training time, including interrupted sessions.
        images_per_second: Rate of the last session, without its start (recording, compiling).
        precision: Effective precision of the backbone.
        batch_size: Effective batch size.
        compiled: Whether the backbone was compiled.
    """

    steps: int
    seconds: float
    images_per_second: float
    precision: str
    batch_size: int
    compiled: bool


def train(
    network: HashNetwork,
    data: TrainingSet,
    config: TrainConfig,
    *,
    augmentation: AugmentConfig,
    preprocess: Preprocess,
    seed: int,
    log: Log,
    checkpoint: Checkpoint | None = None,
    processes: ProcessGroup | None = None,
) -> TrainingResult:
    """Train a network in place; at the end it holds the averaged weights of the last step.

    Args:
        network: The network; its method must be a DeepMethod.
        data: Training inputs and labels.
        config: Settings of the loop.
        augmentation: Random augmentation of pixels.
        preprocess: Gives the input size and the crop.
        seed: Seed of order, augmentation and dropout.
        log: Receives the losses of every epoch.
        checkpoint: Saves and restores the state; None: not saved.
        processes: The processes that train together; None: this one alone.

    Returns:
        Time and effective settings.

    Raises:
        TrainingDivergedError: The loss or the weights became NaN or infinite.
        ProcessLostError: Another of several processes ended.
    """
    plan = BatchPlan(data, config, augmentation, preprocess.crop, seed)
    run = _Run(network, data, config, plan, log, processes or SingleProcess())
    with noticing_lost_processes(_RESUME):
        started = run.begin(checkpoint)
        hold = checkpoint is not None or run.processes.count > 1
        interrupt = Interrupt(run.processes, hold=hold)
        norms = synchronized_norms(network.backbone, run.processes)
        with _isolated_randomness(network.device), _kernels(config), norms, interrupt:
            for given in run.batches():
                torch.manual_seed(_mix(seed, run.state.step) + run.own_numbers)
                run.step(given, preprocess.train_size)
                run.state.seconds = started + time.perf_counter()
                _checkpoint_or_stop(run.state, checkpoint, interrupt)
        run.processes.broadcast(run.state)  # batch statistics may differ
    run.state.average.apply()
    _check_finite(network)
    network.eval()
    return run.result(started)


class BatchPlan:
    """Which images each step sees, and their augmentation: a function of seed and step number.

    Images that do not fill the last batch of an epoch are left out of that epoch; the order changes
    every epoch. Balanced batches may repeat images of small classes and leave out those of large
    ones.
    """

    def __init__(
        self,
        data: TrainingSet,
        config: TrainConfig,
        augmentation: AugmentConfig,
        crop: float,
        seed: int,
    ) -> None:
        self.count, self.device = len(data), data.inputs.device
        self.batch_size = min(config.batch_size, self.count)
        self.steps_per_epoch = self.count // self.batch_size
        self.steps = config.epochs * self.steps_per_epoch
        self._augmentation, self._crop, self._seed = augmentation, crop, seed
        self._labels = data.labels
        self._classes = config.classes_per_batch if config.sampler == "balanced" else None
        self._epoch = -1

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """The rows (batch,) of the images of a step, and their augmentations (batch, 8 or 12)."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(_mix(self._seed, epoch) + 1)
            sizes = self.steps_per_epoch, self.batch_size
            order = draw_order(self._labels, *sizes, self._classes, generator)
            drawn = sample_augmentations(self.count, self._augmentation, self._crop, generator)
            if self._classes is None:
                drawn = drawn[order]
            self._order, self._augmentations = order.to(self.device), drawn.to(self.device)
            self._epoch = epoch
        places = slice(batch * self.batch_size, (batch + 1) * self.batch_size)
        return self._order[places], self._augmentations[places]


class _Run:
    """The state of one training run."""

    def __init__(
        self,
        network: HashNetwork,
        data: TrainingSet,
        config: TrainConfig,
        plan: BatchPlan,
        log: Log,
        processes: ProcessGroup,
    ) -> None:
        self.network, self.data, self.config = network, data, config
        self.plan, self.log, self.processes = plan, log, processes
        self.method = cast(DeepMethod, network.method)
        network.backbone.requires_grad_(not data.frozen)
        self.optimizer = make_optimizer(network, config)
        self.state = TrainingState(network, self.optimizer, WeightAverage(network, config.ema))
        self._step_once: Step | None = None
        self._sums: dict[str, Tensor] = {}
        self.first = 0

    def begin(self, checkpoint: Checkpoint | None) -> float:
        """Restore the state; returns the offset that turns the clock into training seconds."""
        if checkpoint is not None:
            checkpoint.restore(self.state)
        self.processes.broadcast(self.state)
        self.first = self.state.step
        self.log.begin(self.first, self.plan.steps)
        self.network.train(not self.data.frozen)
        self.method.train()
        now = self._running = time.perf_counter()
        return self.state.seconds - now

    @property
    def own_numbers(self) -> int:
        """Added to the seed of a step, so that dropout differs between parts of a batch."""
        return 0 if self.data.frozen else self.processes.rank

    def batches(self) -> Iterator[StepInputs]:
        """The batches that are left, each read one step ahead where reading takes time."""
        steps = range(self.first, self.plan.steps)
        read = map(self._read, steps) if self.data.resident else Prefetcher(self._read, steps)
        for parts in read:
            yield self.data.batch(*parts)

    def _read(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, rows and augmentations of a step, on the device that holds the inputs.

        The inputs are those of this process, except for features: their batch is not divided.

        A thread that prefetches must not use the GPU, which may be recording a graph.
        """
        rows, augmentations = self.plan.at(step)
        own = rows if self.data.frozen else self.processes.part(rows)
        return self.data.inputs[own], rows, augmentations

    def step(self, given: StepInputs, size: int) -> None:
        """One optimizer step."""
        state, plan = self.state, self.plan
        self.method.before_step(state.step, plan.steps)
        factor = rate_factor(state.step, plan.steps, plan.steps_per_epoch, self.config)
        set_rates(self.optimizer, factor)
        if self._step_once is None:
            self._step_once = make_step(
                self.network, self.config, size, self.data.frozen, self.processes, given
            )
            self._running = time.perf_counter()
        parts = self._step_once(*given)
        if self.config.clip_grad:  # outside the recorded graph, whose replay overwrites gradients
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip_grad)
        self.optimizer.step()
        state.average.update(state.step)
        state.step += 1
        for key, value in parts.items():
            self._sums[key] = self._sums.get(key, 0) + value.detach()
        self.log.advance(state.step)
        epoch, rest = divmod(state.step, plan.steps_per_epoch)
        if rest == 0:
            self._end_epoch(epoch)

    def _end_epoch(self, epoch: int) -> None:
        steps = min(self.plan.steps_per_epoch, self.state.step - self.first)
        parts = {key: float(value) / steps for key, value in self._sums.items()}
        self._sums = {}
        loss = sum(parts.values())
        if not math.isfinite(loss):
            raise TrainingDivergedError(
                f"Training diverged: the loss is {loss} after epoch {epoch}. "
                "Lower the learning rate with --set lr=..."
            )
        rate = self.optimizer.param_groups[-1]["lr"]
        self.log.write(step=self.state.step, epoch=epoch, loss=loss, **parts, lr=rate)

    def result(self, offset: float) -> TrainingResult:
        now = time.perf_counter()
        images = (self.plan.steps - self.first) * self.plan.batch_size
        return TrainingResult(
            steps=self.plan.steps,
            seconds=offset + now,
            images_per_second=images / (now - self._running),
            precision=effective_precision(self.config, self.network.device),
            batch_size=self.plan.batch_size,
            compiled=compiles(self.config, self.network.device, self.processes)
            and not self.data.frozen,
        )


def _checkpoint_or_stop(
    state: TrainingState, checkpoint: Checkpoint | None, interrupt: Interrupt
) -> None:
    """Save a checkpoint when it is due, or before stopping on a signal."""
    stop = interrupt.should_stop()
    if checkpoint is not None:
        (checkpoint.save if stop else checkpoint.save_if_due)(state)
    if stop:
        interrupt.raise_signal()


@contextmanager
def _kernels(config: TrainConfig) -> Iterator[None]:
    """Fastest convolution kernels, or deterministic ones."""
    before = torch.are_deterministic_algorithms_enabled()
    flags = torch.backends.cudnn.flags(
        enabled=True, benchmark=not config.deterministic, deterministic=config.deterministic
    )
    with flags:
        torch.use_deterministic_algorithms(config.deterministic or before, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)


@contextmanager
def _isolated_randomness(device: torch.device) -> Iterator[None]:
    """Dropout draws from torch's global generators, which each step seeds; restore the caller's."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def _mix(seed: int, number: int) -> int:
    """Derive a seed from a pair of numbers."""
    return (seed * 1_000_003 + number) * 2_654_435_761 % (1 << 62)


def _check_finite(network: HashNetwork) -> None:
    """Check the weights: the last step may diverge after the last loss was measured."""
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise TrainingDivergedError(
                f"Training diverged: the weights {name} are NaN or infinite. "
                "Lower the learning rate with --set lr=..."
            )
