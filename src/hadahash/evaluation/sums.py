"""Measures of many queries, collected block by block from tables of ties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import metrics
from .metrics import Counts, Denominator, PrecisionRecall, Reals

_ROWS = 1024  # queries per step of the arithmetic, to bound its memory
_LEVELS = 100  # points of a precision-recall curve by number of results
_FIRST = 10


class Sums:
    """Collects the measures of queries.

    Args:
        depth: Rank cut-off of average precision; None: the whole ranking.
        denominator: What average precision divides by.
        cuts: Values of k for precision at k.
        size: Number of items in the database.
    """

    def __init__(
        self, depth: int | None, denominator: Denominator, cuts: Sequence[int], size: int
    ) -> None:
        self.depth, self.denominator, self.cuts, self.size = depth, denominator, list(cuts), size
        self.other_denominator: Denominator = "possible" if denominator == "found" else "found"
        steps = np.geomspace(1, size, _LEVELS).round().astype(np.int64) if size else np.zeros(0)
        self._levels = np.unique(np.asarray(steps, np.int64))
        self._ap: list[Reals] = []
        self._other: list[Reals] = []
        self._hits: list[Reals] = []
        self._relevant: list[Counts] = []
        self._first: list[Counts] = []

    def add_all(self, total: Counts, relevant: Counts) -> None:
        """Add tables of any number of queries."""
        for start in range(0, len(total), _ROWS):
            rows = slice(start, start + _ROWS)
            self.add(total[rows], relevant[rows])

    def add(self, total: Counts, relevant: Counts) -> None:
        """Add the tables of a block of queries.

        Args:
            total: int64 (q, ties), number of items in each tie, best first.
            relevant: int64 (q, ties), number of relevant items in each tie.
        """
        own = (total, relevant)
        short = own if self.depth is None else metrics.shorten(total, relevant, self.depth)
        options: Any = {"depth": self.depth}
        ap = metrics.average_precision(*short, **options, denominator=self.denominator)
        self._ap.append(ap)
        if self.depth is not None:
            other = metrics.average_precision(*short, **options, denominator=self.other_denominator)
            self._other.append(other)
        self._hits.append(metrics.hits_at(*own, np.concatenate([self.cuts, self._levels])))
        self._relevant.append(relevant.sum(axis=1))
        nearest = (total > 0).argmax(axis=1)
        self._first.append(total[np.arange(len(total)), nearest])

    def average_precision(self) -> Reals:
        """float (q,), NaN where the denominator is 0."""
        return np.concatenate(self._ap)

    def other_map(self, mean: float, *, skip: bool) -> float:
        """The mAP for the other denominator; without a cut-off both are the same."""
        if self.depth is None:
            return mean
        ap = np.concatenate(self._other)
        if not skip or np.isnan(ap).all():
            ap = np.nan_to_num(ap)
        return float(np.nanmean(ap))

    def relevant(self) -> Counts:
        """int64 (q,), number of relevant items of each query."""
        return np.concatenate(self._relevant)

    def precision_at(self) -> dict[int, float]:
        """Mean precision among the first k results."""
        hits = np.concatenate(self._hits)[:, : len(self.cuts)].mean(axis=0)
        return {k: float(found / k) for k, found in zip(self.cuts, hits, strict=True)}

    def precision_at_most(self) -> dict[int, float]:
        """The largest precision that is possible: a query may have fewer than k relevant items."""
        relevant = self.relevant()
        return {k: float(np.minimum(relevant, k).mean() / k) for k in self.cuts}

    def first_tie(self) -> float:
        """Fraction of queries whose first ten results tie."""
        return float((np.concatenate(self._first) >= min(_FIRST, self.size)).mean())

    def curve(self) -> PrecisionRecall:
        """Precision and recall of the first 1, ..., n results."""
        hits = np.concatenate(self._hits)[:, len(self.cuts) :]
        relevant = self.relevant()
        searched = relevant > 0
        recall = hits[searched] / relevant[searched, None]
        return PrecisionRecall(
            radius=self._levels,
            precision=(hits / self._levels).mean(axis=0),
            recall=recall.mean(axis=0) if searched.any() else np.zeros(len(self._levels)),
            micro_precision=(hits / self._levels).mean(axis=0),
            micro_recall=hits.sum(axis=0) / max(int(relevant.sum()), 1),
            by="results",
        )
