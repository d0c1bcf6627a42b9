"""The house is read from left to right: who may import whom, what `import hadahash` costs, and that no pickle is ever read."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "hadahash"
SHARED = ("_version", "errors", "registry", "files", "config", "codes", "native", "plugins")
# From left to right. A room imports only from rooms on its left; a new room gets its place here.
ORDER = (
    *SHARED,
    "codebooks",
    "data",
    "networks",
    "methods",
    "training",
    "encoding",
    "evaluation",
    "index",
    "hasher",
    "export",
    "hub",
    "runs",
    "photos",
    "serve",
    "visuals",
    "testing",
    "demo",
    "reproduce",
    "cli",
)
FREE = {"__init__", "__main__"}  # the doors: they hold names, not logic
ENVIRONMENT = os.environ | {"PYTHONPATH": str(SOURCE.parent)}


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _package(path: Path) -> list[str]:
    """The package a module lies in, as the parts of its name below `hadahash`."""
    return list(path.relative_to(SOURCE).parent.parts)


def _imported_rooms(path: Path) -> Iterator[str]:
    """The rooms that a module imports from, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            full = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = ["hadahash", *_package(path)][: len(_package(path)) + 2 - node.level]
            base += node.module.split(".") if node.module else []
            full = [[*base, alias.name] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            full = [[*str(node.module).split("."), alias.name] for alias in node.names]
        else:
            continue
        yield from (parts[1] for parts in full if parts[0] == "hadahash" and len(parts) > 1)


def test_every_room_has_its_place():
    homeless = {_room(path) for path in _modules()} - set(ORDER) - FREE
    assert not homeless, f"give these rooms a place in ORDER: {sorted(homeless)}"


@pytest.mark.parametrize("path", _modules(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_module_imports_only_from_its_left(path):
    room = _room(path)
    if room in FREE:
        return
    left = {*ORDER[: ORDER.index(room)], room}
    assert {imported for imported in _imported_rooms(path) if imported in ORDER} <= left


def test_evaluation_stands_on_the_shared_rooms_alone():
    for path in (SOURCE / "evaluation").glob("*.py"):
        assert {room for room in _imported_rooms(path) if room in ORDER} <= {
            *SHARED,
            "evaluation",
        }, path.name


def test_the_import_reader_sees_all_forms(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    (tmp_path / "data").mkdir()
    module = tmp_path / "data" / "x.py"
    module.write_text(
        "import hadahash.runs\nfrom hadahash import hasher\nfrom hadahash.cli.train import y\nfrom .. import files\n"
        "from ..errors import Z\nfrom . import images\ndef f():\n    from ..training.loop import train\nimport numpy.random\n"
    )
    assert sorted(_imported_rooms(module)) == [
        "cli",
        "data",
        "errors",
        "files",
        "hasher",
        "runs",
        "training",
    ]


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )


HEAVY = (
    "torch",
    "torchvision",
    "timm",
    "matplotlib",
    "fastapi",
    "faiss",
    "pymilvus",
    "sklearn",
    "typer",
)


def test_importing_is_quick():
    def seconds(program: str) -> float:
        started = time.perf_counter()
        assert _run(program).returncode == 0
        return time.perf_counter() - started

    assert min(seconds("import hadahash") - seconds("pass") for _ in range(3)) < 0.5


def test_importing_brings_nothing_heavy():
    program = f"import sys, hadahash; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert _run(program).stdout.strip() == "[]"


def test_codebooks_codes_and_evaluation_do_without_torch():
    program = """
import sys
sys.modules["torch"] = None  # importing it now fails
import hadahash as hh
import numpy as np
assert hh.hadamard(20).shape == (20, 20)
book = hh.codebook(classes=10, bits=32, design="paper", seed=0)
packed = np.packbits(book > 0, axis=1)
codes = hh.Codes(packed=packed, bits=32)
assert hh.evaluate(codes, np.arange(10), codes, np.arange(10)).map == 1.0
assert "cifar10" in hh.list_datasets()
"""
    done = _run(program)
    assert done.returncode == 0, done.stderr


def test_the_public_names():
    program = """
import hadahash as hh
for name in hh.__all__:
    assert getattr(hh, name) is not None, name
assert set(dir(hh)) == set(hh.__all__)
assert callable(hh.codebook) and callable(hh.list_methods)
import hadahash.codebooks.designs, hadahash.methods.base, hadahash.codebooks.hadamard
assert callable(hh.codebook) and callable(hh.list_methods), "a subpackage hides the function of its name"
try:
    hh.hasher_of_nothing
except AttributeError as error:
    assert "hasher_of_nothing" in str(error)
else:
    raise SystemExit("an unknown name was found")
"""
    done = _run(program)
    assert done.returncode == 0, done.stderr


# torch.load and numpy.load read pickles unless they are told not to.
_PICKLES = re.compile(
    r"pickle\.loads?\b|Unpickler|import (dill|joblib|shelve)|allow_pickle\s*=\s*True|weights_only\s*=\s*False|read_pickle"
)
_LOADS = re.compile(r"(?<!safetensors\.)\b(?:torch|np|numpy)\.load\((?:[^()]|\([^()]*\))*\)")


@pytest.mark.parametrize("path", _modules(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_pickle_is_read(path):
    text = path.read_text()
    assert not _PICKLES.search(text)
    for call in _LOADS.findall(text):
        assert "weights_only=True" in call or "allow_pickle=False" in call, call
