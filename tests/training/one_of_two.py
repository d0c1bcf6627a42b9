"""One of the two gloo processes of test_distributed.py: `python one_of_two.py RANK FOLDER DEVICE`."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from timm.layers import BatchNormAct2d
from torch import nn, optim
from toys import fit_in, make_toy, tiny_hasher

from hadahash import Hasher, building
from hadahash.errors import ProcessLostError, UsageError
from hadahash.networks import Backbone, build_backbone
from hadahash.training import checkpoint

CASES = {
    "frozen": {
        "backbone": "test_efficientnet",
        "frozen": True,
        "epochs": 3,
        "batch_size": 41,
        "lr": 0.3,
    },
    "whole": {"backbone": "simple", "epochs": 3, "batch_size": 32},
    "norm": {"backbone": "simple with norm", "epochs": 3, "batch_size": 32},
    "mixed": {"mixup": 0.4, "cutmix": 1.0, "clip_grad": 0.5, "ema": 0.9, "sampler": "balanced"},
    "unused": {"backbone": "simple with unused"},
}
METHODS = {
    "classify": {},
    "csq": {},
    "dpsh": {},
    "dsdh": {"dsdh_refresh": 3},
    "hashnet": {},
    "hcdh-2": {},
    "hcdh-plus": {"hash_norm": True},
    "mihash": {},
    "orthohash": {},
    "ssdh": {},
}
CASES |= {name: {"method": name, "lr": 0.02, **settings} for name, settings in METHODS.items()}
GPU_CASES = ("whole", "norm", "mixed", "unused", "hashnet")
_SMALL = {"backbone": "simple", "epochs": 2, "batch_size": 31}  # 15 or 16 images per process


class WithUnused(nn.Sequential):
    """A network with a parameter that does not influence its output."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.register_parameter("unused", nn.Parameter(torch.ones(3, 3)))


def backbone(name: str, **options: Any) -> Backbone:
    if not name.startswith("simple"):
        return build_backbone(name, **options)
    norm = [BatchNormAct2d(8)] if "norm" in name else [nn.ReLU()]
    layers = [nn.Conv2d(3, 8, 5, stride=4), *norm, nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    kind = WithUnused if "unused" in name else nn.Sequential
    return Backbone(kind(*layers), name=name, size=32, mean=(127.0,) * 3, std=(64.0,) * 3)


def fit(
    case: str,
    out: Path | None = None,
    *,
    resume: bool = False,
    device: str = "cpu",
    **changes: object,
) -> Hasher:
    building.build_backbone = backbone
    exact = {"precision": "fp32", "deterministic": True} if device == "cuda" else {}
    try:
        hasher = tiny_hasher(**(_SMALL | CASES[case] | exact | changes))
        toy = make_toy(160, seed=0)
        return fit_in(hasher, *toy, folder=out, resume=resume, device=device)
    finally:
        building.build_backbone = build_backbone


def weights(model: Hasher) -> dict[str, torch.Tensor]:
    return {
        key: value.cpu().contiguous()
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
    if rank == 0:
        shutil.copytree(folder, folder.with_name("stopped"))
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


def lose_the_other(rank: int, folder: Path) -> str:
    """Rank 1 is killed in the third step. What rank 0 says."""
    step, steps = optim.SGD.step, []

    def count(self, *arguments):
        steps.append(1)
        if len(steps) == 3 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *arguments)

    optim.SGD.step = count
    try:
        fit("whole", folder)
    except ProcessLostError as error:
        return str(error)
    raise AssertionError("the other process was killed, but nothing happened")


def main(rank: int, folder: Path, device: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    atexit.register(torch.distributed.destroy_process_group)  # as hadahash.training.distributed
    cases = GPU_CASES if device == "cuda" else tuple(CASES)
    done = {case: fit(case, folder / f"{case}-{rank}", device=device) for case in cases}
    assert all((folder / f"{case}-{rank}" / "log.jsonl").exists() == (rank == 0) for case in cases)
    if device == "cpu":
        done["again"] = stop_and_resume(rank, folder / f"again-{rank}")
        done["interrupted"] = interrupt_and_resume(rank, folder / f"interrupted-{rank}")
    for case, model in done.items():
        safetensors.torch.save_file(weights(model), folder / f"{case}-{rank}.safetensors")
    try:
        fit("whole", batch_size=3, device=device)
    except UsageError as error:
        (folder / f"refused-{rank}").write_text(str(error))
    (folder / "lost").write_text(lose_the_other(rank, folder / f"lost-{rank}"))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
