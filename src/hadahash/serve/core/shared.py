"""What the worker processes of a service share: two counters, and a lock for writers."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_COUNTERS = struct.Struct("=QQ")  # changes, reloads among them


class Shared:
    """Files in a folder that all worker processes of a service use.

    Each worker has the index open. The one that changes it increments the counter; the others
    compare it before each request and open the index again, so that a client sees its own changes
    whichever worker answers. After a reload they open every file of it again. The lock is released
    by the system when a process ends.

    Args:
        folder: A folder for these processes only.
    """

    def __init__(self, folder: Path) -> None:
        self._lock_file, counter = folder / "lock", folder / "changes"
        handle = os.open(counter, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(handle, _COUNTERS.size)
            self._map = mmap.mmap(handle, _COUNTERS.size)
        finally:
            os.close(handle)

    @property
    def changes(self) -> int:
        """Number of changes and reloads so far."""
        return int(_COUNTERS.unpack_from(self._map)[0])

    @property
    def reloads(self) -> int:
        """Number of reloads so far."""
        return int(_COUNTERS.unpack_from(self._map)[1])

    def count_change(self) -> None:
        """Tell the other processes that the index changed. Call it with the lock held."""
        _COUNTERS.pack_into(self._map, 0, self.changes + 1, self.reloads)

    def count_reload(self) -> None:
        """Tell the other processes to open every file again. Call it with the lock held."""
        _COUNTERS.pack_into(self._map, 0, self.changes + 1, self.reloads + 1)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclude the writers of other worker processes. Blocks; call it in a thread."""
        handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
