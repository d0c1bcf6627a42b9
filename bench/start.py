"""Time and memory of commands: how fast `hadahash` starts, and how long the demo takes.

    git archive --prefix=old/ e6859f9 | tar x -C /tmp     # version 0.1, the last commit before 0.2
    (cd /tmp/old && python setup.py -q build_ext --inplace)
    python bench/start.py --old /tmp/old --demo --data-root data

Every command is a new process. Those of the two versions take turns; medians of the rounds. Peak
memory is that of one more process. `index info` describes an index of --items random codes, which
each version writes itself. The demos run once, one after the other; their data are downloaded or
already there. `index info` and the demo of version 0.1 need its library.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import common

COMMANDS = {"--version": ["--version"], "--help": ["--help"], "search --help": ["search", "--help"]}
MAKE_INDEX = """
import sys
import numpy as np
import hadahash as hh
items = int(sys.argv[2])
packed = np.random.default_rng(0).integers(0, 256, (items, 8), dtype=np.uint8)
names = [f"class{i % 100:04d}/IMG_{i:08d}.jpg" for i in range(items)]
labels = [name.partition("/")[0] for name in names]
hh.Index.build(hh.Codes(packed=packed, bits=64, ids=names), labels, names).save(sys.argv[1])
"""
# The peak that a parent reads of its child includes the parent's own before the exec.
READ_PEAK = """
import runpy, sys
sys.argv[0] = "hadahash"
try:
    runpy.run_module("hadahash", run_name="__main__")
finally:
    lines = open("/proc/self/status").read().splitlines()
    sys.stderr.write(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the result."""
    parser = common.make_parser("start", __doc__)
    parser.add_argument("--old", type=common.absolute, help="sources of version 0.1")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--items", type=int, default=100_000, help="items of `index info`")
    parser.add_argument("--demo", action="store_true", help="also run the demos")
    parser.add_argument("--data-root", type=common.absolute, help="data of the demos")
    options = common.parse(parser, arguments)
    result = common.begin(options) | {"items": options.items}
    versions = {"commands": common.ROOT} | ({"before": options.old} if options.old else {})
    with tempfile.TemporaryDirectory() as folder:
        commands = {}
        for version, source in versions.items():
            index = Path(folder) / version
            run_python(source, ["-c", MAKE_INDEX, str(index), str(options.items)])
            commands[version] = {**COMMANDS, "index info": ["index", "info", str(index)]}
        result |= measure(versions, commands, options.rounds)
    if options.demo:
        for version, source in versions.items():
            result[version]["demo"] = summary([demo(source, options.data_root)])
    common.finish(result, options)


def measure(
    versions: Mapping[str, Path], commands: Mapping[str, Mapping[str, list[str]]], rounds: int
) -> dict[str, dict[str, Any]]:
    """Times and memory of the commands of each version."""
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):
        for version, source in versions.items():
            for name, command in commands[version].items():
                seconds = run(source, command)
                if number:  # the first round is a warm-up
                    times.setdefault((version, name), []).append(seconds)
    found: dict[str, dict[str, Any]] = {}
    for (version, name), seconds_of in times.items():
        peak = peak_megabytes(versions[version], commands[version][name])
        found.setdefault(version, {})[name] = summary(seconds_of) | {"peak_megabytes": peak}
    return found


def demo(source: Path, root: Path | None) -> float:
    """Seconds of the demo."""
    with tempfile.TemporaryDirectory() as folder:
        data = [] if root is None else ["--data-root", str(root)]
        return run(source, ["demo", "--out", f"{folder}/demo", *data])


def run(source: Path, command: Sequence[str]) -> float:
    """Seconds of one command."""
    start = time.perf_counter()
    run_python(source, ["-m", "hadahash", *command])
    return time.perf_counter() - start


def peak_megabytes(source: Path, command: Sequence[str]) -> float:
    """Peak resident memory of one command."""
    told = run_python(source, ["-c", READ_PEAK, *command])
    return int(told.split()[-1]) / 1024


def run_python(source: Path, arguments: Sequence[str]) -> str:
    """Run Python with the sources of a version; what it wrote to stderr."""
    environment = os.environ | {"PYTHONPATH": str(source / "src")}
    process = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        check=False,
    )
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments[:4])} failed: {process.stderr[-400:]}")
    return process.stderr


def summary(seconds: list[float]) -> dict[str, Any]:
    """Median and quartiles."""
    return {"seconds": median(seconds), "seconds_quartiles": common.quartiles(seconds)}


if __name__ == "__main__":
    main()
