"""Images of object stores on disk, so that each is fetched once.

An entry is identified by address and version of the image (etag, or time, and size). The cache is
the folder ~/.cache/hadahash/images (or below XDG_CACHE_HOME), one file per image. Several processes
may use it at once. It never raises: what cannot be read or written is fetched again.

    HADAHASH_IMAGE_CACHE=50GB      largest size; the default is 10GB, the least recently used
                                   images give way
    HADAHASH_IMAGE_CACHE=off       no cache
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from ...environment import size_limit, user_cache

VARIABLE = "HADAHASH_IMAGE_CACHE"
DEFAULT_BYTES = 10 * 10**9

_KEPT = 0.8  # of the limit, after entries were removed
_DIGEST = 32  # bytes of the sha256 before the content


class ImageCache:
    """A cache of image files in a folder.

    Args:
        folder: The folder; it is created when the first entry is written.
        limit: Largest size in bytes.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_BYTES) -> None:
        self.folder, self.limit = folder, limit
        self._lock = threading.Lock()
        self._size: int | None = None  # of the entries, as far as this process knows

    def get(self, key: str) -> bytes | None:
        """Read an entry.

        Args:
            key: Identifies address and version.

        Returns:
            The content; None if there is none, or it is damaged.
        """
        path = self._path(key)
        try:
            content = path.read_bytes()
            data = content[_DIGEST:]
            if hashlib.sha256(data).digest() != content[:_DIGEST]:
                path.unlink()
                return None
            os.utime(path)
        except OSError:
            return None
        return data

    def put(self, key: str, data: bytes) -> None:
        """Write an entry; the least recently used ones are removed when the limit is exceeded.

        Args:
            key: Identifies address and version.
            data: The content. It is not kept if it takes more than a quarter of the limit.
        """
        size = len(data) + _DIGEST
        if 4 * size > self.limit:
            return
        path = self._path(key)
        temporary = path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_bytes(hashlib.sha256(data).digest() + data)
            temporary.replace(path)
        except OSError:  # a full or read-only disk
            with suppress(OSError):
                temporary.unlink()
            return
        with self._lock:
            self._size = self.size() if self._size is None else self._size + size
            if self._size > self.limit:
                self._prune()

    def size(self) -> int:
        """Return the size of all entries in bytes."""
        return sum(size for _, size, _ in self._entries())

    def _prune(self) -> None:
        """Remove the least recently used entries."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= _KEPT * self.limit:
                break
            with suppress(OSError):
                path.unlink()
            total -= size
        self._size = total

    def _entries(self) -> list[tuple[int, int, Path]]:
        """Time of the last use, size and path of every entry."""
        found = []
        for path in self.folder.glob("*/*"):
            with suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        return found

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
        return self.folder / name[:2] / name[2:]


def image_cache() -> ImageCache | None:
    """Return the cache that the environment asks for.

    Returns:
        The cache; None if it is off.

    Raises:
        UsageError: The variable is neither a size nor off.
    """
    limit = size_limit(VARIABLE, DEFAULT_BYTES)
    return _cache(user_cache() / "images", limit) if limit else None


@lru_cache(maxsize=4)
def _cache(folder: Path, limit: int) -> ImageCache:
    return ImageCache(folder, limit)
