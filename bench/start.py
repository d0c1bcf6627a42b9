"""Time of commands: how fast `hadahash` starts, and how long the demo takes.

    git archive --prefix=old/ e6859f9 | tar x -C /tmp     # version 0.1, the last commit before 0.2
    python bench/start.py --old /tmp/old --demo

Every command is a new process. Those of the two versions take turns; medians of the rounds. The
demo runs once, of this version only; its data are downloaded or already there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import common

COMMANDS = {"--version": ["--version"], "--help": ["--help"], "search --help": ["search", "--help"]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the result."""
    parser = common.make_parser("start", __doc__)
    parser.add_argument("--old", type=Path, help="source folder of version 0.1")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--demo", action="store_true", help="also run the demo")
    options = common.parse(parser, arguments)
    result = common.begin(options)
    versions = {"commands": common.ROOT} | ({"before": options.old} if options.old else {})
    rounds: dict[tuple[str, str], list[float]] = {}
    for number in range(options.rounds + 1):
        for version, source in versions.items():
            for name, command in COMMANDS.items():
                seconds = run(source, command)
                if number:  # the first round is a warm-up
                    rounds.setdefault((version, name), []).append(seconds)
    for (version, name), found in rounds.items():
        result.setdefault(version, {})[name] = summary(found)
    if options.demo:
        with tempfile.TemporaryDirectory() as folder:
            found = [run(common.ROOT, ["demo", "--out", f"{folder}/demo"])]
        result["commands"]["demo"] = summary(found)
    common.finish(result, options)


def run(source: Path, command: list[str]) -> float:
    """Seconds of one command."""
    environment = os.environ | {"PYTHONPATH": str(source / "src")}
    start = time.perf_counter()
    process = [sys.executable, "-m", "hadahash", *command]
    subprocess.run(process, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def summary(seconds: list[float]) -> dict[str, Any]:
    """Median and quartiles."""
    return {"seconds": median(seconds), "seconds_quartiles": common.quartiles(seconds)}


if __name__ == "__main__":
    main()
