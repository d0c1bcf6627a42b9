"""Known-item search: does an altered copy of a stored image find that image?

One item of the database is right for each query. All measures follow from the scores of the right
items and from counts, so that they do not depend on how items with equal score happen to be sorted:

- recall@k: probability that the right item is among the first k, over all orders of ties;
- micro average precision (as in the image copy detection data set DISC21): all pairs of query and
  item are put into one list by score, and the average precision of the right pairs is taken. It
  shows whether one threshold on the score separates copies from other images. Among pairs with
  equal score the wrong ones come first;
- recall at precision .9: largest fraction of right pairs above a threshold on the score, where at
  least 90 % of all pairs above it are right.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..codes import Codes
from ..errors import UsageError
from ..queries import Queries
from ..ranking import Ranking
from .metrics import Counts, Reals
from .ranked import Points, Scored, score_database

Floats = NDArray[np.float32] | Reals

_PRECISION = 0.9
_FIRST = 10
_DIGITS = 5


@dataclass(frozen=True)
class KnownItem:
    """Measures of a known-item search.

    Attributes:
        queries: Number of queries.
        recall_1: Expected fraction of queries whose right item comes first.
        recall_10: Expected fraction of queries with the right item among the first ten.
        micro_ap: Micro average precision; wrong pairs first among ties.
        recall_at_precision_90: Recall at precision .9.
    """

    queries: int
    recall_1: float
    recall_10: float
    micro_ap: float
    recall_at_precision_90: float

    def to_dict(self) -> dict[str, float]:
        """Return the values by name, rounded to 5 digits."""
        return {name: round(value, _DIGITS) for name, value in asdict(self).items()}


def search_known_items(
    query: Queries | Codes,
    items: ArrayLike,
    database: Codes,
    *,
    rank: str = "hamming",
    ranking: Ranking | None = None,
    weight: float | None = None,
) -> KnownItem:
    """Search items of the database by altered copies.

    Args:
        query: The copies.
        items: (q,), row of the right item of each copy in the database.
        database: Codes of the database.
        rank: "hamming", "class" or "photo", see `hadahash.ranking`.
        ranking: Codewords and fitted numbers; None for a method without codewords.
        weight: Weight of the content in "photo".

    Returns:
        The measures.

    Raises:
        UsageError: Queries, items, database and ranking do not fit each other.

    Example:
        >>> database = Codes(packed=np.array([[0], [0], [255]], np.uint8), bits=8)
        >>> search_known_items(database[[0, 2]], [0, 2], database).recall_1
        0.75
    """
    rows = np.asarray(items, np.int64)
    if rows.shape != (len(query),) or not len(rows):
        raise UsageError(f"{len(query)} queries need {len(query)} items, got {rows.shape}.")
    scored = score_database(query, database, rank=rank, ranking=ranking, weight=weight)
    own, above, equal = _places(scored, rows[:, None])
    levels, level = np.unique(own[:, 0], return_inverse=True)
    pairs = np.zeros(len(levels) + 1, np.int64)
    for _, points in scored.blocks():
        reached = np.searchsorted(levels, points.ravel(), "right")
        weights = np.broadcast_to(scored.sizes, points.shape).ravel()
        found = np.bincount(reached, weights, minlength=len(pairs))
        pairs += found.astype(np.int64)
    return measure_places(above[:, 0], equal[:, 0], level, pairs[1:])


def agreement(
    query: Queries | Codes,
    query_features: Floats,
    database: Codes,
    database_features: Floats,
    *,
    rank: str = "hamming",
    ranking: Ranking | None = None,
    weight: float | None = None,
) -> float:
    """How many of the ten images that are nearest by features are among the first ten results.

    Nearest by features: the largest cosine. The expectation is over all orders of ties.

    Args:
        query: The queries.
        query_features: (q, d), their features.
        database: Codes of the database.
        database_features: (n, d), features of the database.
        rank: "hamming", "class" or "photo", see `hadahash.ranking`.
        ranking: Codewords and fitted numbers; None for a method without codewords.
        weight: Weight of the content in "photo".

    Returns:
        A fraction in [0, 1], the mean over queries. With fewer than ten images in the database all
        of them are nearest.
    """
    scored = score_database(query, database, rank=rank, ranking=ranking, weight=weight)
    cosines = _units(query_features) @ _units(database_features).T
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :_FIRST]
    _, above, equal = _places(scored, nearest)
    return float(expected_recall(above, equal, _FIRST).mean())


def _units(features: Floats) -> Reals:
    wide = np.asarray(features, np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12))


def _places(scored: Scored, items: NDArray[np.int64]) -> tuple[Points, Counts, Counts]:
    """Points of some items (q, m) of each query; how many items have more points, or as many."""
    own = np.empty(items.shape, np.int64)
    above, equal = np.empty_like(own), np.empty_like(own)
    for part, points in scored.blocks():
        rows = scored.member[items[part]]
        own[part] = np.take_along_axis(points, rows, axis=1)
        for column in range(items.shape[1]):
            right = own[part, column, None]
            above[part, column] = (points > right) @ scored.sizes
            equal[part, column] = (points == right) @ scored.sizes
    return own, above, equal


def measure_places(above: Counts, equal: Counts, level: Counts, pairs: Counts) -> KnownItem:
    """Compute all measures from counts.

    Args:
        above: int64 (q,), number of items with a higher score than the right one.
        equal: int64 (q,), number of items with the score of the right one, itself included.
        level: int64 (q,), place of the score of the right item among the distinct scores of right
            items, ascending.
        pairs: int64 (levels,), number of pairs of query and item with a score of at least this
            level and below the next one.

    Returns:
        The measures.

    Example:
        Two queries and three items. The first query finds its item first, before scores 1 and 0.
        For the second query the right item and a wrong one have the score 2, the third has 0.

        >>> found = measure_places(*map(np.array, ([0, 0], [1, 2], [1, 0], [2, 1])))
        >>> found.recall_1, found.recall_10, round(found.micro_ap, 4)
        (0.75, 1.0, 0.8333)
    """
    right = np.bincount(level, minlength=len(pairs))
    reached = np.cumsum(pairs[::-1])[::-1]  # pairs at each level or above
    right_reached = np.cumsum(right[::-1])[::-1]
    enough = right_reached / np.maximum(reached, 1) >= _PRECISION
    return KnownItem(
        queries=len(above),
        recall_1=float(expected_recall(above, equal, 1).mean()),
        recall_10=float(expected_recall(above, equal, 10).mean()),
        micro_ap=_micro_ap(right, right_reached, reached),
        recall_at_precision_90=float((right_reached * enough).max() / len(above)),
    )


def expected_recall(above: Counts, equal: Counts, k: int) -> Reals:
    """Probability that an item is among the first `k`, over all orders of ties.

    Args:
        above: Number of items with a higher score.
        equal: Number of items with the same score, itself included.
        k: Number of results.

    Returns:
        One probability per item.

    Example:
        >>> expected_recall(np.array([0, 8, 12]), np.array([4, 4, 1]), 10).tolist()
        [1.0, 0.5, 0.0]
    """
    return np.asarray(np.clip((k - above) / equal, 0, 1), np.float64)


def _micro_ap(right: Counts, right_reached: Counts, reached: Counts) -> float:
    """Mean precision at the right pairs; the wrong pairs of a level come before its right ones."""
    rows: NDArray[np.int64] = np.repeat(np.arange(len(right)), right)
    first = np.cumsum(right) - right
    place = 1 + np.arange(len(rows)) - first[rows]  # 1, 2, ... among the right pairs of the level
    hits = right_reached[rows] - right[rows] + place
    return float((hits / (reached[rows] - right[rows] + place)).mean())
