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
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from ...bounded_folder import BoundedFolder, user_cache_of

VARIABLE = "HADAHASH_IMAGE_CACHE"
DEFAULT_BYTES = 10 * 10**9

_DIGEST = 32  # bytes of the sha256 before the content


class ImageCache:
    """A cache of image files in a folder.

    Args:
        folder: The folder; it is created when the first entry is written.
        limit: Largest size in bytes.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_BYTES) -> None:
        self._files = BoundedFolder(folder, limit)

    def get(self, key: str) -> bytes | None:
        """Read an entry.

        Args:
            key: Identifies address and version.

        Returns:
            The content; None if there is none, or it is damaged.
        """
        name = _name(key)
        path = self._files.path(name)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        data = content[_DIGEST:]
        if hashlib.sha256(data).digest() != content[:_DIGEST]:
            with suppress(OSError):
                path.unlink()
            return None
        self._files.touch(name)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Write an entry; the least recently used ones are removed when the limit is exceeded.

        Args:
            key: Identifies address and version.
            data: The content. It is not kept if it takes more than a quarter of the limit.
        """
        if 4 * (len(data) + _DIGEST) <= self._files.limit:
            with suppress(OSError):  # a full or read-only disk
                self._files.write(_name(key), hashlib.sha256(data).digest() + data)

    def size(self) -> int:
        """Return the size of all entries in bytes."""
        return self._files.size()


def image_cache() -> ImageCache | None:
    """Return the cache that the environment asks for; see `user_cache_of`."""
    return user_cache_of("images", VARIABLE, DEFAULT_BYTES, _cache)


@lru_cache(maxsize=4)
def _cache(folder: Path, limit: int) -> ImageCache:
    return ImageCache(folder, limit)


def _name(key: str) -> str:
    name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{name[:2]}/{name[2:]}"
