"""Several processes that train one network: `torchrun --nproc-per-node 2 -m hadahash train ...`

Each process takes an equal slice of every batch, and the gradients are averaged before each step. For a loss that is a mean
over the images of a batch this is the gradient of the whole batch, so the weights are those of a single process, but for
the order of additions (about 1e-7). Three things stay with each process and its slice:

- BatchNorm in training computes its statistics from the slice (there is no SyncBatchNorm); those of the first process are
  saved. A frozen backbone, or one without BatchNorm, is not touched by this.
- Dropout draws its own numbers in each process. (What the augmentation does to an image depends on the seed alone.)
- Methods that compare images with one another (dpsh, hashnet, mihash ...) compare those of one slice.

The first process alone writes: log, checkpoints, model. Every process reads all training images; a machine's worth of
memory is needed once for each.
"""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, distributed, nn

from ..config import require

if TYPE_CHECKING:
    from .checkpoint import State


class Workers(Protocol):
    """The processes that train together, as the training loop sees them."""

    rank: int
    count: int

    def slice(self, rows: Tensor) -> Tensor:
        """This process's part of a batch."""
        ...

    def reduce(self, network: nn.Module) -> None:
        """Average the gradients over all processes."""
        ...

    def mean(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """The averages of the figures of all processes."""
        ...

    def share(self, state: State) -> None:
        """Give the first process's state to all: it is the one that reads checkpoints."""
        ...


class Alone:
    """The usual case: one process that does everything."""

    rank, count = 0, 1

    def slice(self, rows: Tensor) -> Tensor:
        return rows

    def reduce(self, network: nn.Module) -> None: ...

    def mean(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        return sums

    def share(self, state: State) -> None: ...


class Together:
    """One of several processes of an initialised `torch.distributed` group."""

    def __init__(self) -> None:
        self.rank, self.count = distributed.get_rank(), distributed.get_world_size()

    def slice(self, rows: Tensor) -> Tensor:
        require(
            len(rows) % self.count == 0,
            f"A batch of {len(rows)} images cannot be divided equally among {self.count} processes. Choose another batch size.",
        )
        each = len(rows) // self.count
        return rows[self.rank * each : (self.rank + 1) * each]

    def reduce(self, network: nn.Module) -> None:
        gradients = [
            parameter.grad for parameter in network.parameters() if parameter.grad is not None
        ]
        for kind in sorted(
            {gradient.dtype for gradient in gradients}, key=str
        ):  # one message for all of a kind
            self._average([gradient for gradient in gradients if gradient.dtype == kind])

    def mean(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        values = [value.detach().float().clone() for value in sums.values()]
        self._average(values)
        return dict(zip(sums, values, strict=True))

    def share(self, state: State) -> None:
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


def workers_here() -> Workers:
    """The group that torchrun started this process in, or that it has joined already; else it is alone."""
    if not distributed.is_available():
        return Alone()
    if not distributed.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
            return Alone()
        local, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if gpus:
            torch.cuda.set_device(local % gpus)
        each_has_one = 0 < int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= gpus
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if each_has_one else "gloo"
        )  # nccl: one process a GPU
        atexit.register(distributed.destroy_process_group)
    return Together() if distributed.get_world_size() > 1 else Alone()
