"""Checkpoints: everything needed to resume training exactly, in one safetensors file."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ..config import differences
from ..errors import StorageError, UsageError
from ..files import replacing, storage_error
from ..networks.hash_network import HashNetwork
from .optim import WeightAverage


@dataclass
class TrainingState:
    """Everything that changes during training; random choices follow from the seed and the step."""

    network: HashNetwork
    optimizer: torch.optim.Optimizer
    average: WeightAverage
    step: int = 0
    seconds: float = 0.0  # training time so far, including interrupted sessions

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the state by name."""
        tensors = {f"network.{key}": value for key, value in self.learned().items()}
        tensors |= {f"average.{key}": value for key, value in self.average.tensors().items()}
        return tensors | {
            f"momentum.{n}": value for n, value in enumerate(self.momenta()) if value is not None
        }

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], step: int, seconds: float) -> None:
        """Copy saved tensors into the network, the average and the optimizer."""
        for key, value in self.learned().items():
            value.copy_(tensors[f"network.{key}"])
        for key, value in self.average.tensors().items():
            value.copy_(tensors[f"average.{key}"])
        for number in range(len(self.parameters())):
            if f"momentum.{number}" in tensors:
                self.set_momentum(number, tensors[f"momentum.{number}"])
        self.step, self.seconds = step, seconds

    def learned(self) -> dict[str, Tensor]:
        """The tensors of the network, with the method's buffers that only training needs."""
        return self.network.state_dict() | {
            f"method.{key}": value for key, value in self.network.method.named_buffers()
        }

    def parameters(self) -> list[Tensor]:
        """The parameters in the order of the optimizer's groups."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def momenta(self) -> list[Tensor | None]:
        """The momentum of each parameter; None before its first step."""
        return [
            self.optimizer.state[parameter].get("momentum_buffer")
            for parameter in self.parameters()
        ]

    def set_momentum(self, number: int, value: Tensor) -> None:
        """Set the momentum of one parameter."""
        parameter = self.parameters()[number]
        self.optimizer.state[parameter]["momentum_buffer"] = value.to(parameter.device)


@dataclass
class Checkpoint:
    """The checkpoint file of a training run.

    Attributes:
        path: The file.
        fingerprint: Identifies configuration and data; a checkpoint with a different one is
            refused.
        seconds: Minimum time between two checkpoints.
    """

    path: Path
    fingerprint: dict[str, Any]
    seconds: float = 60.0
    _last: float = field(default_factory=time.monotonic)

    def save_if_due(self, state: TrainingState) -> None:
        """Save unless the last checkpoint is recent."""
        if time.monotonic() - self._last >= self.seconds:
            self.save(state)

    def save(self, state: TrainingState) -> None:
        """Write the checkpoint atomically.

        Raises:
            StorageError: It cannot be written.
        """
        tensors = {key: value.cpu().contiguous() for key, value in state.tensors().items()}
        header: dict[str, Any] = {
            "step": state.step,
            "seconds": state.seconds,
            "fingerprint": self.fingerprint,
        }
        header["sha256"] = _digest(header, tensors)
        try:
            with replacing(self.path) as temporary:
                safetensors.torch.save_file(tensors, temporary, {"hadahash": json.dumps(header)})
        except safetensors.SafetensorError as error:  # how safetensors reports a full disk
            raise StorageError(
                f"Cannot write {self.path}: {error}. Free some space or choose another folder."
            ) from error
        self._last = time.monotonic()

    def restore(self, state: TrainingState) -> bool:
        """Restore the state from the file, if there is one.

        Returns:
            Whether there was a checkpoint.

        Raises:
            StorageError: The checkpoint is damaged.
            UsageError: It belongs to a different configuration or different data.
        """
        if not self.path.exists():
            return False
        try:
            with safetensors.safe_open(self.path, "pt") as file:
                header = dict(json.loads(file.metadata()["hadahash"]))
                names = list(file.keys())
                tensors = {name: file.get_tensor(name) for name in names}
            sha256 = header.pop("sha256")
            step, seconds, fingerprint = (
                header[name] for name in ("step", "seconds", "fingerprint")
            )
        except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
            raise StorageError(
                f"{self.path} is damaged ({error}). Start again with --overwrite."
            ) from error
        if _digest(header, tensors) != sha256:
            raise StorageError(
                f"{self.path} is damaged (its checksum differs). Start again with --overwrite."
            )
        self._check_fingerprint(fingerprint)
        state.restore(tensors, step, seconds)
        return True

    def _check_fingerprint(self, saved: dict[str, Any]) -> None:
        changed = differences(saved, json.loads(json.dumps(self.fingerprint)))
        if changed:
            raise UsageError(
                f"Cannot resume from {self.path}: it belongs to a different configuration "
                f"({'; '.join(changed[:4])}). "
                "Use the same settings and data, or start again with --overwrite."
            )

    def remove(self) -> None:
        """Delete the file, if it exists."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error("remove", self.path, error) from error


def _digest(header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Digest of the header without its own digest, and of names, types, shapes and values."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
