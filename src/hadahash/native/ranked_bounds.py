"""Where items with at least so many points can be: balls around codewords, and caps.

Notation: an item s at distance d_c of codeword w_c has the weight e_c = exp(-2 b d_c) =
exp(b (<s, w_c> - K)), and P = sum_c p_c e_c / sum_c e_c with the query's probabilities p_c.

P > t means sum_c (p_c - t) e_c > 0. Let H be the classes with p_c > t, and u_c = t - p_c >= 0 for
the others. By Jensen's inequality sum_c u_c e_c >= W exp(b (<s, m> - K)) with W = sum u_c and
m = sum u_c w_c / W. So for shares a_c that sum to 1, some class c of H has
(p_c - t) e_c > a_c W exp(b (<s, m> - K)). At distance r of w_c, <s, m> is at least <w_c, m> minus
twice the sum of the r largest values of w_ck m_k. This bounds r: the item is in a ball around w_c.

Several labels: -log(1 - P) = sum_c g_c(d_c) with g_c = -log(factor_c) >= 0. If classes outside H
contribute at most B, then some class of H has g_c(d_c) >= a_c (-log(1 - t) - B).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import hamming
from .ranked_tables import (
    LEAST_PROBABILITY,
    LOGARITHM_GRID,
    PROBABILITY_GRID,
    ClassTerm,
    Doubles,
    Points,
    RankedQueries,
)
from .tables import Rows

_MARGIN = 1e-9  # far above the rounding errors of a score
_EVENNESS = 0.75  # shares are (p_c - t)^_EVENNESS: balls of similar volume
_SMALLEST_FACTOR = 1e-300


class Balls(NamedTuple):
    """A union of balls in Hamming space.

    Attributes:
        anchors: Their centers, (balls, words).
        radii: int64 (balls,).
    """

    anchors: Rows
    radii: NDArray[np.int64]


class Steps(NamedTuple):
    """Bounds from the most probable classes; see `ClassBounds.steps`.

    Attributes:
        counts: Numbers of classes.
        order: All classes, the most probable first.
        values: Their probabilities (C,), or their factors (C, bits + 1).
        following: Probability of the next class, for each count.
        rest: Bound of what the other classes add, for each count.
    """

    counts: Sequence[int]
    order: NDArray[np.intp]
    values: Doubles
    following: Sequence[float]
    rest: Sequence[float]


def signs_of(term: ClassTerm) -> Doubles:
    """The codewords as -1 and +1, (C, bits)."""
    bits = np.unpackbits(term.codewords.view(np.uint8), axis=1, count=term.bits)
    return np.asarray(bits * 2.0 - 1.0)


class ClassBounds:
    """Bounds of the class points of one query."""

    def __init__(self, term: ClassTerm, row: int, signs: Doubles | None = None) -> None:
        """Prepare the bounds.

        Args:
            term: The class term.
            row: Number of the query.
            signs: `signs_of` the term, where they are known.
        """
        self.term, self.row = term, row
        self.signs = signs_of(term) if signs is None else signs
        if term.factors is None:
            self.p: Doubles = term.probabilities[row]  # type: ignore[index]
            self.top = int(self.p.argmax())
            # exp(-2 b d): b from the table, so that it is the same number
            self.b = -np.log(term.powers[1]) / 2  # type: ignore[index]
        else:
            self.gains = -np.log(np.maximum(term.factors[row], _SMALLEST_FACTOR))
            self.top = int(self.gains.max(axis=1).argmax())

    def caps(self) -> Points:
        """An upper bound of the class points by the distance to the codeword `top`.

        Returns:
            int64 (bits + 1,).
        """
        p = self._single_caps() if self.term.factors is None else self._multi_caps()
        p = np.minimum(p * (1 + _MARGIN) + LEAST_PROBABILITY, 1 + _MARGIN)
        if self.term.logarithm:
            return np.asarray(np.ceil(np.log(p) * LOGARITHM_GRID) + 2, np.int64)
        return np.asarray(np.ceil(p * PROBABILITY_GRID) + 2, np.int64)

    def balls(self, least: int) -> Balls | None:
        """Balls that contain every item with at least this many class points.

        Args:
            least: Class points.

        Returns:
            The balls; None if nothing is excluded.
        """
        if self.term.logarithm:
            t = np.exp(min((least - 2) / LOGARITHM_GRID, 1.0)) * (1 - _MARGIN)
            t = 0.0 if t <= LEAST_PROBABILITY else t
        else:
            t = (least - 2) / PROBABILITY_GRID * (1 - _MARGIN)
        if t <= 0:
            return None
        radii = self._single_radii(t) if self.term.factors is None else self._multi_radii(t)
        if radii is None:
            return None
        kept = radii >= 0
        return Balls(np.ascontiguousarray(self.term.codewords[kept]), radii[kept])

    def steps(self, counts: Sequence[int]) -> Steps:
        """Bounds from the most probable classes, for several numbers of them.

        With N and E the sums of p_c e_c and e_c over these classes, p the largest probability of
        the others, and R a lower bound of the sum of their e_c, P >= t needs
        N - t E >= (t - p) R if t > p. Several labels: the product of the factors of these classes
        must be at most 1 - t over the smallest product of the others.

        Args:
            counts: Numbers of classes, ascending; those that are not below C are dropped.

        Returns:
            The bounds.
        """
        counts = [count for count in counts if count < len(self.signs)]
        if self.term.factors is None:
            order = np.argsort(-self.p, kind="stable")
            following = [float(self.p[order[count]]) for count in counts]
            sums = np.cumsum(self.signs[order[::-1]], axis=0)[::-1]  # from each class to the last
            rest = [self._least_sum(sums[count], len(order) - count) for count in counts]
            return Steps(counts, order, self.p[order], following, rest)
        most = self.gains.max(axis=1)
        order = np.argsort(-most, kind="stable")
        rest = [float(np.exp(-most[order[count:]].sum()) * (1 - _MARGIN)) for count in counts]
        values = self.term.factors[self.row][order]
        return Steps(counts, order, values, [0.0] * len(counts), rest)

    def _least_sum(self, signs: Doubles, count: int) -> float:
        """A lower bound of the sum of e_c over `count` classes, from the sum of their codewords."""
        exponent = self.b * (-np.abs(signs).sum() / count - self.term.bits)
        return float(count * np.exp(exponent) * (1 - _MARGIN))

    def _single_caps(self) -> Doubles:
        """P <= p_2 + (p_1 - p_2) e_1 / sum_c e_c."""
        distances = np.arange(self.term.bits + 1)
        others = len(self.p) - 1
        if not others:
            return np.full(len(distances), self.p[0])
        second = np.partition(self.p, -2)[-2]
        mean = (self.signs.sum(axis=0) - self.signs[self.top]) / others
        rest = np.log(others) + self._least(mean, slice(self.top, self.top + 1))[0]
        share = 1 / (1 + np.exp(rest + 2 * self.b * distances))
        return np.asarray(second + (self.p[self.top] - second) * share)

    def _least(self, m: Doubles, chosen: NDArray[np.intp] | slice) -> Doubles:
        """Lower bounds of b (<s, m> - K) by codeword and distance, (classes, bits + 1)."""
        agreement = self.signs[chosen] * m
        lost = np.zeros((len(agreement), agreement.shape[1] + 1))
        np.cumsum(np.sort(agreement, axis=1)[:, ::-1], axis=1, out=lost[:, 1:])
        return np.asarray(
            self.b * (agreement.sum(axis=1, keepdims=True) - 2 * lost - self.term.bits)
        )

    def _single_radii(self, t: float) -> NDArray[np.int64] | None:
        high = np.flatnonzero(self.p > t)
        radii = np.full(len(self.p), -1, np.int64)
        u = np.maximum(t - self.p, 0)
        if u.sum() <= 0:
            return None if len(high) else radii
        if not len(high):
            return radii
        shares = (self.p[high] - t) ** _EVENNESS
        least = np.log(u.sum()) + self._least(u @ self.signs / u.sum(), high)
        gain = np.log(self.p[high] - t) - np.log(shares / shares.sum())
        reached = gain[:, None] - 2 * self.b * np.arange(self.term.bits + 1) + _MARGIN >= least
        radii[high] = _last(reached)
        return radii

    def _multi_caps(self) -> Doubles:
        bits = self.term.bits
        words = self.term.codewords.view(np.uint8)
        apart = hamming(words, words[self.top : self.top + 1])
        r = np.arange(bits + 1)
        near = np.abs(apart - r)  # by the triangle inequality, distances are from here ...
        far = np.minimum(apart + r, 2 * bits - apart - r)  # ... to here, and gains are monotone
        most = np.maximum(*(np.take_along_axis(self.gains, d, 1) for d in (near, far)))
        most[self.top] = self.gains[self.top]
        return np.asarray(-np.expm1(-most.sum(axis=0)))

    def _multi_radii(self, t: float) -> NDArray[np.int64] | None:
        radii = np.full(len(self.gains), -1, np.int64)
        needed = -np.log1p(-min(t, 1 - 1e-15)) * (1 - _MARGIN) - _MARGIN
        most = self.gains.max(axis=1)
        if most.sum() < needed:
            return radii
        order = np.argsort(-most, kind="stable")
        rest = most.sum() - np.cumsum(most[order])  # what later classes contribute at most
        count = int(np.argmax(rest <= needed / 2)) + 1
        if needed - rest[count - 1] <= 0:
            return None
        high = order[:count]
        shares = most[high] / most[high].sum()
        reached = self.gains[high] >= (shares * (needed - rest[count - 1]))[:, None]
        radii[high] = _last(reached)
        return radii


def linear_radius(weights: Points, slack: int) -> int:
    """The largest number of differing bits that lose at most `slack` points; -1 if slack < 0."""
    lost = np.concatenate([[0], np.cumsum(np.sort(weights))])
    return int(np.searchsorted(lost, slack, side="right")) - 1


def balls_of(
    queries: RankedQueries, row: int, least: int, bounds: ClassBounds | None
) -> Balls | None:
    """Balls in the class bits that contain every item with at least this many points.

    Args:
        queries: The queries.
        row: Number of the query.
        least: Points.
        bounds: Its class bounds, where the queries have a class term.

    Returns:
        The balls; None if nothing is excluded.
    """
    slack = int(queries.start[row]) - least
    if bounds is not None:
        return bounds.balls(-slack)
    if queries.linear is None:
        return None
    radius = linear_radius(queries.linear.weights[row], slack)
    kept = slice(row, row + (radius >= 0))
    return Balls(queries.codes[kept], np.full(int(radius >= 0), radius, np.int64))


def _last(reached: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The last column that is set, -1 if there is none."""
    last = reached.shape[1] - 1 - np.argmax(reached[:, ::-1], axis=1)
    return np.where(reached.any(axis=1), last, -1).astype(np.int64)
