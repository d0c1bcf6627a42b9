"""Memory of this process: what is available, and what the allocator keeps."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

_KEPT_BYTES = 1 << 30
_KEPT_BYTES_OF_OLD_GLIBC = 32 << 20  # before 2.35 a higher threshold of mmap is refused
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt


def available_memory() -> int:
    """Return the memory that can be used without swapping, in bytes.

    Container limits are respected. If the system does not report it, 16 GiB are assumed.
    """
    found = [amount for amount in (_system_memory(), _container_memory()) if amount is not None]
    return min(found, default=16 << 30)


@cache
def keep_freed_memory() -> bool:
    """Let the allocator reuse freed memory instead of returning it to the system.

    That is up to 1 GiB, in blocks of up to 1 GiB; before glibc 2.35 of up to 32 MiB.

    On a CPU the activations of a network are blocks of many megabytes. By default glibc returns
    each of them when it is freed, and the next batch gets new pages, which the system has to clear
    first: that can take longer than the network. Results do not change.

    Returns:
        Whether the allocator was told; only glibc on Linux can be.
    """
    if not sys.platform.startswith("linux"):
        return False
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        kept = bool(mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
        sizes = (_KEPT_BYTES, _KEPT_BYTES_OF_OLD_GLIBC)
        return any(mallopt(_MMAP_THRESHOLD, each) for each in sizes) and kept
    return False


def _system_memory() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (OSError, ValueError, AttributeError):
        return None


def _container_memory() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        lines = (folder / "memory.stat").read_text().splitlines()
        cache = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
        return max(0, limit - used + cache)
    except (OSError, StopIteration, ValueError):  # ValueError: "max", no limit
        return None
