"""Queries with the images that were found for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...codes import hamming
from ...data import LabelledImages, shrink_to_square
from ...errors import ImageError
from ...runs import Evaluated
from ..html import Shown

NEIGHBOURS = 10
_SIDE = 96  # pixels of a picture at most
_LABELS = 3  # named under a picture at most


class Pictures:
    """The images of a data set by their ids, small; grey where one is gone or broken."""

    def __init__(self, dataset: LabelledImages) -> None:
        self._images = dataset.images
        self._row_of = {name: row for row, name in enumerate(dataset.ids.tolist())}

    def get(self, name: object) -> NDArray[np.uint8]:
        row = self._row_of.get(name)
        try:
            image = None if row is None else self._images[row]
        except ImageError:
            image = None
        if image is None:
            return np.full((8, 8, 3), 128, np.uint8)
        return shrink_to_square(image, min(_SIDE, *image.shape[:2]))


def choose(
    ap: Sequence[float | None], *, hardest: int = 8, random: int = 4, seed: int = 0
) -> tuple[list[int], list[int]]:
    """The queries with the least average precision, the worst first, and a few of the others, drawn by the seed.

    >>> hard, others = choose([0.9, 0.1, None, 0.5, 0.8], hardest=2, random=2)
    >>> hard, sorted(others)
    ([1, 3], [0, 4])
    """
    values = np.array([np.nan if value is None else value for value in ap], float)
    order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]
    rest = order[hardest:]
    drawn = np.random.default_rng(seed).permutation(len(rest))[:random]
    return order[:hardest].tolist(), rest[drawn].tolist()


def neighbour_rows(run: Evaluated, pictures: Pictures, places: Iterable[int]) -> list[list[Shown]]:
    """For each query, by its place: the query, then its nearest images, ties in the order of ids as an index has them."""
    return [_row(run, pictures, int(place)) for place in places]


def _row(run: Evaluated, pictures: Pictures, place: int) -> list[Shown]:
    wanted, found = run.query_labels[place], run.database_labels
    ap = run.report["ap"][place]
    score = "" if ap is None else f"\nAP {ap:.2f}"
    shown = [Shown(pictures.get(run.query.ids[place]), f"{_labels(wanted, run.classes)}{score}")]
    distances = hamming(run.query.packed[place : place + 1], run.database.packed)[0]
    for hit in _nearest(distances, run.database.ids):
        right = _relevant(wanted, found[hit])
        caption = (
            f"{_labels(found[hit], run.classes, wanted)}\n{'✓' if right else '✗'} {distances[hit]}"
        )
        shown.append(Shown(pictures.get(run.database.ids[hit]), caption, right))
    return shown


def _nearest(distances: NDArray[np.int32], ids: NDArray[np.str_]) -> list[int]:
    """The places of the nearest items: by distance, then id."""
    count = min(NEIGHBOURS, len(distances))
    near = np.flatnonzero(distances <= np.partition(distances, count - 1)[count - 1])
    chosen: list[int] = near[np.lexsort((ids[near], distances[near]))][:count].tolist()
    return chosen


def _relevant(wanted: NDArray[np.int64], given: NDArray[np.int64]) -> bool:
    """Of the same class or, where images have several labels (C,), with one in common."""
    return bool((wanted & given).any() if wanted.ndim else wanted == given)


def _labels(
    label: NDArray[np.int64], classes: tuple[str, ...], wanted: NDArray[np.int64] | None = None
) -> str:
    """The class of an image, or the classes: the first few of many, those that are `wanted` before all others."""
    numbers = np.flatnonzero(label) if label.ndim else np.array([int(label)])
    if label.ndim and wanted is not None:
        numbers = numbers[np.argsort(-wanted[numbers], kind="stable")]
    more = f" +{len(numbers) - _LABELS}" if len(numbers) > _LABELS else ""
    return ", ".join(classes[number] for number in numbers[:_LABELS]) + more or "no label"
