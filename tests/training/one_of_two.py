"""One of the two gloo processes of test_distributed.py: `python one_of_two.py RANK FOLDER`."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn, optim
from toys import fit_in, make_toy, tiny_hasher

from hadahash import Hasher, building
from hadahash.errors import UsageError
from hadahash.networks import Backbone, build_backbone
from hadahash.training import checkpoint

CASES = {
    "frozen": {
        "backbone": "test_efficientnet",
        "frozen": True,
        "epochs": 3,
        "batch_size": 40,
        "lr": 0.3,
    },
    "whole": {"backbone": "simple", "epochs": 3, "batch_size": 32},
    "norm": {"backbone": "simple with norm", "epochs": 3, "batch_size": 32},
}


def backbone(name: str, **options: Any) -> Backbone:
    if not name.startswith("simple"):
        return build_backbone(name, **options)
    norm = [nn.BatchNorm2d(8)] if "norm" in name else []
    layers = [nn.Conv2d(3, 8, 5, stride=4), *norm, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return Backbone(nn.Sequential(*layers), name=name, size=32, mean=(127.0,) * 3, std=(64.0,) * 3)


def fit(case: str, out: Path | None = None, *, resume: bool = False, **changes: object) -> Hasher:
    building.build_backbone = backbone
    try:
        hasher = tiny_hasher(**(CASES[case] | changes))
        return fit_in(hasher, *make_toy(160, seed=0), folder=out, resume=resume)
    finally:
        building.build_backbone = build_backbone


def weights(model: Hasher) -> dict[str, torch.Tensor]:
    return {
        key: value.contiguous()
        for key, value in model.model_.network.state_dict().items()
        if value.is_floating_point()
    }


class Stopped(Exception):
    pass


def stop_and_resume(rank: int, folder: Path) -> Hasher:
    """Stop in the sixth step. Only rank 0 has a checkpoint, and both continue from it."""
    step, save, steps = optim.SGD.step, checkpoint.Checkpoint.save_if_due, []

    def count(self, *arguments):
        steps.append(1)
        if len(steps) == 6:
            raise Stopped
        return step(self, *arguments)

    checkpoint.Checkpoint.save_if_due, optim.SGD.step = checkpoint.Checkpoint.save, count
    with contextlib.suppress(Stopped):
        fit("whole", folder)
    checkpoint.Checkpoint.save_if_due, optim.SGD.step = save, step
    assert len(steps) == 6 and (folder / "checkpoint.safetensors").exists() == (rank == 0)
    return fit("whole", folder, resume=True)


def interrupt_and_resume(rank: int, folder: Path) -> Hasher:
    """Only rank 1 receives Ctrl-C, in the sixth step: both end after it, with a checkpoint."""
    step, steps = optim.SGD.step, []

    def count(self, *arguments):
        steps.append(1)
        if len(steps) == 6 and rank == 1:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)  # torchrun repeats what the terminal sends
        return step(self, *arguments)

    optim.SGD.step = count
    with contextlib.suppress(KeyboardInterrupt):
        fit("whole", folder)
    optim.SGD.step = step
    assert len(steps) == 6 and (folder / "checkpoint.safetensors").exists() == (rank == 0)
    return fit("whole", folder, resume=True)


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    done = {case: fit(case, folder / f"{case}-{rank}") for case in CASES}
    assert all((folder / f"{case}-{rank}" / "log.jsonl").exists() == (rank == 0) for case in CASES)
    done["again"] = stop_and_resume(rank, folder / f"again-{rank}")
    done["interrupted"] = interrupt_and_resume(rank, folder / f"interrupted-{rank}")
    for case, model in done.items():
        safetensors.torch.save_file(weights(model), folder / f"{case}-{rank}.safetensors")
    try:
        fit("whole", batch_size=31)
    except UsageError as error:
        (folder / f"refused-{rank}").write_text(str(error))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
