"""The 64 bits of what each photo looks like, stored in the catalog, compared to find duplicates.

They are computed while photos are decoded for the index. Those of other photos, whose features came
from a cache or which an earlier version indexed, are read when duplicates are searched.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..codes import Codes
from ..errors import ImageError, StorageError
from ..index.items import id_array
from ..native import usable_cores
from .catalog import CATALOG, Catalog
from .catalog_sql import SOME_LOOKS, prepare
from .digests import DigestingImages
from .item_files import ids_of_files, items_of
from .same_photo import LOOKS_BITS, compared_bits, compares_looks

if TYPE_CHECKING:
    from ..index import Index, Item, Neighbor
    from ..index.items import Id
    from .search import SearchHit

_PART = 4096  # photos between two writes
_AT_ONCE = 500  # ids in one statement
_MOST_KNOWN = 100_000  # photos kept in memory
_WAIT_SECONDS = 1.0  # while another process writes
_PAUSE_SECONDS = 3.0  # after a failure

Progress = Callable[[int], object]


class StoredLooks:
    """What the photos of an index look like, read from its catalog while others may write it.

    After a failure, for example while another process writes, nothing is read for some seconds.

    Args:
        folder: The folder of the index.
        wait_seconds: Time to wait for another process that writes.
    """

    def __init__(self, folder: Path, *, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._path, self._lock = folder / CATALOG, threading.Lock()
        self._wait_seconds, self._pause_until = wait_seconds, 0.0
        self._connection: sqlite3.Connection | None = None
        self._known: dict[Id, bytes] = {}
        self._version = -1

    def of(self, items: Sequence[Item | Neighbor | SearchHit]) -> dict[Id, bytes]:
        """Look photos up.

        Args:
            items: Items of the index. One without a path is no file of the catalog, even if a file
                had its id before; see `item_files`.

        Returns:
            8 bytes by id, of those whose looks are stored. Nothing if the catalog cannot be read.
        """
        ids = [each.id for each in items if each.path is not None]
        if time.monotonic() < self._pause_until or not self._path.exists():
            return {}
        try:
            with self._lock:
                return self._of(ids)
        except (sqlite3.Error, UnicodeDecodeError):  # being written, damaged, or of 0.1
            self._pause_until = time.monotonic() + _PAUSE_SECONDS
            return {}

    def _of(self, ids: Sequence[Id]) -> dict[Id, bytes]:
        """Look up what is not known yet; what is known holds until the catalog changes."""
        if self._connection is None:
            self._connection = _read_only(self._path, self._wait_seconds)
            weakref.finalize(self, self._connection.close)
        connection = self._connection
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or len(self._known) > _MOST_KNOWN:
            self._version, self._known = version, {}
        known = self._known
        names = {name: each for each in ids if each not in known and (name := _file_name(each))}
        known.update((names[name], bits) for name, bits in _rows(connection, list(names)))
        return {each: known[each] for each in ids if each in known}


def _rows(connection: sqlite3.Connection, names: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for start in range(0, len(names), _AT_ONCE):
        part = names[start : start + _AT_ONCE]
        marks = ",".join("?" * len(part))
        yield from connection.execute(f"{SOME_LOOKS} AND id IN ({marks})", part).fetchall()


def _file_name(given: Id) -> bytes | None:
    """The bytes of a file name; None if no file can have this id."""
    try:
        return os.fsencode(given) if isinstance(given, str) else None
    except UnicodeEncodeError:
        return None


def image_looks(image: Path) -> bytes | None:
    """Read what an image looks like.

    Args:
        image: The file.

    Returns:
        8 bytes; None if it cannot be read.
    """
    from ..data.appearance import appearance_bits
    from ..data.images import open_reduced

    try:
        return appearance_bits(open_reduced(image, 1))
    except ImageError:
        return None


def unread_photos(index: Index, catalog: Catalog) -> list[Path]:
    """List the local photos whose looks are not known.

    Args:
        index: The index.
        catalog: Its catalog.

    Returns:
        One file of each content.
    """
    unread = catalog.without_looks()
    files = ids_of_files(index, (each for each, _ in unread))
    contents = {digest: each for each, digest in unread if each in files}
    items = items_of(index, id_array(list(contents.values())))
    return [Path(each.path) for each in items if each.path is not None and "://" not in each.path]


def read_photos(catalog: Catalog, paths: list[Path], progress: Progress | None = None) -> int:
    """Read photos and store what they look like.

    Args:
        catalog: The catalog.
        paths: The files.
        progress: Called with the number of files read since the last call.

    Returns:
        Number of files that could not be read.
    """
    failed = 0
    with ThreadPoolExecutor(min(16, usable_cores())) as pool:
        for start in range(0, len(paths), _PART):
            images = DigestingImages(paths[start : start + _PART])
            for done in pool.map(lambda row: _read(images, row), range(len(images))):  # noqa: B023
                failed += not done
                if progress is not None:
                    progress(1)
            try:
                catalog.write_looks(images.looks)
            except StorageError:  # a read-only folder
                return failed + len(images)
    return failed


def codes_with_looks(index: Index, catalog: Catalog) -> Codes | None:
    """Put the looks before the content bits of photos, or before their codes if they have none.

    Args:
        index: The index.
        catalog: Its catalog.

    Returns:
        The codes of the photos whose looks are known; None if there are none, or if looks are not
        compared.
    """
    looks = catalog.looks() if compares_looks(index) else {}
    codes, files = index.codes(), ids_of_files(index, looks)
    known = (each in files for each in codes.ids)
    rows = np.flatnonzero(np.fromiter(known, bool, len(codes)))
    while files:  # all at once would stop the other threads of a service; see _taken
        files.pop()
    if not len(rows):
        return None
    part = codes[rows]
    packed = part.packed if part.content is None else part.content
    taken = np.frombuffer(_taken(looks, part.ids.tolist()), np.uint8)
    seen = taken.reshape(len(rows), LOOKS_BITS // 8)
    content = np.concatenate([seen, packed], axis=1)  # the last byte of a code may be padded
    bits = LOOKS_BITS + compared_bits(index)
    return Codes(part.packed, part.bits, part.ids, content=content, content_bits=bits)


def _taken(looks: dict[str, bytes], ids: Sequence[str]) -> bytes:
    """Move looks out of a dictionary, which gets empty.

    To join or to free a million values at once would stop the other threads of a service.
    """
    parts = (ids[start : start + _PART] for start in range(0, len(ids), _PART))
    joined = b"".join(b"".join([looks.pop(each) for each in part]) for part in parts)
    looks.clear()
    return joined


def _read_only(path: Path, seconds: float) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=seconds, check_same_thread=False)
    try:
        prepare(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _read(images: DigestingImages, row: int) -> bool:
    """Read a photo; the images keep what it looks like."""
    try:
        images.read_reduced(row, 1)
    except ImageError:
        return False
    return True
