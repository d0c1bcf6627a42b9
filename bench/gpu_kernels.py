"""All kernels of a training step: what they are for, and how long the GPU waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import gpu_train
import torch
from gpu_classes import Kernel, Layer, bytes_moved, classified, totals
from gpu_plan import Case, Session, rank_of
from gpu_timing import Run, seconds_of
from torch import Tensor, nn

from hadahash.networks import build_backbone

STEPS = 3  # that are profiled
LONGEST_NAME = 240


def cases(session: Session) -> Iterator[Case]:
    """Each input size with the default batch."""
    batch = session.plan.train_batches[0]
    for size in session.plan.sizes:
        run = partial(measure, session, size, batch)
        yield Case("kernels", f"kernels {size} px, batch {batch}", rank_of(0), run)


def measure(session: Session, size: int, batch: int, result: dict[str, Any]) -> None:
    """Measure one case."""
    parts = gpu_train.parts_of(session, size, batch)
    moved = bytes_moved(layers_of(session, size), batch, weights_of(session, size))
    seconds = seconds_of(parts.whole, session.device, session.plan.stage_seconds)
    found: dict[str, Any] = {"batch": batch, "seconds": seconds, "bytes": moved}
    if session.on_gpu:
        intervals = profiled(parts.whole)
        kernels = classified(per_step(intervals), per_step(profiled(parts.augment)))
        busy = busy_seconds([(start, end) for _, start, end in intervals]) / STEPS
        found |= {
            "busy_seconds": busy,
            "idle": max(0.0, 1 - busy / seconds),
            "classes": totals(kernels, moved),
            "kernels": [
                {"kernel": each.name[:LONGEST_NAME], "class": name, "calls": round(each.calls, 2)}
                | {"seconds": each.seconds}
                for name, each in kernels
            ],
        }
    result.setdefault("step_kernels", {})[str(size)] = found


# ---- The profile ---------------------------------------------------------------------------------

Interval = tuple[str, float, float]  # name, start and end in seconds


def profiled(run: Run) -> list[Interval]:
    """All kernels and copies on the GPU of `STEPS` calls.

    Raises:
        RuntimeError: The profiler does not run, or saw nothing.
    """
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(STEPS):
            run()
        torch.cuda.synchronize()
    found = [
        (each.name, each.time_range.start / 1e6, each.time_range.end / 1e6)
        for each in profile.events() or ()
        if each.device_type == torch.autograd.DeviceType.CUDA and not each.is_user_annotation
    ]
    if not found:
        raise RuntimeError("the profiler saw no kernels")
    return found


def per_step(intervals: Sequence[Interval]) -> list[Kernel]:
    """Launches and time of each kernel in one of `STEPS` steps."""
    times: dict[str, list[float]] = {}
    for name, start, end in intervals:
        times.setdefault(name, []).append(end - start)
    return [Kernel(name, len(each) / STEPS, sum(each) / STEPS) for name, each in times.items()]


def busy_seconds(intervals: Sequence[tuple[float, float]]) -> float:
    """The time in which at least one of the kernels runs."""
    total, last = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, last))
        last = max(last, end)
    return total


# ---- The layers ----------------------------------------------------------------------------------


def layers_of(session: Session, size: int) -> list[Layer]:
    """The convolutions, norms and linear layers of the backbone, run on one image."""
    backbone = build_backbone(session.plan.backbone, weights="none", img_size=size).eval()
    layers: list[Layer] = []

    def note(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        layers.append(Layer(module, given[0].numel(), output.numel(), not layers))

    for module in backbone.net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.modules.batchnorm._BatchNorm)):
            module.register_forward_hook(note)
    with torch.no_grad():
        backbone(torch.zeros(1, 3, size, size))
    return layers


def weights_of(session: Session, size: int) -> int:
    """Numbers in all weights of the network that is trained."""
    parts = gpu_train.parts_of(session, size, session.plan.train_batches[0])
    return sum(each.numel() for each in parts.ready.network.parameters())
