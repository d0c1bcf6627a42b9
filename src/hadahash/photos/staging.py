"""The next revision of an index while it is prepared: codes of the same items by another model.

Codes are saved in parts. A catalog of its own, in the folder `upgrade` of the index, has the state
of each file when it was encoded: an interrupted upgrade continues, and files that have changed in
the meantime are encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ..codes import Codes
from ..errors import UsageError
from ..index import Index, Item
from ..index.items import Id, Ids, id_array
from ..index.revisions import NEXT
from .catalog import Catalog, CatalogRow, FileStat
from .digests import NO_STAT, DigestingImages, file_stat
from .item_files import items_of
from .meta import image_folders
from .scan import Photo
from .sync import PART, Progress

if TYPE_CHECKING:
    from ..data.base import ImageSource
    from ..data.remote import Place
    from ..model import HashModel

STAGE = "upgrade"  # folder in the folder of the index
ROOT = Path()  # of all files in the catalog of an upgrade


class Encoded(NamedTuple):
    """Codes of items.

    Attributes:
        codes: Codes of the items that could be read.
        failed: Why the others could not.
        records: State and digest of each file.
    """

    codes: Codes
    failed: dict[Id, str]
    records: dict[Id, tuple[FileStat, bytes]]


class Originals(Protocol):
    """What the items of an index are encoded from."""

    def stats(self, items: Sequence[Item]) -> list[FileStat]:
        """Return the state of each item's original; `NO_STAT` if there is none."""
        ...

    def digest(self, item: Item) -> bytes:
        """Return the sha256 of the original of an item whose state was asked for last."""
        ...

    def absence(self, item: Item) -> str:
        """Return why an item whose state is `NO_STAT` cannot be encoded."""
        ...

    def encode(self, items: Sequence[Item], model: HashModel, progress: Progress) -> Encoded:
        """Encode some of the items whose state was asked for last."""
        ...


class PhotoFiles:
    """The images of items: files, or addresses such as s3://bucket/cat.jpg.

    Args:
        roots: Folders of the photos, for relative paths and photos that were moved.
    """

    def __init__(self, roots: Sequence[Path] = ()) -> None:
        self._roots = roots
        self._sources: dict[Id, Path | Place] = {}

    def stats(self, items: Sequence[Item]) -> list[FileStat]:
        """Return size and time of each item's file; `NO_STAT` if there is none."""
        self._sources = self._find(items)
        return [
            file_stat(self._sources[item.id]) if item.id in self._sources else NO_STAT
            for item in items
        ]

    def digest(self, item: Item) -> bytes:
        """Return the sha256 of an image; empty if it cannot be read."""
        from ..data.contents import file_digest

        return file_digest(self._sources[item.id]) if item.id in self._sources else b""

    def absence(self, item: Item) -> str:
        """Return why an item has no image."""
        return "there is no such file" if item.path else "it has no file"

    def encode(self, items: Sequence[Item], model: HashModel, progress: Progress) -> Encoded:
        """Read and encode images."""
        from ..data.base import ImageSource, name_ids

        sources = [self._sources[item.id] for item in items]
        images = DigestingImages(sources)
        named = ImageSource(images, name_ids(item.id for item in items))
        codes, failed = _with_ids(model.encode(named, progress=progress), items)
        records = {
            item.id: images.records.get(source, (NO_STAT, b""))
            for item, source in zip(items, sources, strict=True)
        }
        return Encoded(codes, failed, records)

    def _find(self, items: Sequence[Item]) -> dict[Id, Path | Place]:
        """What to read for each item that has a path."""
        from ..data.remote import find_places

        far = {item.id: item.path for item in items if item.path and _is_inside(item.path)}
        places = find_places(list(far.values())) if far else []
        found: dict[Id, Path | Place] = dict(zip(far, places, strict=True))
        near = (item for item in items if item.path is not None and item.id not in found)
        return found | {item.id: self._file(item) for item in near}

    def _file(self, item: Item) -> Path:
        """The file of an item, as the service finds it."""
        path = Path(str(item.path))
        moved = (root / name for name in (path, str(item.id)) for root in self._roots)
        return path if path.exists() else next((each for each in moved if each.exists()), path)


class Vectors:
    """Embeddings of items.

    Args:
        source: The embeddings, see `hadahash.data.embedding_files.open_embeddings`.
    """

    def __init__(self, source: ImageSource) -> None:
        self._source = source
        self._rows = {str(each): row for row, each in enumerate(source.ids.tolist())}

    def stats(self, items: Sequence[Item]) -> list[FileStat]:
        """Return a constant for each item; `NO_STAT` for one without an embedding."""
        return [FileStat(0, 0) if str(item.id) in self._rows else NO_STAT for item in items]

    def digest(self, item: Item) -> bytes:
        """Return no digest: embeddings are encoded again."""
        return b""

    def absence(self, item: Item) -> str:
        """Return why an item has no embedding."""
        return "it has no embedding"

    def encode(self, items: Sequence[Item], model: HashModel, progress: Progress) -> Encoded:
        """Encode embeddings."""
        part = self._source.take([self._rows[str(item.id)] for item in items])
        codes, failed = _with_ids(model.encode(part, progress=progress), items)
        return Encoded(codes, failed, {item.id: (FileStat(0, 0), b"") for item in items})


def originals_of(folder: Path, index: Index, embeddings: Path | None) -> Originals:
    """Return what the items of an index can be encoded from.

    Args:
        folder: The folder of the index.
        index: The index.
        embeddings: File of the embeddings, for an index of embeddings.

    Returns:
        The photos, or the embeddings.

    Raises:
        UsageError: The file is missing, or the index is one of photos.
    """
    if "embeddings" not in index.meta:
        if embeddings is not None:
            raise UsageError(f"{folder} is an index of photos, and takes no --embeddings.")
        return PhotoFiles(image_folders(index.meta))
    if embeddings is None:
        raise UsageError(f"{folder} is an index of embeddings. Give them: --embeddings FILE")
    from ..data.embedding_files import open_embeddings

    return Vectors(open_embeddings(embeddings))


def _is_inside(path: str) -> bool:
    """Whether an image is no file: an address, or a member of an archive or a parquet file."""
    from ..data.remote import is_address

    if is_address(path):
        return True
    return not Path(path).exists() and any(each.is_file() for each in Path(path).parents)


def _with_ids(codes: Codes, items: Sequence[Item]) -> tuple[Codes, dict[Id, str]]:
    """Codes with the ids of their items, and the reasons for those without a code."""
    ids = {str(item.id): item.id for item in items}
    kept = id_array([ids[str(each)] for each in codes.ids.tolist()])
    failed = {ids[str(skipped.path)]: skipped.reason for skipped in codes.skipped}
    return replace(codes, ids=kept, skipped=()), failed


class Staging:
    """The next revision of an index.

    Args:
        folder: The folder of the index.
        index: The next revision, as it was opened or created.
        model: The model that encodes.
        originals: What the items are encoded from.

    Attributes:
        missing: Items of the current revision that cannot be encoded, and the reasons.
        encoded: Number of items that were encoded.
        switched: Whether it is the current revision now; then its manifest is not written.
    """

    def __init__(self, folder: Path, index: Index, model: HashModel, originals: Originals) -> None:
        self.folder, self.index, self.model = folder, index, model
        self.catalog = Catalog(folder / STAGE)
        self.missing: dict[Id, str] = {}
        self.encoded, self.switched = 0, False
        self._originals = originals

    def catch_up(self, live: Index, ids: Ids, advance: Progress = lambda count: None) -> None:
        """Take over items of the current revision, in parts that are saved.

        Args:
            live: The current revision.
            ids: The items; those that are up to date are not encoded again.
            advance: Called with the numbers of items that are done.
        """
        for start in range(0, len(ids), PART):
            part = ids[start : start + PART]
            items = items_of(live, part)
            advance(len(part) - len(items) + self._sync(items, advance))

    def remove(self, ids: Ids) -> None:
        """Remove items; unknown ids are ignored.

        Args:
            ids: The items.
        """
        for each in ids.tolist():
            self.missing.pop(each, None)
        known = ids[self._has(ids)]
        if len(known):
            self.index.remove(known)
            self._save()
            self.catalog.remove(known.tolist())

    def _sync(self, items: list[Item], advance: Progress) -> int:
        """Encode what is not up to date; returns the number of items that were not encoded."""
        self._remove_replaced(items)
        stats = self._originals.stats(items)
        there = self._has(id_array([item.id for item in items]))
        reasons = self._up_to_date(items, stats)
        todo, kept = [], []
        for item, stat, known in zip(items, stats, there.tolist(), strict=True):
            self.missing.pop(item.id, None)
            reason = reasons.get(str(item.id), "")
            if known and (stat == NO_STAT or reason is None):
                kept.append(item)
            elif stat == NO_STAT:
                self.missing[item.id] = self._originals.absence(item)
            elif reason:
                self.missing[item.id] = reason
            else:
                todo.append(item)
        self._relabel(kept)
        self._encode(todo, advance)
        return len(items) - len(todo)

    def _remove_replaced(self, items: list[Item]) -> None:
        """Remove what was encoded from files whose ids have been given to items without a file."""
        ids = id_array([item.id for item in items if item.path is None])
        stored = self.index.get(ids[self._has(ids)]) if len(ids) else []
        files = [item.id for item in stored if item.path is not None]
        if files:
            self.remove(id_array(files))

    def _up_to_date(self, items: list[Item], stats: list[FileStat]) -> dict[str, str | None]:
        """For each item whose original has not changed: why it has no code, or None."""
        pairs = zip(items, stats, strict=True)
        photos = ((Photo(str(item.id), Path(item.path or ""), ROOT), stat) for item, stat in pairs)
        by_id = {str(item.id): item for item in items}
        known = [
            each
            for each in self.catalog.compare(photos).known
            if each.same_stat or (each.digest and each.digest == self._digest(by_id[each.id]))
        ]
        skipped = dict(self.catalog.skipped()) if any(not each.encoded for each in known) else {}
        return {each.id: skipped.get(each.id) for each in known}

    def _digest(self, item: Item) -> bytes:
        return self._originals.digest(item)

    def _encode(self, items: list[Item], advance: Progress) -> None:
        if not items:
            return
        done = self._originals.encode(items, self.model, advance)
        by_id = {item.id: item for item in items}
        self._put(done.codes, [by_id[each] for each in done.codes.ids.tolist()])
        stale = id_array(list(done.failed)) if done.failed else None
        if stale is not None and self._has(stale).any():
            self.index.remove(stale[self._has(stale)])
        self._save()
        self.missing |= done.failed
        self.encoded += len(done.codes)
        rows = {
            str(each): CatalogRow(ROOT, *record, done.failed.get(each))
            for each, record in done.records.items()
        }
        self.catalog.write(rows)

    def _relabel(self, items: list[Item]) -> None:
        """Store labels and paths that have changed."""
        ids = id_array([item.id for item in items])
        stored = self.index.get(ids) if items else []
        changed = [item for item, old in zip(items, stored, strict=True) if item != old]
        if changed:
            codes = self.index.codes(id_array([item.id for item in changed]))
            self._put(codes, changed)
            self._save()

    def _save(self) -> None:
        if not self.switched:
            self.index.save(self.folder, name=NEXT)

    def _put(self, codes: Codes, items: list[Item]) -> None:
        if len(codes):
            labels = [list(item.labels) for item in items]
            self.index.update(codes, labels, [item.path for item in items])

    def _has(self, ids: Ids) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if not len(ids) or self.index.id_type is None:
            return np.zeros(len(ids), bool)
        return self.index.has(ids)
