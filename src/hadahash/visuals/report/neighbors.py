"""Queries with their nearest images, as thumbnails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...codes import hamming
from ...data import LabelledImages
from ...data.decode import read_reduced
from ...errors import ImageError
from ...queries import Queries
from ...ranking import Ranking, score
from ...runs import EvaluatedRun
from ..thumbnails import Pixels, Thumbnail, shrink

NEIGHBORS = 10
_SIDE = 96  # pixels of a thumbnail
_MAX_LABELS = 3  # in a caption


class Pictures:
    """Thumbnails of a data set, by id."""

    def __init__(self, dataset: LabelledImages, *, photo: bool = True) -> None:
        """Index the images by id.

        Args:
            dataset: The images with their ids.
            photo: Embed them as JPEG instead of PNG.
        """
        self.photo = photo
        self._images = dataset.images
        self._row_of = {name: row for row, name in enumerate(dataset.ids.tolist())}

    def get(self, name: object) -> Pixels:
        """The picture of an image, gray if it is missing or cannot be read.

        Args:
            name: Id of the image.

        Returns:
            uint8 (side, side, 3).
        """
        row = self._row_of.get(name)
        if row is not None:
            try:
                return shrink(read_reduced(self._images, row, _SIDE).pixels, _SIDE, square=True)
            except ImageError:
                pass
        return np.full((8, 8, 3), 128, np.uint8)


def choose(
    average_precision: ArrayLike, *, hardest: int = 8, random: int = 4, seed: int = 0
) -> tuple[list[int], list[int]]:
    """Choose queries to show.

    Args:
        average_precision: One value per query, NaN for queries that were not evaluated.
        hardest: Number of queries with the lowest average precision.
        random: Number of other queries.
        seed: Random seed of the others.

    Returns:
        Rows of the hardest queries, lowest first, and of the others.

    Example:
        >>> hard, others = choose([0.9, 0.1, np.nan, 0.5, 0.8], hardest=2, random=2)
        >>> hard, sorted(others)
        ([1, 3], [0, 4])
    """
    values = np.asarray(average_precision, float)
    order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]
    rest = order[hardest:]
    drawn = np.random.default_rng(seed).permutation(len(rest))[:random]
    return order[:hardest].tolist(), rest[drawn].tolist()


def neighbor_rows(
    run: EvaluatedRun,
    pictures: Pictures,
    rows: Iterable[int],
    average_precision: NDArray[np.float64],
    *,
    ranking: Ranking | None = None,
) -> list[list[Thumbnail]]:
    """Thumbnails of queries and of their nearest images.

    Args:
        run: The run with codes and labels.
        pictures: The images.
        rows: Rows of the queries.
        average_precision: float (queries,).
        ranking: Order the images by kind and content; None: by the distance of the class bits.

    Returns:
        For each query: the query, then its nearest images, ties in the order of ids.
    """
    return [_row(run, pictures, int(row), float(average_precision[row]), ranking) for row in rows]


def _row(
    run: EvaluatedRun, pictures: Pictures, row: int, ap: float, ranking: Ranking | None
) -> list[Thumbnail]:
    label, found = run.query_labels[row], run.database_labels
    caption = _label_text(label, run.classes) + ("" if np.isnan(ap) else f"\nAP {ap:.2f}")
    shown = [Thumbnail(pictures.get(run.query.ids[row]), caption, photo=pictures.photo)]
    distances = hamming(run.query.packed[row : row + 1], run.database.packed)[0]
    order = distances.astype(np.float64)
    if ranking is not None:
        order = -score(Queries.from_codes(run.query[[row]]), run.database, ranking, "photo")[0]
    for hit in _nearest(order, run.database.ids):
        relevant = _shares_label(label, found[hit])
        mark = "✓" if relevant else "✗"
        caption = f"{_label_text(found[hit], run.classes, label)}\n{mark} {distances[hit]}"
        picture = pictures.get(run.database.ids[hit])
        shown.append(Thumbnail(picture, caption, relevant, pictures.photo))
    return shown


def _nearest(distances: NDArray[np.float64], ids: NDArray[np.str_]) -> list[int]:
    """Rows of the nearest items: by distance, then by id."""
    count = min(NEIGHBORS, len(distances))
    near = np.flatnonzero(distances <= np.partition(distances, count - 1)[count - 1])
    chosen: list[int] = near[np.lexsort((ids[near], distances[near]))][:count].tolist()
    return chosen


def _shares_label(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    return bool((first & second).any() if first.ndim else first == second)


def _label_text(
    label: NDArray[np.int64], classes: Sequence[str], query: NDArray[np.int64] | None = None
) -> str:
    """Class names of an image, those of the query first; the first few of many."""
    numbers = np.flatnonzero(label) if label.ndim else np.array([int(label)])
    if label.ndim and query is not None:
        numbers = numbers[np.argsort(-query[numbers], kind="stable")]
    more = f" +{len(numbers) - _MAX_LABELS}" if len(numbers) > _MAX_LABELS else ""
    return ", ".join(classes[number] for number in numbers[:_MAX_LABELS]) + more or "no label"
