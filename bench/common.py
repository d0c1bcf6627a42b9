"""Shared by the benchmarks: options, the record of a measurement, load, and statistics.

Every result has the command, date, hardware, versions, source revision, and the load average
before and after. A result is written to `bench/results/` only if the machine was quiet: at most
0.3 of load per core before the measurement. `--allow-load` overrides this, and the result says
so.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hadahash import environment, files, native

os.environ.setdefault("HADAHASH_FEATURE_CACHE", "off")  # benchmarks measure the network

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
QUIET = 0.3  # highest load average per core
PATIENCE, PAUSE = 300.0, 5.0  # seconds to wait for a quiet machine, and between two looks


def make_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark.

    Args:
        name: Name of the benchmark; the result goes to `bench/results/NAME.json` by default.
        description: Docstring of the benchmark; its first line is shown.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=RESULTS / f"{name}.json", help="file of the result"
    )
    parser.add_argument(
        "--allow-load",
        action="store_true",
        help=f"write to bench/results although the load is above {QUIET} per core",
    )
    parser.set_defaults(name=name)
    return parser


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None
) -> argparse.Namespace:
    """Parse the command line, or `arguments`; keep the command for the record."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = parser.parse_args(arguments)
    options.command = shlex.join(["python", f"bench/{options.name}.py", *arguments])
    return options


def absolute(path: str) -> Path:
    """The path for processes that run in another folder; links are kept."""
    return Path(path).absolute()


def begin(options: argparse.Namespace, versions: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Check the load and return the first part of a result.

    Args:
        options: What `parse` returned.
        versions: Versions of other packages that are measured.

    Raises:
        SystemExit: The result goes to `bench/results/` and the machine is busy.
    """
    if RESULTS in options.out.resolve().parents and not options.allow_load:
        wait_until_quiet(PATIENCE)
    return {
        "command": options.command,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "revision": environment.source_revision(),
        "hardware": hardware(),
        "versions": environment.versions() | dict(versions or {}),
        "native": native.describe(),
        "load_before": load(),
        "allow_load": options.allow_load,
    }


def finish(result: dict[str, Any], options: argparse.Namespace) -> None:
    """Add the load after the measurement, write the result and print it."""
    result["load_after"] = load()
    files.write_json(options.out, result)
    print(json.dumps(result, indent=2))


# ---- The machine ---------------------------------------------------------------------------------


def load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


def wait_until_quiet(patience: float) -> None:
    """Wait until the load average is low: the last minute may have been another benchmark.

    Raises:
        SystemExit: The machine is still busy after `patience` seconds.
    """
    cores = native.usable_cores()
    end = time.monotonic() + patience
    if load() / cores > QUIET:
        print(f"Waiting up to {patience:.0f} s for a load below {QUIET} per core", file=sys.stderr)
    while load() / cores > QUIET:
        if time.monotonic() >= end:
            raise SystemExit(
                f"The load average is {load():.2f} on {cores} cores, above {QUIET} per core. "
                "Measure on a quiet machine, write elsewhere with --out, or pass --allow-load."
            )
        time.sleep(PAUSE)


def hardware() -> str:
    """The processor, its usable cores and the operating system."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = re.findall(r"^model name\s*:\s*(.+)$", info.read_text(), flags=re.MULTILINE)
        cpu = names[0].strip() if names else cpu
    return f"{cpu}, {native.usable_cores()} cores, {platform.system()}"


def peak_megabytes() -> float:
    """The largest resident memory of this process so far, in MB."""
    text = Path("/proc/self/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


# ---- Statistics ----------------------------------------------------------------------------------


def quartiles(values: ArrayLike) -> list[float]:
    """The first and the third quartile."""
    return [float(value) for value in np.quantile(np.asarray(values), [0.25, 0.75])]


def milliseconds(times: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Median and quartiles of each way, from seconds per round."""
    return {
        "milliseconds_per_query": {name: 1000 * median(each) for name, each in times.items()},
        "milliseconds_quartiles": {
            name: [1000 * value for value in quartiles(each)] for name, each in times.items()
        },
    }


def ratios(
    times: Mapping[str, Sequence[float]], pairs: Sequence[tuple[str, str]]
) -> dict[str, dict[str, Any]]:
    """Median and quartiles of the ratio of two ways, paired by round.

    Args:
        times: Seconds of each way and round.
        pairs: Numerator and denominator of each ratio.
    """
    found = {f"{over} / {under}": np.divide(times[over], times[under]) for over, under in pairs}
    return {
        "ratios": {name: float(np.median(each)) for name, each in found.items()},
        "quartiles": {name: quartiles(each) for name, each in found.items()},
    }
