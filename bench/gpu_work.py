"""The ceilings of the machine, and the work of one image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gpu_plan import Case, Session
from gpu_timing import seconds_of
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from hadahash.networks import build_backbone

BYTES = 2  # of a bfloat16


def cases(session: Session) -> Iterator[Case]:
    """The machine and the work, which take seconds."""

    def machine(result: dict[str, Any]) -> None:
        result["machine"] = ceilings(session)

    def work(result: dict[str, Any]) -> None:
        result["work"] = {str(size): work_of(session, size) for size in session.plan.sizes}

    yield Case("machine", "machine", 0, machine)
    yield Case("work", "work", 0, work)


def ceilings(session: Session) -> dict[str, float]:
    """What the machine can do at most.

    Args:
        session: The run.

    Returns:
        Floating-point operations per second of a bf16 matrix product; bytes per second of a copy
        on the device, read and written; and bytes per second from the CPU to the device.
    """
    plan, device = session.plan, session.device
    one, two = (
        torch.randn(plan.matrix, plan.matrix, device=device, dtype=torch.bfloat16) for _ in range(2)
    )
    product = seconds_of(lambda: torch.matmul(one, two), device, plan.stage_seconds)
    source = torch.randint(256, (plan.copied,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = seconds_of(lambda: target.copy_(source), device, plan.stage_seconds)
    found = {
        "matrix_flops": 2 * plan.matrix**3 / product,
        "copy_bytes": 2 * plan.copied / copy,
    }
    host = source[: plan.copied // 8].cpu()
    sent = {"pageable": host, "pinned": host.pin_memory() if session.on_gpu else host}
    place = target[: len(host)]
    for name, tensor in sent.items():
        seconds = seconds_of(
            lambda tensor=tensor: place.copy_(tensor, non_blocking=True),  # type: ignore[misc]
            device,
            plan.stage_seconds,
        )
        found[f"{name}_bytes"] = len(host) / seconds
    return found


def work_of(session: Session, size: int) -> dict[str, int]:
    """The work of one image in the forward pass of the backbone.

    The outputs of all leaf modules are counted, in bfloat16. One that a module passes on or changes
    in place counts once, so a norm and its activation are one.

    Args:
        session: The run.
        size: Input size in pixels.

    Returns:
        `flops`, `parameters`, `outputs` (numbers in all outputs), `convolved` (in those of
        convolutions and linear layers), and `bytes` and `fused_bytes`: each of them written once
        and read once.
    """
    backbone = build_backbone(session.plan.backbone, weights="none", img_size=size).eval()
    outputs: dict[int, Tensor] = {}  # held, so that no id is used twice
    convolved = 0

    def count(module: nn.Module, given: Any, output: Tensor) -> None:
        nonlocal convolved
        outputs[id(output)] = output
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            convolved += output.numel()

    for module in backbone.net.modules():
        if not list(module.children()):
            module.register_forward_hook(count)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        backbone(torch.zeros(1, 3, size, size))
    numbers = sum(output.numel() for output in outputs.values())
    return {
        "flops": int(counter.get_total_flops()),
        "parameters": sum(each.numel() for each in backbone.parameters()),
        "outputs": numbers,
        "convolved": convolved,
        "bytes": 2 * BYTES * numbers,
        "fused_bytes": 2 * BYTES * convolved,
    }
