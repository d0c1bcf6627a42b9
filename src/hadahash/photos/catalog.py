"""The catalog: state of each indexed file, in SQLite.

The catalog is stored in photos.sqlite in the index folder. For each file it has the size,
modification time and content digest at the time of encoding, or the reason why the file could not
be read. Rows are marked as not valid before their items change, and written after the index: after
a crash the catalog may miss indexed files, or list files whose items were just removed. If they are
on disk, the next build encodes both again. It never lists other content. Without a catalog, all
files are encoded again.

Comparisons run in SQL and touch only the rows they need: adding one photo to an index of millions
reads one row.

Each row has a checksum; see `catalog_sql`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from ..codes import Skipped
from ..errors import StorageError
from ..files import make_folder
from . import catalog_sql as sql
from .scan import Photo

CATALOG = "photos.sqlite"


class FileStat(NamedTuple):
    """Size and modification time, to detect changed files without reading them."""

    size: int
    mtime_ns: int


class CatalogRow(NamedTuple):
    """The catalog entry of a file.

    Attributes:
        root: The folder it was found in.
        stat: Size and modification time when it was read.
        digest: sha256 of its content; empty if it could not be read.
        reason: Why it has no code; None if it has one.
    """

    root: Path
    stat: FileStat
    digest: bytes
    reason: str | None


class KnownFile(NamedTuple):
    """A file on disk that is in the catalog."""

    id: str
    same_stat: bool
    digest: bytes
    encoded: bool


class DeletedFile(NamedTuple):
    """A file of the catalog that is not on disk."""

    id: str
    size: int
    digest: bytes
    encoded: bool


class Comparison(NamedTuple):
    """Files on disk compared with the catalog.

    Attributes:
        new: Ids of files that are not in the catalog.
        known: Files that are in the catalog.
        deleted: Files of the catalog that are not on disk.
    """

    new: list[str]
    known: list[KnownFile]
    deleted: list[DeletedFile]


class Catalog:
    """The catalog in the folder of an index. Every method is one transaction.

    Args:
        folder: The folder of the index.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / CATALOG

    def compare(
        self, photos: Iterable[tuple[Photo, FileStat]], *, deleted_from: Path | None = None
    ) -> Comparison:
        """Compare files on disk with the catalog.

        Args:
            photos: The files that were found, with size and time.
            deleted_from: Files of the catalog with this root that are not on disk count as deleted;
                None: no file does.

        Returns:
            The comparison.

        Raises:
            StorageError: The catalog is damaged or cannot be written.
        """
        with self._open() as connection:
            connection.execute(sql.FOUND)
            connection.executemany(
                "INSERT OR REPLACE INTO found VALUES (?, ?, ?, ?)",
                ((os.fsencode(p.id), os.fsencode(p.root), *stat) for p, stat in photos),
            )
            new = [_name(each) for (each,) in connection.execute(sql.NEW)]
            known = [
                KnownFile(_name(each), bool(same), digest, bool(encoded))
                for each, same, digest, encoded in connection.execute(sql.KNOWN)
            ]
            deleted = []
            if deleted_from is not None:
                root = os.fsencode(deleted_from)
                deleted = [
                    DeletedFile(_name(each), size, digest, bool(encoded))
                    for each, size, digest, encoded in connection.execute(sql.DELETED, (root, root))
                ]
            return Comparison(new, known, deleted)

    def write(self, rows: dict[str, CatalogRow]) -> None:
        """Add rows, or replace those with the same ids.

        Args:
            rows: The rows by id.
        """
        with self._open() as connection:
            connection.executemany(
                sql.WRITE,
                (
                    (os.fsencode(each), os.fsencode(row.root), *row.stat, row.digest, row.reason)
                    for each, row in rows.items()
                ),
            )

    def invalidate(self, ids: Iterable[str]) -> None:
        """Note that items are about to get other content, before the index is changed.

        Until `write` is called, the files count as changed, and nothing is known about them.

        Args:
            ids: The items; those that are not in the catalog are ignored.
        """
        with self._open() as connection:
            connection.executemany(sql.INVALIDATE, ((os.fsencode(each),) for each in ids))

    def adopt(self, other: Catalog) -> None:
        """Take over the state of files whose content another catalog knows to have changed.

        Args:
            other: The catalog of the revision that has become the current one.
        """
        if not (self.path.exists() and other.path.exists()):
            return
        with other._open() as newer:
            sql.check_all(newer, "photos")
        with self._open() as connection:
            connection.execute("ATTACH DATABASE ? AS other", (os.fsencode(other.path),))
            connection.executemany(sql.ADOPT, connection.execute(sql.CHANGED).fetchall())

    def update_stats(self, stats: dict[str, FileStat]) -> None:
        """Set size and time of files whose content is unchanged.

        Args:
            stats: The new values by id.
        """
        with self._open() as connection:
            connection.executemany(
                sql.SET_STAT, ((*stat, os.fsencode(each)) for each, stat in stats.items())
            )

    def remove(self, ids: Iterable[object]) -> None:
        """Remove files from the catalog; unknown ids are ignored.

        Args:
            ids: The ids.
        """
        with self._open() as connection:
            connection.executemany(
                "DELETE FROM photos WHERE id = ?", ((os.fsencode(str(each)),) for each in ids)
            )

    def skipped(self) -> list[Skipped]:
        """Return the files that have no code, with the reasons, in the order of ids."""
        with self._open() as connection:
            rows = connection.execute(
                "SELECT id, reason FROM intact_photos WHERE reason IS NOT NULL ORDER BY id"
            )
            return [Skipped(_name(each), reason) for each, reason in rows]

    def equal_files(self) -> list[list[str]]:
        """Return groups of files with the same content; none if there is no catalog."""
        if not self.path.exists():
            return []
        groups: dict[bytes, list[str]] = {}
        with self._open() as connection:
            sql.check_all(connection, "photos")
            for digest, each in connection.execute(sql.EQUAL):
                groups.setdefault(digest, []).append(_name(each))
        return list(groups.values())

    def digests(self, ids: Iterable[object]) -> set[bytes | None]:
        """Return the distinct digests of files; None for those that are not known.

        Args:
            ids: The files.

        Returns:
            The digests.
        """
        if not self.path.exists():
            return {None}
        found: set[bytes | None] = set()
        with self._open() as connection:
            for each in ids:
                query = "SELECT digest FROM intact_photos WHERE id = ?"
                row = connection.execute(query, (os.fsencode(str(each)),)).fetchone()
                found.add(row[0] if row and row[0] else None)
        return found

    def copy(self, folder: Path, *, root: Path | None = None) -> Catalog:
        """Copy the catalog to the folder of another index, where it replaces one.

        Args:
            folder: The folder; it is created if there is none.
            root: Set the root of all files to this.

        Returns:
            The copy.

        Raises:
            StorageError: It cannot be written.
        """
        make_folder(folder)
        other = Catalog(folder)
        other.path.unlink(missing_ok=True)
        with self._open() as source, other._open() as target:
            source.backup(target)
            if root is not None:
                target.execute(sql.SET_ROOT, (os.fsencode(root),))
        return other

    def write_looks(self, looks: dict[bytes, bytes]) -> None:
        """Store what photos look like.

        Args:
            looks: 8 bytes by the digest of a file.
        """
        if not looks:
            return
        with self._open() as connection:
            connection.execute(sql.CREATE_LOOKS)
            connection.executemany(sql.WRITE_LOOKS, looks.items())

    def looks(self) -> dict[str, bytes]:
        """Return what the photos look like, 8 bytes by id, as far as it is stored."""
        if not self.path.exists():
            return {}
        with self._open() as connection:
            connection.execute(sql.CREATE_LOOKS)
            sql.check_all(connection, "photos", "looks")
            rows = connection.execute(sql.ALL_LOOKS)
            return {_name(each): bits for each, bits in rows}

    def without_looks(self) -> list[tuple[str, bytes]]:
        """Return id and digest of each photo for which `looks` has nothing."""
        if not self.path.exists():
            return []
        with self._open() as connection:
            connection.execute(sql.CREATE_LOOKS)
            rows = connection.execute(sql.WITHOUT_LOOKS)
            return [(_name(each), digest) for each, digest in rows]

    def count_skipped(self) -> int:
        """Return the number of files that have no code; 0 if there is no catalog."""
        if not self.path.exists():
            return 0
        with self._open() as connection:
            query = "SELECT count(*) FROM intact_photos WHERE reason IS NOT NULL"
            return int(connection.execute(query).fetchone()[0])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path)) as connection:
                sql.prepare(connection)
                connection.executescript(sql.SCHEMA)
                sql.add_checksums(connection)
                with connection:  # commits, or rolls back if the block fails
                    yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            if "user-defined function" in reason:
                reason = "the checksum of a row does not match"
            raise StorageError(
                f"Cannot use {self.path}: {reason}. If the disk is full, free some space; if the "
                "file is damaged, delete it, and the next build reads all files again."
            ) from error


def _name(stored: object) -> str:
    """The id of a file. A value of another type is damage, which `Catalog` reports."""
    if not isinstance(stored, bytes):
        raise sqlite3.DataError("an id is not a file name")
    return os.fsdecode(stored)
