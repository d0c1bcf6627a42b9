"""The section of docs/performance.md about the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from gpu_kernels_section import step_kernels
from page_text import Result, paragraph, with_quartiles

STAGES = ("squares", "load", "view", "backbone", "features back", "head and packing")
OTHERS = ("plain", "compiled", "compiled, graph")
STEP = ("batch", "augmentation", "forward", "backward and loss", "optimizer", "average")


def gpu(result: Result) -> list[str]:
    """The roofline, and what was measured."""
    lines = ["## The GPU", ""]
    for part, section in (
        ("machine", roofline),
        ("encode", encode),
        ("train", train),
        ("step_kernels", step_kernels),
        ("compile", compiling),
        ("before", before),
        ("map", time_to_map),
    ):
        if part in result:
            lines += section(result)
    for name, text in (("left_out", "Left out, for lack of time"), ("failed", "Failed")):
        if result.get(name):
            lines += paragraph(f"{text}: {'; '.join(result[name])}.")
    return lines[:-1]


# ---- The roofline --------------------------------------------------------------------------------


def bounds(result: Result, size: str, passes: int) -> dict[str, float]:
    """Images per second that arithmetic and memory allow.

    Args:
        result: With `machine` and `work`.
        size: Input size in pixels.
        passes: 1: forward; 3: forward and backward, which is twice as much.

    Returns:
        The bound of the matrix units; that of the memory if each layer writes its output; and that
        of the memory if norms and activations are fused with the convolutions.
    """
    machine, work = result["machine"], result["work"][size]
    return {
        "arithmetic": machine["matrix_flops"] / work["flops"] / passes,
        "memory": machine["copy_bytes"] / work["bytes"] / passes,
        "fused": machine["copy_bytes"] / work["fused_bytes"] / passes,
    }


def roofline(result: Result) -> list[str]:
    """The ceilings, and the bounds that follow from the work of an image."""
    machine = result["machine"]
    lines = paragraph(
        f"Ceilings: bf16 matrix products {machine['matrix_flops'] / 1e12:,.0f} TFLOP/s, copies in",
        f"the memory of the GPU {machine['copy_bytes'] / 1e12:.2f} TB/s (read and written), from",
        f"the CPU {machine['pageable_bytes'] / 1e9:.1f} GB/s, and",
        f"{machine['pinned_bytes'] / 1e9:.1f} GB/s from pinned memory.",
        "The work of an image: floating-point operations of the forward pass, and the outputs of",
        "all layers in bf16, each written once and read once (a norm with its activation is one",
        "layer); *fused*: those of convolutions and linear layers alone. Training counts three",
        "times the forward pass. *Memory* bounds a network whose layers run one after the other,",
        "*fused* one whose norms and activations cost nothing.",
    )
    if "work" not in result:
        return lines
    lines += [
        "| | px | GFLOP | MB moved | MB, fused | bound: arithmetic, images/s | memory | fused "
        "| measured | of *memory* |",
        "|" + "---|" * 10,
    ]
    for part, passes in (("encode", 1), ("train", 3)):
        for size, work in result["work"].items():
            bound = bounds(result, size, passes)
            rate = result.get(part, {}).get(size, {}).get("images_per_second")
            cells = [
                part,
                size,
                f"{passes * work['flops'] / 1e9:.2f}",
                f"{passes * work['bytes'] / 1e6:.1f}",
                f"{passes * work['fused_bytes'] / 1e6:.1f}",
                *(f"{value:,.0f}" for value in bound.values()),
                "" if rate is None else f"{rate:,.0f}",
                "" if rate is None else f"{rate / bound['memory']:.0%}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


# ---- What was measured ---------------------------------------------------------------------------


def encode(result: Result) -> list[str]:
    """Encoding and its stages."""
    lines = [
        *paragraph(
            "Encoding pixels in memory with `HashModel.encode`, without content bits. The stages,",
            "each timed alone, in microseconds per image. A thread reads the squares of the next",
            "batch and loads them to the GPU, while the GPU computes view and backbone of this one",
            "and the CPU packs the last one. *Backbone*: with batch norms and activations fused",
            "into the convolutions. Not used for encoding: *plain*, as PyTorch runs it, and",
            "*compiled*, as training compiles it.",
        ),
        "| px | side | batch | images/s | µs per image | "
        + " | ".join((*STAGES, *OTHERS))
        + " | longest |",
        "|" + "---|" * (6 + len(STAGES) + len(OTHERS)),
    ]
    for size, entry in result["encode"].items():
        for batch, case in by_number(entry["batches"]):
            times = case["seconds_per_image"]
            cells = [
                size,
                str(entry.get("side", "")),
                batch,
                rate_of(case),
                f"{1e6 / case['images_per_second']:.1f}",
                *(in_units(times, name, 1e6) for name in (*STAGES, *OTHERS)),
                longest(times, STAGES),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", *kernels(result["encode"], "encoding", "backbone")]


def train(result: Result) -> list[str]:
    """Training and the stages of a step."""
    lines = [
        *paragraph(
            "Training on pixels in the memory of the GPU, compiled; *cifar*: images of 32 pixels,",
            "*photos*: a little larger than the input. The stages of a step in milliseconds, each",
            "timed alone; *rest*: what they leave of a step.",
        ),
        "| px | images | batch | images/s | ms per step | "
        + " | ".join((*STEP, "rest", "longest"))
        + " |",
        "|" + "---|" * (7 + len(STEP)),
    ]
    for size, entry in result["train"].items():
        for kind, fits in entry["fits"].items():
            for batch, case in by_number(fits):
                whole = int(batch) / case["images_per_second"]
                times = entry["steps"].get(batch, {}) if kind == "cifar" else {}
                rest = f"{1e3 * (whole - sum(times.values())):.2f}" if times else ""
                cells = [size, kind, batch, rate_of(case), f"{1e3 * whole:.2f}"]
                cells += [*(in_units(times, name, 1e3) for name in STEP), rest]
                lines.append(f"| {' | '.join(cells)} | {longest(times, STEP)} |")
    return [*lines, "", *kernels(result["train"], "a training step")]


def compiling(result: Result) -> list[str]:
    """Time until training runs."""
    found = result["compile"]
    times = [f"{name} {found[name]['start_seconds']:.1f} s" for name in ("first", "cached")]
    return paragraph(
        f"Seconds until training runs in a new process ({found['size']} pixels, batches of",
        f"{found['batch']}), including the recording of the CUDA graph: {', '.join(times)}.",
        "*First*: the cache of compiled code is empty; *cached*: the next process.",
    )


def before(result: Result) -> list[str]:
    """What version 0.1 reaches on the same machine."""
    found = result["before"]
    lines = [
        *paragraph(
            "Version 0.1 on the same machine, in processes of its own, with the same images:",
            "encoding pixels in memory, and training on images of 32 pixels, compiled. *Start*:",
            "seconds until training runs, with an empty cache of compiled code.",
        ),
        "| | px | batch | images/s | start, s |",
        "|---|---|---|---|---|",
    ]
    for step in ("encode", "train"):
        for size, case in found.get(step, {}).items():
            start = in_units(case, "start_seconds", 1)
            lines.append(f"| {step} | {size} | {case['batch']} | {rate_of(case)} | {start} |")
    return [*lines, ""]


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings as `name value`."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def time_to_map(result: Result) -> list[str]:
    """Training time and mAP of short fits."""
    found = result["map"]
    if "fits" not in found:
        return paragraph(f"Time to a mAP: {found['note']}.")
    seconds = result.get("seconds_to_map")
    reached = f"{found['goal']} is reached in {seconds:.2f} s" if seconds else "it is not reached"
    lines = [
        *paragraph(
            f"CIFAR-10, {found['method']} at {found['bits']} bits, split {found['protocol']},",
            f"{in_words(found['settings'])}: seconds of training after compiling, and mAP of the",
            f"codes; {reached} with each seed.",
        ),
        "| epochs | seed | seconds | mAP |",
        "|---|---|---|---|",
    ]
    for case in found["fits"]:
        cells = [case["failed"], ""] if "failed" in case else _fit_cells(case)
        lines.append(f"| {case['epochs']} | {case['seed']} | {' | '.join(cells)} |")
    return [*lines, ""]


def _fit_cells(case: Result) -> list[str]:
    return [f"{case['train_seconds']:.2f}", f"{case['map']:.4f}"]


def gpu_variants(result: Result) -> list[str]:
    """Ways to train that are faster, and their mAP."""
    lines = [
        "### Faster training that was not adopted",
        "",
        *paragraph(
            f"CIFAR-10 at {result['settings']['size']} pixels, {result['method']} at",
            f"{result['bits']} bits, {result['settings']['epochs']} epochs: mAP of held-out",
            "training images, used as queries against the other training images. *Fixed*: batch",
            "norms keep the statistics of the pretrained network. The first row is the default;",
            "*faster* and *mAP less* compare with it, the latter each seed with the same one.",
            "Means of the seeds; standard deviations in brackets. Other sizes and other learning",
            "rates were not measured. A mAP of 0.10 is that of chance: with this learning rate,",
            "fixed norms do not learn. With so few seeds, a loss that is not much larger than the",
            "deviations is not established.",
        ),
        "| norms | batch | learning rate | images/s | faster | mAP | mAP less, by seed | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    variants: dict[tuple[str, int, float], list[Result]] = {}
    for each in result["fits"]:
        variants.setdefault((each["norms"], each["batch"], each["lr"]), []).append(each)
    default = next(iter(variants.values()))
    for (norms, batch, lr), fits in variants.items():
        cells = _variant_cells(fits, default)
        lines.append(f"| {norms} | {batch} | {lr:g} | {' | '.join(cells)} | {len(fits)} |")
    return lines


def _variant_cells(fits: list[Result], default: list[Result]) -> list[str]:
    """Speed and mAP of a variant, and both against those of the default."""
    scores = {each["seed"]: each["validation_map"] for each in fits if "validation_map" in each}
    if not scores:
        return ["", "", "failed", ""]
    rate, usual = (
        mean(f["images_per_second"] for f in some if "images_per_second" in f)
        for some in (fits, default)
    )
    less = [
        f"{each['validation_map'] - scores[each['seed']]:.4f}"
        for each in default
        if each.get("seed") in scores and "validation_map" in each
    ]
    ours = fits is default
    return [
        f"{rate:,.0f}",
        "" if ours else f"{rate / usual - 1:.0%}",
        _with_deviation(list(scores.values())),
        "" if ours else ", ".join(less),
    ]


def _with_deviation(scores: Sequence[float]) -> str:
    spread = f" ({stdev(scores):.4f})" if len(scores) > 1 else ""
    return f"{mean(scores):.4f}{spread}"


# ---- Cells ---------------------------------------------------------------------------------------


def by_number(cases: Mapping[str, Result]) -> Iterator[tuple[str, Result]]:
    """Cases by ascending batch size."""
    for batch in sorted(cases, key=int):
        yield batch, cases[batch]


def rate_of(case: Result) -> str:
    """Images per second with quartiles."""
    return with_quartiles(case["images_per_second"], case["quartiles"], 0)


def in_units(times: Mapping[str, float], name: str, factor: float) -> str:
    """A time, empty if it was not measured."""
    return f"{factor * times[name]:.2f}" if name in times else ""


def longest(times: Mapping[str, float], names: Sequence[str]) -> str:
    """The longest stage, with its share of all."""
    known = {name: times[name] for name in names if name in times}
    if not known:
        return ""
    name = max(known, key=lambda each: known[each])
    return f"{name}, {known[name] / sum(known.values()):.0%}"


def kernels(entries: Mapping[str, Result], what: str, way: str | None = None) -> list[str]:
    """The kernels that take most of the time."""
    lines = []
    for size, entry in entries.items():
        found = entry.get("kernels", {})
        chosen = (found.get(way) or found.get("backbone")) if way else found
        if chosen:
            shares = [f"{each['share']:.0%} `{each['kernel'][:60]}`" for each in chosen[:5]]
            lines += paragraph(f"Longest kernels of {what} at {size} pixels: {'; '.join(shares)}.")
    return lines
