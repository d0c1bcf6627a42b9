"""Retrieval metrics as pure functions of counts per distance.

A ranking by Hamming distance has many ties, and their order is arbitrary; yet that order moves mean
average precision by 6 to 20 points at 16 to 32 bits. Every metric here is therefore the exact
expectation over all orders of the ties. It follows from two tables; no ranking is ever sorted:

    total     # int64 (q, K + 1): number of items at each distance 0..K from each query
    relevant  # int64 (q, K + 1): number of relevant ones among them

Take a tie of n items, r of them relevant, that follows N items with R relevant ones. Its position i
is relevant with probability r/n, and then the positions before it in the tie hold
(i-1)(r-1)/(n-1) relevant items on average. The first m positions add

    sum_{i=1..m} (r/n) (R + 1 + (i-1) s) / (N + i)
        =  (r/n) (m s + (R + 1 - (N+1) s) (H(N+m) - H(N)))

to the sum of precisions, with s = (r-1)/(n-1) and H(x) = 1 + 1/2 + ... + 1/x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.int64]
Reals = NDArray[np.float64]
Denominator = Literal["found", "possible"]

_SMALL = 32  # from here on the series of H is exact to the last bit
_HARMONIC = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, _SMALL + 1))])
# H(x) = ln(y) + Euler's constant + sum c_j / y^(2j), y = x + 1/2
_SERIES = (1 / 24, -7 / 960, 31 / 8064, -127 / 30720)


def average_precision(
    total: Counts, relevant: Counts, *, depth: int | None = None, denominator: Denominator = "found"
) -> Reals:
    """Expected average precision of each query.

    The sum of the precisions at the relevant items among the first `depth` is divided by the number
    of relevant items: those found among the first `depth`, as most implementations do, or those
    that could be found there. Where `depth` cuts a tie, the number found is random, and the
    expectation is that of the whole ratio.

    Args:
        total: int64 (q, K + 1), number of items at each distance.
        relevant: int64 (q, K + 1), number of relevant items at each distance.
        depth: Rank cut-off; None: the whole ranking.
        denominator: "found", or "possible": min(depth, all relevant items).

    Returns:
        float (q,); NaN for a query whose denominator is always 0.

    Example:
        Three items at distances 0, 1, 1; the relevant one is the first of the tie or the second:
        (1/2 + 1/3) / 2.

        >>> average_precision(np.array([[1, 2]]), np.array([[0, 1]])).round(4).tolist()
        [0.4167]
        >>> average_precision(np.array([[1, 2]]), np.array([[0, 1]]), depth=2).tolist()
        [0.25]
    """
    longest = int(total.sum(axis=1).max())
    depth = longest if depth is None else min(depth, longest)
    before, hits_before = _before(total), _before(relevant)
    taken = np.clip(depth - before, 0, total)
    sums = _tie_sum(total, relevant, before, hits_before, taken)
    if denominator == "possible":
        return _ratio(sums.sum(axis=1), np.minimum(relevant.sum(axis=1), depth))
    whole = taken == total
    result = _ratio(np.where(whole, sums, 0).sum(axis=1), np.where(whole, relevant, 0).sum(axis=1))
    for row, column in np.argwhere(~whole & (taken > 0)):
        known = float(sums[row, :column].sum())
        tie = (int(table[row, column]) for table in (total, relevant, taken, before, hits_before))
        result[row] = _cut_tie(known, *tie)
    return result


def expected_hits(total: Counts, relevant: Counts, k: int) -> Reals:
    """Expected number of relevant items among the first `k`.

    Args:
        total: int64 (q, K + 1), number of items at each distance.
        relevant: int64 (q, K + 1), number of relevant items at each distance.
        k: Rank cut-off.

    Returns:
        float (q,).

    Example:
        >>> expected_hits(np.array([[1, 4]]), np.array([[1, 1]]), 3).tolist()
        [1.5]
    """
    taken = np.clip(k - _before(total), 0, total)
    return np.asarray((taken * (relevant / np.maximum(total, 1))).sum(axis=1))


def hits_at(total: Counts, relevant: Counts, cuts: ArrayLike) -> Reals:
    """Expected number of relevant items among the first k, for several k.

    Inside a tie the expectation grows linearly.

    Args:
        total: int64 (q, ties), number of items in each tie, best first.
        relevant: int64 (q, ties), number of relevant items in each tie.
        cuts: (m,) values of k.

    Returns:
        float (q, m).

    Example:
        >>> hits_at(np.array([[1, 4]]), np.array([[1, 1]]), [1, 3, 5]).tolist()
        [[1.0, 1.5, 2.0]]
    """
    wanted = np.asarray(cuts, np.float64)
    ends, hits = (np.cumsum(np.pad(own, ((0, 0), (1, 0))), axis=1) for own in (total, relevant))
    rows = [np.interp(wanted, end, hit) for end, hit in zip(ends, hits, strict=True)]
    return np.asarray(rows).reshape(len(total), len(wanted))


def shorten(total: Counts, relevant: Counts, depth: int) -> tuple[Counts, Counts]:
    """Join all ties that begin after `depth` to one, which changes no measure up to that depth.

    Args:
        total: int64 (q, ties), number of items in each tie, best first.
        relevant: int64 (q, ties), number of relevant items in each tie.
        depth: Rank cut-off.

    Returns:
        The shorter tables.

    Example:
        >>> shorten(np.array([[1, 2, 3, 4]]), np.array([[1, 0, 0, 1]]), 2)
        (array([[1, 2, 7]]), array([[1, 0, 1]]))
    """
    width = int((_before(total) < depth).sum(axis=1).max())
    if width >= total.shape[1] - 1:
        return total, relevant
    joined = (
        np.append(own[:, :width], own[:, width:].sum(axis=1, keepdims=True), axis=1)
        for own in (total, relevant)
    )
    return next(joined), next(joined)


def precision_at(total: Counts, relevant: Counts, k: int) -> float:
    """Mean expected precision among the first `k` items, or among all if there are fewer.

    Args:
        total: int64 (q, K + 1), number of items at each distance.
        relevant: int64 (q, K + 1), number of relevant items at each distance.
        k: Rank cut-off.

    Returns:
        The mean over queries.
    """
    size = np.minimum(total.sum(axis=1), k)
    return float(np.mean(expected_hits(total, relevant, k) / size))


def precision_within(total: Counts, relevant: Counts, radius: int) -> float:
    """Mean precision of the items within a Hamming radius; an empty ball counts as 0.

    Args:
        total: int64 (q, K + 1), number of items at each distance.
        relevant: int64 (q, K + 1), number of relevant items at each distance.
        radius: Largest distance of an item in the ball.

    Returns:
        The mean over queries.

    Example:
        >>> precision_within(np.array([[1, 3], [0, 2]]), np.array([[1, 0], [0, 2]]), 0)
        0.5
    """
    items, hits = (table[:, : radius + 1].sum(axis=1) for table in (total, relevant))
    return float(np.mean(hits / np.maximum(items, 1)))


def nonempty_within(total: Counts, radius: int) -> float:
    """Fraction of queries with at least one item within a Hamming radius.

    Args:
        total: int64 (q, K + 1), number of items at each distance.
        radius: Largest distance of an item in the ball.

    Returns:
        A fraction in [0, 1].

    Example:
        >>> nonempty_within(np.array([[1, 3], [0, 2]]), 0)
        0.5
    """
    return float(np.mean(total[:, : radius + 1].any(axis=1)))


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Precision and recall of all items within each Hamming radius, or of the first results.

    An empty ball has precision 0. Macro values are means over queries (recall: over queries that
    have a relevant item); micro values are pooled over queries.

    Attributes:
        radius: int64 (K + 1,), 0..K; or the number of first results.
        precision: float (K + 1,), macro.
        recall: float (K + 1,), macro.
        micro_precision: float (K + 1,).
        micro_recall: float (K + 1,).
        by: "radius", or "results" for a ranking by score.
    """

    radius: NDArray[np.int64]
    precision: Reals
    recall: Reals
    micro_precision: Reals
    micro_recall: Reals
    by: str = "radius"


def precision_recall(total: Counts, relevant: Counts) -> PrecisionRecall:
    """Precision and recall at each Hamming radius.

    Args:
        total: int64 (q, K + 1), number of items at each distance.
        relevant: int64 (q, K + 1), number of relevant items at each distance.

    Returns:
        The curves.

    Example:
        >>> curve = precision_recall(np.array([[1, 1], [0, 2]]), np.array([[1, 0], [0, 2]]))
        >>> curve.precision.tolist(), curve.recall.tolist()
        ([0.5, 0.75], [0.5, 1.0])
        >>> curve.micro_precision.tolist(), curve.micro_recall.round(2).tolist()
        ([1.0, 0.75], [0.33, 1.0])
    """
    items, hits = np.cumsum(total, axis=1), np.cumsum(relevant, axis=1)
    relevant_total = hits[:, -1:]
    searched = hits[relevant_total[:, 0] > 0]
    return PrecisionRecall(
        radius=np.arange(total.shape[1]),
        precision=(hits / np.maximum(items, 1)).mean(axis=0),
        recall=(searched / searched[:, -1:]).mean(axis=0)
        if len(searched)
        else np.zeros(total.shape[1]),
        micro_precision=hits.sum(axis=0) / np.maximum(items.sum(axis=0), 1),
        micro_recall=hits.sum(axis=0) / max(int(relevant_total.sum()), 1),
    )


def harmonic_difference(start: NDArray[np.int64], count: NDArray[np.int64]) -> Reals:
    """1/(start+1) + ... + 1/(start+count), to nearly the last bit for any size.

    The difference of two stored harmonic numbers would lose the digits that the closed form
    multiplies by `start`.

    Args:
        start: Number of leading terms left out.
        count: Number of terms.

    Returns:
        The sums.

    Example:
        >>> harmonic_difference(np.array([0, 1]), np.array([2, 2])).round(4).tolist()
        [1.5, 0.8333]
    """
    end = start + count
    near = _HARMONIC[np.minimum(end, _SMALL)] - _HARMONIC[np.minimum(start, _SMALL)]
    low, high = np.maximum(start, _SMALL) + 0.5, np.maximum(end, _SMALL) + 0.5
    far = np.log1p((high - low) / low)
    for power, factor in enumerate(_SERIES, start=1):
        far += factor * (high ** (-2 * power) - low ** (-2 * power))
    return np.asarray(near + far)


def tie_sum(n: Any, r: Any, before: Any, hits_before: Any, taken: Any, harmonic: Any) -> Any:
    """Expected sum of precisions at the relevant items among the first `taken` of each tie.

    The closed form of this module. It uses operators alone, so that arrays of numpy and tensors of
    torch, on any device, share it.

    Args:
        n: Sizes of the ties.
        r: Number of relevant items in each.
        before: Number of items that precede each tie.
        hits_before: Number of relevant items that precede each tie.
        taken: Number of positions of each tie that count.
        harmonic: H(before + taken) - H(before).

    Returns:
        One sum per tie; 0 for an empty tie.

    Example:
        >>> one, two, none = np.array(1.0), np.array(2.0), np.array(0.0)
        >>> float(tie_sum(two, one, none, none, two, np.array(1.5)))  # (1/1 + 1/2) / 2
        0.75
    """
    s = ((r > 0) * (r - 1)) / ((n > 1) * (n - 1) + (n <= 1))
    inner = taken * s + (hits_before + 1 - (before + 1) * s) * harmonic
    return r / (n + (n < 1)) * inner


def _tie_sum(n: Counts, r: Counts, before: Counts, hits_before: Counts, taken: Counts) -> Reals:
    harmonic = harmonic_difference(before, taken)
    return np.asarray(tie_sum(n, r, before, hits_before, taken, harmonic))


def _cut_tie(known: float, n: int, r: int, m: int, before: int, hits_before: int) -> float:
    """E[(known + sum over the first m of the tie) / (hits_before + x)], x relevant among the m.

    Given x, the relevant items are anywhere among the m: that is a whole tie of m items, x of them
    relevant.
    """
    x, probability = _hypergeometric(n, r, m)
    if x[-1] + hits_before == 0:
        return float("nan")
    size = np.full_like(x, m)
    earlier, hits_earlier = np.full_like(x, before), np.full_like(x, hits_before)
    sums = known + _tie_sum(size, x, earlier, hits_earlier, size)
    return float(probability @ (sums / np.maximum(hits_before + x, 1)))


def _hypergeometric(n: int, r: int, m: int) -> tuple[NDArray[np.int64], Reals]:
    """Number of relevant items among m drawn from n, r of them relevant: values, probabilities.

    Values further from the mean than Bernstein's inequality allows with probability e^-40 are left
    out. Neighboring probabilities have a simple ratio, so they are multiplied up from the mode and
    normalized: unlike with factorials, no digit is lost.
    """
    likely = (m + 1) * (r + 1) // (n + 2)
    half_width = 30 + int(9 * np.sqrt(m * r / n * (1 - r / n)))
    low, high = max(0, m + r - n, likely - half_width), min(m, r, likely + half_width)
    x = np.arange(low, high + 1)
    ratio = (r - x[:-1]) * ((m - x[:-1]) / (x[1:] * (n - r - m + x[1:])))  # p(x + 1) / p(x)
    peak = likely - low
    down = np.cumprod(1 / ratio[:peak][::-1])[::-1]
    weight = np.concatenate([down, [1.0], np.cumprod(ratio[peak:])])
    return x, weight / weight.sum()


def _before(counts: Counts) -> Counts:
    """Number of items in the columns before each column."""
    return np.asarray(np.cumsum(counts, axis=1) - counts)


def _ratio(numerator: Reals, denominator: Counts) -> Reals:
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1), np.nan)
