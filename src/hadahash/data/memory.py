"""Available memory of this process."""

from __future__ import annotations

import os
from pathlib import Path


def available_memory() -> int:
    """Return the memory that can be used without swapping, in bytes.

    Container limits are respected. If the system does not report it, 16 GiB are assumed.
    """
    found = [amount for amount in (_system_memory(), _container_memory()) if amount is not None]
    return min(found, default=16 << 30)


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
