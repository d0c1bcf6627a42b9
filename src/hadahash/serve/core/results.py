"""The answer to a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...codes import Codes
from ...index import Item, Neighbor
from ...photos import judge_same, same_photo_threshold
from ...queries import Queries
from ...ranking import Rank
from .collection import Collection


class Shown(NamedTuple):
    """A result of a search."""

    neighbor: Neighbor
    has_image: bool
    same_photo: bool | None  # None: not known
    looks_distance: int | None


class Found(NamedTuple):
    """The answer to a search."""

    item: Item | None  # the query, if it is an item of the index
    query: Queries | Codes  # with real values, or only bits
    rank: Rank
    weight: float | None
    hits: list[Shown]
    looks: bytes | None  # what the query looks like
    model: str  # id of the model that made the codes


def show(
    collection: Collection, item: Item | None, found: Sequence[Neighbor], looks: bytes | None
) -> tuple[bytes | None, list[Shown]]:
    """Return the results of a search as they are shown.

    Args:
        collection: The collection.
        item: The query, if it is an item of the index.
        found: The results.
        looks: What the query looks like, unless it is an item.

    Returns:
        What the query looks like, as far as it is known, and the results.
    """
    compared = looks is not None or item is not None
    judged = compared and same_photo_threshold(collection.index) is not None
    known = collection.looks([*([] if item is None else [item]), *(found if judged else ())])
    looks = looks if item is None else known.get(item.id)
    pairs = zip(found, judge_same(collection.index, found, looks, known), strict=True)
    return looks, [Shown(each, collection.has_image(each), *same) for each, same in pairs]
