"""Time of code on a GPU, by CUDA events, or on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

Run = Callable[[], object]
ROUNDS = 5
WARM_UP = 3


def seconds_of(run: Run, device: torch.device, least: float) -> float:
    """The median time of a function over some rounds.

    Args:
        run: The function; the first calls are not timed.
        device: Timed by CUDA events on a GPU, which include waiting for the CPU.
        least: Shortest time of all rounds together in seconds.

    Returns:
        Seconds of one call.
    """
    for _ in range(WARM_UP if least else 1):
        run()
    once = _round(run, 1, device)
    repeats = max(1, int(least / ROUNDS / max(once, 1e-6)))
    return median(_round(run, repeats, device) for _ in range(ROUNDS if least else 1))


def _round(run: Run, repeats: int, device: torch.device) -> float:
    """Seconds of one of `repeats` calls."""
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(repeats):
            run()
        return (time.perf_counter() - began) / repeats
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000 / repeats


def captured(run: Run, device: torch.device) -> Run:
    """A function as a CUDA graph; on a CPU the function itself.

    Args:
        run: It must not read back from the device. What it returns is kept until the graph is
            deleted.
        device: The device.

    Returns:
        A function that replays the graph.
    """
    if device.type != "cuda":
        return run
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run()

    def replay() -> object:
        graph.replay()
        return kept

    return replay


def kernels(run: Run, device: torch.device, most: int = 8) -> list[dict[str, Any]]:
    """The kernels that take most of the time of a function.

    Args:
        run: The function.
        device: The device.
        most: How many kernels.

    Returns:
        Name, calls and share of the time of all kernels; nothing on a CPU, or where the profiler
        does not run.
    """
    found = _profile(run) if device.type == "cuda" else []
    total = sum(each.self_device_time_total for each in found)
    found.sort(key=lambda each: -each.self_device_time_total)
    return [
        {
            "kernel": each.key[:120],
            "calls": each.count,
            "share": round(each.self_device_time_total / total, 4),
        }
        for each in found[:most]
        if total
    ]


def _profile(run: Run) -> list[Any]:
    """The kernels of one call."""
    run()
    torch.cuda.synchronize()
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run()
            torch.cuda.synchronize()
    except RuntimeError:
        return []
    return [
        each
        for each in profile.key_averages()
        if each.device_type == torch.autograd.DeviceType.CUDA and not each.is_user_annotation
    ]
