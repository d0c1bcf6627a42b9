"""What it gains to keep freed memory while a network runs on a CPU.

    python bench/allocator.py

`default`: the allocator returns large blocks to the system when they are freed. `kept`: it reuses
them (`hadahash.data.memory.keep_freed_memory`), as HadaHash asks glibc to. Both encode the same
images with torch and train on the same images, weights random. Every measurement is a process of
its own; the two ways take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import common
import numpy as np

WAYS = ("default", "kept")
FIELDS = ("encode", "train", "system_seconds", "peak_mb")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    parser = common.make_parser("allocator", __doc__)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--way", choices=WAYS, help="measure in this process, and print")
    options = common.parse(parser, arguments)
    if options.way:
        print(json.dumps(measure(options)))
        return
    result = common.begin(options)
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(options.rounds):
        for way in WAYS if number % 2 else reversed(WAYS):
            rounds[way].append(in_a_process(options, way))
    result |= {"backbone": options.backbone, "images": options.images, "rounds": options.rounds}
    result["ways"] = {
        way: {name: median([each[name] for each in found]) for name in FIELDS}
        for way, found in rounds.items()
    }
    result["ratios"] = {
        name: [
            kept[name] / other[name]
            for kept, other in zip(*(rounds[way] for way in ("kept", "default")), strict=True)
        ]
        for name in ("encode", "train")
    }
    common.finish(result, options)


def in_a_process(options: argparse.Namespace, way: str) -> dict[str, float]:
    """The measurement of one way in a new process."""
    command = [sys.executable, __file__, "--way", way, "--images", str(options.images)]
    command += ["--backbone", options.backbone]
    environment = os.environ | {
        "PYTHONPATH": str(common.ROOT / "src"),
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Images per second of encoding at 224 and of training at 128 pixels."""
    import resource

    import hadahash as hh
    from hadahash import building

    if options.way == "default":
        building.keep_freed_memory = lambda: False  # type: ignore[assignment]
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (options.images, 224, 224, 3), dtype=np.uint8)
    few = pixels[:64]
    shared: dict[str, Any] = {"backbone": options.backbone, "weights": "none", "device": "cpu"}
    shared |= {"content_bits": 0, "epochs": 1, "bits": 64}
    model = (
        hh.Hasher(**shared, size=224, side=224, frozen=True)
        .fit(few, np.arange(len(few)) % 2)
        .model_
    )
    began = time.perf_counter()
    model.encode(pixels)
    encoded = time.perf_counter()
    hasher = hh.Hasher(**shared, size=128, side=144, frozen=False)
    hasher.fit(pixels, np.arange(options.images) % 2)
    trained = time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "encode": options.images / (encoded - began),
        "train": options.images / (trained - encoded),
        "system_seconds": used.ru_stime,
        "peak_mb": common.peak_megabytes(),
    }


if __name__ == "__main__":
    main()
