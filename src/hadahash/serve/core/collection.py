"""A collection: an index, the model that encodes its queries, and the folders of its images."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...index import Index, Item, Neighbor
from ...index.items import id_array
from ...photos import check_labels, check_model, image_folders, load_model_of, unknown_run
from ..problem import unknown_label
from . import names
from .names import Id

if TYPE_CHECKING:
    from ...model import HashModel

Packed = NDArray[np.uint8]  # (ceil(bits / 8),)
Ids = Sequence[Id] | NDArray[Any]
_LOOKUP_ATTEMPTS = 5


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
    """

    def __init__(self, index: Index, model: HashModel, roots: Sequence[Path]) -> None:
        self.index, self.model = index, model
        self._roots = [folder.resolve() for folder in roots]
        self._labels: Set[Id] | None = None  # of the first search with labels, later ones missing

    @staticmethod
    def open(config: ServeConfig, *, device: str, model: HashModel | None = None) -> Collection:
        """Open the index, and its model unless `model` made the index.

        Args:
            config: Locations of index, model and images.
            device: Device of the model.
            model: A model that is loaded already. If the index was upgraded to another one since,
                that is loaded from the run that the index records.

        Returns:
            The open collection.

        Raises:
            HadaHashError: If the index or the model cannot be opened, or do not match.
        """
        index = Index.open(config.index)
        if model is None or not _fits(index, model, config.index):
            run = config.run if model is None else _run_after_upgrade(index, config)
            model = load_model_of(index, config.index, run, device=device)
            model.encode(_example(model, index.meta.get("embeddings")))  # the first call is slower
        return Collection(index, model, config.images)

    @property
    def bits(self) -> int:
        """Length of the codes."""
        return self.index.bits

    def parse_id(self, given: Id) -> Id | None:
        """Return an id that a client sent as an id of this index, or None if it cannot be one."""
        return names.parse_id(given, self.index.id_type)

    def parse_labels(self, texts: Sequence[str]) -> tuple[Id, ...]:
        """Return the labels that a client sent as labels of this index.

        Raises:
            Problem: 404, if no item has one of them.
        """
        if self._labels is None:
            self._labels = self.index.label_counts().keys()
        try:
            return tuple(check_labels(self.index, [*map(names.from_json, texts)], self._labels))
        except UsageError as error:
            raise unknown_label(str(error)) from None

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
                items, codes = self.index.get(requested), self.index.codes(requested).packed
                return {item.id: (item, code) for item, code in zip(items, codes, strict=True)}
            except UsageError:  # an item was removed after it was found
                requested = requested[self.index.has(requested)]
        return {}

    def image_path(self, item: Item | Neighbor) -> Path | None:
        """Return the image file of an item, if it is in one of the folders, links resolved.

        Where the images were moved, or the index was built on another machine, the id is used as
        the relative path. An item without a path has no image: clients can add such items, and no
        file is opened under a name that a client chose.
        """
        candidates = () if item.path is None else (item.path, str(item.id))
        paths = (_inside(root, name) for name in candidates for root in self._roots)
        return next(filter(None, paths), None)


def display_name(item: Item | Neighbor) -> str:
    """Return the file name of an item, without folders, as JSON text."""
    path = item.path or str(item.id)
    return str(names.to_json(PurePosixPath(path).name or str(item.id)))


def stamp_of(folder: Path) -> object:
    """Return a value that changes when the index in this folder changes; None if there is none."""
    try:
        status = (folder / "index.json").stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _fits(index: Index, model: HashModel, folder: Path) -> bool:
    try:
        check_model(index, model, folder)
    except UsageError:
        return False
    return True


def _run_after_upgrade(index: Index, config: ServeConfig) -> Path | None:
    """None: the run that the index records; otherwise the one that was given."""
    return None if "run" in index.meta else config.run


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
