"""Which images are queries, which are trained on and which are searched: a Split, made by a named protocol and a seed.

    cifar10          100 images a class are queries, 500 others a class are trained on, the other 54,000 are the database
    cifar10-59k      the same queries and training images; the database is all but the queries
    cifar10-demo     of the same queries 50 a class, the same training images, and of the database 800 a class
    cifar10-full     the official test set are the queries; the 50,000 others are trained on and searched
    imagenet100      the validation images of the 100 classes are the queries, all their training images the database, and
                     100 a class of these are trained on
    tinyimagenet100  the same of Tiny-ImageNet
    nuswide21        of each class in turn 100 images are queries and 500 others are trained on, of those that no class
                     before has taken; the rest is the database
    nuswide21-all    the same queries and training images; the database is all but the queries
    voc2012          the validation set are the queries; the training set is trained on and searched
    table            as the data set itself says of each image: train, query or database. Where it names no database, the
                     training images are searched
    holdout          for any collection: a tenth of each class, at least one image (but never the only one), are queries;
                     the rest is both trained on and searched. Of images with several labels a tenth in all, and none
                     that is the last one left with one of its labels
    unseen           for any collection of 4 classes or more: a quarter of the classes, at least 2, is never trained on; a
                     tenth of their images are queries, searched in the rest of theirs

A split follows from the seed alone: each class in turn is put in the order of as many raw 64-bit numbers of numpy's
PCG64 generator, whose stream never changes, and the first ones are taken. Indices are kept in ascending order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import files
from ..errors import DataError, NewerFileError, StorageError, UsageError
from ..registry import Registry
from .base import LabelledImages
from .labels import Labels

_FORMAT = 1
_PARTS = ("query", "train", "database")

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """The images of each part by their number in the data set. Queries are in no other part."""

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
                    f"The {part} part of split {self.name} must be a list of different indices >= 0."
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
        return {part: len(getattr(self, part)) for part in _PARTS}

    @property
    def sha256(self) -> str:
        """Of name, seed and all indices: equal splits have equal ones on every machine."""
        digest = hashlib.sha256(json.dumps([self.name, self.seed, self.sizes]).encode())
        for part in _PARTS:
            digest.update(getattr(self, part).astype("<i8").tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write a JSON file, whole or not at all."""
        header = {"format": _FORMAT, "name": self.name, "seed": self.seed, "sha256": self.sha256}
        parts = {part: getattr(self, part).tolist() for part in _PARTS}
        files.write_text(path, json.dumps(header | parts, separators=(",", ":")) + "\n")

    @staticmethod
    def load(path: str | Path) -> Split:
        """Read what `save` wrote; a file that has changed since is refused."""
        stored = files.read_json(path)
        try:
            if stored["format"] > _FORMAT:
                raise NewerFileError(
                    f"{path} was written by a later version of hadahash. Update with: pip install -U hadahash"
                )
            split = Split(
                stored["name"],
                stored["seed"],
                *(np.array(stored[part], np.int64) for part in _PARTS),
            )
            whole = split.sha256 == stored["sha256"]
        except (DataError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise StorageError(
                f"{path} does not hold a split, or is damaged ({error}). Make it again."
            ) from error
        if not whole:
            raise StorageError(
                f"{path} is damaged (its sha256 is not the one it was saved with). Make it again."
            )
        return split


Protocol = Callable[[LabelledImages, int], Split]
PROTOCOLS: Registry[Protocol] = Registry("protocol")


def list_protocols() -> list[str]:
    return PROTOCOLS.names()


def make_split(data: LabelledImages, protocol: str, *, seed: int = 0) -> Split:
    """The split of a data set by a protocol's name."""
    return PROTOCOLS.get(protocol)(data, seed)


@PROTOCOLS.register("cifar10")
def _cifar10(data: LabelledImages, seed: int) -> Split:
    query, train, rest = _per_class(data, "cifar10", (100, 500), seed)
    return _sized(Split("cifar10", seed, query, train, rest), (1_000, 5_000, 54_000))


@PROTOCOLS.register("cifar10-59k")
def _cifar10_59k(data: LabelledImages, seed: int) -> Split:
    query, train, rest = _per_class(data, "cifar10-59k", (100, 500), seed)
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
    return _sized(
        split, (5_000, 10_000, range(73_200, 130_001))
    )  # a class of ImageNet has 732 to 1,300 training images


@PROTOCOLS.register("tinyimagenet100")
def _tinyimagenet100(data: LabelledImages, seed: int) -> Split:
    split = train_on_some(data, "tinyimagenet100", 100, seed)
    return _sized(split, (5_000, 10_000, 40_000), (5_000, 10_000, 50_000))


@PROTOCOLS.register("voc2012")
def _voc2012(data: LabelledImages, seed: int) -> Split:
    return _sized(as_given(data, "voc2012", seed), (5_823, 5_717, 5_717))


@PROTOCOLS.register("nuswide21")
def _nuswide21(data: LabelledImages, seed: int) -> Split:
    query, train, rest = _per_class(data, "nuswide21", (100, 500), seed)
    return _sized(Split("nuswide21", seed, query, train, rest), (2_100, 10_500, range(183_235)))


@PROTOCOLS.register("nuswide21-all")
def _nuswide21_all(data: LabelledImages, seed: int) -> Split:
    query, train, rest = _per_class(data, "nuswide21-all", (100, 500), seed)
    return _sized(
        Split("nuswide21-all", seed, query, train, np.union1d(train, rest)),
        (2_100, 10_500, range(193_735)),
    )


@PROTOCOLS.register("table")
def _table(data: LabelledImages, seed: int) -> Split:
    return as_given(data, "table", seed)


def as_given(data: LabelledImages, name: str, seed: int) -> Split:
    """The parts that the data set itself has; without a database the training images are searched."""
    query, train, database = _given_parts(data, name)
    return Split(name, seed, query, train, database if len(database) else train)


def train_on_some(data: LabelledImages, name: str, count: int, seed: int) -> Split:
    """The data set's own queries; its training images are the database, and `count` a class of them are trained on."""
    query, database, _ = _given_parts(data, name)
    (train,) = _draw(data, name, database, (count,), seed)
    return Split(name, seed, query, train, database)


def _given_parts(data: LabelledImages, name: str) -> tuple[Indices, Indices, Indices]:
    """(query, train, database) as the data set itself has them."""
    if data.parts is None:
        raise DataError(
            f"Protocol {name} needs images that are marked as query or train. Use the protocol holdout."
        )
    query, train, database = (np.flatnonzero(data.parts == part) for part in _PARTS)
    return query, train, database


@PROTOCOLS.register("holdout")
def _holdout(data: LabelledImages, seed: int) -> Split:
    query, rest = _hold_out(np.arange(len(data)), data.labels, 0.1, np.random.PCG64(seed))
    if not len(query):
        raise DataError(
            f"No class of the {len(data.classes)} has 2 images: one is needed as a query and one to learn from."
        )
    return Split("holdout", seed, query, rest, rest)


@PROTOCOLS.register("unseen")
def _unseen(data: LabelledImages, seed: int) -> Split:
    classes, bits = len(data.classes), np.random.PCG64(seed)
    if classes < 4:
        raise DataError(
            f"Protocol unseen needs 2 classes to learn and 2 others to search, got {classes}. Use holdout."
        )
    held = _shuffled(np.arange(classes), bits)[: max(2, round(classes / 4))]
    own = data.labels.has(held)
    query, database = _hold_out(np.flatnonzero(own), data.labels.take(own), 0.1, bits)
    if not len(query):
        raise DataError(
            f"None of the {len(held)} classes that protocol unseen keeps back has 2 images. Use another seed."
        )
    return Split("unseen", seed, query, np.flatnonzero(~own), database)


def validation_split(
    train: Indices, labels: ArrayLike | Labels, *, fraction: float, seed: int
) -> tuple[Indices, Indices]:
    """Divide the training images of a split into those to train on and those to validate with: (train, validation).

    `labels` are those of the whole data set. Of each class `fraction` is taken (of a class of 2 or more at least 1
    image and never all); images of several labels are drawn without regard to them. Queries and database are not seen.

    >>> train, validation = validation_split(np.arange(10), [0] * 5 + [1] * 5, fraction=0.2, seed=0)
    >>> len(train), len(validation)
    (8, 2)
    """
    if not 0 <= fraction < 1:
        raise UsageError(
            f"The validation fraction must be at least 0 and less than 1, got {fraction}."
        )
    train = np.asarray(train, np.int64)
    held, rest = _hold_out(
        train, Labels.from_array(labels).take(train), fraction, np.random.PCG64(seed)
    )
    return rest, held


def _per_class(
    data: LabelledImages, name: str, counts: tuple[int, int], seed: int
) -> tuple[Indices, Indices, Indices]:
    """For each class so many images for the first and the second part; all others are the third."""
    if data.multilabel and name.startswith("cifar10"):
        raise DataError(f"Protocol {name} needs one label an image, got multi-label data.")
    everything = np.arange(len(data))
    query, train = _draw(data, name, everything, counts, seed)
    return query, train, np.setdiff1d(everything, np.concatenate([query, train]))


def _draw(
    data: LabelledImages, name: str, pool: Indices, counts: tuple[int, ...], seed: int
) -> list[Indices]:
    """One part for each of `counts`: of each class in turn so many images of `pool` that no class before has drawn."""
    bits = np.random.PCG64(seed)
    drawn: NDArray[np.int64] = np.zeros((0, sum(counts)), np.int64)
    free = np.ones(len(pool), bool)
    groups = data.labels.take(pool).rows_by_class()
    for rows, class_name in zip(groups, data.classes, strict=True):
        own = rows[free[rows]]
        if len(own) < sum(counts):
            raise DataError(
                f"Protocol {name} takes {sum(counts)} images of each class, but class {class_name!r} has {len(own)}. "
                "Use the protocol holdout for a small collection."
            )
        own = _shuffled(own, bits)[: sum(counts)]
        free[own] = False
        drawn = np.vstack([drawn, pool[own]])  # (classes so far, images a class)
    return [np.sort(part, axis=None) for part in np.split(drawn, np.cumsum(counts)[:-1], axis=1)]


def _hold_out(
    indices: Indices, labels: Labels, fraction: float, bits: np.random.PCG64
) -> tuple[Indices, Indices]:
    """(held out, rest): `fraction` of each class, at least 1 image and never all; `labels` are those of `indices`."""
    groups = [np.arange(len(indices))] if labels.multilabel else labels.rows_by_class()
    held = []
    for group in (group for group in groups if len(group)):
        count = min(max(1, round(fraction * len(group))), len(group) - 1) if fraction else 0
        order = _shuffled(group, bits)
        held.append((_spared(order, labels) if labels.multilabel else order)[: max(count, 0)])
    taken = np.sort(indices[np.concatenate(held)]) if held else indices[:0]
    return taken, np.setdiff1d(indices, taken)


def _spared(order: Indices, labels: Labels) -> Indices:
    """`order` without the images that would take the last one of a label away, if all before them are taken."""
    left = labels.class_counts()
    kept = []
    for row in order:
        own = labels.classes_of(row)
        if (left[own] > 1).all():
            left[own] -= 1
            kept.append(row)
    return np.array(kept, np.int64)


def _shuffled(indices: Indices, bits: np.random.PCG64) -> Indices:
    return indices[np.argsort(bits.random_raw(len(indices)), kind="stable")]


def _sized(split: Split, *allowed: tuple[int | range, ...]) -> Split:
    """The split, if its sizes are among those `allowed` for query, train and database: a number each, or a range."""
    for sizes in allowed:
        pairs = zip(split.sizes.values(), sizes, strict=True)
        if all(
            size in wanted if isinstance(wanted, range) else size == wanted
            for size, wanted in pairs
        ):
            return split
    wanted = " or ".join(_listed(sizes) for sizes in allowed)
    raise DataError(
        f"Protocol {split.name} must give {wanted}; this data set gives {_listed(split.sizes.values())}. "
        "Use the whole data set, or the protocol holdout."
    )


def _listed(sizes: Iterable[int | range]) -> str:
    words = [
        f"{size[0]:,} to {size[-1]:,}" if isinstance(size, range) else f"{size:,}" for size in sizes
    ]
    return ", ".join(f"{part} {word}" for part, word in zip(_PARTS, words, strict=True))
