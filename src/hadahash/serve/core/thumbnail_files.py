"""Thumbnails on disk, so that each is made once. The folder is limited in size.

A file has a header with its checksum: what a crash or a full disk left behind is not sent, and is
made again. Several processes can use one folder.
"""

from __future__ import annotations

import logging
import os
import struct
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .decode_pool import EncodedImage

LOG = logging.getLogger(__name__)
_HEADER = struct.Struct(">4sBI")  # magic, media type, CRC-32 of the content
_MAGIC = b"HHT1"
_TYPES = ("image/jpeg", "image/png")
_KEPT = 0.8  # fraction of the limit that is kept when the folder is full
_BLOCK = 4096  # a file takes whole blocks of the disk


def default_folder() -> Path:
    """Return the folder of the user's cache: ~/.cache/hadahash/thumbnails, or in XDG_CACHE_HOME."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hadahash" / "thumbnails"


class ThumbnailFiles:
    """A folder of thumbnails. Errors of the disk are logged once; then nothing is stored.

    Args:
        folder: The folder; it is created on first use, for this user only.
        limit: Largest size of all files in bytes; 0: nothing is stored.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._size: int | None = None  # None before the files were counted
        self._failed = limit == 0
        self._lock = threading.Lock()

    def read(self, tag: str) -> EncodedImage | None:
        """Return a thumbnail, or None if it is not stored.

        Args:
            tag: Its key, hexadecimal digits.
        """
        if self._limit == 0:
            return None
        path = self._path(tag)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if len(data) < _HEADER.size:
            return None
        magic, kind, crc32 = _HEADER.unpack_from(data)
        content = data[_HEADER.size :]
        if magic != _MAGIC or kind >= len(_TYPES) or zlib.crc32(content) != crc32:
            return None
        with suppress(OSError):
            os.utime(path)  # the files used last are kept
        return EncodedImage(content, _TYPES[kind])

    def write(self, tag: str, image: EncodedImage) -> None:
        """Store a thumbnail.

        Args:
            tag: Its key, hexadecimal digits.
            image: The thumbnail.
        """
        if self._failed:
            return
        header = _HEADER.pack(_MAGIC, _TYPES.index(image.type), zlib.crc32(image.content))
        try:
            self._replace(self._path(tag), header + image.content)
            with self._lock:
                self._make_room(len(header) + len(image.content))
        except OSError as error:
            self._failed = True
            LOG.warning("Thumbnails are not kept on disk: %s", error)

    def _path(self, tag: str) -> Path:
        return self._folder / tag[:2] / tag

    def _replace(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(path)
        except OSError:
            with suppress(OSError):
                Path(temporary).unlink()
            raise

    def _make_room(self, added: int) -> None:
        """Count a new file; if the folder is full, remove the files that were not used longest."""
        counted = self._size
        self._size = _on_disk(added) + counted if counted is not None else self._total()
        if self._size <= self._limit:
            return
        entries = sorted(self._entries())
        self._size = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if self._size <= _KEPT * self._limit:
                break
            with suppress(OSError):
                path.unlink()
            self._size -= size

    def _total(self) -> int:
        return sum(size for _, size, _ in self._entries())

    def _entries(self) -> Iterator[tuple[int, int, Path]]:
        """Time of last use, size and path of all files."""
        for path in self._folder.glob("??/*"):
            with suppress(OSError):
                status = path.stat()
                yield status.st_mtime_ns, _on_disk(status.st_size), path


def _on_disk(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
