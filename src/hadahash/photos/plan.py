"""Plan and summary of a sync."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DataError
from .catalog import FileStat
from .scan import Photo, ScanOptions

_MANY_DELETED = 0.5  # fraction of the known files


@dataclass(frozen=True, eq=False)
class SyncPlan:
    """Planned changes of a sync.

    Attributes:
        encode: New and changed files.
        renamed: Old id of each file that was only renamed or moved, and the file it is now.
        relabelled: Files whose labels in the table have changed.
        mtime_only: Files with a new modification time and unchanged content.
        deleted: Ids of files that no longer exist.
        unchanged: Number of files that are up to date in the index.
        known: Number of files on disk that are in the catalog.
        home: The folder or table that was compared; None for single files.
        folders: The folders that contain the files.
        options: How the files were found.
    """

    encode: list[Photo]
    renamed: dict[str, Photo] = field(default_factory=dict)
    relabelled: list[Photo] = field(default_factory=list)
    mtime_only: dict[str, FileStat] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    unchanged: int = 0
    known: int = 0
    home: Path | None = None
    folders: list[Path] = field(default_factory=list)
    options: ScanOptions = field(default_factory=ScanOptions)

    def __str__(self) -> str:
        relabelled = f"{len(self.relabelled):,} relabelled, " if self.relabelled else ""
        return (
            f"{len(self.encode):,} to encode, {len(self.renamed):,} renamed, {relabelled}"
            f"{self.unchanged:,} unchanged, {len(self.deleted):,} to remove"
        )

    def check_deletions(self, *, allow_empty: bool = False, allow_deletions: bool = False) -> None:
        """Refuse a plan that would delete most files, as when a disk is not mounted.

        Args:
            allow_empty: Accept a folder without images.
            allow_deletions: Accept that more than half of the known files are missing.

        Raises:
            DataError: No image was found, or more than half of the known files are missing.
        """
        kept = self.known + len(self.renamed)
        if not (self.encode or kept or allow_empty):
            known = f" of which the index knows {len(self.deleted):,}" if self.deleted else ""
            raise DataError(
                f"{self.home} contains no images{known}. Is the disk mounted? "
                "To continue anyway, pass --allow-empty."
            )
        gone = len(self.deleted)
        if gone > _MANY_DELETED * (gone + kept) and (kept or self.encode) and not allow_deletions:
            raise DataError(
                f"{gone:,} of {gone + kept:,} indexed files are missing from {self.home}. Is a "
                "disk not mounted? To remove them from the index, pass --yes; --dry-run shows "
                "what would change."
            )


@dataclass(frozen=True)
class SyncSummary:
    """Result of a sync, in numbers of files.

    Attributes:
        encoded: Files that were encoded.
        renamed: Files that kept their codes under a new name.
        unchanged: Files that were not changed.
        removed: Items that were removed.
        skipped: Files that could not be read, now or when they were last read.
        total: Items in the index.
        relabelled: Files whose labels were changed.
    """

    encoded: int
    renamed: int
    unchanged: int
    removed: int
    skipped: int
    total: int
    relabelled: int = 0

    def __str__(self) -> str:
        parts = [f"{self.encoded:,} encoded", f"{self.unchanged:,} unchanged"]
        parts += [f"{self.renamed:,} renamed"] if self.renamed else []
        parts += [f"{self.relabelled:,} relabelled"] if self.relabelled else []
        parts += [f"{self.removed:,} removed"]
        parts += [f"{self.skipped:,} could not be read"] if self.skipped else []
        return f"{self.total:,} images: {', '.join(parts)}"
