"""The goals of version 0.2: where their numbers are stored, and what version 0.1 reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from goal_bounds import compiling, reduction, training, unchanged
from goal_values import (
    Value,
    at,
    case,
    indexing,
    indexing_before,
    large,
    large_before,
    large_change,
    least_ratio,
    lower_quartile,
    percent,
    step,
)
from page_parts import better_batch
from page_text import Result

Bound = str | Callable[[Result], str]


class Goal(NamedTuple):
    """A number that version 0.2 should reach.

    Attributes:
        name: What is measured.
        source: Name of the stored result.
        value: The number, from that result; a KeyError or similar if it was not measured.
        goal: A comparison, as "< 50"; "" where the number is only shown.
        form: Format of the number with its unit.
        before: The number of version 0.1 from the same result, or as text.
        bound: What bounds the number, if the goal is missed; as text or from the result.
        way: Where `before` is a number of version 0.2: the way of version 0.1 that it measured.
        low: The lower quartile of the rounds, where the goal may be met by the median only.
        earlier: The number of version 0.1 from another run, for results that do not have `before`.
    """

    name: str
    source: str
    value: Value
    goal: str
    form: str = "{:,.0f}"
    before: Value | str = ""
    bound: Bound = ""
    way: str = ""
    low: Value | None = None
    earlier: str = ""


LARGE_JPEG = "12 megapixels"
HUFFMAN = (
    "Huffman decoding: all coefficients of a JPEG are read before any is left out, of a "
    "progressive one in several passes."
)
NETWORK = "The network on 2 cores."
GPU = "See the roofline and the stages under [The GPU](#the-gpu)."
SMALL = "as they are"
UNCHANGED = "index build without changes"
CLASS_BITS = "class bits only"
FULL, TORCH = "full decode", "torch"  # what version 0.1 does, measured with version 0.2
_KINDS = ("", ", progressive", ", collage")  # of JPEGs of 12 megapixels


def _decoding(kind: str) -> tuple[Goal, ...]:
    """The goals of one kind of large JPEGs."""
    name = f"{LARGE_JPEG}{kind}"

    def bits(part: str) -> Value:
        return lambda result: 100 * case(name, "equal_bits", "reduced", part)(result)

    equal = "bits equal to those of a full decode"
    return (
        Goal(
            f"12-megapixel JPEG, full decode / reduced{kind}",
            "decode",
            case(name, "ratios", "full / reduced"),
            ">= 4",
            "{:.2f}",
            "1.0",
            HUFFMAN,
            FULL,
        ),
        *(
            Goal(
                f"{more}{equal}{kind}",
                "decode",
                bits(part),
                ">= 99.5",
                "{:.2f} %",
                "100 %",
                reduction(name, part),
                FULL,
            )
            for more, part in (("", "all"), ("class ", "class"), ("content ", "content"))
        ),
    )


def _blocked(name: str, goal: str, *path: str) -> Goal:
    """A goal of the service while something blocks, in milliseconds."""
    now, before = (case(version, *path) for version in ("0.2", "0.1"))
    return Goal(name, "serve_blocked", now, goal, "{:,.0f} ms", before)


GOALS: dict[str, tuple[Goal, ...]] = {
    "The service while something blocks": (
        _blocked(
            "/healthz while a Milvus server is stopped, longest",
            "< 50",
            "milvus",
            "healthz",
            "max_ms",
        ),
        _blocked("wait for a search beside 70 changes, longest", "", "writers", "longest_ms"),
        _blocked(
            "wait for a search beside 64 slow clients, longest", "", "slow_clients", "longest_ms"
        ),
    ),
    "Photos decoded small": (
        *(goal for kind in _KINDS for goal in _decoding(kind)),
        Goal(
            "one 12-megapixel JPEG",
            "decode",
            case(LARGE_JPEG, "milliseconds", "reduced"),
            "",
            "{:.0f} ms",
            case(LARGE_JPEG, "milliseconds", "full"),
            way=FULL,
        ),
        *(
            Goal(
                f"{what} while {photos} are indexed",
                "overlap",
                indexing(name, field),
                "",
                form,
                indexing_before(name) if field == "images_per_second" else "",
            )
            for photos, name in (("small photos", SMALL), ("12-megapixel JPEGs", LARGE_JPEG))
            for what, field, form in (
                ("images per second", "images_per_second", "{:,.0f} images/s"),
                ("fraction of the network's own rate,", "share", "{:.0f} %"),
                ("upper bound from processor time,", "most_per_second", "{:,.0f} images/s"),
                ("network busy", "network_busy", "{:.0f} %"),
            )
        ),
    ),
    "A runtime without torch": (
        Goal(
            "bits equal to those of torch",
            "runtime",
            percent("bits", "onnx", "equal"),
            ">= 99.9",
            "{:.3f} %",
            "",
            "Rounding of float32 in another order.",
        ),
        *(
            Goal(
                f"{name} bits equal to those of torch, trained model",
                "runtime",
                percent("trained", "equal", name),
                ">= 99.9",
                "{:.3f} %",
                "",
                "Rounding of float32 in another order.",
            )
            for name in ("class", "content")
        ),
        Goal(
            "installed, packages of the container",
            "runtime",
            lambda result: at("install", "container", "bytes")(result) / 1e6,
            "< 500",
            "{:,.0f} MB",
            "",
            "The largest packages: see the result.",
        ),
        Goal(
            "installed, packages for serving",
            "runtime",
            lambda result: at("install", "onnx", "bytes")(result) / 1e6,
            "< 500",
            "{:,.0f} MB",
            lambda result: at("install", "torch", "bytes")(result) / 1e6,
            "The largest packages: see the result.",
            TORCH,
        ),
        Goal(
            "start: load a model and encode one image",
            "runtime",
            at("start", "onnx", "seconds"),
            "",
            "{:.1f} s",
            at("start", "torch", "seconds"),
            way=TORCH,
        ),
        Goal(
            "images per second against torch, each with its better batch",
            "runtime",
            better_batch,
            "",
            "{:.2f} times",
        ),
        Goal(
            "latency of one image",
            "runtime",
            at("speed", "batch 1", "onnx", "milliseconds_per_image"),
            "",
            "{:.0f} ms",
            at("speed", "batch 1", "torch", "milliseconds_per_image"),
            way=TORCH,
        ),
    ),
    "A million photos": (
        *(
            Goal(
                f"{name}, {what}",
                "scale",
                step(done, field),
                "",
                form,
                step(done, field, "before"),
                unchanged if name == UNCHANGED else "",
            )
            for name, done in (
                ("index add of one photo", "index add, one photo"),
                (UNCHANGED, "index build again, nothing new"),
            )
            for what, field, form in (
                ("time", "seconds", "{:.1f} s"),
                ("processor time", "cpu_seconds", "{:.1f} s"),
                ("peak memory", "peak_megabytes", "{:,.0f} MB"),
            )
        ),
        Goal(
            "read a table of a million rows, processor time",
            "scale",
            step("read the table", "cpu_seconds"),
            "< 10",
            "{:.1f} s",
            step("read the table", "cpu_seconds", "before"),
            "Each row is checked in Python.",
        ),
        Goal(
            "one id of 4,000 characters among 150,000, peak memory",
            "scale",
            step("one id of 4,000 characters among 150,000", "peak_megabytes"),
            "< 200",
            "{:,.0f} MB",
            step("one id of 4,000 characters among 150,000", "peak_megabytes", "before"),
        ),
        Goal(
            "duplicates, processor time",
            "scale",
            step("duplicates", "cpu_seconds"),
            "",
            "{:.0f} s",
            CLASS_BITS,
        ),
        Goal(
            "duplicates, peak memory",
            "scale",
            step("duplicates", "peak_megabytes"),
            "",
            "{:,.0f} MB",
            CLASS_BITS,
        ),
        Goal(
            "train one epoch, peak memory",
            "scale",
            step("train, one epoch", "peak_megabytes"),
            "< 8000",
            "{:,.0f} MB",
            step("train, one epoch", "peak_megabytes", "before"),
        ),
    ),
    "The GPU": (
        *(
            Goal(
                f"{verb}, {pixels} px",
                "gpu",
                at(verb, str(pixels), "images_per_second"),
                f">= {goal}",
                "{:,.0f} images/s",
                at("before", verb, str(pixels), "images_per_second"),
                training(pixels) if verb == "train" else GPU,
                low=lower_quartile(verb, str(pixels)) if verb == "encode" else None,
                earlier=f"{earlier:,} images/s *",
            )
            for verb, pixels, goal, earlier in (
                ("encode", 224, 28000, 16700),
                ("encode", 128, 70000, 31200),
                ("train", 224, 10000, 7500),
                ("train", 128, 28000, 19000),
            )
        ),
        *(
            Goal(name, "gpu", at(*path), "< 20", "{:.0f} s", before, compiling, earlier=earlier)
            for name, path, before, earlier in (
                ("compile", ["compile_seconds"], at("before", "compile_seconds"), "50 to 100 s *"),
                (
                    "compile, with the cache of an earlier process",
                    ["compile", "cached", "start_seconds"],
                    "no cache",
                    "",
                ),
            )
        ),
        Goal(
            "to 0.785 mAP on CIFAR-10, 64 bits, after compiling",
            "gpu",
            at("seconds_to_map"),
            "< 3",
            "{:.1f} s",
            "not measured",
            GPU,
        ),
    ),
    "Search": (
        Goal(
            "smallest faiss flat / exact, best threads of each",
            "search",
            least_ratio,
            ">= 1",
            "{:.2f}",
            at("before", "ratios", "faiss flat / exact"),
            "The overhead of a call in Python, where the codes are few.",
        ),
        *(
            Goal(
                f"{engine}: 100,000,000 codes of 64 bits, one query",
                "search",
                large(engine, kind),
                "",
                "{:.1f} ms",
                large_before(engine, "one query"),
            )
            for engine, kind in (("exact", "random"), ("routed", "clustered"))
        ),
        *(
            Goal(
                f"{engine}: {change}",
                "search",
                large_change(engine, change),
                "",
                "{:.1f} ms",
                large_before(engine, "milliseconds", change),
            )
            for engine in ("exact", "routed")
            for change in ("add 999", "remove 999")
        ),
    ),
    "Commands": (
        Goal(
            "hadahash --version",
            "start",
            at("commands", "--version", "seconds"),
            "< 0.3",
            "{:.2f} s",
            at("before", "--version", "seconds"),
            "The start of Python and the imports of the command line.",
        ),
        *(
            Goal(
                f"hadahash {command}, {what}",
                "start",
                at("commands", command, field),
                "",
                form,
                at("before", command, field),
            )
            for command in ("--version", "index info")
            for what, field, form in (
                ("time", "seconds", "{:.2f} s"),
                ("peak memory", "peak_megabytes", "{:,.0f} MB"),
            )
            if (command, field) != ("--version", "seconds")
        ),
        Goal(
            "make demo after set-up",
            "start",
            at("commands", "demo", "seconds"),
            "< 202",
            "{:.0f} s",
            at("before", "demo", "seconds"),
            NETWORK,
        ),
    ),
}
