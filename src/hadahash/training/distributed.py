"""Distributed training with `torchrun --nproc-per-node 2 -m hadahash train ...`.

Each process takes an equal slice of every batch, and the gradients are averaged before each step.
For a loss that is a mean over the batch this is the gradient of the whole batch, so the weights
equal those of a single process up to the order of additions (about 1e-7). Three things are local to
a process:

- BatchNorm in training uses the statistics of the slice (there is no SyncBatchNorm); those of rank
  0 are saved. A frozen backbone, or one without BatchNorm, is not affected.
- Dropout draws its own numbers in each process. Augmentation depends on the seed alone.
- Methods that compare images with one another (dpsh, hashnet, mihash ...) compare those of one
  slice.

Only rank 0 writes: log, checkpoints, model. Every process reads all training images, so the memory
for them is needed once per process.
"""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, distributed, nn

from ..settings import require

if TYPE_CHECKING:
    from .checkpoint import TrainingState


class ProcessGroup(Protocol):
    """The processes that train together.

    Attributes:
        rank: Index of this process.
        count: Number of processes.
    """

    rank: int
    count: int

    def slice(self, rows: Tensor) -> Tensor:
        """The part of a batch that this process takes."""
        ...

    def average_gradients(self, network: nn.Module) -> None:
        """Average the gradients over all processes."""
        ...

    def mean(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """The mean of each value over all processes."""
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

    def slice(self, rows: Tensor) -> Tensor:
        """Return all rows."""
        return rows

    def average_gradients(self, network: nn.Module) -> None:
        """Do nothing."""

    def mean(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the values unchanged."""
        return sums

    def barrier(self) -> None:
        """Do nothing."""

    def broadcast(self, state: TrainingState) -> None:
        """Do nothing."""


class DistributedProcesses:
    """One of several processes of an initialized `torch.distributed` group."""

    def __init__(self) -> None:
        self.rank, self.count = distributed.get_rank(), distributed.get_world_size()

    def slice(self, rows: Tensor) -> Tensor:
        """Return this process's part of the rows of a batch."""
        require(
            len(rows) % self.count == 0,
            f"The batch size {len(rows)} is not divisible by {self.count} processes. "
            "Choose another one with --set batch_size=...",
        )
        each = len(rows) // self.count
        return rows[self.rank * each : (self.rank + 1) * each]

    def average_gradients(self, network: nn.Module) -> None:
        """Replace each gradient by its mean over all processes."""
        gradients = [
            parameter.grad for parameter in network.parameters() if parameter.grad is not None
        ]
        # One message for all gradients of a type.
        for kind in sorted({gradient.dtype for gradient in gradients}, key=str):
            self._average([gradient for gradient in gradients if gradient.dtype == kind])

    def mean(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the mean of each value over all processes."""
        values = [value.detach().float().clone() for value in sums.values()]
        self._average(values)
        return dict(zip(sums, values, strict=True))

    def barrier(self) -> None:
        """Wait for all processes."""
        distributed.barrier()

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

    def _average(self, tensors: list[Tensor]) -> None:
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        distributed.all_reduce(flat)
        flat /= self.count
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()


def current_processes() -> ProcessGroup:
    """The process group that torchrun started this process in, or a single process."""
    if not distributed.is_available():
        return SingleProcess()
    if not distributed.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
            return SingleProcess()
        local, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if gpus:
            torch.cuda.set_device(local % gpus)
        one_gpu_each = 0 < int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= gpus  # NCCL needs it
        distributed.init_process_group("cpu:gloo,cuda:nccl" if one_gpu_each else "gloo")
        atexit.register(distributed.destroy_process_group)
    return DistributedProcesses() if distributed.get_world_size() > 1 else SingleProcess()
