"""Module order, import cost, and that every module can be imported by its name."""

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
SHARED = (
    "_version",
    "errors",
    "lazy",
    "registry",
    "settings",
    "files",
    "environment",
    "bounded_folder",
    "json_parts",
    "messages",
    "skipped",
    "packing",
    "codes",
    "code_files",
    "native",
    "queries",
    "ranking",
)
# A module imports only from modules on its left; a new module gets its place here.
ORDER = (
    *SHARED,
    "codebooks",
    "config",
    "plugins",
    "projections",
    "data",
    "networks",
    "methods",
    "training",
    "content",
    "outputs",
    "pace",
    "feature_cache",
    "cached_outputs",
    "parts",
    "runtime",
    "encoding",
    "shared_features",
    "evaluation",
    "index",
    "exporting",
    "building",
    "model_files",
    "light",
    "restoring",
    "model",
    "loading",
    "ready_models",
    "light_export",
    "onnx_files",
    "pretrained",
    "preparing",
    "calibrating",
    "fitting",
    "hasher",
    "runs",
    "photos",
    "ray_encoding",
    "serve",
    "visuals",
    "testing",
    "demo",
    "reproduce",
    "cli",
)
EXEMPT = {"__init__", "__main__"}  # they hold names, not logic
# `Codes.save`, `Codes.load` and `HashModel.load` hand over to the module that knows the files.
DELEGATES = {"codes": {"code_files"}, "model": {"loading", "pretrained"}}
ENVIRONMENT = os.environ | {"PYTHONPATH": str(SOURCE.parent)}


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _top(path: Path) -> str:
    """The module or package directly below `hadahash` that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _name(path: Path) -> str:
    """The full name of a module."""
    parts = ("hadahash", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, without those that only type checkers see."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _statements(child)


def _imported(path: Path) -> Iterator[str]:
    """The top modules that a file imports from, at any level."""
    package = ["hadahash", *path.relative_to(SOURCE).parent.parts]
    for node in _statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            full = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) + 1 - node.level]
            base += node.module.split(".") if node.module else []
            full = [[*base, alias.name] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            full = [[*str(node.module).split("."), alias.name] for alias in node.names]
        else:
            continue
        yield from (parts[1] for parts in full if parts[0] == "hadahash" and len(parts) > 1)


def test_every_module_has_its_place():
    missing = {_top(path) for path in _modules()} - set(ORDER) - EXEMPT
    assert not missing, f"give these modules a place in ORDER: {sorted(missing)}"


@pytest.mark.parametrize("path", _modules(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_module_imports_only_from_its_left(path):
    top = _top(path)
    if top in EXEMPT:
        return
    left = {*ORDER[: ORDER.index(top)], top, *DELEGATES.get(top, ())}
    assert {imported for imported in _imported(path) if imported in ORDER} <= left


def test_evaluation_needs_the_shared_modules_alone():
    for path in (SOURCE / "evaluation").glob("*.py"):
        imported = {module for module in _imported(path) if module in ORDER}
        assert imported <= {*SHARED, "evaluation"}, path.name


def test_the_import_reader_sees_all_forms(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    (tmp_path / "data").mkdir()
    module = tmp_path / "data" / "x.py"
    module.write_text(
        "import hadahash.runs\nfrom hadahash import hasher\nfrom hadahash.cli.train import y\n"
        "from .. import files\nfrom ..errors import Z\nfrom . import images\n"
        "def f():\n    from ..training.loop import train\nimport numpy.random\n"
        "if TYPE_CHECKING:\n    from ..serve import s\n"
    )
    expected = ["cli", "data", "errors", "files", "hasher", "runs", "training"]
    assert sorted(_imported(module)) == expected


def test_every_module_is_found_under_its_name():
    """No function, class or variable of a package hides one of its modules."""
    names = [_name(path) for path in _modules() if path.stem != "__main__"]
    program = f"""
import importlib, sys
names = {names!r}
for name in names:
    importlib.import_module(name)
for name in names:
    scope = {{}}
    exec(f"import {{name}} as module", scope)
    module = scope["module"]
    assert getattr(module, "__name__", None) == name, f"import {{name}} as m gives {{module!r}}"
"""
    done = _run(program)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "package", [path.parent for path in SOURCE.rglob("__init__.py")], ids=lambda path: path.name
)
def test_no_public_name_of_a_package_is_that_of_a_module_in_it(package):
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    tree = ast.parse((package / "__init__.py").read_text())
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }
    engines = {"exact", "milvus", "routed"}  # modules that are imported as such, to be registered
    assert not (defined | imported) & modules - engines


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


def test_importing_is_fast():
    def seconds(program: str) -> float:
        started = time.perf_counter()
        assert _run(program).returncode == 0
        return time.perf_counter() - started

    assert min(seconds("import hadahash") - seconds("pass") for _ in range(5)) < 0.2


def test_importing_loads_nothing_heavy():
    program = f"import sys, hadahash; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert _run(program).stdout.strip() == "[]"


def test_codebooks_codes_and_evaluation_work_without_torch():
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
assert callable(hh.codebook) and callable(hh.list_methods), "a package hides a function"
try:
    hh.hasher_of_nothing
except AttributeError as error:
    assert "hasher_of_nothing" in str(error)
else:
    raise SystemExit("an unknown name was found")
"""
    done = _run(program)
    assert done.returncode == 0, done.stderr


def test_one_function_asks_whether_a_package_is_installed():
    asking = [path.name for path in _modules() if "find_spec" in path.read_text()]
    assert asking == ["lazy.py"]


def test_one_function_counts_the_cores_that_may_be_used():
    """A container may use fewer cores than the machine has."""
    counting = [path for path in _modules() if "cpu_count" in path.read_text()]
    assert [_name(path) for path in counting] == ["hadahash.native"]


@pytest.mark.parametrize("package", ["rawpy", "pi_heif", "onnxruntime", "no_such_package"])
def test_a_package_whose_import_is_refused_is_not_installed(package, monkeypatch):
    from hadahash.cli import doctor
    from hadahash.data.formats import IMAGE_SUFFIXES, image_suffixes
    from hadahash.lazy import is_installed

    monkeypatch.setitem(sys.modules, package, None)
    assert image_suffixes() >= IMAGE_SUFFIXES
    assert (package not in doctor._PARTS) or "not installed" in doctor._packages()[package]
    assert not is_installed(package) and is_installed("numpy")


# torch.load and numpy.load read pickles unless an argument forbids it.
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
