"""Splits of a data set into queries, training images and database.

A split is made by a named protocol and a seed:

    cifar10          100 images per class are queries, 500 others per class are trained on, the
                     other 54,000 are the database
    cifar10-59k      the same queries and training images; the database is all but the queries
    cifar10-demo     50 per class of the same queries, the same training images, and 800 per class
                     of the database
    cifar10-full     the official test set is the query set; the 50,000 others are trained on and
                     searched
    imagenet100      the validation images of the 100 classes are the queries, all their training
                     images the database, of which 100 per class are trained on
    tinyimagenet100  the same for Tiny-ImageNet
    nuswide21        of each class in turn, 100 images are queries and 500 others are trained on,
                     among those not yet drawn for an earlier class; the rest is the database
    nuswide21-all    the same queries and training images; the database is all but the queries
    voc2012          the validation set is the query set; the training set is trained on and
                     searched
    voc2012-halves   the same queries; one half of the training set is trained on, the other
                     half searched
    table            the parts of the data set itself: train, query or database. Without a database
                     part the training images are searched
    holdout          for any data: 10 % of each class are queries (at least one image, never all);
                     the rest is trained on and searched. Of multi-label data 10 % in total, and no
                     image that is the last one with one of its labels
    unseen           for any data of 4 classes or more: a quarter of the classes (at least 2) is
                     never trained on; 10 % of their images are queries, searched among the rest

A split depends on the seed alone: the images of each class in turn are sorted by raw 64-bit numbers
of the PCG64 generator of numpy, whose stream never changes, and the first ones are taken. Indices
are in ascending order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from .. import files
from ..errors import DataError, NewerFileError, StorageError, UsageError
from ..registry import Registry
from .base import LabelledImages
from .labels import Labels
from .sampling import Indices, draw, draw_two_parts, hold_out, shuffled

_FORMAT = 1
_PARTS = ("query", "train", "database")


@dataclass(frozen=True, eq=False)
class Split:
    """The images of each part, by index. Queries are in no other part.

    Attributes:
        name: Name of the protocol.
        seed: Seed of the protocol.
        query: Indices of the queries.
        train: Indices of the training images.
        database: Indices of the images that are searched.
    """

    name: str
    seed: int
    query: Indices
    train: Indices
    database: Indices

    def __post_init__(self) -> None:
        for part in _PARTS:
            indices = np.asarray(getattr(self, part), np.int64)
            if indices.ndim != 1 or len(np.unique(indices)) != len(indices) or (indices < 0).any():
                raise DataError(
                    f"The {part} part of split {self.name} must contain different indices >= 0."
                )
            object.__setattr__(self, part, indices)
        for part in _PARTS[1:]:
            common = np.intersect1d(self.query, getattr(self, part))
            if len(common):
                raise DataError(
                    f"Split {self.name}: {len(common)} images are both in query and in {part}."
                )

    @property
    def sizes(self) -> dict[str, int]:
        """The number of images in each part."""
        return {part: len(getattr(self, part)) for part in _PARTS}

    @property
    def sha256(self) -> str:
        """Digest of name, seed and all indices; equal on every machine."""
        digest = hashlib.sha256(json.dumps([self.name, self.seed, self.sizes]).encode())
        for part in _PARTS:
            digest.update(getattr(self, part).astype("<i8").tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the split to a JSON file, atomically.

        Args:
            path: The file.

        Raises:
            StorageError: The file cannot be written.
        """
        header = {"format": _FORMAT, "name": self.name, "seed": self.seed, "sha256": self.sha256}
        parts = {part: getattr(self, part).tolist() for part in _PARTS}
        files.write_text(path, json.dumps(header | parts, separators=(",", ":")) + "\n")

    @staticmethod
    def load(path: str | Path) -> Split:
        """Read a split that `save` wrote.

        Args:
            path: The file.

        Returns:
            The split.

        Raises:
            StorageError: The file cannot be read, or has been changed.
            NewerFileError: A later version of hadahash wrote it.
        """
        stored = files.read_json(path)
        try:
            if stored["format"] > _FORMAT:
                raise NewerFileError(
                    f"{path} was written by a later version of hadahash. "
                    "Update with: pip install -U hadahash"
                )
            split = Split(
                stored["name"],
                stored["seed"],
                *(np.array(stored[part], np.int64) for part in _PARTS),
            )
            whole = split.sha256 == stored["sha256"]
        except (DataError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise StorageError(
                f"{path} contains no split, or is damaged ({error}). Train again."
            ) from error
        if not whole:
            raise StorageError(f"{path} is damaged (its sha256 differs). Train again.")
        return split


Protocol = Callable[[LabelledImages, int], Split]
PROTOCOLS: Registry[Protocol] = Registry("protocol")


def list_protocols() -> list[str]:
    """Return the names of all protocols."""
    return PROTOCOLS.names()


def make_split(data: LabelledImages, protocol: str, *, seed: int = 0) -> Split:
    """Split a data set.

    Args:
        data: The data set.
        protocol: Name of the protocol; see `list_protocols`.
        seed: Seed of the draw.

    Returns:
        The split.

    Raises:
        UsageError: The protocol is unknown.
        DataError: The data set does not suit the protocol.
    """
    return PROTOCOLS.get(protocol)(data, seed)


@PROTOCOLS.register("cifar10")
def _cifar10(data: LabelledImages, seed: int) -> Split:
    query, train, rest = draw_two_parts(data, "cifar10", (100, 500), seed)
    return _sized(Split("cifar10", seed, query, train, rest), (1_000, 5_000, 54_000))


@PROTOCOLS.register("cifar10-59k")
def _cifar10_59k(data: LabelledImages, seed: int) -> Split:
    query, train, rest = draw_two_parts(data, "cifar10-59k", (100, 500), seed)
    return _sized(
        Split("cifar10-59k", seed, query, train, np.union1d(train, rest)), (1_000, 5_000, 59_000)
    )


@PROTOCOLS.register("cifar10-demo")
def _cifar10_demo(data: LabelledImages, seed: int) -> Split:
    whole = _cifar10(data, seed)

    def first(indices: Indices, count: int) -> Indices:
        groups = data.labels.take(indices).rows_by_class()
        return np.sort(np.concatenate([indices[rows[:count]] for rows in groups]))

    split = Split(
        "cifar10-demo", seed, first(whole.query, 50), whole.train, first(whole.database, 800)
    )
    return _sized(split, (500, 5_000, 8_000))


@PROTOCOLS.register("cifar10-full")
def _cifar10_full(data: LabelledImages, seed: int) -> Split:
    is_test = np.array([name.startswith("test/") for name in data.ids], bool)
    query, rest = np.flatnonzero(is_test), np.flatnonzero(~is_test)
    return _sized(Split("cifar10-full", seed, query, rest, rest), (10_000, 50_000, 50_000))


@PROTOCOLS.register("imagenet100")
def _imagenet100(data: LabelledImages, seed: int) -> Split:
    split = train_on_some(data, "imagenet100", 100, seed)
    # A class of ImageNet has 732 to 1,300 training images.
    return _sized(split, (5_000, 10_000, range(73_200, 130_001)))


@PROTOCOLS.register("tinyimagenet100")
def _tinyimagenet100(data: LabelledImages, seed: int) -> Split:
    split = train_on_some(data, "tinyimagenet100", 100, seed)
    return _sized(split, (5_000, 10_000, 40_000), (5_000, 10_000, 50_000))


@PROTOCOLS.register("voc2012")
def _voc2012(data: LabelledImages, seed: int) -> Split:
    return _sized(as_given(data, "voc2012", seed), (5_823, 5_717, 5_717))


@PROTOCOLS.register("voc2012-halves")
def _voc2012_halves(data: LabelledImages, seed: int) -> Split:
    whole = as_given(data, "voc2012-halves", seed)
    order = shuffled(whole.train, np.random.PCG64(seed))
    train, database = np.sort(order[::2]), np.sort(order[1::2])
    split = Split("voc2012-halves", seed, whole.query, train, database)
    return _sized(split, (5_823, 2_859, 2_858))


@PROTOCOLS.register("nuswide21")
def _nuswide21(data: LabelledImages, seed: int) -> Split:
    query, train, rest = draw_two_parts(data, "nuswide21", (100, 500), seed)
    return _sized(Split("nuswide21", seed, query, train, rest), (2_100, 10_500, range(183_235)))


@PROTOCOLS.register("nuswide21-all")
def _nuswide21_all(data: LabelledImages, seed: int) -> Split:
    query, train, rest = draw_two_parts(data, "nuswide21-all", (100, 500), seed)
    return _sized(
        Split("nuswide21-all", seed, query, train, np.union1d(train, rest)),
        (2_100, 10_500, range(193_735)),
    )


@PROTOCOLS.register("table")
def _table(data: LabelledImages, seed: int) -> Split:
    return as_given(data, "table", seed)


def as_given(data: LabelledImages, name: str, seed: int) -> Split:
    """Use the parts of the data set itself.

    Args:
        data: The data set, with parts.
        name: Name of the split.
        seed: Seed of the split; nothing is drawn.

    Returns:
        The split; without a database part the training images are the database.

    Raises:
        DataError: The data set has no parts.
    """
    query, train, database = _given_parts(data, name)
    return Split(name, seed, query, train, database if len(database) else train)


def train_on_some(data: LabelledImages, name: str, count: int, seed: int) -> Split:
    """Use the queries of the data set itself, and train on some images per class.

    Args:
        data: The data set, with parts.
        name: Name of the split.
        count: Training images per class.
        seed: Seed of the draw.

    Returns:
        The split; all training images of the data set are the database.

    Raises:
        DataError: The data set has no parts, or too few images of a class.
    """
    query, database, _ = _given_parts(data, name)
    (train,) = draw(data, name, database, (count,), seed)
    return Split(name, seed, query, train, database)


def _given_parts(data: LabelledImages, name: str) -> tuple[Indices, Indices, Indices]:
    """(query, train, database) as the data set itself has them."""
    if data.parts is None:
        raise DataError(
            f"Protocol {name} needs a data set with parts (train and query). Use protocol holdout."
        )
    query, train, database = (np.flatnonzero(data.parts == part) for part in _PARTS)
    return query, train, database


@PROTOCOLS.register("holdout")
def _holdout(data: LabelledImages, seed: int) -> Split:
    query, rest = hold_out(np.arange(len(data)), data.labels, 0.1, np.random.PCG64(seed))
    if not len(query):
        raise DataError(
            f"None of the {len(data.classes)} classes has 2 images: one query and one to train on."
        )
    return Split("holdout", seed, query, rest, rest)


@PROTOCOLS.register("unseen")
def _unseen(data: LabelledImages, seed: int) -> Split:
    classes, bits = len(data.classes), np.random.PCG64(seed)
    if classes < 4:
        raise DataError(
            f"Protocol unseen needs at least 4 classes, got {classes}. Use protocol holdout."
        )
    held = shuffled(np.arange(classes), bits)[: max(2, round(classes / 4))]
    in_held_out = data.labels.has(held)
    query, database = hold_out(
        np.flatnonzero(in_held_out), data.labels.take(in_held_out), 0.1, bits
    )
    if not len(query):
        raise DataError(f"None of the {len(held)} held-out classes has 2 images. Use another seed.")
    return Split("unseen", seed, query, np.flatnonzero(~in_held_out), database)


def validation_split(
    train: Indices, labels: ArrayLike | Labels, *, fraction: float, seed: int
) -> tuple[Indices, Indices]:
    """Divide the training images of a split into training and validation images.

    Of each class `fraction` is taken (of a class of 2 images or more at least 1, never all);
    multi-label images are drawn regardless of their labels. Queries and database are not used.

    Args:
        train: Indices of the training images.
        labels: Labels of the whole data set.
        fraction: Fraction of the validation images, 0 <= fraction < 1.
        seed: Seed of the draw.

    Returns:
        Indices of the training images, and of the validation images.

    Raises:
        UsageError: The fraction is out of range.

    Example:
        >>> train, validation = validation_split(
        ...     np.arange(10), [0] * 5 + [1] * 5, fraction=0.2, seed=0
        ... )
        >>> len(train), len(validation)
        (8, 2)
    """
    if not 0 <= fraction < 1:
        raise UsageError(f"The validation fraction must be >= 0 and < 1, got {fraction}.")
    train = np.asarray(train, np.int64)
    held, rest = hold_out(
        train, Labels.from_array(labels).take(train), fraction, np.random.PCG64(seed)
    )
    return rest, held


def _sized(split: Split, *allowed: tuple[int | range, ...]) -> Split:
    """Return the split if its sizes are `allowed`: a number or a range for each part."""
    for sizes in allowed:
        pairs = zip(split.sizes.values(), sizes, strict=True)
        if all(
            size in expected if isinstance(expected, range) else size == expected
            for size, expected in pairs
        ):
            return split
    expected = " or ".join(_listed(sizes) for sizes in allowed)
    raise DataError(
        f"Protocol {split.name} must give {expected}; this data set gives "
        f"{_listed(split.sizes.values())}. Use the whole data set, or protocol holdout."
    )


def _listed(sizes: Iterable[int | range]) -> str:
    words = [
        f"{size[0]:,} to {size[-1]:,}" if isinstance(size, range) else f"{size:,}" for size in sizes
    ]
    return ", ".join(f"{part} {word}" for part, word in zip(_PARTS, words, strict=True))
