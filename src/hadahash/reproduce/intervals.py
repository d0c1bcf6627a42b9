"""Paired comparisons: t intervals over seeds, Holm's correction, and verdicts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

EQUAL = 0.005  # two methods are equal if the interval of their difference lies within +-EQUAL
LEVEL = 0.95

Verdict = Literal["holds", "tends to hold", "fails", "tends to fail", "equal", "undecided"]
Values = Mapping[tuple[int, int], float]  # (bits, seed): value


@dataclass(frozen=True)
class Interval:
    """The mean of paired differences with its confidence interval.

    Attributes:
        mean: Mean difference.
        low: Lower end of the interval; -inf for a single difference.
        high: Upper end.
        count: Number of differences (seeds).
        p_value: Two-sided p-value of the hypothesis that the mean is 0; 1 for a single difference.
    """

    mean: float
    low: float
    high: float
    count: int
    p_value: float

    def __str__(self) -> str:
        if self.count < 2:
            return f"{signed(self.mean)} (n = {self.count})"
        return f"{signed(self.mean)} [{signed(self.low)}, {signed(self.high)}] (n = {self.count})"


def t_interval(differences: Sequence[float]) -> Interval:
    """Compute the t interval of a mean.

    Args:
        differences: One difference per seed, at least one.

    Returns:
        The 95 % interval.

    Example:
        >>> str(t_interval([0.01, 0.02, 0.03]))
        '+.020 [-.005, +.045] (n = 3)'
        >>> t_interval([0.01]).p_value
        1.0
    """
    from scipy import stats

    mean, count = statistics.mean(differences), len(differences)
    if count < 2:
        return Interval(mean, -math.inf, math.inf, count, 1.0)
    error = statistics.stdev(differences) / math.sqrt(count)
    if error == 0:
        return Interval(mean, mean, mean, count, 0.0 if mean else 1.0)
    reach = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * error
    p_value = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    return Interval(mean, mean - reach, mean + reach, count, p_value)


def paired_differences(left: Values, right: Values) -> list[float]:
    """Difference of two methods for each seed, averaged over the code lengths.

    Args:
        left: Values of one method by (bits, seed).
        right: Values of the other.

    Returns:
        One difference for each seed at which both have the same lengths; empty if there is none.

    Example:
        >>> paired_differences({(16, 0): 0.5, (64, 0): 0.7}, {(16, 0): 0.4, (64, 0): 0.7})
        [0.04999999999999999]
    """
    lengths = {bits for bits, _ in left} & {bits for bits, _ in right}
    keys = {
        seed: [(bits, seed) for bits in sorted(lengths)]
        for seed in sorted({seed for _, seed in left} & {seed for _, seed in right})
    }
    return [
        statistics.mean(left[key] - right[key] for key in own)
        for own in keys.values()
        if own and all(key in left and key in right for key in own)
    ]


def holm(p_values: Sequence[float], level: float = 1 - LEVEL) -> list[bool]:
    """Holm's step-down correction for several tests.

    Args:
        p_values: One p-value per test.
        level: Probability of one or more false rejections.

    Returns:
        Whether each hypothesis is rejected.

    Example:
        >>> holm([0.04, 0.001, 0.03])
        [False, True, False]
    """
    rejected = [False] * len(p_values)
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(order):
        if p_values[place] > level / (len(p_values) - rank):
            break
        rejected[place] = True
    return rejected


def judge(interval: Interval, rejected: bool) -> Verdict:
    """Turn an interval into a verdict.

    Args:
        interval: The difference in favor of the claim.
        rejected: Whether the hypothesis of no difference is rejected, after correction.

    Returns:
        "equal" if the interval lies within +-EQUAL; "holds" or "fails" if the difference is
        significant; "tends to hold" or "tends to fail" if only its own interval excludes 0;
        otherwise "undecided".

    Example:
        >>> judge(Interval(0.001, -0.002, 0.004, 5, 0.4), False)
        'equal'
    """
    if interval.count > 1 and interval.low >= -EQUAL and interval.high <= EQUAL:
        return "equal"
    if rejected:
        return "holds" if interval.mean > 0 else "fails"
    if interval.low > 0:
        return "tends to hold"
    return "tends to fail" if interval.high < 0 else "undecided"


def signed(value: float) -> str:
    """Format a difference with three digits.

    Example:
        >>> signed(-0.0123), signed(0.5), signed(-0.0001)
        ('-.012', '+.500', '+.000')
    """
    return f"{round(value, 3) + 0.0:+.3f}".replace("0.", ".", 1)


def short(value: float) -> str:
    """Format a fraction with three digits.

    Example:
        >>> short(0.8125), short(-0.01)
        ('.812', '-.010')
    """
    return f"{value:.3f}".replace("0.", ".", 1)
