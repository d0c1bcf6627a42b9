"""What the rest of the house sees of any data set: labelled images that are read one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError


class DataWarning(UserWarning):
    """The data can be used, but something about them should be known before results are believed."""


class Images(Protocol):
    """Images by number. Reading one may raise an ImageError; that never concerns the others."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> NDArray[np.uint8]:
        """uint8 (height, width, 3), RGB"""
        ...

    def take(self, indices: NDArray[np.integer[Any]], /) -> Images: ...


@dataclass(frozen=True, eq=False)
class ArrayImages:
    """Images of one size that are already in memory (CIFAR-10, the tests' toys)."""

    pixels: NDArray[np.uint8]  # (n, height, width, 3)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        image: NDArray[np.uint8] = self.pixels[index]
        return image

    def take(self, indices: NDArray[np.integer[Any]]) -> ArrayImages:
        return ArrayImages(self.pixels[indices])


@dataclass(frozen=True, eq=False)
class FileImages:
    """Images in files, opened when they are asked for."""

    paths: Sequence[Path]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        from .images import open_image

        return open_image(self.paths[index])

    def take(self, indices: NDArray[np.integer[Any]]) -> FileImages:
        return FileImages([self.paths[int(index)] for index in indices])


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """A data set: images, their ids, their labels and the names of the classes."""

    images: Images
    ids: NDArray[np.str_]  # (n,)
    labels: NDArray[np.int64]  # (n,) class numbers, or (n, C) of 0 and 1
    classes: tuple[str, ...]
    name: str = ""
    parts: NDArray[np.str_] | None = (
        None  # (n,) train, query or database, where the data set itself says so
    )

    def __post_init__(self) -> None:
        if not len(self.images) == len(self.ids) == len(self.labels):
            raise DataError(
                f"{len(self.images)} images, {len(self.ids)} ids and {len(self.labels)} labels: there must be one of each."
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def multilabel(self) -> bool:
        return self.labels.ndim == 2

    def take(self, indices: NDArray[np.integer[Any]]) -> LabelledImages:
        """The images with these numbers, in this order."""
        parts = None if self.parts is None else self.parts[indices]
        return LabelledImages(
            self.images.take(indices),
            self.ids[indices],
            self.labels[indices],
            self.classes,
            self.name,
            parts,
        )
