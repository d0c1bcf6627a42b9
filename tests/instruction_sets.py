"""Run a test with every instruction set of the compiled code that this CPU has."""

from __future__ import annotations

import pytest

from hadahash import native

NAMES = ("portable", "popcnt", "avx2", "avx512", "neon")


def _parameter(name: str):
    there = name in native.levels()
    missing = pytest.mark.skipif(not there, reason=f"{name} is not in {native.levels()}")
    return pytest.param(native.levels().index(name) if there else -1, id=name, marks=missing)


# The test takes `level`, a number. Without the compiled code it runs once, with numpy.
every_instruction_set = pytest.mark.parametrize(
    "level",
    [_parameter(name) for name in NAMES] if native.levels() else [pytest.param(-1, id="numpy")],
)
