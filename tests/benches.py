"""The benchmarks of bench/ as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "bench"


def load_bench(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import bench/NAME.py; the modules it shares with others are found for this test only."""
    monkeypatch.syspath_prepend(str(BENCH))
    for path in BENCH.glob("*.py"):  # another test may have imported a module of the same name
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    specification = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
