"""PhotoIndex: an index that is kept in sync with photos on disk.

New and changed files are encoded, renamed files keep their codes, deleted files are removed.
Beside the files of the index, its folder holds the catalog (photos.sqlite) and skipped.csv, the
list of files that could not be read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..codes import Codes, write_skipped
from ..errors import UsageError
from ..index import Index
from ..index.items import Id
from ..index.storage.manifest import MANIFEST
from .catalog import Catalog, CatalogRow, Comparison, DeletedFile
from .digests import DigestingImages, file_stat, with_stats
from .item_files import ids_of_files
from .meta import home_path, recorded, shown
from .models import check_model, no_codes
from .plan import SyncPlan, SyncSummary
from .ready import MODEL
from .scan import Photo, Scan

if TYPE_CHECKING:
    from ..data.remote import Place
    from ..model import HashModel

SKIPPED = "skipped.csv"
PART = 8192  # number of files encoded between two saves

Progress = Callable[[int], object]


class PhotoIndex:
    """An index in a folder, with the catalog of its files.

    Args:
        folder: The folder of the index.
        index: The index.
    """

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index
        self.catalog = Catalog(folder)

    @staticmethod
    def open(folder: str | Path) -> PhotoIndex:
        """Open an index.

        Args:
            folder: Its folder.

        Returns:
            The index with its catalog.

        Raises:
            StorageError: There is no index, or it is damaged.
        """
        return PhotoIndex(Path(folder), Index.open(folder))

    @staticmethod
    def open_or_create(
        folder: str | Path,
        model: HashModel,
        run: str | Path,
        images: str | Path,
        *,
        engine: str | None = None,
        moved: bool = False,
        **options: Any,
    ) -> PhotoIndex:
        """Open the index in a folder, or create it where there is none.

        Args:
            folder: The folder of the index.
            model: The model that encodes.
            run: The folder of its run, which is recorded.
            images: The folder or table of the photos, or `Scan.home`; it is recorded.
            engine: A name of `list_engines()`; must be that of an existing index.
            moved: Accept that an existing index recorded a different photo folder.
            **options: Options of the engine of a new index.

        Returns:
            The index.

        Raises:
            UsageError: The existing index has a different model, engine or photo folder.
        """
        if not (Path(folder) / MANIFEST).exists():
            engine = engine or "exact"
            return PhotoIndex.create(folder, model, run, images, engine=engine, **options)
        photos = PhotoIndex.open(folder)
        check_model(photos.index, model, folder)
        if engine not in (None, photos.index.engine) or options:
            raise UsageError(
                f"{folder} exists, with the engine {photos.index.engine}. Choose another --out."
            )
        if photos.home != home_path(images) and not moved:
            raise UsageError(
                f"{folder} is an index of {photos.home}, got {images}. If the folder has moved, "
                "pass --moved; to add other photos: hadahash index add; or choose another --out."
            )
        return photos

    @staticmethod
    def create(
        folder: str | Path,
        model: HashModel,
        run: str | Path,
        images: str | Path,
        *,
        engine: str = "exact",
        **options: Any,
    ) -> PhotoIndex:
        """Create an empty index for codes of a model and save it.

        Args:
            folder: The folder of the index.
            model: The model that encodes.
            run: The folder of its run, which is recorded; "model": the folder of that name in the
                folder of the index.
            images: The folder or table of the photos, or `Scan.home`; it is recorded.
            engine: A name of `list_engines()`.
            **options: Options of the engine.

        Returns:
            The index.
        """
        index = Index.build(
            no_codes(model),
            engine=engine,
            codewords=model.codewords(),
            model=model,
            **options,
        )
        index.meta |= {
            "model": model.id,
            "run": MODEL if run == MODEL else str(Path(run).resolve()),
            "images": shown(home_path(images)),
        }
        index.save(folder)
        return PhotoIndex(Path(folder), index)

    @property
    def home(self) -> Path | None:
        """The folder or table that the index was built from."""
        return Path(self.index.meta["images"]) if "images" in self.index.meta else None

    def plan(
        self,
        scan: Scan,
        *,
        whole: Path | None = None,
        checksum: bool = False,
        progress: Progress | None = None,
    ) -> SyncPlan:
        """Compare files on disk with the catalog.

        Args:
            scan: The files that were found.
            whole: The folder, if `scan` is all of it: files of the last build that are not in it
                are deleted. None: nothing is deleted.
            checksum: Read every file, to detect changes that kept size and modification time.
            progress: Called with the number of files that were compared.

        Returns:
            The plan.

        Raises:
            UsageError: An id belongs to another file.
        """
        by_id = {photo.id: photo for photo in scan.photos}
        compared = self.catalog.compare(
            with_stats(scan.photos, progress),
            deleted_from=None if whole is None else self.home,
        )
        renamed = self._find_renamed([by_id[each] for each in compared.new], compared)
        taken = {photo.id for photo in renamed.values()}
        encode = [by_id[each] for each in compared.new if each not in taken]
        unchanged, encoded, mtime_only = 0, [], {}
        for known in compared.known:
            photo = by_id[known.id]
            same = known.same_stat and not checksum
            before = None if same else file_stat(photo.file)
            if before and known.digest and known.digest == _file_digest(photo.file):
                same = True
                mtime_only[photo.id] = before
            if not same:
                encode.append(photo)
                continue
            unchanged += 1
            encoded += [photo] if known.encoded else []
        ids = {photo.id for photo in encoded}
        missing = ids - ids_of_files(self.index, ids)
        encode += [photo for photo in encoded if photo.id in missing]
        present = [photo for photo in encoded if photo.id not in missing]
        known_before = {each.id for each in compared.deleted}  # with a moved folder, ids persist
        added = [p for p in [*encode, *renamed.values()] if p.id not in known_before]
        self._check_id_conflicts(added, known={each.id for each in compared.known})
        deleted = [each for each in known_before if each not in renamed and each not in by_id]
        return SyncPlan(
            encode=encode,
            renamed=renamed,
            relabelled=self._find_relabelled(present) if scan.labelled else [],
            mtime_only=mtime_only,
            deleted=sorted(deleted),
            unchanged=unchanged - len(missing),
            known=len(compared.known),
            home=whole,
            folders=scan.folders,
            options=scan.options,
        )

    def apply(
        self, plan: SyncPlan, model: HashModel, *, progress: Progress | None = None
    ) -> SyncSummary:
        """Carry out a plan, in parts that are saved: an interruption loses at most one part.

        Args:
            plan: What to do.
            model: The model that encodes.
            progress: Called with the number of files of each batch.

        Returns:
            What was done.

        Raises:
            UsageError: The model is not the one that made the index.
            StorageError: The index cannot be written.
        """
        check_model(self.index, model, self.folder)
        self._rename(plan.renamed)
        self._relabel(plan.relabelled)
        encoded = 0
        for start in range(0, len(plan.encode), PART):
            encoded += self._encode(plan.encode[start : start + PART], model, progress)
        removed = self.remove(sorted(ids_of_files(self.index, plan.deleted)))
        self.catalog.remove(plan.deleted)
        self.catalog.update_stats(plan.mtime_only)
        self.record(plan)
        skipped = self.catalog.skipped()
        write_skipped(self.folder / SKIPPED, skipped)
        return SyncSummary(
            encoded,
            len(plan.renamed),
            plan.unchanged,
            removed,
            len(skipped),
            len(self.index),
            len(plan.relabelled),
        )

    def remove(self, ids: Sequence[Id]) -> int:
        """Remove items from index and catalog; unknown ids are ignored.

        Args:
            ids: The items.

        Returns:
            Number of items that were removed.
        """
        present = sorted(set(ids) - self._missing_ids(ids))
        if present:
            self.index.remove(present)
            self.index.save(self.folder)
        self.catalog.remove(ids)
        return len(present)

    def _encode(self, photos: list[Photo], model: HashModel, progress: Progress | None) -> int:
        from ..data.base import ImageSource, name_ids

        images = DigestingImages([photo.file for photo in photos])
        ids = name_ids(photo.id for photo in photos)
        codes = model.encode(ImageSource(images, ids), progress=progress)
        by_id = {photo.id: photo for photo in photos}
        encoded = [by_id[each] for each in codes.ids.tolist()]
        self.catalog.invalidate(by_id)
        self.update(codes, encoded)
        failed = dict(codes.skipped)
        stale = set(failed) - self._missing_ids(list(failed))
        if stale:
            self.index.remove(sorted(stale))
        self.index.save(self.folder)
        self.catalog.write(
            {p.id: CatalogRow(p.root, *images.records[p.file], failed.get(p.id)) for p in photos}
        )
        self.catalog.write_looks(images.looks)
        return len(codes)

    def _find_renamed(self, new: list[Photo], compared: Comparison) -> dict[str, Photo]:
        """Find new files whose content is that of a deleted one."""
        ids = {each.id for each in compared.deleted if each.encoded and each.digest}
        present = ids_of_files(self.index, ids)
        by_size: defaultdict[int, list[DeletedFile]] = defaultdict(list)
        for each in compared.deleted:
            if each.id in present:
                by_size[each.size].append(each)
        renamed: dict[str, Photo] = {}
        for photo in new if by_size else ():
            candidates = by_size.get(file_stat(photo.file).size)
            if not candidates:
                continue
            digest = _file_digest(photo.file)
            matches = [each for each in candidates if each.digest == digest]
            if matches:  # prefer the copy that kept its file name
                match = next((each for each in matches if each.id == photo.id), matches[0])
                candidates.remove(match)
                renamed[match.id] = photo
        return renamed

    def _rename(self, renamed: dict[str, Photo]) -> None:
        """Store codes of renamed files under their new ids, labels and paths."""
        if not renamed:
            return
        photos = list(renamed.values())
        new_ids = [photo.id for photo in photos]
        codes = self.index.codes(list(renamed))
        self.catalog.invalidate(new_ids)
        self.update(replace(codes, ids=np.array(new_ids, object)), photos)
        old = sorted(set(renamed) - set(new_ids))
        if old:
            self.index.remove(old)
        self.index.save(self.folder)
        rows = {
            p.id: CatalogRow(p.root, file_stat(p.file), _file_digest(p.file), None) for p in photos
        }
        self.catalog.write(rows)
        self.catalog.remove(old)

    def _find_relabelled(self, photos: list[Photo]) -> list[Photo]:
        """Find indexed files whose labels differ from those in the index."""
        items = self.index.get([photo.id for photo in photos]) if photos else []
        return [
            photo
            for photo, item in zip(photos, items, strict=True)
            if set(map(str, item.labels)) != set(photo.labels)
        ]

    def _relabel(self, photos: list[Photo]) -> None:
        """Store the labels of files whose codes are kept."""
        if photos:
            self.update(self.index.codes([photo.id for photo in photos]), photos)
            self.index.save(self.folder)

    def update(self, codes: Codes, photos: list[Photo]) -> None:
        """Put codes of photos into the index, in memory; `index.save` keeps them.

        Args:
            codes: The codes.
            photos: The photo of each.
        """
        labels = [list(photo.labels) for photo in photos]
        self.index.update(codes, labels, [shown(photo.path) for photo in photos])

    def record(self, plan: SyncPlan) -> None:
        """Note in the index where its photos are.

        Args:
            plan: What was done.
        """
        meta = recorded(self.index.meta, plan)
        if meta != self.index.meta:
            self.index.meta.update(meta)
            self.index.save(self.folder)

    def _missing_ids(self, ids: Sequence[Id]) -> set[Id]:
        """Return the ids that the index does not have."""
        if not ids or self.index.id_type is None:
            return set(ids)
        present = self.index.has(list(ids))
        return {each for each, there in zip(ids, present, strict=True) if not there}

    def _check_id_conflicts(self, photos: list[Photo], known: set[str]) -> None:
        """Refuse ids of other files, and of items without a file unless they were a file's."""
        missing = self._missing_ids([photo.id for photo in photos])
        taken = {photo.id: photo for photo in photos if photo.id not in missing}
        for item in self.index.get(list(taken)) if taken else []:
            path = shown(taken[str(item.id)].path)
            if item.path != path and not (item.path is None and item.id in known):
                raise UsageError(
                    f"{self.folder} already has '{item.id}', which is {item.path or 'no file'} "
                    f"and not {path}. Give the new files other ids: index add --prefix NAME/"
                )


def _file_digest(path: Path | Place) -> bytes:
    """The sha256 of a file; see `hadahash.data.contents.file_digest`."""
    from ..data.contents import file_digest  # commands that read no photo start faster

    return file_digest(path)
