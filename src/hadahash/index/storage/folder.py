"""An index in a folder.

    index.json           the manifest (manifest.py); upgrade.json and previous.json: manifests of
                         other revisions in the same folder (revisions.py)
    000003-0.codes       packed codes, mapped and scanned in place: 4 bytes or a multiple of 8
    000003-0.content     content bits in the order of ids, if the items have them
    000003-0.projection  the projection to content bits: mean, matrix and scale, float32
    000003-0.items       SQLite: id, path and label set of each item
    000003-0.labels      int32: the number of each item's label set; large segments only
    000003-0.deleted     one bit per item: deleted since
    000003-0.ordinals    routed tables: position in the order of ids of each code; .blocks and
                         .centroids: how the table is partitioned

Files are never modified. `commit` writes and flushes the new files, flushes their names, then
replaces the manifest atomically, then removes the files that no manifest names: a crash or a full
disk at any moment leaves the old index or the new one. Processes that have the old index open can
continue to use it, since POSIX keeps removed files until they are closed. Writers exclude each
other with `flock`. POSIX systems only.

`open` reads only the manifest (which has a checksum too) and compares sizes. The content of a file
is compared with its checksum before first use. Opening a large index is as fast as opening a small
one, and no result is computed from damaged bytes.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import HadaHashError, NewerFileError, StorageError
from ...ranking import Ranking
from ..segments import Segment
from .items_sqlite import StoredItems, write_items
from .manifest import (
    DATA_FILE,
    MANIFEST,
    MANIFESTS,
    MAX_LABEL_SETS,
    FileEntry,
    Manifest,
    SegmentEntry,
    damaged,
    read_manifest,
)
from .projection_file import KeptProjection
from .segment_files import (
    MappedFile,
    SavedSegment,
    StoredCodes,
    open_files,
    write_array,
    write_codes,
)

__all__ = ["MANIFEST", "IndexFolder", "IndexState", "LoadedIndex", "SavedRevision"]

_LOCK = ".lock"
_FEW_ITEMS = 16  # a segment of a few items has fewer files: each takes a flush
_TEMP_FILE = re.compile(rf"\.((index|upgrade|previous)\.json|{DATA_FILE.pattern})\..*\.part")
_OPEN_SECONDS = 30.0  # attempts to open an index that another process keeps replacing


@dataclass(frozen=True)
class SavedRevision:
    """The folder and the generation that an index was opened from or last saved to.

    Attributes:
        folder: The folder.
        generation: The generation.
        name: The manifest in the folder.
    """

    folder: Path
    generation: int
    name: str = MANIFEST


@dataclass(frozen=True)
class IndexState:
    """Everything that is saved.

    Attributes:
        engine: Name of the engine.
        bits: Length of the codes.
        codewords: Packed codewords, or None.
        meta: JSON values of the application.
        segments: The segments, oldest first.
        content_bits: Number of content bits of each item; 0 without.
        ranking: How probabilities of classes and content are computed, or None.
        projection: The projection to content bits, or None.
    """

    engine: str
    bits: int
    codewords: NDArray[np.uint8] | None
    meta: dict[str, Any]
    segments: tuple[Segment, ...]
    content_bits: int = 0
    ranking: Ranking | None = None
    projection: KeptProjection | None = None


@dataclass(frozen=True)
class LoadedIndex:
    """An index in a folder, as `open` and `commit` of `IndexFolder` return it.

    Attributes:
        manifest: The manifest.
        segments: The segments with the locations of their files.
        revision: Folder and generation.
        projection: The projection to content bits, or None.
    """

    manifest: Manifest
    segments: tuple[Segment, ...]
    revision: SavedRevision
    projection: KeptProjection | None = None


class IndexFolder:
    """The folder of an index.

    Attributes:
        path: The folder.
        name: The manifest to open and to write, one of `MANIFESTS`. All revisions share one lock.
    """

    def __init__(self, path: str | Path, name: str = MANIFEST) -> None:
        """Store the path; nothing is read yet."""
        self.path, self.name = Path(path), name

    # ---- reading ---------------------------------------------------------------------------------

    def open(self, known: Sequence[Segment] = ()) -> LoadedIndex:
        """Open the index: the old or the new version, if another process saves it at the same time.

        Args:
            known: Segments that are open already. Those that the folder still has are used again,
                so that only what changed is read.

        Returns:
            Manifest and segments.

        Raises:
            StorageError: There is no index, or it is damaged or cannot be read.
        """
        deadline = time.monotonic() + _OPEN_SECONDS
        while True:
            manifest = read_manifest(self.path, self.name)
            try:
                segments = tuple(
                    self._open_segment(entry, manifest, known) for entry in manifest.segments
                )
                projection = self._open_projection(manifest)
            except (FileNotFoundError, StorageError) as error:
                newest = read_manifest(self.path, self.name)
                replaced = newest.generation != manifest.generation
                if replaced and time.monotonic() < deadline:
                    continue
                if isinstance(error, StorageError):
                    raise
                raise StorageError(
                    f"{error.filename} is missing. Restore it or build the index again."
                ) from error
            return LoadedIndex(manifest, segments, self._revision(manifest), projection)

    def _revision(self, manifest: Manifest) -> SavedRevision:
        return SavedRevision(self.path.resolve(), manifest.generation, self.name)

    def _open_projection(self, manifest: Manifest) -> KeptProjection | None:
        entry = manifest.projection
        if entry is None:
            return None
        return KeptProjection.open(self.path, entry, manifest.content_bits)

    def _open_segment(
        self, entry: SegmentEntry, manifest: Manifest, known: Sequence[Segment]
    ) -> Segment:
        for segment in known:
            saved = segment.saved
            if saved is not None and _same_items(saved, entry, self.path.resolve()):
                _check_sizes(self.path, entry)
                return self._with_deleted(segment, saved, entry)
        opened = open_files(self.path, entry)
        deleted = opened["deleted"].mask(entry.count) if "deleted" in opened else None
        return Segment(
            StoredCodes(entry, manifest.bits, opened, manifest.content_bits),
            StoredItems(opened, entry, manifest.id_type or int),
            deleted,
            SavedSegment(self.path.resolve(), entry, deleted, opened),
        )

    def _with_deleted(self, known: Segment, saved: SavedSegment, entry: SegmentEntry) -> Segment:
        """An open segment with the deleted items that its new entry names."""
        file, deleted = entry.files.get("deleted"), saved.deleted
        opened = {kind: each for kind, each in saved.opened.items() if kind != "deleted"}
        if file != saved.entry.files.get("deleted"):
            deleted = None
            if file is not None:
                opened["deleted"] = MappedFile(self.path, file)
                deleted = opened["deleted"].mask(entry.count)
        renewed = replace(saved, entry=entry, deleted=deleted, opened=opened)
        return Segment(known.codes, known.items, deleted, renewed, known.latest_counts)

    # ---- writing ---------------------------------------------------------------------------------

    def commit(self, state: IndexState, revision: SavedRevision | None) -> LoadedIndex:
        """Save this state to the folder, atomically.

        Args:
            state: What to save.
            revision: Where the index came from, or None.

        Returns:
            What was saved, with the locations of the files, and the new revision.

        Raises:
            StorageError: The folder cannot be written, contains other files, or was changed by
                another process since this revision.
        """
        self._refuse_other_files()  # before the lock leaves a file there
        with self.lock():
            generation = self._checked_generation(revision)
            segments = tuple(
                self._save_segment(segment, f"{generation:06d}-{number}")
                for number, segment in enumerate(state.segments)
            )
            projection = state.projection
            if projection is not None:
                projection = projection.saved_to(self.path, f"{generation:06d}-0")
            entries = tuple(segment.saved.entry for segment in segments if segment.saved)
            manifest = Manifest(
                state.engine,
                state.bits,
                state.segments[0].items.id_type if state.segments else None,
                generation,
                state.codewords,
                state.meta,
                entries,
                state.content_bits,
                state.ranking,
                None if projection is None else projection.entry,
            )
            if any(name.startswith(f"{generation:06d}-") for name in _names(manifest)):
                files.flush(self.path)  # the names of the new files, before a manifest has them
            manifest.write(self.path, self.name)
            self.vacuum(manifest)
        return LoadedIndex(manifest, segments, self._revision(manifest), projection)

    def _checked_generation(self, revision: SavedRevision | None) -> int:
        """The next generation number. An index opened from this folder must be the newest one."""
        current = 0
        try:
            if (self.path / self.name).exists():
                current = read_manifest(self.path, self.name).generation
        except NewerFileError:
            raise
        except HadaHashError:
            current = -1  # damaged: another index may replace it
        here = (self.path.resolve(), self.name)
        same = revision is not None and (revision.folder, revision.name) == here
        if revision is not None and same and revision.generation != current:
            raise StorageError(
                f"{self.path} was changed by another process since it was opened. "
                "Open it again and repeat the change."
            )
        self._refuse_other_files()
        return self.next_generation(current)

    def next_generation(self, current: int) -> int:
        """A generation after `current` and after those of all files. Hold the lock."""
        names = [path.name for path in self.path.iterdir()]
        used = [int(match[1]) for match in map(DATA_FILE.fullmatch, names) if match]
        return 1 + max([current, *used, 0])

    def _refuse_other_files(self) -> None:
        """Refuse a folder that contains files but no index."""
        try:
            if not self.path.is_dir() or (self.path / MANIFEST).exists():
                return
            names = sorted(path.name for path in self.path.iterdir())
        except OSError as error:
            raise files.storage_error("write", self.path, error) from error
        foreign = [name for name in names if not _belongs_to_an_index(name)]
        if foreign:
            raise StorageError(
                f"{self.path} contains other files ({foreign[0]}) and no index. "
                "Choose an empty or a new folder."
            )

    def _save_segment(self, segment: Segment, name: str) -> Segment:
        """Write the files of a segment that are not in the folder yet."""
        saved, place = segment.saved, self.path.resolve()
        if saved is None or saved.folder != place:
            saved = SavedSegment(place, self._write_segment(segment, name), None)
        entry = saved.entry
        if segment.deleted is not None and segment.deleted is not saved.deleted:
            packed = np.packbits(segment.deleted, bitorder="little")
            written = write_array(self.path / f"{name}.deleted", packed)
            entry = replace(entry, files={**entry.files, "deleted": written})
        few = len(segment.items.label_sets()) <= MAX_LABEL_SETS
        entry = replace(entry, label_counts=segment.label_counts.pairs if few else None)
        if saved is segment.saved and entry == saved.entry and segment.deleted is saved.deleted:
            return segment  # with what it has in memory
        return segment.saved_as(replace(saved, entry=entry, deleted=segment.deleted))

    def _write_segment(self, segment: Segment, name: str) -> SegmentEntry:
        table = segment.codes.load()
        written: dict[str, FileEntry] = write_codes(self.path, name, table, segment.codes.content())
        if len(segment.codes) > _FEW_ITEMS:  # of a few, they are read from the items
            numbers = segment.items.set_numbers()
            written["labels"] = write_array(self.path / f"{name}.labels", numbers)
        with files.replacing(self.path / f"{name}.items", flush_folder=False) as temporary:
            write_items(temporary, segment.items.table())
            written["items"] = FileEntry.describe(f"{name}.items", temporary.read_bytes())
        by_subdistances = table.partition is not None and table.partition.subdistances is not None
        return SegmentEntry(len(segment.codes), written, by_subdistances)

    def vacuum(self, manifest: Manifest) -> None:
        """Remove files that no manifest names, and temporary files. Hold the lock.

        Args:
            manifest: The manifest that was just written.
        """
        others = [name for name in MANIFESTS if name != self.name and (self.path / name).exists()]
        try:
            manifests = [manifest, *(read_manifest(self.path, name) for name in others)]
        except HadaHashError:
            return  # a damaged manifest may name any file
        named = {name for manifest in manifests for name in _names(manifest)}
        for path in self.path.iterdir():
            stale = DATA_FILE.fullmatch(path.name) or _TEMP_FILE.fullmatch(path.name)
            if stale and path.name not in named:
                with suppress(OSError):  # the next save tries again
                    path.unlink()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude other writers. The operating system releases the lock when the process ends."""
        try:
            files.make_folder(self.path)
            handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise files.storage_error("write", self.path, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise files.storage_error("write", self.path, error) from error
        finally:
            os.close(handle)


def _same_items(saved: SavedSegment, entry: SegmentEntry, folder: Path) -> bool:
    """Whether an open segment has the files of an entry, apart from the deleted items."""
    mine, others = (
        {kind: file for kind, file in each.files.items() if kind != "deleted"}
        for each in (saved.entry, entry)
    )
    return saved.folder == folder and mine == others and saved.entry.count == entry.count


def _names(manifest: Manifest) -> list[str]:
    """The names of all files of an index, without its manifest."""
    listed = [file for entry in manifest.segments for file in entry.files.values()]
    return [file.name for file in (*listed, manifest.projection) if file is not None]


def _check_sizes(folder: Path, entry: SegmentEntry) -> None:
    """Check that the files of a segment that is open are still there.

    Raises:
        FileNotFoundError: A file is missing.
        StorageError: A file has another size.
    """
    for file in entry.files.values():
        path = folder / file.name
        if (size := path.stat().st_size) != file.size:
            raise damaged(path, f"it has {size} bytes, not {file.size}")


def _belongs_to_an_index(name: str) -> bool:
    temporary = name.startswith(".") and name.endswith(".part")
    return name in (*MANIFESTS, _LOCK) or temporary or DATA_FILE.fullmatch(name) is not None
