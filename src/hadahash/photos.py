"""Photos on disk as an index that follows them: what is new or changed is encoded, what vanished is removed.

Beside the files of the index, its folder holds

    photos.sqlite   the ledger: size, time and content of each file when it was encoded, or why it could not be
    skipped.csv     the files that could not be read

The ledger is written after the index. After a crash it knows less than the index, never more: then some files are encoded
once more, and none is left out. Without it, all are.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .codes import Codes, Skipped
from .data.base import FileImages
from .data.folder import list_images
from .data.sources import ImageSource
from .encoding import PART, Advance
from .errors import StorageError, UsageError
from .hasher import Hasher
from .index import Index
from .index.items import Id, Label
from .index.storage.folder import MANIFEST

LEDGER, SKIPPED = "photos.sqlite", "skipped.csv"


class Photo(NamedTuple):
    """A file and what the index calls it."""

    id: str
    path: Path
    root: Path  # the folder it was found through
    label: str | None  # the folder below the root, if it lies in one


class Stamp(NamedTuple):
    """What tells a changed file, without reading it."""

    size: int
    mtime_ns: int


class Entry(NamedTuple):
    """A line of the ledger."""

    root: Path
    stamp: Stamp
    digest: bytes  # sha256 of the content; b"" if it could not be read
    reason: str | None  # why it has no code


@dataclass(frozen=True, eq=False)
class Plan:
    """What there is to do."""

    encode: list[Photo]  # new and changed files
    same: int  # files that are in the index as they are
    touched: dict[str, Entry]  # files with a new time and the old content
    vanished: list[str]


@dataclass(frozen=True)
class Changes:
    """What was done."""

    encoded: int
    same: int
    removed: int
    skipped: int  # files that could not be read, now or when they were last looked at
    total: int  # items in the index

    def __str__(self) -> str:
        parts = f"{self.encoded:,} encoded, {self.same:,} unchanged, {self.removed:,} removed"
        return f"{self.total:,} images: {parts}" + (
            f", {self.skipped:,} could not be read" if self.skipped else ""
        )


# ---- which files ---------------------------------------------------------------------------------------------------


def photos_of(folder: str | Path, *, prefix: str = "") -> list[Photo]:
    """All images below a folder. An id is the path below it; the label is its first folder, if there is one."""
    root = Path(folder).resolve()
    return [_photo(path, root, prefix) for path in list_images(root)]


def photos_at(
    sources: Iterable[str | Path], *, home: Path | None = None, prefix: str = ""
) -> list[Photo]:
    """Images of files and folders; what lies in `home`, the folder the index was built from, is named as it is there."""
    found: dict[str, Photo] = {}
    for source in (Path(each).resolve() for each in sources):
        root = (
            home
            if home is not None and source.is_relative_to(home)
            else source.parent
            if source.is_file()
            else source
        )
        for path in [source] if source.is_file() else list_images(source):
            photo = _photo(path, root, prefix)
            if found.setdefault(photo.id, photo).path != path:
                raise UsageError(
                    f"Two files would get the id '{photo.id}': {found[photo.id].path} and {path}. Add one by one."
                )
    return list(found.values())


def _photo(path: Path, root: Path, prefix: str) -> Photo:
    parts = path.relative_to(root).parts
    return Photo(prefix + "/".join(parts), path, root, parts[0] if len(parts) > 1 else None)


# ---- the index of photos -------------------------------------------------------------------------------------------


class PhotoIndex:
    """An index in a folder, with the ledger of the files behind it."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index

    @staticmethod
    def open(folder: str | Path) -> PhotoIndex:
        return PhotoIndex(Path(folder), Index.open(folder))

    @staticmethod
    def open_or_make(
        folder: str | Path,
        hasher: Hasher,
        run: str | Path,
        images: str | Path,
        *,
        engine: str | None = None,
        **options: Any,
    ) -> PhotoIndex:
        """The index in this folder, if it is of these images and this model; a new one where there is none."""
        if not (Path(folder) / MANIFEST).exists():
            return PhotoIndex.make(folder, hasher, run, images, engine=engine or "exact", **options)
        photos = PhotoIndex.open(folder)
        check_model(photos.index, hasher, folder)
        if engine not in (None, photos.index.engine) or options:
            raise UsageError(
                f"{folder} is there already, with the engine {photos.index.engine}. Build another: --out ..."
            )
        if photos.home != Path(images).resolve():
            raise UsageError(
                f"{folder} is an index of {photos.home}, got {images}. Build another with --out, or add: hadahash index add"
            )
        return photos

    @staticmethod
    def make(
        folder: str | Path,
        hasher: Hasher,
        run: str | Path,
        images: str | Path,
        *,
        engine: str = "exact",
        **options: Any,
    ) -> PhotoIndex:
        """An empty index for codes of this model, saved: whatever happens later, the folder holds an index that can go on."""
        book = getattr(hasher.network.method, "codebook", None)
        codes = Codes(packed=np.zeros((0, -(-hasher.bits // 8)), np.uint8), bits=hasher.bits)
        index = Index.build(
            codes, engine=engine, codebook=None if book is None else book.cpu().numpy(), **options
        )
        index.meta |= {
            "model": hasher.weights_sha256,
            "run": str(Path(run).resolve()),
            "images": str(Path(images).resolve()),
        }
        index.save(folder)
        return PhotoIndex(Path(folder), index)

    @property
    def home(self) -> Path | None:
        """The folder the index was built from."""
        return Path(self.index.meta["images"]) if "images" in self.index.meta else None

    def plan(self, photos: Sequence[Photo], *, vanished_from: Path | None = None) -> Plan:
        """Compare files with the ledger. Those that were found through `vanished_from` and are not given are gone."""
        with self._ledger() as ledger:
            entries = _read_entries(ledger)
        wanted = {photo.id for photo in photos}
        gone = [
            each
            for each, entry in entries.items()
            if entry.root == vanished_from and each not in wanted
        ]
        encode, same, touched = [], [], {}
        for photo in photos:
            entry = entries.get(photo.id)
            if entry is None or entry.root != photo.root:
                encode.append(photo)
            elif entry.stamp == (stamp := _stamp(photo.path)):
                same.append(photo)
            elif entry.digest and entry.digest == _digest(photo.path):
                touched[photo.id] = entry._replace(stamp=stamp)
                same.append(photo)
            else:
                encode.append(photo)
        coded = [photo for photo in same if entries[photo.id].reason is None]
        lost = self._lacks([photo.id for photo in coded])  # removed by hand, or by a crash
        encode += [photo for photo in coded if photo.id in lost]
        self._refuse_foreign(encode)
        return Plan(encode, len(same) - len(lost), touched, gone)

    def apply(self, plan: Plan, hasher: Hasher, advance: Advance | None = None) -> Changes:
        """Do it, in parts that are saved one by one: an interruption loses at most one of them."""
        check_model(self.index, hasher, self.folder)
        encoded = 0
        for start in range(0, len(plan.encode), PART):
            encoded += self._encode(plan.encode[start : start + PART], hasher, advance)
        removed = self.remove(plan.vanished) if plan.vanished else 0
        with self._ledger() as ledger:
            _write_entries(ledger, plan.touched)
            skipped = [
                (each, entry.reason)
                for each, entry in _read_entries(ledger).items()
                if entry.reason is not None
            ]
        self._list_skipped([Skipped(*each) for each in skipped])
        return Changes(encoded, plan.same, removed, len(skipped), len(self.index))

    def remove(self, ids: Sequence[Id]) -> int:
        """Remove items, as far as they are there, and forget their files; answers how many were there."""
        here = sorted(set(ids) - self._lacks(ids))
        if here:
            self.index.remove(here)
            self.index.save(self.folder)
        with self._ledger() as ledger:
            ledger.executemany(
                "DELETE FROM photos WHERE id = ?", [(os.fsencode(str(each)),) for each in ids]
            )
        return len(here)

    def _encode(self, photos: list[Photo], hasher: Hasher, advance: Advance | None) -> int:
        before = {
            photo.id: (_stamp(photo.path), _digest(photo.path)) for photo in photos
        }  # a later change is seen next time
        ids = np.array([photo.id for photo in photos])
        codes = hasher.encode(
            ImageSource(FileImages([photo.path for photo in photos]), ids), advance=advance
        )
        by_id = {photo.id: photo for photo in photos}
        coded = [by_id[each] for each in codes.ids.tolist()]
        labels = [[] if photo.label is None else [photo.label] for photo in coded]
        self.index.update(codes, labels, [str(photo.path) for photo in coded])
        failed = dict(codes.skipped)
        stale = set(failed) - self._lacks(list(failed))
        if stale:
            self.index.remove(sorted(stale))
        self.index.save(self.folder)
        with self._ledger() as ledger:
            _write_entries(
                ledger, {p.id: Entry(p.root, *before[p.id], failed.get(p.id)) for p in photos}
            )
        return len(codes)

    def _lacks(self, ids: Sequence[Id]) -> set[Id]:
        """Which of the ids the index does not have."""
        there = (
            self.index.has(np.array(ids))
            if ids and self.index.ids_are is not None
            else [False] * len(ids)
        )
        return {each for each, known in zip(ids, there, strict=True) if not known}

    def _refuse_foreign(self, photos: list[Photo]) -> None:
        """Refuse files whose ids belong to others."""
        lacking = self._lacks([photo.id for photo in photos])
        taken = {photo.id: photo for photo in photos if photo.id not in lacking}
        for item in self.index.get(list(taken)) if taken else []:
            if item.path != str(taken[str(item.id)].path):
                raise UsageError(
                    f"{self.folder} already has '{item.id}', which is {item.path or 'no file'} and not "
                    f"{taken[str(item.id)].path}. Give the new ones names of their own: index add --prefix NAME/"
                )

    def _list_skipped(self, skipped: list[Skipped]) -> None:
        if skipped:
            Codes(np.empty((0, 1), np.uint8), 8, skipped=tuple(skipped)).save_skipped(
                self.folder / SKIPPED
            )
        else:
            (self.folder / SKIPPED).unlink(missing_ok=True)

    @contextmanager
    def _ledger(self) -> Iterator[sqlite3.Connection]:
        """The ledger; what is done in the block is done wholly or not at all."""
        path = self.folder / LEDGER
        try:
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS photos (id BLOB PRIMARY KEY, root BLOB, size INTEGER, mtime_ns INTEGER, "
                    "digest BLOB, reason TEXT) WITHOUT ROWID"
                )
                yield connection
        except sqlite3.Error as error:
            raise StorageError(
                f"Cannot use {path}: {error}. Free some space if the disk is full; if it is damaged, delete it, and the "
                "next build looks at all files again."
            ) from error


def _read_entries(ledger: sqlite3.Connection) -> dict[str, Entry]:
    rows = ledger.execute("SELECT id, root, size, mtime_ns, digest, reason FROM photos ORDER BY id")
    return {
        os.fsdecode(each): Entry(Path(os.fsdecode(root)), Stamp(size, mtime_ns), digest, reason)
        for each, root, size, mtime_ns, digest, reason in rows
    }


def _write_entries(ledger: sqlite3.Connection, entries: dict[str, Entry]) -> None:
    ledger.executemany(
        "INSERT OR REPLACE INTO photos VALUES (?, ?, ?, ?, ?, ?)",
        [
            (os.fsencode(each), os.fsencode(e.root), *e.stamp, e.digest, e.reason)
            for each, e in entries.items()
        ],
    )


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return Stamp(-1, -1)
    return Stamp(status.st_size, status.st_mtime_ns)


def _digest(path: Path) -> bytes:
    try:
        return (
            hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""
        )  # a pipe would never end
    except OSError:
        return b""


# ---- the model behind an index, and a search -----------------------------------------------------------------------


def model_of(
    index: Index, folder: str | Path, run: str | Path | None = None, *, device: str = "auto"
) -> Hasher:
    """The model that made the codes of an index: the run it names, or the one that is given, if that is the same model."""
    place = run or index.meta.get("run")
    if place is None:
        raise UsageError(
            f"{folder} does not say which model made its codes. Name its run with --run."
        )
    if run is None and not Path(place).is_dir():
        raise UsageError(
            f"The run that made {folder} is no longer at {place}. Say where it is with --run."
        )
    hasher = Hasher.load(place, device=device)
    check_model(index, hasher, folder)
    return hasher


def check_model(index: Index, hasher: Hasher, folder: str | Path) -> None:
    """Refuse another model than the one that made the index: its codes mean something else."""
    made_by = index.meta.get("model")
    if hasher.bits != index.bits or made_by not in (None, hasher.weights_sha256):
        raise UsageError(
            f"{folder} holds {index.bits}-bit codes of the model {str(made_by)[:12]}, got {hasher.bits}-bit codes of "
            f"{hasher.weights_sha256[:12]}: codes of two models cannot be compared. Use its own run, or build a new index."
        )


class Found(NamedTuple):
    """A hit of a search, with what the index knows of it."""

    id: Id
    distance: int
    labels: tuple[Label, ...]
    path: str | None


def find(
    index: Index,
    hasher: Hasher,
    image: str | Path,
    *,
    k: int = 10,
    radius: int | None = None,
    labels: Sequence[str] = (),
) -> list[Found]:
    """The k images nearest to one, nearest first; a label in digits also means the number."""
    wanted = [*labels, *(int(label) for label in labels if label.isdecimal())]
    hits = index.search(hasher.encode(image), k, radius=radius, labels=wanted or None)
    ids, distances = hits.ids[0, : hits.counts[0]], hits.distances[0, : hits.counts[0]].tolist()
    items = index.get(ids) if len(ids) else []
    return [
        Found(item.id, distance, item.labels, item.path)
        for item, distance in zip(items, distances, strict=True)
    ]
