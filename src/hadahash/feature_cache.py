"""Features of images on disk, so that a photo goes through a network once.

Training, evaluation, indexing and encoding share them. An entry is identified by the weights of
the network, the preprocessing and the content of the image file. The cache is one SQLite file,
features.sqlite, in ~/.cache/hadahash/features (or below XDG_CACHE_HOME). Several processes may use
it at once. It never raises: what cannot be read or written is computed again.

    HADAHASH_FEATURE_CACHE=2GB      largest size; the default is 1GB, the oldest entries give way
    HADAHASH_FEATURE_CACHE=off      no cache
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .bounded_folder import user_cache_of

VARIABLE = "HADAHASH_FEATURE_CACHE"
DEFAULT_BYTES = 10**9

_SCHEMA = """
CREATE TABLE IF NOT EXISTS features (id BLOB PRIMARY KEY, used INTEGER, vector BLOB);
CREATE INDEX IF NOT EXISTS features_used ON features (used);
"""
_TIMEOUT = 10.0  # seconds to wait for another process
_AT_ONCE = 500  # ids in one statement
_HOUR = 3600
_KEPT = 0.8  # of the limit, after entries were removed

Vector = NDArray[np.float32]
T = TypeVar("T")


class FeatureStore:
    """A cache of feature vectors in a folder.

    Args:
        folder: The folder; it is created when the first entry is written.
        limit: Largest size in bytes.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_BYTES) -> None:
        self.path, self.limit = folder / "features.sqlite", limit

    def get(self, group: bytes, digests: Sequence[bytes]) -> dict[bytes, Vector]:
        """Read vectors.

        Args:
            group: Identifies the network and the preprocessing.
            digests: Digests of the images.

        Returns:
            The vectors that are stored and intact, by digest.
        """
        names = {_name(group, digest): digest for digest in digests}
        if not self.path.exists():
            return {}
        return self._use(lambda connection: self._read(connection, names), {})

    def put(self, group: bytes, vectors: Mapping[bytes, Vector]) -> None:
        """Write vectors; the least recently used ones are removed when the limit is exceeded.

        Args:
            group: Identifies the network and the preprocessing.
            vectors: The vectors by digest.
        """
        if not vectors:
            return
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        now = int(time.time())
        rows = [(_name(group, digest), now, _packed(each)) for digest, each in vectors.items()]
        self._use(lambda connection: self._write(connection, rows), None)

    def size(self) -> int:
        """Return the size of the stored entries in bytes, free pages excluded."""
        return self._use(_used_bytes, 0) if self.path.exists() else 0

    def _read(
        self, connection: sqlite3.Connection, names: Mapping[bytes, bytes]
    ) -> dict[bytes, Vector]:
        found = {}
        for part in _parts(list(names)):
            marks = ",".join("?" * len(part))
            query = f"SELECT id, vector FROM features WHERE id IN ({marks})"  # noqa: S608
            for name, content in connection.execute(query, part):
                vector = _unpacked(content)
                if vector is not None:
                    found[name] = vector
        self._touch(connection, list(found))
        return {names[name]: vector for name, vector in found.items()}

    def _write(self, connection: sqlite3.Connection, rows: list[tuple[bytes, int, bytes]]) -> None:
        connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", rows)
        connection.commit()
        self._prune(connection)

    def _touch(self, connection: sqlite3.Connection, names: list[bytes]) -> None:
        """Note that entries were used; at most once an hour, so that reading rarely writes."""
        now = int(time.time())
        with suppress(sqlite3.OperationalError):  # another process is writing, or read-only
            connection.executemany(
                "UPDATE features SET used = ? WHERE id = ? AND used < ?",
                ((now, name, now - _HOUR) for name in names),
            )
            connection.commit()

    def _prune(self, connection: sqlite3.Connection) -> None:
        used = _used_bytes(connection)
        if used <= self.limit:
            return
        (count,) = connection.execute("SELECT count(*) FROM features").fetchone()
        excess = int(count * (1 - _KEPT * self.limit / used)) + 1
        connection.execute(
            "DELETE FROM features WHERE id IN (SELECT id FROM features ORDER BY used LIMIT ?)",
            (excess,),
        )
        connection.commit()
        connection.execute("PRAGMA incremental_vacuum").fetchall()

    def _use(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """The result of some work; `otherwise` on an error. A damaged file is removed."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_TIMEOUT)) as connection:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.executescript(_SCHEMA)
                return work(connection)
        except (sqlite3.OperationalError, OSError):
            return otherwise  # locked, read-only or full: go on without the cache
        except sqlite3.DatabaseError:  # damaged
            for suffix in ("", "-wal", "-shm"):
                with suppress(OSError):
                    Path(f"{self.path}{suffix}").unlink()
            return otherwise


def default_store() -> FeatureStore | None:
    """Return the cache that the environment asks for; see `user_cache_of`."""
    return user_cache_of("features", VARIABLE, DEFAULT_BYTES, FeatureStore)


def group_key(*facts: object) -> bytes:
    """Return the key of entries that share a network and its preprocessing.

    Args:
        *facts: What determines the features; their `repr` must determine them too.

    Returns:
        32 bytes.
    """
    return hashlib.sha256(repr(facts).encode()).digest()


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _name(group: bytes, digest: bytes) -> bytes:
    return hashlib.sha256(group + digest).digest()[:20]


def _packed(vector: Vector) -> bytes:
    content = np.ascontiguousarray(vector, "<f4").tobytes()
    return zlib.crc32(content).to_bytes(4, "little") + content


def _unpacked(content: object) -> Vector | None:
    """The vector of an entry, or None if it is damaged."""
    if not isinstance(content, bytes) or len(content) % 4 or len(content) < 8:
        return None
    if zlib.crc32(content[4:]).to_bytes(4, "little") != content[:4]:
        return None
    return np.frombuffer(content, "<f4", offset=4).astype(np.float32)


def _parts(names: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(names), _AT_ONCE):
        yield names[start : start + _AT_ONCE]
