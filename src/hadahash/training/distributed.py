"""Distributed training with `torchrun --nproc-per-node 2 -m hadahash train ...`.

The network is wrapped in `DistributedDataParallel`. Each process computes the features of its part
of every batch. The features are joined, with gradients, and each process computes the loss of the
whole batch, so methods that compare images with one another see all pairs. The weights equal those
of a single process up to the order of additions (about 1e-7). Two things can differ:

- BatchNorm in the backbone becomes SyncBatchNorm on a GPU. PyTorch has none for the CPU: there each
  process normalizes its part by its own statistics, and those of rank 0 are saved.
- Dropout draws its own numbers in each process. Augmentation depends on the seed alone.

With several processes the backbone is not compiled and the step is not recorded as a CUDA graph.
With a fixed backbone there is nothing to divide: every process trains the same head on the same
features.

Only rank 0 writes: log, checkpoints, model. Every process reads all training images, so the memory
for them is needed once per process.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from ..errors import ProcessLostError, UsageError
from ..settings import require

if TYPE_CHECKING:
    from ..config import TrainConfig
    from .checkpoint import TrainingState

Losses = Callable[..., dict[str, Tensor]]


class ProcessGroup(Protocol):
    """The processes that train together.

    Attributes:
        rank: Index of this process.
        count: Number of processes.
    """

    rank: int
    count: int

    def part(self, rows: Tensor) -> Tensor:
        """The part of a batch that this process takes."""
        ...

    def join(self, part: Tensor, count: int) -> Tensor:
        """The `count` rows of the whole batch, in order, from the parts of all processes."""
        ...

    def parallel(self, network: nn.Module, losses: Losses) -> Losses:
        """Make `losses` average the gradients of the network over all processes."""
        ...

    def any(self, value: bool) -> bool:
        """Whether the value is true in any process."""
        ...

    def barrier(self) -> None:
        """Wait until all processes reach this point."""
        ...

    def broadcast(self, state: TrainingState) -> None:
        """Send the state of rank 0, which reads checkpoints, to all processes."""
        ...


class SingleProcess:
    """Training in one process."""

    rank, count = 0, 1

    def part(self, rows: Tensor) -> Tensor:
        """Return all rows."""
        return rows

    def join(self, part: Tensor, count: int) -> Tensor:
        """Return the rows unchanged."""
        return part

    def parallel(self, network: nn.Module, losses: Losses) -> Losses:
        """Return the function unchanged."""
        return losses

    def any(self, value: bool) -> bool:
        """Return the value."""
        return value

    def barrier(self) -> None:
        """Do nothing."""

    def broadcast(self, state: TrainingState) -> None:
        """Do nothing."""


class DistributedProcesses:
    """One of several processes of an initialized `torch.distributed` group."""

    def __init__(self) -> None:
        self.rank, self.count = distributed.get_rank(), distributed.get_world_size()

    def part(self, rows: Tensor) -> Tensor:
        """Return the rows of this process: mirrored pairs, which mixup and CutMix mix."""
        start, stop, back = self._bounds(len(rows))
        return torch.cat([rows[start:stop], rows[back : len(rows) - start]])

    def join(self, part: Tensor, count: int) -> Tensor:
        """Return the rows of all processes. Gradients flow back to the process of each row."""
        start, stop, back = self._bounds(count)
        front, end = part[: stop - start], part[stop - start :]
        outside, between = (
            part.new_zeros(start, *part.shape[1:]),
            part.new_zeros(back - stop, *part.shape[1:]),
        )
        padded = torch.cat([outside, front, between, end, outside])
        joined: Tensor = _Sum.apply(padded)
        return joined

    def _bounds(self, count: int) -> tuple[int, int, int]:
        """The rows of this process: start to stop, and from `back` to as far from the end."""
        require(
            count >= 2 * self.count,
            f"batch_size must be >= {2 * self.count} for {self.count} processes, got {count}. "
            "Use larger batches (--set batch_size=...), more images or fewer processes.",
        )
        pairs = count // 2
        start, stop = (pairs * number // self.count for number in (self.rank, self.rank + 1))
        middle = stop == pairs  # the last process also takes the row in the middle
        return start, stop, stop if middle else count - stop

    def parallel(self, network: nn.Module, losses: Losses) -> Losses:
        """Return `losses` in a `DistributedDataParallel`."""
        # `DeepMethod.loss` has no control flow, so the graph is static. That also allows
        # parameters without a gradient.
        return DistributedDataParallel(_Forward(network, losses), static_graph=True)

    def any(self, value: bool) -> bool:
        """Return whether the value is true in any process."""
        # A group with NCCL alone cannot send tensors on the CPU.
        device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
        found = torch.tensor(float(value), device=device)
        distributed.all_reduce(found)
        return float(found) > 0

    def barrier(self) -> None:
        """Wait for all processes."""
        with noticing_lost_processes("Its message says why."):
            self.any(False)

    def broadcast(self, state: TrainingState) -> None:
        """Send the state of rank 0 to all processes."""
        device = state.network.threshold.device
        momenta = state.momenta()
        known = torch.tensor([state.step, *(each is not None for each in momenta)], device=device)
        distributed.broadcast(known, 0)
        state.step = int(known[0])
        for number, there in enumerate(known[1:].tolist()):
            if there and momenta[number] is None:
                state.set_momentum(number, torch.zeros_like(state.parameters()[number]))
        for value in state.tensors().values():
            sent = value.contiguous()
            distributed.broadcast(sent, 0)
            value.copy_(sent)


class _Forward(nn.Module):
    """A function of a network as a module, for `DistributedDataParallel`.

    It shows the parameters that are trained, and no buffers: those need no broadcast in each step.
    Batch statistics are synchronized, or those of rank 0 are kept. Banks are equal.
    """

    def __init__(self, network: nn.Module, losses: Losses) -> None:
        super().__init__()
        trained = [each for each in network.parameters() if each.requires_grad]
        self.trained, self._losses = nn.ParameterList(trained), losses

    def forward(self, *tensors: Tensor) -> dict[str, Tensor]:
        return self._losses(*tensors)


class _Sum(torch.autograd.Function):
    """The sum over all processes.

    The gradient is summed as well. `DistributedDataParallel` then divides by the number of
    processes, which leaves the gradient of the mean of their losses.
    """

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        values = values.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(values)
        return values

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return _Sum.forward(context, gradients[0])


@contextmanager
def synchronized_norms(backbone: nn.Module, processes: ProcessGroup) -> Iterator[None]:
    """Replace BatchNorm by SyncBatchNorm while a backbone is trained by several GPUs.

    Weights and statistics are shared with the original layers, which are put back afterwards.

    Args:
        backbone: The backbone, on its device.
        processes: The processes that train together.

    Yields:
        Nothing.
    """
    found = list(_norms(backbone)) if processes.count > 1 and _on_gpu(backbone) else []
    for parent, name, norm in found:
        setattr(parent, name, _synchronized(norm))
    try:
        yield
    finally:
        for parent, name, norm in found:
            setattr(parent, name, norm)


def _synchronized(norm: nn.Module) -> nn.Module:
    from timm.layers import norm_act

    # PyTorch's own conversion would drop the activation of timm's layers.
    convert: Callable[[nn.Module], nn.Module] = norm_act.convert_sync_batchnorm
    return convert(norm)


def _norms(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for parent in module.modules():
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
                yield parent, name, child


def _on_gpu(module: nn.Module) -> bool:
    return any(parameter.is_cuda for parameter in module.parameters())


def limits_of(processes: ProcessGroup, backbone: nn.Module, config: TrainConfig) -> list[str]:
    """State what several processes do not do.

    Args:
        processes: The processes that train together.
        backbone: The backbone, on its device.
        config: Settings of the loop.

    Returns:
        Lines for the user; none for a single process.
    """
    count, on_gpu, lines = processes.count, _on_gpu(backbone), []
    if count == 1:
        return []
    if config.fixed_backbone:
        return [f"The backbone is fixed: {count} processes are not faster than one."]
    if not on_gpu and any(True for _ in _norms(backbone)):
        lines.append(
            "BatchNorm uses the statistics of each process's part of the batch: "
            "PyTorch's SyncBatchNorm needs a GPU."
        )
    if on_gpu and config.compile:
        lines.append("compile is ignored: only a single process compiles the backbone.")
    return lines


@contextmanager
def noticing_lost_processes(remedy: str) -> Iterator[None]:
    """Raise `ProcessLostError` where communication fails because another process ended.

    Args:
        remedy: The end of the message: what to do.

    Yields:
        Nothing.

    Raises:
        ProcessLostError: Another process ended or cannot be reached.
    """
    try:
        yield
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise ProcessLostError(f"Another process of this training has ended. {remedy}") from error


def _is_lost(error: RuntimeError) -> bool:
    if not distributed.is_available():
        return False
    text = str(error).lower()
    by_gloo = distributed.is_initialized() and ("gloo" in text or "by peer" in text)
    return by_gloo or isinstance(error, distributed.DistError)


def current_processes() -> ProcessGroup:
    """The process group that torchrun started this process in, or a single process.

    Raises:
        UsageError: The variables that torchrun sets are wrong.
        ProcessLostError: The other processes cannot be reached.
    """
    if not distributed.is_available():
        return SingleProcess()
    if not distributed.is_initialized():
        if "RANK" not in os.environ or _variable("WORLD_SIZE", 1, at_least=1) == 1:
            return SingleProcess()
        _initialize()
    return DistributedProcesses() if distributed.get_world_size() > 1 else SingleProcess()


def _initialize() -> None:
    """Join the processes of torchrun, with a GPU for each where there are enough."""
    count, rank = _variable("WORLD_SIZE", 1, at_least=1), _variable("RANK", 0)
    require(rank < count, f"RANK must be < WORLD_SIZE = {count}, got {rank}. {_USE_TORCHRUN}")
    _variable("MASTER_PORT", 0)
    local, gpus = _variable("LOCAL_RANK", 0), torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(local % gpus)
    one_gpu_each = _variable("LOCAL_WORLD_SIZE", 1, at_least=1) <= gpus  # NCCL needs it
    try:
        with noticing_lost_processes(f"Or it cannot be reached. {_USE_TORCHRUN}"):
            distributed.init_process_group("cpu:gloo,cuda:nccl" if one_gpu_each else "gloo")
    except ValueError as error:  # MASTER_ADDR or MASTER_PORT is missing
        reason = " ".join(str(error).split()).removesuffix(".")
        raise UsageError(f"Cannot start distributed training: {reason}. {_USE_TORCHRUN}") from error
    atexit.register(distributed.destroy_process_group)


_USE_TORCHRUN = "Start the processes with torchrun."


def _variable(name: str, default: int, *, at_least: int = 0) -> int:
    """A number that torchrun puts into the environment."""
    text = os.environ.get(name, str(default))
    require(
        text.isdecimal() and int(text) >= at_least,
        f"{name} must be an integer >= {at_least}, got {text!r}. {_USE_TORCHRUN}",
    )
    return int(text)
