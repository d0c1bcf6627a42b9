"""What bounds goals that are missed, in words, with the numbers of the stored results."""

from __future__ import annotations

from collections.abc import Callable

from gpu_kernels_section import longest_classes
from gpu_section import bounds
from page_text import Result

Text = Callable[[Result], str]


def reduction(name: str, part: str) -> Text:
    """What the reductions of the decoder keep of the bits, of a case of `bench/decode.py`.

    Args:
        name: The case.
        part: "all", "class" or "content": the bits.
    """

    def text(result: Result) -> str:
        found = next(each for each in result["cases"] if each["case"] == name)
        choice = "The reduction of the decoder is a choice between speed and bits"
        if "1/2" not in found["equal_bits"]:
            return f"{choice}."

        def kept(way: str) -> str:
            faster = found["milliseconds"]["full"] / found["milliseconds"][way]
            return f"{found['equal_bits'][way][part]:.2%} of these bits at {faster:.2f} times"

        enough = result["at_least"] / result["side"]
        used = [way for way, (low, _) in found["times_the_side"].items() if low >= enough][-1]
        if found["equal_bits"]["1/2"][part] <= found["equal_bits"][used][part]:
            share = found["equal_bits"][used][part]
            return (
                f"Not known: on the first photos ([table](#decoding-large-photos)) a reduction of "
                f"1/2 keeps no more of these bits than {used}, which is used ({share:.2%})."
            )
        return (
            f"{choice} ([table](#decoding-large-photos)): on the first photos {used}, which is "
            f"used, keeps {kept(used)} the speed of a full decode; 1/2 keeps {kept('1/2')}."
        )

    return text


def training(size: int) -> Text:
    """What is known of the time of a training step at an input size."""

    def text(result: Result) -> str:
        entry, limits = result["train"][str(size)], bounds(result, str(size), 3)
        rate, kernels = entry["images_per_second"], entry["kernels"]
        stages = next(iter(entry["steps"].values()))
        backward = stages["backward and loss"] / sum(stages.values())
        of_limits = (
            f"Training reaches {rate / limits['memory']:.0%} of the rate that the memory of the "
            f"GPU allows, and {rate / limits['arithmetic']:.0%} of that of its arithmetic "
            "(*roofline* under [The GPU](#the-gpu))."
        )
        tried = "What was tried is under [Faster training](#faster-training-that-was-not-adopted)."
        if result.get("step_kernels", {}).get(str(size), {}).get("classes"):
            return f"{longest_classes(result, str(size))} {of_limits} {tried}"
        names = ("dgrad2d_c1_k1", "wgrad2d_c1_k1", "void cudnn::cnn::wgrad2d_grouped")
        depthwise = [each for each in kernels if each["kernel"].startswith(names)]
        return (
            f"Not known. {of_limits} {backward:.0%} of a step is the "
            f"backward pass and the loss. The {len(kernels)} longest kernels take "
            f"{_share(kernels):.0%} of the time, and those among them for gradients of depthwise "
            f"convolutions {_share(depthwise):.0%}; the others were not stored. {tried}"
        )

    return text


def _share(kernels: list[Result]) -> float:
    return sum(float(each["share"]) for each in kernels)


def compiling(result: Result) -> str:
    """What is known of the time until training runs."""
    first, cached = (result["compile"][name] for name in ("first", "cached"))
    return (
        f"With the results of PyTorch's compiler stored, {first['start_seconds']:.0f} s become "
        f"{cached['start_seconds']:.0f} s (whole processes: {first['process_seconds']:.0f} and "
        f"{cached['process_seconds']:.0f} s). What the rest consists of was not measured."
    )


def unchanged(result: Result) -> str:
    """What an `index build` without changes does for each file."""
    scanned = next(each for each in result["steps"] if each["step"] == "scan the folder")
    return (
        "Python works on each file: it lists it (*scan the folder* alone takes "
        f"{scanned['seconds']:.1f} s), reads its size and time, compares them with a row of the "
        "catalog, which now has a checksum, and asks the index for its item."
    )
