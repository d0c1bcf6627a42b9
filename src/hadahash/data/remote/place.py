"""Where one image is, and how its bytes are read."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import PurePosixPath
from typing import Any, Protocol

from ...errors import DataError, ImageError, ImageTooLarge, UnreadableImage
from ..images import LIMITS
from .address import reason_of
from .cache import image_cache

_PAUSES = (0.2, 1.0, 3.0)  # seconds before each repetition
_GONE = 20  # images in a row that fail after all repetitions: the storage is not reachable
_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_CLIENTS = ("aiohttp", "botocore", "aiobotocore", "requests", "urllib3", "httpx", "google")


class Container(Protocol):
    """What holds images: a file system, a .tar file or a .parquet file.

    Attributes:
        far: Whether reading goes over a network.
        health: Counts the images that could not be fetched.
    """

    far: bool
    health: Health

    def fetch(self, key: Any, /) -> bytes:
        """Return the bytes of one image."""
        ...


class Health:
    """Stops a job whose storage is not reachable; a single image never does."""

    def __init__(self) -> None:
        self._lock, self._failed = threading.Lock(), 0

    def succeeded(self) -> None:
        """Note that an image was fetched, or certainly does not exist."""
        self._failed = 0

    def failed(self, name: str, reason: str) -> None:
        """Note that an image could not be fetched.

        Raises:
            DataError: So many in a row failed that the storage must be unreachable.
        """
        with self._lock:
            self._failed += 1
            if self._failed >= _GONE:
                raise DataError(
                    f"The storage is not reachable: {self._failed} images in a row failed, the "
                    f"last one {name} ({reason}). Run the same command again to continue."
                )

    def __reduce__(self) -> tuple[type[Health], tuple[()]]:
        return Health, ()


class FileContainer:
    """Images that are files of a file system of fsspec.

    Args:
        files: The file system.
        far: Whether reading goes over a network.
    """

    def __init__(self, files: Any, far: bool) -> None:
        self.files, self.far, self.health = files, far, Health()

    def fetch(self, key: str) -> bytes:
        """Return the content of a file."""
        content: bytes = self.files.cat_file(key)
        return content


class Place:
    """Where an image is. It can be read like an open file, any number of times.

    Args:
        container: What holds the image.
        key: Names the image in its container.
        name: The address of the image, for messages.
        size: Size in bytes; None if it is not known.
        version: Changes when the content does; empty if nothing is known about it.

    Attributes:
        seen: sha256 of the content that was read last; empty before.
    """

    __slots__ = ("container", "key", "name", "seen", "size", "version")

    def __init__(
        self, container: Container, key: Any, name: str, size: int | None, version: str
    ) -> None:
        self.container, self.key, self.name = container, key, name
        self.size, self.version, self.seen = size, version, b""

    def __repr__(self) -> str:
        return f"Place({self.name!r})"

    @property
    def suffix(self) -> str:
        """The extension of the name."""
        return PurePosixPath(self.name).suffix

    def read(self, size: int = -1) -> bytes:
        """Return the content.

        Args:
            size: At most so many bytes; -1: all.

        Returns:
            The bytes, from the start.

        Raises:
            ImageError: It cannot be read, or is too large.
            DataError: The storage is not reachable.
        """
        data = self._content()
        self.seen = hashlib.sha256(data).digest()
        return data if size < 0 else data[:size]

    def digest(self) -> bytes:
        """Return the sha256 of the content; empty bytes if it cannot be read."""
        try:
            self.read()
        except ImageError:
            return b""
        return self.seen

    @property
    def stamp(self) -> int:
        """A number that changes with the version, as the time of a local file does."""
        return int.from_bytes(hashlib.sha256(self.version.encode()).digest()[:7], "big")

    def _content(self) -> bytes:
        if self.size is not None and self.size > LIMITS.max_bytes:
            raise ImageTooLarge(self.name, f"more than {LIMITS.max_bytes:,} bytes (max_bytes)")
        cache = image_cache() if self.container.far and self.version else None
        key = f"{self.name}\0{self.size}\0{self.version}"
        known = None if cache is None else cache.get(key)
        if known is not None:
            return known
        data = self._fetch()
        if cache is not None and self.size in (None, len(data)):
            cache.put(key, data)
        return data

    def _fetch(self) -> bytes:
        """The content, from its container; errors of a network that may pass are repeated."""
        for pause in (*_PAUSES, None):
            try:
                data = self.container.fetch(self.key)
            except MemoryError:
                raise ImageTooLarge(self.name, "out of memory while reading") from None
            except Exception as error:
                if not (self.container.far and may_pass(error)):
                    self.container.health.succeeded()
                    raise UnreadableImage(self.name, reason_of(error)) from error
                if pause is None:
                    self.container.health.failed(self.name, reason_of(error))
                    raise UnreadableImage(
                        self.name, f"{reason_of(error)} ({1 + len(_PAUSES)} attempts)"
                    ) from error
                time.sleep(pause)
            else:
                self.container.health.succeeded()
                return data
        raise UnreadableImage(self.name, "no attempt was made")


def may_pass(error: BaseException) -> bool:
    """Return whether an error may be gone at the next attempt: a connection, a timeout, a server.

    Args:
        error: The error.

    Returns:
        False for what is certain: a file that does not exist or may not be read, a damaged archive.
    """
    if isinstance(error, _PERMANENT):
        return False
    client = type(error).__module__.partition(".")[0] in _CLIENTS
    return client or isinstance(error, (OSError, EOFError, TimeoutError))
