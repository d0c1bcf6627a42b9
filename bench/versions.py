"""Steps of another version (`bench/version_steps.py`), each in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import common

from hadahash.cli.bench_scale import Step, measure

STEPS = Path(__file__).resolve().parent / "version_steps.py"


class Version:
    """A version of HadaHash.

    Args:
        source: Folder of its sources, with the library built.
        **environment: Variables of its processes.
    """

    def __init__(self, source: Path, **environment: str) -> None:
        self._source = source
        self._environment = {"PYTHONPATH": str(source / "src"), **environment}

    def step(self, title: str, name: str, *arguments: object) -> dict[str, Any]:
        """Seconds, processor time and peak memory of a step of `bench/version_steps.py`."""
        return self._measure(Step(title, [str(STEPS), name, *map(str, arguments)]))

    def command(self, title: str, *arguments: object) -> dict[str, Any]:
        """The same of a command, from the start of its process to the end."""
        command = ["-m", "hadahash", *map(str, arguments)]
        return self._measure(Step(title, command, whole=True))

    def _measure(self, step: Step) -> dict[str, Any]:
        print(f"{self._source}: {step.title}", file=sys.stderr)
        return measure(step, environment=self._environment)


def add_option(parser: Any) -> None:
    """Add the option --old."""
    text = "sources of version 0.1, with its library built: see bench/serve_million.py"
    parser.add_argument("--old", type=common.absolute, help=text)
