"""SQL of the catalog of photos, and the checksums of its rows.

Each row has a CRC-32 of its values. Queries of some rows read the views `intact_photos` and
`intact_looks`, which fail at a row whose checksum does not match. Queries of all rows follow
`check_all`.
"""

# ruff: noqa: S608 - statements are made of constants

from __future__ import annotations

import sqlite3
from typing import NoReturn
from zlib import crc32


def _crc(*values: str) -> str:
    """SQL: the checksum of a row with these values."""
    joined = " || ',' || ".join(f"quote({each})" for each in values)
    return f"crc32(CAST({joined} AS BLOB))"


def _intact(*columns: str) -> str:
    """SQL: 1 if the checksum of a row matches; otherwise the statement fails."""
    return f"CASE WHEN crc IS {_crc(*columns)} THEN 1 ELSE damaged() END"


_PHOTO = ("id", "root", "size", "mtime_ns", "digest", "reason")
_LOOK = ("digest", "bits")
_TABLES = {"photos": _PHOTO, "looks": _LOOK}
CHECKSUMS = {table: _crc(*columns) for table, columns in _TABLES.items()}  # as SQL

SCHEMA = """
CREATE TABLE IF NOT EXISTS photos (
    id BLOB PRIMARY KEY, root BLOB, size INTEGER, mtime_ns INTEGER, digest BLOB, reason TEXT,
    crc INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS photos_skipped ON photos (id, reason) WHERE reason IS NOT NULL;
"""
CREATE_LOOKS = """
CREATE TABLE IF NOT EXISTS looks (digest BLOB PRIMARY KEY, bits BLOB, crc INTEGER) WITHOUT ROWID;
"""
_VIEWS = "".join(
    f"CREATE TEMP VIEW intact_{table} AS SELECT * FROM main.{table} WHERE {_intact(*columns)};"
    for table, columns in _TABLES.items()
)
WITHOUT_LOOKS = """
SELECT id, digest FROM photos WHERE reason IS NULL AND length(digest) > 0
AND digest NOT IN (SELECT digest FROM looks WHERE typeof(bits) = 'blob' AND length(bits) = 8)
"""
ALL_LOOKS = """
SELECT id, bits FROM photos JOIN looks USING (digest)
WHERE typeof(bits) = 'blob' AND length(bits) = 8
"""
SOME_LOOKS = """
SELECT id, bits FROM intact_photos JOIN intact_looks USING (digest)
WHERE typeof(bits) = 'blob' AND length(bits) = 8
"""
FOUND = "CREATE TEMP TABLE found (id BLOB PRIMARY KEY, root BLOB, size INTEGER, mtime_ns INTEGER)"
NEW = """
SELECT found.id FROM found LEFT JOIN photos ON photos.id = found.id
WHERE photos.id IS NULL OR photos.root != found.root
"""
KNOWN = """
SELECT found.id, photos.size = found.size AND photos.mtime_ns = found.mtime_ns,
       photos.digest, photos.reason IS NULL
FROM found CROSS JOIN intact_photos AS photos
    ON photos.id = found.id AND photos.root = found.root
"""
DELETED = """
SELECT id, size, digest, reason IS NULL FROM intact_photos
WHERE root = ? AND id NOT IN (SELECT id FROM found WHERE root = ?)
"""
WRITE = f"""
INSERT OR REPLACE INTO photos
VALUES (?1, ?2, ?3, ?4, ?5, ?6, {_crc("?1", "?2", "?3", "?4", "?5", "?6")})
"""
WRITE_LOOKS = f"INSERT OR REPLACE INTO looks VALUES (?1, ?2, {_crc('?1', '?2')})"
SET_STAT = f"""
UPDATE photos
SET size = ?1, mtime_ns = ?2, crc = {_crc("id", "root", "?1", "?2", "digest", "reason")}
WHERE id = ?3 AND {_intact(*_PHOTO)}
"""
SET_ROOT = f"""
UPDATE photos
SET root = ?1, crc = {_crc("id", "?1", "size", "mtime_ns", "digest", "reason")}
WHERE {_intact(*_PHOTO)}
"""
INVALIDATE = f"""
UPDATE photos
SET mtime_ns = NULL, digest = x'', crc = {_crc("id", "root", "size", "NULL", "x''", "reason")}
WHERE id = ?
"""
CHANGED = """
SELECT newer.id, newer.size, newer.mtime_ns, newer.digest
FROM other.photos AS newer JOIN intact_photos AS own ON own.id = newer.id
WHERE own.reason IS NULL AND newer.reason IS NULL
AND length(newer.digest) > 0 AND newer.digest != own.digest
"""
ADOPT = f"""
UPDATE photos
SET size = ?2, mtime_ns = ?3, digest = ?4, crc = {_crc("id", "root", "?2", "?3", "?4", "reason")}
WHERE id = ?1
"""
EQUAL = """
SELECT digest, id FROM photos WHERE reason IS NULL AND digest IN (
    SELECT digest FROM photos WHERE reason IS NULL AND length(digest) > 0
    GROUP BY digest HAVING count(*) > 1
) ORDER BY id
"""


def prepare(connection: sqlite3.Connection) -> None:
    """Define what statements on a catalog use: the checksum, and views of rows that match theirs.

    Args:
        connection: A connection to a catalog.
    """
    connection.create_function("crc32", 1, crc32, deterministic=True)
    connection.create_function("damaged", 0, _damaged)
    connection.executescript(_VIEWS)


def _damaged() -> NoReturn:
    raise ValueError


def add_checksums(connection: sqlite3.Connection) -> None:
    """Compute the checksums of a catalog that was written without.

    Args:
        connection: A prepared connection.
    """
    if not _without_checksums(connection):
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for table in _without_checksums(connection):  # unless another process was faster
            connection.execute(f"ALTER TABLE {table} ADD COLUMN crc INTEGER")
            connection.execute(f"UPDATE {table} SET crc = {CHECKSUMS[table]}")


def _without_checksums(connection: sqlite3.Connection) -> list[str]:
    found = []
    for table in _TABLES:
        names = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
        if names and "crc" not in names:
            found.append(table)
    return found


def check_all(connection: sqlite3.Connection, *tables: str) -> None:
    """Check the structure of the file and the checksums of all rows.

    Args:
        connection: A prepared connection.
        tables: "photos", "looks" or both.

    Raises:
        sqlite3.DatabaseError: The file is damaged.
    """
    (found,) = connection.execute("PRAGMA main.quick_check(1)").fetchone()
    if found != "ok":  # rows could be missing
        raise sqlite3.DatabaseError(found)
    for table in tables:
        connection.execute(f"SELECT count(*) FROM intact_{table}").fetchone()
