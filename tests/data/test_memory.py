"""What the allocator does with the memory of networks on a CPU."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from hadahash.data import memory

MAPPED = """
import ctypes, sys
import numpy as np
from hadahash import building
class Info(ctypes.Structure):
    _fields_ = [(f"field{i}", ctypes.c_size_t) for i in range(10)]
library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
if sys.argv[1] != "none":
    building.choose_device(sys.argv[1])
block = np.empty(30 << 20, np.uint8)
print(library.mallinfo2().field4 >> 20)  # megabytes that are returned to the system when freed
"""


def mapped_megabytes(device):
    command = [sys.executable, "-c", MAPPED, device]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs mallinfo2 of glibc 2.33"
)
def test_large_blocks_are_reused_once_a_network_runs_on_a_cpu():
    assert mapped_megabytes("none") >= 30
    assert mapped_megabytes("cpu") < 30


@pytest.mark.parametrize(("largest", "accepted"), [(1 << 30, 1 << 30), (32 << 20, 32 << 20)])
def test_the_largest_accepted_threshold_is_used(monkeypatch, largest, accepted):
    told = {}

    class Library:
        def mallopt(self, name, value):
            if name == memory._MMAP_THRESHOLD and value > largest:
                return 0
            told[name] = value
            return 1

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert memory.keep_freed_memory.__wrapped__()
    assert told == {memory._MMAP_THRESHOLD: accepted, memory._TRIM_THRESHOLD: 1 << 30}


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not memory.keep_freed_memory.__wrapped__()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())  # a C library without mallopt
    assert not memory.keep_freed_memory.__wrapped__()
