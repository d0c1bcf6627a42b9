"""Checkpoints: everything a run needs to go on as if nothing had happened, in one safetensors file."""

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

from ..errors import StorageError, UsageError
from ..files import replacing, storage_error
from ..networks.hash_network import HashNetwork
from .optim import Average


@dataclass
class State:
    """What changes while training. The random choices need no place here: they follow from the seed and the step."""

    network: HashNetwork
    optimizer: torch.optim.Optimizer
    average: Average
    step: int = 0

    def tensors(self) -> dict[str, Tensor]:
        tensors = {f"network.{key}": value for key, value in self.learned().items()}
        tensors |= {f"average.{key}": value for key, value in self.average.tensors().items()}
        return tensors | {
            f"momentum.{n}": value for n, value in enumerate(self.momenta()) if value is not None
        }

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], step: int) -> None:
        for key, value in self.learned().items():
            value.copy_(tensors[f"network.{key}"])
        for key, value in self.average.tensors().items():
            value.copy_(tensors[f"average.{key}"])
        for number in range(len(self.parameters())):
            if f"momentum.{number}" in tensors:
                self.set_momentum(number, tensors[f"momentum.{number}"])
        self.step = step

    def learned(self) -> dict[str, Tensor]:
        """The network's tensors, and those of the method that only training needs: buffers outside of its state_dict."""
        return self.network.state_dict() | {
            f"method.{key}": value for key, value in self.network.method.named_buffers()
        }

    def parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def momenta(self) -> list[Tensor | None]:
        """The momentum of each parameter; None where no step has been made."""
        return [
            self.optimizer.state[parameter].get("momentum_buffer")
            for parameter in self.parameters()
        ]

    def set_momentum(self, number: int, value: Tensor) -> None:
        parameter = self.parameters()[number]
        self.optimizer.state[parameter]["momentum_buffer"] = value.to(parameter.device)


@dataclass
class Checkpoint:
    """Where a run's checkpoint lies and what must be the same for it to be taken up again."""

    path: Path
    fingerprint: dict[str, Any]
    seconds: float = 60.0
    _last: float = field(default_factory=time.monotonic)

    def save_if_due(self, state: State) -> None:
        if time.monotonic() - self._last >= self.seconds:
            self.save(state)

    def save(self, state: State) -> None:
        tensors = {key: value.cpu().contiguous() for key, value in state.tensors().items()}
        header = {"step": state.step, "fingerprint": self.fingerprint, "sha256": _digest(tensors)}
        try:
            with replacing(self.path) as temporary:
                safetensors.torch.save_file(tensors, temporary, {"hadahash": json.dumps(header)})
        except safetensors.SafetensorError as error:  # how safetensors reports a full disk
            raise StorageError(
                f"Cannot write {self.path}: {error}. Free some space or choose another place."
            ) from error
        self._last = time.monotonic()

    def restore(self, state: State) -> bool:
        """Take up the checkpoint if there is one; refuse it when it belongs to another setting."""
        if not self.path.exists():
            return False
        try:
            with safetensors.safe_open(self.path, "pt") as file:
                header = json.loads(file.metadata()["hadahash"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
            step, fingerprint, sha256 = header["step"], header["fingerprint"], header["sha256"]
        except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
            raise StorageError(
                f"{self.path} is damaged ({error}). Delete it and train without --resume."
            ) from error
        if _digest(tensors) != sha256:
            raise StorageError(
                f"{self.path} is damaged (its checksum differs). Delete it and train without --resume."
            )
        self._refuse_other_setting(fingerprint)
        state.restore(tensors, step)
        return True

    def _refuse_other_setting(self, old: dict[str, Any]) -> None:
        new = json.loads(json.dumps(self.fingerprint))
        changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        if changed:
            shown = "; ".join(f"{key} was {old.get(key)}, is {new.get(key)}" for key in changed[:4])
            raise UsageError(
                f"{self.path} belongs to another setting ({shown}). Use the same, or train without --resume."
            )

    def remove(self) -> None:
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error("remove", self.path, error) from error


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for key in sorted(tensors):
        digest.update(key.encode())
        digest.update(tensors[key].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
