"""A collection: an index, the model that encodes its queries, and the folders of its images."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import UsageError
from ...index import Index, Item, Neighbor
from ...index.items import id_array
from ...index.local import LocalIndex
from ...photos import (
    StoredLooks,
    check_labels,
    check_model,
    image_folders,
    load_model_of,
    unknown_run,
)
from ..problem import unknown_label
from . import names
from .far_images import FarImages, address_of
from .names import Id

if TYPE_CHECKING:
    from ...model import HashModel

Packed = NDArray[np.uint8]  # (ceil(bits / 8),)
Ids = Sequence[Id] | NDArray[Any]
_LOOKUP_ATTEMPTS = 5
_NONE = " Known: none."  # the end of an error, which is not true before the labels are counted
_LABEL_SECONDS, _MOST_LABELS = 300.0, 10_000
_WAIT_SECONDS = 0.05  # for a program that writes the catalog; all searches wait meanwhile
_FOLDER_SECONDS, _MOST_FOLDERS = 10.0, 10_000


@dataclass(frozen=True)
class ServeConfig:
    """Locations of the index, its model and its images.

    Attributes:
        index: Folder of the index.
        run: Run folder of the model; None: the one recorded in the index.
        images: Only images in these folders are shown.
    """

    index: Path
    run: Path | None = None
    images: tuple[Path, ...] = ()


def resolve_config(
    index: Path, run: Path | None = None, images: Sequence[Path] = ()
) -> ServeConfig:
    """Validate the paths; missing ones are taken from the index.

    Args:
        index: Folder of the index.
        run: Run that holds the model.
        images: Folders of the images; by default the folder that was indexed.

    Returns:
        The configuration.

    Raises:
        UsageError: If the model is not known or a folder does not exist.
        StorageError: If the index cannot be read.
    """
    opened = Index.open(index)
    if run is None and "run" not in opened.meta:
        raise unknown_run(opened, index)
    if run is not None and not run.is_dir():
        raise UsageError(f"{run} is not a folder. Give the run that made the index with --run.")
    for folder in images:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder. Give the image folder with --images.")
    return ServeConfig(index, run, tuple(images or image_folders(opened.meta)))


class Collection:
    """An open index with its model. Changes by other processes are not visible.

    Args:
        index: The index.
        model: The model that encodes queries.
        roots: Folders of the images.
        folder: Folder of the index, whose catalog has what the photos look like.
    """

    def __init__(
        self, index: Index, model: HashModel, roots: Sequence[Path], folder: Path | None = None
    ) -> None:
        self.index, self.model = index, model
        self.far = FarImages(roots)
        self._looks = None if folder is None else StoredLooks(folder, wait_seconds=_WAIT_SECONDS)
        self._roots = [root.resolve() for root in roots if address_of(root) is None]
        self._folders = [str(root) for root in self._roots]
        self._inside: dict[str, tuple[float, bool]] = {}  # by folder: until when it holds
        self._counts: tuple[float, dict[Id, int]] | None = None  # when, and the items per label
        self._found: dict[tuple[Id, ...], float] = {}  # labels of items: until when it holds
        self._counting = Lock()

    @staticmethod
    def open(
        config: ServeConfig,
        *,
        device: str,
        model: HashModel | None = None,
        known: Collection | None = None,
    ) -> Collection:
        """Open the index, and its model unless `model` made the index.

        Args:
            config: Locations of index, model and images.
            device: Device of the model.
            model: A model that is loaded already. If the index was upgraded to another one since,
                that is loaded from the run that the index records.
            known: The collection that is open: parts that did not change are shared with it.

        Returns:
            The open collection.

        Raises:
            HadaHashError: If the index or the model cannot be opened, or do not match.
        """
        index = Index.open(config.index) if known is None else known.index.reopened(config.index)
        if model is None or not _fits(index, model, config.index):
            run = config.run if model is None else _run_after_upgrade(index, config)
            model = load_model_of(index, config.index, run, device=device)
            model.encode(_example(model, index.meta.get("embeddings")))  # the first call is slower
        return Collection(index, model, config.images, config.index)

    @property
    def bits(self) -> int:
        """Length of the codes."""
        return self.index.bits

    def parse_id(self, given: Id) -> Id | None:
        """Return an id that a client sent as an id of this index, or None if it cannot be one."""
        return names.parse_id(given, self.index.id_type)

    def parse_labels(self, texts: Sequence[str]) -> tuple[Id, ...]:
        """Return the labels that a client sent as labels of this index.

        Args:
            texts: The labels. One of digits also refers to the integer label.

        Returns:
            The labels.

        Raises:
            Problem: 404, if no item has one of them.
        """
        return self._checked_labels(texts, self._has_label)

    def require_labels(self, texts: Sequence[str]) -> None:
        """Check labels whose search found nothing: other programs may have removed their items.

        Args:
            texts: The labels, as `parse_labels` takes them.

        Raises:
            Problem: 404, if no item has one of them.
        """
        self._checked_labels(texts, self._ask_for)

    def label_counts(self) -> dict[Id, int]:
        """Return the number of items per label.

        A Milvus server is asked every few minutes only, as it has to read all items, and by one
        thread at a time: meanwhile others use the numbers before, or wait for the first ones.
        """
        return self._counted(wait=True) or {}

    def _counted(self, *, wait: bool) -> dict[Id, int] | None:
        """As `label_counts`; without `wait`, None while another thread counts for the first time.

        Requests do not wait, since a few of them would keep all threads for lookups.
        """
        if isinstance(self.index, LocalIndex):  # it knows them
            return self.index.label_counts()
        if self._counting.acquire(blocking=wait and self._counts is None):
            try:
                if self._counts is None or time.monotonic() - self._counts[0] > _LABEL_SECONDS:
                    self._counts = time.monotonic(), self.index.label_counts()
            finally:
                self._counting.release()
        return None if self._counts is None else self._counts[1]

    def _checked_labels(
        self, texts: Sequence[str], has_label: Callable[[Sequence[Id]], bool]
    ) -> tuple[Id, ...]:
        given = [names.from_json(text) for text in texts]
        counts: dict[Id, int] | None = None

        def count() -> dict[Id, int]:
            nonlocal counts
            counts = self._counted(wait=False)
            return counts or {}

        try:
            found = check_labels(self.index, given, has_label=has_label, count=count)
        except UsageError as error:
            text = str(error)
            raise unknown_label(text if counts is not None else text.removesuffix(_NONE)) from None
        return tuple(found)

    def _has_label(self, labels: Sequence[Id]) -> bool:
        """Whether an item has one of the labels. What a server found is kept for a while."""
        if isinstance(self.index, LocalIndex):
            return self.index.has_label(labels)
        return self._found.get(tuple(labels), 0.0) > time.monotonic() or self._ask_for(labels)

    def _ask_for(self, labels: Sequence[Id]) -> bool:
        found = self.index.has_label(labels)
        self._found.pop(tuple(labels), None)
        if found:
            if len(self._found) >= _MOST_LABELS:
                self._found.clear()
            self._found[tuple(labels)] = time.monotonic() + _LABEL_SECONDS
        return found

    def has(self, item_id: Id) -> bool:
        """Return whether the index has this id."""
        return bool(self.index.has([item_id])[0])

    def find(self, given: Id) -> tuple[Item, Packed] | None:
        """Return the item with an id that a client sent, and its code; None if there is none."""
        item_id = self.parse_id(given)
        return None if item_id is None else self.lookup([item_id]).get(item_id)

    def lookup(self, ids: Ids) -> dict[Id, tuple[Item, Packed]]:
        """Return items and codes by id, without those that have been removed."""
        requested = id_array(ids)
        for _ in range(_LOOKUP_ATTEMPTS):
            if not len(requested):
                break
            try:
                items, codes = self.index.lookup(requested)
                rows = zip(items, codes.packed, strict=True)
                return {item.id: (item, code) for item, code in rows}
            except UsageError:  # an item was removed after it was found
                requested = requested[self.index.has(requested)]
        return {}

    def looks(self, items: Sequence[Item | Neighbor]) -> dict[Id, bytes]:
        """Return what items look like, 8 bytes by id, as far as it is known."""
        return {} if self._looks is None else self._looks.of(items)

    def image_path(self, item: Item | Neighbor) -> Path | None:
        """Return the image file of an item, if it is in one of the folders, links resolved.

        Where the images were moved, or the index was built on another machine, the id is used as
        the relative path. An item without a path has no image: clients can add such items, and no
        file is opened under a name that a client chose.
        """
        paths = (_inside(root, name) for name in _candidates(item) for root in self._roots)
        return next(filter(None, paths), None)

    def has_image(self, item: Item | Neighbor) -> bool:
        """Return whether `image_path` finds a file, with fewer calls of the system.

        An image at an address is assumed to be there.

        Folders are resolved once in a while only; before a file is opened, `image_path` is used.
        """
        if self.far.has(item.path):
            return True
        for name in _candidates(item):
            for root in self._folders:
                path = name if name.startswith("/") else f"{root}/{name}"
                try:
                    if not self._is_inside(path.rpartition("/")[0]):
                        continue
                    mode = os.lstat(path).st_mode
                except (OSError, ValueError):
                    continue
                if stat.S_ISREG(mode):
                    return True
                if stat.S_ISLNK(mode) and self.image_path(item) is not None:
                    return True
        return False

    def _is_inside(self, folder: str) -> bool:
        """Whether a folder, links resolved, is in one of the image folders."""
        known, now = self._inside.get(folder), time.monotonic()
        if known is None or known[0] < now:
            if len(self._inside) >= _MOST_FOLDERS:
                self._inside.clear()
            real = Path(os.path.realpath(folder))
            known = now + _FOLDER_SECONDS, any(real.is_relative_to(root) for root in self._roots)
            self._inside[folder] = known
        return known[1]


def display_name(item: Item | Neighbor) -> str:
    """Return the file name of an item, without folders, as JSON text."""
    name = (item.path or str(item.id)).rstrip("/").rpartition("/")[2]
    return str(names.to_json(name or str(item.id)))


def stamp_of(folder: Path) -> object:
    """Return a value that changes when the index in this folder changes; None if there is none."""
    return files.stamp(folder / "index.json")


def _fits(index: Index, model: HashModel, folder: Path) -> bool:
    try:
        check_model(index, model, folder)
    except UsageError:
        return False
    return True


def _run_after_upgrade(index: Index, config: ServeConfig) -> Path | None:
    """None: the run that the index records; otherwise the one that was given."""
    return None if "run" in index.meta else config.run


def _candidates(item: Item | Neighbor) -> tuple[str, ...]:
    """Names under which the image of an item may be found in an image folder."""
    if item.path is None:
        return ()
    name = str(item.id)
    return (name,) if name == item.path else (item.path, name)


def _inside(root: Path, name: str) -> Path | None:
    try:
        path = (root / name).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # not a valid file name, or a symlink loop
        return None


def _example(model: HashModel, width: int | None) -> NDArray[np.generic]:
    """An input of a model: an image, or an embedding of this width."""
    if width is not None:
        return np.zeros((1, width), np.float32)
    side = model.preprocess.side
    return np.zeros((1, side, side, 3), np.uint8)
