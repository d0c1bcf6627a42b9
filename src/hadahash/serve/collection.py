"""What is served: an index, the model that makes its codes, and the folder its images lie in."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..index import Index, Item
from .projection import project

Id = int | str


@dataclass(frozen=True)
class Sources:
    """Where everything lies."""

    index: Path
    run: Path | None = None  # None: what the index says of itself
    images: tuple[Path, ...] = ()  # only what lies in these folders is shown


def open_collection(index: Path, run: Path | None = None, images: Sequence[Path] = ()) -> Sources:
    """Check what is given; without `images`, pictures come from the folder the index was built from."""
    told = Index.open(index).meta
    if run is None and "run" not in told:
        raise UsageError(
            f"{index} does not say which model made its codes. Name it: hadahash serve {index} --run RUN"
        )
    for folder in images:
        if not folder.is_dir():
            raise UsageError(
                f"{folder} is not a folder. Name the folder of the images: --images FOLDER"
            )
    home = [Path(told["images"])] if "images" in told and not images else []
    return Sources(index, run, (*images, *home))


class Snapshot:
    """An index as it is at one moment, with what must be known of all its items. It never changes."""

    def __init__(self, index: Index, images: Sequence[Path], stamp: object, points: int) -> None:
        self.index, self.stamp = index, stamp
        self._roots = [folder.resolve() for folder in images]
        self._points = points
        self._lock = threading.Lock()

    @staticmethod
    def open(sources: Sources, points: int) -> Snapshot:
        stamp = stamp_of(sources.index)  # before opening: a change in between is then seen as one
        return Snapshot(Index.open(sources.index), sources.images, stamp, points)

    def warm(self) -> None:
        """Do what the first request would wait for."""
        with self._lock:
            _ = self.map

    def codes_of(self, ids: Sequence[Id]) -> list[NDArray[np.uint8] | None]:
        """The packed code of each item, (bytes,); None where an engine that others change too has since got the item."""
        wanted = np.asarray(ids)
        if not len(wanted):
            return []
        try:
            return list(self.index.codes(wanted).packed)
        except UsageError:
            there = self.index.has(wanted)
            found = iter(self.index.codes(wanted[there]).packed)
            return [next(found) if ok else None for ok in there]

    def items_of(self, ids: Sequence[Id]) -> list[Item]:
        """The items with these ids; on an engine that others change too, as far as they are still there."""
        if not len(ids):
            return []
        try:
            return self.index.get(ids)
        except UsageError:
            there = self.index.has(np.asarray(ids))
            return self.index.get(np.asarray(ids)[there]) if there.any() else []

    def find(self, text: Id) -> Item | None:
        """The item with this id; ids that are numbers may come as text."""
        kind = self.index.id_type
        if kind is int and isinstance(text, str):
            if not (text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 19):
                return None
            text = int(text)
        if (
            kind is None
            or not isinstance(text, kind)
            or (isinstance(text, int) and abs(text) >= 2**63)
        ):
            return None
        ids = np.array([text])
        if ids.tolist() != [text] or not self.index.has(ids).any():  # numpy drops trailing NULs
            return None
        return self.index.get(ids)[0]

    def picture_path(self, item: Item) -> Path | None:
        """The item's file, if it lies in a folder of images; links that lead out of it are not followed.

        Where the images are no longer where they were indexed, or never were on this machine, the id tells where to look.
        An item without a path has no picture: clients may add such, and no file is opened under a name that they chose.
        """
        names = () if item.path is None else (item.path, str(item.id))
        return next(
            filter(None, (_inside(root, name) for name in names for root in self._roots)), None
        )

    @cached_property
    def _sample(self) -> list[Item]:
        """Items spread evenly over the ids, as many as the map shows."""
        ids = self.index.ids
        return self.index.get(
            ids[np.linspace(0, len(ids) - 1, min(self._points, len(ids))).astype(np.int64)]
        )

    @cached_property
    def labels(self) -> list[tuple[str, int]]:
        """All labels with their counts, the most frequent first."""
        ids, counts = self.index.ids, Counter[str]()
        for start in range(0, len(ids), 8192):
            counts.update(
                str(label)
                for item in self.index.get(ids[start : start + 8192])
                for label in item.labels
            )
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))

    @cached_property
    def map(self) -> dict[str, Any]:
        """Points of the sample: ids, x, y in [-1, 1] and the number of each one's first label in `labels`, or -1."""
        names = sorted(label for label, _ in self.labels)
        number = {name: place for place, name in enumerate(names)}
        items = self._sample
        points = project(self.index.codes([item.id for item in items])).round(4)
        first = [number[str(item.labels[0])] if item.labels else -1 for item in items]
        return {
            "ids": [item.id for item in items],
            "x": points[:, 0].tolist(),
            "y": points[:, 1].tolist(),
            "label": first,
            "labels": names,
            "total": len(self.index),
        }


def _inside(root: Path, name: str) -> Path | None:
    try:
        path = (root / name).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except (
        OSError,
        ValueError,
        RuntimeError,
    ):  # a name that no file can have, or links that go round
        return None


def stamp_of(folder: Path) -> object:
    """What changes when another index takes this one's place in the folder."""
    try:
        status = (folder / "index.json").stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def label_values(labels: Sequence[str]) -> list[Id]:
    """Labels as they may stand in an index: '3' is also the number 3."""
    numbers = [int(label) for label in labels if label.isdecimal() and label.isascii()]
    return [*labels, *numbers]
