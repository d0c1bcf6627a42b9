"""The files of a stored segment: mapped into memory, and checked before first use."""

from __future__ import annotations

import mmap
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import HadaHashError, StorageError
from ...native.tables import Rows, Table, partition
from ..items import Mask
from .manifest import FileEntry, SegmentEntry, damaged, row_width


class MappedFile:
    """A file of a segment, mapped into memory.

    Its size is checked immediately, its content on first use.

    Attributes:
        path: The file. It may have been removed since; the mapping stays valid.
    """

    def __init__(self, folder: Path, entry: FileEntry) -> None:
        """Map a file.

        Raises:
            FileNotFoundError: There is no such file.
            StorageError: The file has another size, or cannot be read.
        """
        self.path, self._crc32, self._checked, self._lock = (
            folder / entry.name,
            entry.crc32,
            False,
            Lock(),
        )
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                if size != entry.size:
                    raise damaged(self.path, f"it has {size} bytes, not {entry.size}")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise files.storage_error("read", self.path, error) from error

    def content(self) -> mmap.mmap:
        """The content; its checksum is verified on first use.

        Raises:
            StorageError: The checksum does not match.
        """
        with self._lock:
            if not self._checked:
                self.verify()
                self._checked = True
        return self._map

    def verify(self) -> None:
        """Verify the checksum of the content.

        Raises:
            StorageError: The checksum does not match.
        """
        if zlib.crc32(self._map) != self._crc32:
            raise damaged(self.path, "its checksum does not match")

    def array(self, dtype: Any, columns: int) -> NDArray[Any]:
        """The content as an array (n, columns)."""
        try:
            return np.frombuffer(self.content(), dtype).reshape(-1, columns)
        except ValueError as error:
            raise damaged(self.path, str(error)) from error

    def mask(self, count: int) -> Mask:
        """The content as bits, bool (count,)."""
        packed = self.array(np.uint8, 1)[:, 0]
        return np.unpackbits(packed, count=count, bitorder="little").view(bool)


def open_files(folder: Path, entry: SegmentEntry) -> dict[str, MappedFile]:
    """Map all files of a segment, by kind.

    Raises:
        FileNotFoundError: A file is missing.
        StorageError: A file has another size, or cannot be read.
    """
    return {kind: MappedFile(folder, file) for kind, file in entry.files.items()}


@dataclass(frozen=True, eq=False)
class SavedSegment:
    """Location of a segment on disk.

    Attributes:
        folder: The folder, resolved.
        entry: Its entry in the manifest.
        deleted: The mask of deleted items that is stored there.
        opened: Its mapped files by kind; empty if it was saved, not opened.
    """

    folder: Path
    entry: SegmentEntry
    deleted: Mask | None
    opened: dict[str, MappedFile] = field(default_factory=dict)

    def verify(self) -> None:
        """Verify the checksums of all files.

        Raises:
            StorageError: A file is damaged, or missing.
        """
        for kind, file in self.entry.files.items():
            mapped = self.opened.get(kind)
            if mapped is None or mapped.path.name != file.name:
                try:
                    mapped = MappedFile(self.folder, file)
                except FileNotFoundError as error:
                    raise StorageError(
                        f"{self.folder / file.name} is missing. If another process has replaced "
                        "the index, open it again."
                    ) from error
            mapped.verify()


def write_array(path: Path, array: NDArray[Any]) -> FileEntry:
    """Write an array to a file, atomically. The caller flushes the folder.

    Returns:
        The entry of the file.

    Raises:
        StorageError: The file cannot be written.
    """
    content = np.ascontiguousarray(array).view(np.uint8).data
    with (
        files.replacing(path, flush_folder=False) as temporary,
        temporary.open("wb") as file,
    ):
        file.write(content)
    return FileEntry.describe(path.name, content)


def write_codes(
    folder: Path, name: str, table: Table, content: Rows | None = None
) -> dict[str, FileEntry]:
    """Write the table of a segment, and the content bits of its items; see `write_array`.

    Returns:
        The entries of its files, by kind.

    Raises:
        StorageError: A file cannot be written.
    """
    written = {"codes": write_array(folder / f"{name}.codes", table.rows)}
    if content is not None:
        written["content"] = write_array(folder / f"{name}.content", content)
    if table.partition is not None and table.ordinals is not None:
        arrays = {
            "ordinals": table.ordinals,
            "centroids": table.partition.centroids,
            "blocks": table.partition.blocks(),
        }
        for kind, array in arrays.items():
            written[kind] = write_array(folder / f"{name}.{kind}", array)
    return written


class StoredCodes:
    """The codes of a stored segment. The table is created on first use."""

    def __init__(
        self, entry: SegmentEntry, bits: int, opened: dict[str, MappedFile], content_bits: int = 0
    ) -> None:
        """Store the mapped files of a segment."""
        self._count, self._by_subdistances = entry.count, entry.by_subdistances
        self._opened, self._lock = opened, Lock()
        self._bits, self._content_bits = bits, content_bits
        self._table: Table | None = None

    def __len__(self) -> int:
        """Number of codes."""
        return self._count

    def load(self) -> Table:
        """The table to search.

        Raises:
            StorageError: A file is damaged.
        """
        with self._lock:
            if self._table is None:
                self._table = self._load()
            return self._table

    def content(self) -> Rows | None:
        """Content bits in the order of ids; None if the items have none.

        Raises:
            StorageError: The file is damaged.
        """
        if self._content_bits == 0:
            return None
        return self._rows("content", self._content_bits)

    def _rows(self, kind: str, bits: int) -> Rows:
        width = row_width(bits)
        dtype = np.uint32 if width == 4 else np.uint64
        return self._opened[kind].array(dtype, max(1, width // 8))

    def _load(self) -> Table:
        rows = self._rows("codes", self._bits)
        if not {"ordinals", "blocks", "centroids"} <= set(self._opened):
            return Table(rows)
        ordinals = self._opened["ordinals"].array(np.uint32, 1)[:, 0]
        if not _is_permutation(ordinals, len(rows)):
            raise damaged(self._opened["ordinals"].path, "positions are missing or repeated")
        centroids = self._rows("centroids", self._bits)
        blocks = self._opened["blocks"].array(np.int64, 3)
        try:
            divided = partition(centroids, blocks, rows, by_subdistances=self._by_subdistances)
            return Table(rows, ordinals=ordinals, partition=divided)
        except HadaHashError as error:
            raise damaged(self._opened["blocks"].path, str(error)) from error


def _is_permutation(ordinals: NDArray[np.uint32], count: int) -> bool:
    """Whether each of the first `count` numbers occurs once."""
    if len(ordinals) != count or (count and int(ordinals.max()) >= count):
        return False
    seen = np.zeros(count, bool)
    seen[ordinals] = True
    return bool(seen.all())
