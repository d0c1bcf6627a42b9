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
from numpy.typing import NDArray

from .metrics import Counts, Reals

_PRECISION = 0.9
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
