"""Random draws of images by class, reproducible across versions and platforms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .base import LabelledImages
from .labels import Labels

Indices = NDArray[np.int64]


def draw_two_parts(
    data: LabelledImages, name: str, counts: tuple[int, int], seed: int
) -> tuple[Indices, Indices, Indices]:
    """Draw `counts` images per class for two parts; all others are the third.

    Args:
        data: The data set.
        name: Name of the protocol, for messages.
        counts: Images per class of the first and the second part.
        seed: Seed of the draw.

    Returns:
        Indices of the three parts, ascending.

    Raises:
        DataError: A class has too few images, or the protocol needs single-label data.
    """
    if data.multilabel and name.startswith("cifar10"):
        raise DataError(f"Protocol {name} needs single-label data, got multi-label data.")
    all_rows = np.arange(len(data))
    query, train = draw(data, name, all_rows, counts, seed)
    return query, train, np.setdiff1d(all_rows, np.concatenate([query, train]))


def draw(
    data: LabelledImages, name: str, pool: Indices, counts: tuple[int, ...], seed: int
) -> list[Indices]:
    """Draw `counts` images per class for each part, among images not drawn for an earlier class.

    Args:
        data: The data set.
        name: Name of the protocol, for messages.
        pool: Indices of the images to draw from.
        counts: Images per class of each part.
        seed: Seed of the draw.

    Returns:
        Indices of each part, ascending.

    Raises:
        DataError: A class has too few images.
    """
    bits = np.random.PCG64(seed)
    drawn = [np.empty((0, sum(counts)), np.int64)]
    free = np.ones(len(pool), bool)
    groups = data.labels.take(pool).rows_by_class()
    for rows, class_name in zip(groups, data.classes, strict=True):
        candidates = rows[free[rows]]
        if len(candidates) < sum(counts):
            raise DataError(
                f"Protocol {name} needs {sum(counts)} images per class, "
                f"but class {class_name!r} has {len(candidates)}. "
                "Use protocol holdout for small data."
            )
        candidates = shuffled(candidates, bits)[: sum(counts)]
        free[candidates] = False
        drawn.append(pool[candidates][None])
    table = np.concatenate(drawn)  # (classes, images per class)
    return [np.sort(part, axis=None) for part in np.split(table, np.cumsum(counts)[:-1], axis=1)]


def hold_out(
    indices: Indices, labels: Labels, fraction: float, bits: np.random.PCG64
) -> tuple[Indices, Indices]:
    """Hold out a fraction of each class, at least 1 image and never all.

    Args:
        indices: The images to divide.
        labels: Their labels.
        fraction: Fraction to hold out; 0 holds out nothing.
        bits: Source of random bits.

    Returns:
        Indices of the held-out images, and of the others, ascending.
    """
    groups = [np.arange(len(indices))] if labels.multilabel else labels.rows_by_class()
    held = []
    for group in (group for group in groups if len(group)):
        count = min(max(1, round(fraction * len(group))), len(group) - 1) if fraction else 0
        order = shuffled(group, bits)
        held.append((_spared(order, labels) if labels.multilabel else order)[: max(count, 0)])
    taken = np.sort(indices[np.concatenate(held)]) if held else indices[:0]
    return taken, np.setdiff1d(indices, taken)


def _spared(order: Indices, labels: Labels) -> Indices:
    """Drop images from `order` that would be the last of a label once all before them are taken."""
    left = labels.class_counts()
    kept = []
    for row in order:
        classes = labels.classes_of(row)
        if (left[classes] > 1).all():
            left[classes] -= 1
            kept.append(row)
    return np.array(kept, np.int64)


def shuffled(indices: Indices, bits: np.random.PCG64) -> Indices:
    """Return the indices in random order."""
    return indices[np.argsort(bits.random_raw(len(indices)), kind="stable")]
