"""Put codes that were computed elsewhere into an index of photos."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..codes import Codes, write_skipped
from .catalog import CatalogRow, FileStat
from .digests import file_stat
from .plan import SyncPlan
from .scan import Scan
from .sync import PART, SKIPPED, PhotoIndex


class Receiver:
    """Receives the codes of the photos of a scan.

    Args:
        index: The index.
        scan: The photos; their sizes and times are read now, before they are encoded.
    """

    def __init__(self, index: PhotoIndex, scan: Scan) -> None:
        self.index, self.scan = index, scan
        self._photos = {photo.id: photo for photo in scan.photos}
        self._stats: dict[str, FileStat] = {
            photo.id: file_stat(photo.file) for photo in scan.photos
        }

    def receive(self, parts: Iterable[Path]) -> int:
        """Store codes with labels and paths of their photos, and save the index.

        Items of the same ids are replaced, so that an interrupted call can be repeated.

        Args:
            parts: Code files.

        Returns:
            The number of codes.

        Raises:
            StorageError: A file cannot be read, or the index cannot be written.
        """
        count, waiting = 0, list[Codes]()
        for path in parts:
            waiting.append(Codes.load(path))
            if sum(map(len, waiting)) >= PART:
                count += self._store(Codes.concatenate(waiting))
                waiting = []
        if waiting:
            count += self._store(Codes.concatenate(waiting))
        self.index.record(self._plan())
        self.index.index.save(self.index.folder)
        write_skipped(self.index.folder / SKIPPED, self.index.catalog.skipped())
        return count

    def _plan(self) -> SyncPlan:
        scan = self.scan
        return SyncPlan([], home=scan.home, folders=scan.folders, options=scan.options)

    def _store(self, codes: Codes) -> int:
        photos = [self._photos[each] for each in codes.ids.tolist()]
        if photos:
            self.index.catalog.invalidate(photo.id for photo in photos)
            self.index.update(codes, photos)
            self.index.index.save(self.index.folder)
        rows = {
            photo.id: CatalogRow(photo.root, self._stats[photo.id], b"", None) for photo in photos
        }
        for each, reason in codes.skipped:
            rows[each] = CatalogRow(self._photos[each].root, self._stats[each], b"", reason)
        self.index.catalog.write(rows)
        return len(codes)
