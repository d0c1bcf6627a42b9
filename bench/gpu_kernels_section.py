"""The kernels of a training step on the page, by what they are for."""

from __future__ import annotations

from typing import Any

from page_text import Result, paragraph

LARGEST = 4  # classes in a sentence


def step_kernels(result: Result) -> list[str]:
    """Time, launches, and rate of each class of kernels."""
    lines = paragraph(
        "All kernels of a training step by what they are for, from a profile of whole steps.",
        "*MB*: what they read and write at least, each input and output once, and the input of a",
        "batch norm twice, because its sums have to be complete first; where it follows from the",
        "shapes of the network. *Of the bandwidth*: as a rate, against the copies above; tensors",
        "that fit into the cache can exceed it. *Idle*: the part of a step, timed without the",
        "profiler, in which no kernel runs.",
    )
    table = [
        "| px | kernels | launches | ms | of the step | MB | of the bandwidth |",
        "|---|---|---|---|---|---|---|",
    ]
    for size, found in result["step_kernels"].items():
        for name, entry in found.get("classes", {}).items():
            cells = [size, name, f"{entry['calls']:.0f}", f"{1e3 * entry['seconds']:.2f}"]
            cells += [f"{entry['seconds'] / found['seconds']:.0%}"]
            cells += [f"{entry['bytes'] / 1e6:,.0f}"] if "bytes" in entry else [""]
            cells.append(_percent(of_bandwidth(result, entry)))
            table.append(f"| {' | '.join(cells)} |")
        if "idle" in found:
            idle = 1e3 * (found["seconds"] - found["busy_seconds"])
            table.append(f"| {size} | idle | | {max(0.0, idle):.2f} | {found['idle']:.0%} | | |")
    return [*lines, *table, ""] if len(table) > 2 else []


def of_bandwidth(result: Result, entry: dict[str, Any]) -> float | None:
    """The rate at which a class moves its bytes, as a fraction of that of a copy."""
    if "bytes" not in entry or "machine" not in result:
        return None
    return float(entry["bytes"] / entry["seconds"] / result["machine"]["copy_bytes"])


def longest_classes(result: Result, size: str) -> str:
    """What takes most of a step at an input size, in a few sentences."""
    found = result["step_kernels"][size]
    largest = list(found["classes"].items())[:LARGEST]
    parts = []
    for name, entry in largest:
        rate = of_bandwidth(result, entry)
        at = "" if rate is None else f" (at {rate:.0%} of the bandwidth of the memory)"
        parts.append(f"{entry['seconds'] / found['seconds']:.0%} {name}{at}")
    idle = found["idle"]
    return f"Of a step, {'; '.join(parts)}. The GPU is idle for {idle:.0%} of it."


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction:.0%}"
