"""Scores as numbers from 0 to 1 that people can read, in the same order."""

from __future__ import annotations

import numpy as np

from ..native.ranked_tables import LEAST_PROBABILITY
from ..queries import Floats, Queries
from .model import Doubles, Ranking, check_rank
from .preparing import query_probabilities

_DIGITS = 6
_UNRELATED = 3.0  # -log of the similarity of unrelated photos, if only the content counts


def similarities(
    queries: Queries, ranking: Ranking, rank: str, weight: float, scores: Doubles
) -> Doubles:
    """Similarities of results from 0 to 1. A greater score never has a smaller similarity.

    - `class`: the probability of sharing a class, which is the score.
    - `photo`: exp((score - best) / (1 + weight * m / 3)), where `best` is the greatest score that
      an item can have and m the mean of the query's content values without signs. Without content
      in the weight it is the probability of sharing a class, relative to the greatest possible one.
    - without codewords: the cosine of the angle between query and item that the bits estimate.

    Args:
        queries: The queries.
        ranking: Codewords and fitted numbers.
        rank: "class" or "photo".
        weight: Weight of the content; 0 for "class".
        scores: Scores of results, float64 (q, n).

    Returns:
        float64 (q, n).

    Example:
        >>> ranking = Ranking([[1, 1, 1, 1], [1, -1, 1, -1]])
        >>> query = Queries([[1, 1, 1, 1]], content=[[1.0, -2.0]])
        >>> best = np.log(ranking.class_probabilities(query.values).max()) + 2 * 1.5
        >>> similarities(query, ranking, "photo", 2.0, np.array([[best, best - 2]])).tolist()
        [[1.0, 0.367879]]
    """
    check_rank(rank)
    content = None if rank == "class" else queries.content
    if ranking.codewords is None:
        found = _cosines(queries, content, ranking, weight, scores)
    elif content is None:
        found = scores
    else:
        mean = np.abs(content.astype(np.float64)).mean(axis=1)[:, None]
        most = np.maximum(_most_probable(queries, ranking), LEAST_PROBABILITY)
        best = np.log(most)[:, None] + weight * mean
        found = np.exp((scores - best) / (1 + weight * mean / _UNRELATED))
    return np.asarray(np.clip(found, 0, 1).round(_DIGITS))


def _cosines(
    queries: Queries, content: Floats | None, ranking: Ranking, weight: float, scores: Doubles
) -> Doubles:
    best = np.abs(queries.values.astype(np.float64)).sum(axis=1)
    if content is not None:
        more = np.abs(content.astype(np.float64)).sum(axis=1)
        best = (int(ranking.class_weight) * best + weight * more) / content.shape[1]
    part = np.divide(scores, best[:, None], out=np.zeros_like(scores), where=best[:, None] > 0)
    return np.asarray(np.sin(np.pi / 2 * np.clip(part, 0, 1)))


def _most_probable(queries: Queries, ranking: Ranking) -> Doubles:
    """The greatest probability of sharing a class that an item can have."""
    if not ranking.multilabel:
        return np.asarray(query_probabilities(queries, ranking).max(axis=1))
    p = ranking.class_probabilities(queries.values)
    return np.asarray(1 - (1 - p).prod(axis=1))
