"""Parts of other pages that are written from stored results: between two marks of the page.

<!-- runtime -->
what is written
<!-- end of runtime -->
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import milvus
from common import ROOT
from page_text import Result, disturbed, paragraph

from hadahash import files


class Part(NamedTuple):
    """A part of a page.

    Attributes:
        page: The page, in docs/.
        mark: Name of the marks.
        source: Name of the stored result.
        text: The text from that result.
    """

    page: str
    mark: str
    source: str
    text: Callable[[Result], str]


def shown(part: Part, page: str) -> str:
    """What a page shows between the marks of a part."""
    return _split(part, page)[1]


def write(part: Part, results: Mapping[str, Result]) -> None:
    """Write a part from its result, if that is stored."""
    if part.source in results:
        path = ROOT / "docs" / part.page
        before, _, after = _split(part, path.read_text("utf-8"))
        files.write_text(path, before + part.text(results[part.source]) + after)


def of_page(path: Path) -> list[Part]:
    """The parts of a page."""
    return [part for part in PARTS if part.page == path.name]


def _split(part: Part, page: str) -> tuple[str, str, str]:
    start, end = f"<!-- {part.mark} -->\n", f"<!-- end of {part.mark} -->\n"
    before, _, rest = page.partition(start)
    inside, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"docs/{part.page} has no part between {start!r} and {end!r}")
    return before + start, inside, end + after


# ---- docs/runtime.md -----------------------------------------------------------------------------

_WAYS = ("torch", "onnx", "int8, static")


def runtime(result: Result) -> str:
    """Both runtimes: size, start, speed and bits."""
    speed, start, install = result["speed"], result["start"], result["install"]
    rows = [
        ("", "torch", "onnxruntime", "onnxruntime, int8 (static)"),
        ("---",) * 4,
        ("installed packages", *(f"{install[name]['bytes'] / 1e6:,.0f} MB" for name in start), ""),
    ]
    if "container" in install:
        rows.append(("packages of the container", "", _megabytes(install["container"]), ""))
    each = [start[name] for name in ("torch", "onnx")]
    rows += [
        ("start: load the ready-made model and encode one image", *_all("seconds", each, "s")),
        ("start: processor time", *_all("cpu_seconds", each, "s")),
        ("start: peak memory", *(f"{found['peak_bytes'] / 1e6:,.0f} MB" for found in each), ""),
        ("latency of one image", *_speed(speed["batch 1"], lambda ms: f"{ms:.1f} ms")),
        *(
            (f"images per second, {name}", *_speed(speed[batch], lambda ms: f"{1000 / ms:,.0f}"))
            for batch, name in (("batch 1", "one at a time"), ("batch 32", "batches of 32"))
        ),
        ("equal bits, ready-made model", "", *(_share(result["bits"].get(w)) for w in _WAYS[1:])),
    ]
    for name, bits in result.get("trained", {}).get("equal", {}).items():
        rows.append((f"equal {name} bits, trained model", "", f"{bits:.3%}", ""))
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([*lines, "", *_runtime_notes(result)])


def better_batch(result: Result) -> float:
    """Images per second of onnxruntime against torch, each with its better batch."""
    least = {
        way: min(batch[way]["milliseconds_per_image"] for batch in result["speed"].values())
        for way in ("torch", "onnx")
    }
    return float(least["torch"] / least["onnx"])


def _runtime_notes(result: Result) -> list[str]:
    sets = {name: ",".join(found["extras"]) for name, found in result["install"].items()}
    packages = "; ".join(f"{name}: `{extras}`" for name, extras in sets.items())
    notes = paragraph(
        f"Each with its better batch, onnxruntime encodes {better_batch(result):.1f} times as many",
        f"images per second as torch. Measured by `{result['command']}` with {result['threads']}",
        f"threads, {result['hardware']}, {result['date'][:10]}; bits of {result['photos']} photos.",
        "Other processes kept the machine busy." if disturbed(result) else "",
        f"Extras of the packages: {packages}. The sizes are those of the installed files, without",
        "the ready-made model (28 MB), which `make` exports and the container has, and without the",
        "base image of the container; the torch packages include CUDA. Quartiles are in",
        "`bench/results/runtime.json`.",
    )
    dynamic = result["bits"].get("int8, dynamic")
    if dynamic is None:
        return notes
    static = result["bits"]["int8, static"]
    return notes + paragraph(
        "Networks of 8-bit integers are not offered: with static quantization",
        f"{1 - static['equal']:.0%} of the bits differ, with dynamic quantization",
        f"{1 - dynamic['equal']:.0%}.",
    )


def _megabytes(found: Result) -> str:
    return f"{found['bytes'] / 1e6:,.0f} MB"


def _all(field: str, found: list[Result], unit: str) -> list[str]:
    return [*(f"{each[field]:.2f} {unit}" for each in found), ""]


def _speed(batch: Result, form: Callable[[float], str]) -> list[str]:
    return [form(batch[way]["milliseconds_per_image"]) if way in batch else "" for way in _WAYS]


def _share(bits: Result | None) -> str:
    return "" if bits is None else f"{bits['equal']:.3%}"


# ---- docs/scale.md -------------------------------------------------------------------------------


SLOWER = 1.03  # times the seconds of version 0.1: what is named


def scale(result: Result) -> str:
    """Time and memory of each step with a million photos."""
    old = {each["step"]: each for each in result.get("before", ())}
    lines = [
        "| step | time, s | processor time, s | peak memory, MB | version 0.1: time, s "
        "| peak memory, MB |",
        "|---|---|---|---|---|---|",
        *(
            f"| {each['step']} | {each['seconds']:,.1f} | {each['cpu_seconds']:,.1f} "
            f"| {each['peak_megabytes']:,.0f} | {_old_step(old.get(each['step']))} |"
            for each in result["steps"]
        ),
        "",
        *paragraph(
            f"`{result['command']}`, {result['photos']:,} photos, {result['hardware']},",
            f"{result['date'][:10]}, load {result['load_before']:.1f} before and",
            f"{result['load_after']:.1f} after.",
            "Other programs ran meanwhile, so compare the processor time."
            if disturbed(result)
            else "",
        ),
        *(_versions(result["steps"], old) if old else []),
    ]
    return "\n".join(lines)


def _versions(steps: list[Result], old: Mapping[str, Result]) -> list[str]:
    """How the steps of version 0.1 differ, and which of them were faster."""
    slower = [
        f"{each['step']} ({_short(each['seconds'])} against "
        f"{_short(old[each['step']]['seconds'])} s)"
        for each in steps
        if each["seconds"] > SLOWER * old.get(each["step"], {}).get("seconds", float("inf"))
    ]
    return paragraph(
        "Both versions have the same photos, but not the same run: that of 0.1 is",
        "efficientnet_lite0 in torch, that of 0.2 a tiny network in onnxruntime. Both *index add*",
        "and *index build* load it. Indexes of 0.1 have no content bits and no looks. Theirs of",
        "random codes was written at once; 0.2 writes it in parts of 8,192 photos, and saves it",
        "after each, as `index build` does.",
        f"Slower than in 0.1: {'; '.join(slower)}." if slower else "",
    )


def _short(seconds: float) -> str:
    return f"{seconds:,.1f}" if seconds >= 1 else f"{seconds:.2f}"


def _old_step(step: Result | None) -> str:
    """Time and memory of version 0.1; empty if it was not measured."""
    if step is None:
        return " | "
    if "failed" in step:
        return "failed | "
    return f"{step['seconds']:,.1f} | {step['peak_megabytes']:,.0f}"


# ---- docs/embeddings.md --------------------------------------------------------------------------

_EMBEDDING_STEPS = {
    "open": "open (copied to a temporary file)",
    "fit": "fit {bits} bits on {fitted_on:,} rows",
    "encode": "encode all rows to a file",
    "index": "build and save the index",
    "search hamming": "{queries} queries, k = 10, Hamming",
    "search class": "{queries} queries, k = 10, real-valued",
}


def embeddings(result: Result) -> str:
    """Time and peak memory of each step with files of embeddings."""
    lines = ["| file | step | seconds | peak memory |", "|---|---|---|---|"]
    for case in result["cases"]:
        form = case.get("format", "npy")
        file = f".{form}, {case['type']}, {case['file_mb']:,} MB"
        for step, name in _EMBEDDING_STEPS.items():
            found = case["steps"].get(step)
            if found is None or (step == "open" and form == "npy"):
                continue
            label, time = name.format(**case), f"{found['seconds']:.2f}"
            lines.append(f"| {file} | {label} | {time} | {found['peak_mb']:,} MB |")
    notes = paragraph(
        f"`{result['command']}`, {result['rows']:,} rows of {result['width']} floats,",
        f"{result['hardware']}, {result['date'][:10]}, load {result['load_before']:.1f} before",
        f"and {result['load_after']:.1f} after.",
    )
    return "\n".join([*lines, "", *notes])


PARTS = (
    Part("embeddings.md", "embeddings", "embeddings", embeddings),
    Part("runtime.md", "runtime", "runtime", runtime),
    Part("scale.md", "scale", "scale", scale),
    Part("scale.md", "measured", "milvus", milvus.table),
)
