"""The command line starts fast: commands are imported lazily, and torch only where it is used."""

from __future__ import annotations

import os
import pkgutil
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hadahash.cli
from hadahash import Codes, Index, list_methods
from hadahash.building import DEFAULT_METHOD
from hadahash.cli import options
from hadahash.cli.app import COMMANDS, load
from hadahash.data import list_protocols

SOURCE = Path(__file__).parents[2] / "src"
HEAVY = ("torch", "torchvision", "timm", "scipy", "sklearn", "matplotlib", "fastapi", "pymilvus")
_PROGRAM = f"""
import sys
sys.argv = ["hadahash", *sys.argv[1:]]
from hadahash.cli import main
try:
    main()
finally:
    print("LOADED", [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""


def _start(
    *arguments: object, program: str = _PROGRAM
) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run a command in a new process; returns its CPU time as well."""
    started = _cpu_seconds()
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        check=False,
        timeout=120,
    )
    return _cpu_seconds() - started, done


def _cpu_seconds() -> float:
    """CPU time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.fixture(scope="module")
def saved_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("startup") / "x.index"
    ids = [f"red/{number}.jpg" for number in range(100)]
    Index.build(Codes(packed=np.zeros((100, 8), np.uint8), bits=64, ids=ids)).save(folder)
    return folder


@pytest.mark.parametrize("command", ["--version", "--help", "info", "remove", "index --help"])
def test_light_commands_start_without_heavy_imports(command: str, saved_index: Path) -> None:
    seconds, baseline = [], []
    for attempt in range(5):
        arguments = {
            "info": ["index", "info", saved_index],
            "remove": ["index", "remove", saved_index, f"red/{attempt}.jpg"],
        }.get(command, command.split())
        taken, done = _start(*arguments)
        seconds.append(taken)
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines()[-1] == "LOADED []"
        baseline.append(_start(program="import numpy, typer")[0])  # grows with the load too
    assert min(seconds) < max(0.4, 3 * min(baseline))


def test_every_command_module_is_listed_and_loads() -> None:
    shared = {"app", "failures", "folders", "options", "output", "show", "upgrade"}
    shared |= {"bench_scale", "encode_ray", "scale_steps"}  # parts of bench and encode
    modules = {module.name for module in pkgutil.iter_modules(hadahash.cli.__path__)} - shared
    assert modules == {lazy.target.partition(":")[0] for lazy in COMMANDS.values()}
    for name, lazy in COMMANDS.items():
        assert load(name).name == name and lazy.summary.endswith(".")


def test_the_names_in_help_texts_are_those_of_the_registries() -> None:
    assert list(options.METHOD_NAMES) == list_methods()
    assert list(options.PROTOCOL_NAMES) == list_protocols()
    assert options.DEFAULT_METHOD == DEFAULT_METHOD
