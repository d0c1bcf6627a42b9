"""The projection to content bits beside the codes of an index, read on first use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ...errors import StorageError
from ...projections import Projection
from .manifest import FileEntry, damaged
from .segment_files import MappedFile, write_array


@dataclass(frozen=True, eq=False)
class KeptProjection:
    """The projection of an index: given by a caller, or in a file.

    Attributes:
        given: The projection; None: it is read from the file.
        folder: Folder of the file, resolved; None: it is not saved yet.
        entry: Its entry in the manifest, or None.
        opened: The mapped file, or None.
        bits: Number of content bits.
    """

    given: Projection | None
    folder: Path | None = None
    entry: FileEntry | None = None
    opened: MappedFile | None = None
    bits: int = 0

    @staticmethod
    def open(folder: Path, entry: FileEntry, bits: int) -> KeptProjection:
        """Map the file of a projection.

        Raises:
            FileNotFoundError: There is no such file.
            StorageError: The file has another size, or cannot be read.
        """
        return KeptProjection(None, folder.resolve(), entry, MappedFile(folder, entry), bits)

    @cached_property
    def projection(self) -> Projection:
        """The projection.

        Raises:
            StorageError: The file is damaged.
        """
        if self.given is not None:
            return self.given
        if self.opened is None:
            raise ValueError("neither a projection nor a file is given")
        content = bytes(self.opened.content())
        try:
            return Projection.from_bytes(content, self.bits)
        except ValueError as error:
            raise damaged(self.opened.path, str(error)) from error

    def saved_to(self, folder: Path, name: str) -> KeptProjection:
        """Write the projection into a folder, unless it is there. The caller flushes the folder.

        Args:
            folder: The folder.
            name: Name of the file, without extension.

        Returns:
            The projection with its file.

        Raises:
            StorageError: The file cannot be written.
        """
        if self.folder == folder.resolve():
            return self
        content = np.frombuffer(self.projection.to_bytes(), np.uint8)
        entry = write_array(folder / f"{name}.projection", content)
        return KeptProjection(self.projection, folder.resolve(), entry, None, self.projection.bits)

    def verify(self) -> None:
        """Verify the checksum of the file, if there is one.

        Raises:
            StorageError: The file is damaged, or missing.
        """
        if self.folder is None or self.entry is None:
            return
        try:
            (self.opened or MappedFile(self.folder, self.entry)).verify()
        except FileNotFoundError as error:
            raise StorageError(
                f"{self.folder / self.entry.name} is missing. If another process has replaced "
                "the index, open it again."
            ) from error
