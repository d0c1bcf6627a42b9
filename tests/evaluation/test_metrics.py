"""The closed forms agree with the slow definitions."""

from __future__ import annotations

import doctest
import math
from fractions import Fraction

import numpy as np
import pytest

from hadahash.evaluation import metrics, reference

DENOMINATORS = ["found", "possible"]


def tables(distances, relevant, bits):
    """total and relevant, (1, bits + 1) each."""
    distances, relevant = np.asarray(distances), np.asarray(relevant, bool)
    return tuple(np.bincount(d, minlength=bits + 1)[None] for d in (distances, distances[relevant]))


def closed_form(distances, relevant, **options):
    value = metrics.average_precision(*tables(distances, relevant, max(distances)), **options)[0]
    return None if math.isnan(value) else value


def random_case(rng, most_items, most_distances):
    n = int(rng.integers(1, most_items + 1))
    distances = rng.integers(0, rng.integers(1, most_distances + 1), n).tolist()
    share = rng.choice([0.0, 0.05, 0.3, 0.8, 1.0], p=[0.05, 0.25, 0.4, 0.2, 0.1])
    return distances, (rng.random(n) < share).tolist()


def same(a, b, tolerance=1e-12):
    return a is b is None or (a is not None and b is not None and abs(a - b) <= tolerance)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_tiny_cases_equal_the_exact_mean_over_all_orders(denominator):
    rng = np.random.default_rng(1)
    for _ in range(150):
        distances, relevant = random_case(rng, 6, 3)
        for depth in (None, *range(1, len(distances) + 2)):
            options = {"depth": depth, "denominator": denominator}
            exact = reference.expected_by_orders(distances, relevant, **options)
            assert same(exact, reference.expected_by_ranks(distances, relevant, **options), 1e-14)
            assert same(exact, closed_form(distances, relevant, **options), 1e-14)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_random_cases_equal_the_sum_over_ranks(denominator):
    rng = np.random.default_rng(2)
    for _ in range(300):
        distances, relevant = random_case(rng, 400, 20)
        depth = rng.choice([None, 1, int(rng.integers(1, 500)), 1000])
        options = {"depth": depth, "denominator": denominator}
        slow = reference.expected_by_ranks(distances, relevant, **options)
        assert same(slow, closed_form(distances, relevant, **options)), (
            distances,
            relevant,
            options,
        )


@pytest.mark.parametrize(
    "n, relevant", [(1_000_000, 10_000), (1_000_000, 1), (300_000, 299_999), (200_000, 200_000)]
)
def test_large_counts_keep_twelve_digits(n, relevant):
    rng = np.random.default_rng(n + relevant)
    share = rng.dirichlet(np.full(65, 0.3))
    total = rng.multinomial(n, share)
    hits = rng.multivariate_hypergeometric(total, relevant, method="marginals")
    terms, before, hits_before = [], 0, 0
    for size, r in zip(total.tolist(), hits.tolist(), strict=True):
        terms.extend(reference._tie_terms(size, r, size, before, hits_before))
        before, hits_before = before + size, hits_before + r
    value = metrics.average_precision(total[None], hits[None])[0]
    assert abs(value - math.fsum(terms) / relevant) < 1e-12


@pytest.mark.parametrize(
    "n, r, m", [(4000, 500, 2000), (3000, 2999, 10), (1000, 30, 999), (2000, 1, 1000)]
)
def test_a_large_cut_tie_equals_the_exact_sum(n, r, m):
    total, relevant = np.array([[50, n, 7]]), np.array([[20, r, 7]])
    distances = [0] * 50 + [1] * n + [2] * 7
    hits = [i < 20 for i in range(50)] + [i < r for i in range(n)] + [True] * 7
    value = metrics.average_precision(total, relevant, depth=50 + m)[0]
    assert abs(value - reference.expected_by_ranks(distances, hits, depth=50 + m)) < 1e-12


@pytest.mark.parametrize(
    "n, r, m", [(10**6, 2000, 1000), (10**6, 300, 10), (5000, 2500, 2500), (10**5, 99_990, 500)]
)
def test_hypergeometric_leaves_out_only_negligible_values(n, r, m):
    x, probability = metrics._hypergeometric(n, r, m)
    assert x[0] == max(0, m + r - n) or probability[0] < 1e-16
    assert x[-1] == min(m, r) or probability[-1] < 1e-16
    assert len(x) < 1000


def test_hypergeometric_mean_and_variance_of_a_million():
    n, r, m = 1_000_000, 120_000, 400_000
    x, probability = metrics._hypergeometric(n, r, m)
    mean, variance = m * r / n, m * r / n * (1 - r / n) * (n - m) / (n - 1)
    assert probability @ x == pytest.approx(mean, rel=1e-13)
    assert probability @ (x - mean) ** 2 == pytest.approx(variance, rel=1e-11)
    assert len(x) < 10_000


def test_hypergeometric_equals_binomial_coefficients():
    rng = np.random.default_rng(3)
    for _ in range(100):
        n = int(rng.integers(2, 200))
        r, m = int(rng.integers(0, n + 1)), int(rng.integers(1, n))
        x, probability = metrics._hypergeometric(n, r, m)
        for value, p in zip(x.tolist(), probability.tolist(), strict=True):
            assert (
                abs(p - math.comb(r, value) * math.comb(n - r, m - value) / math.comb(n, m)) < 1e-14
            )


@pytest.mark.parametrize("depth", [None, 25])
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_expectation_equals_the_mean_of_random_orders(depth, denominator):
    rng = np.random.default_rng(4)
    distances = np.sort(rng.integers(0, 4, 60))
    relevant = rng.random(60) < 0.3
    orders = np.array([np.lexsort((rng.random(60), distances)) for _ in range(20_000)])
    top = relevant[orders][:, :depth]
    precisions = np.cumsum(top, axis=1) / np.arange(1, top.shape[1] + 1)
    parts = top.sum(axis=1) if denominator == "found" else min(top.shape[1], relevant.sum())
    values = (precisions * top).sum(axis=1) / np.maximum(parts, 1)
    error = values.std(ddof=1) / math.sqrt(len(values))
    assert (
        abs(closed_form(distances, relevant, depth=depth, denominator=denominator) - values.mean())
        < 3 * error
    )


@pytest.mark.parametrize(
    "distances, relevant, options, expected",
    [
        ([0, 1, 2], [1, 0, 1], {}, Fraction(5, 6)),  # (1/1 + 2/3) / 2: no ties
        ([0, 1, 1], [0, 1, 0], {}, Fraction(5, 12)),  # second or third: (1/2 + 1/3) / 2
        ([4, 4, 4], [1, 0, 0], {}, Fraction(11, 18)),  # any place: (1 + 1/2 + 1/3) / 3
        ([3, 3], [1, 1], {}, Fraction(1)),  # all relevant
        (
            [0, 1, 1],
            [0, 1, 0],
            {"depth": 2},
            Fraction(1, 4),
        ),  # found with probability 1/2, then 1/2
        ([0, 0, 1], [1, 0, 1], {"depth": 1}, Fraction(1, 2)),  # found with probability 1/2, then 1
        (
            [0, 1, 2, 3],
            [1, 0, 1, 1],
            {"depth": 2, "denominator": "possible"},
            Fraction(1, 2),
        ),  # 1/1 of 2 possible
        ([0, 1, 2], [0, 0, 1], {"depth": 2}, None),  # nothing can be found
        ([0, 1, 2], [0, 0, 1], {"depth": 2, "denominator": "possible"}, Fraction(0)),
        ([0], [0], {}, None),
    ],
)
def test_cases_computed_by_hand(distances, relevant, options, expected):
    relevant = [bool(x) for x in relevant]
    assert reference.expected_by_orders(distances, relevant, **options) == expected
    assert same(expected, closed_form(distances, relevant, **options), 1e-15)


def test_harmonic_difference_has_full_relative_precision():
    rng = np.random.default_rng(6)
    starts = np.concatenate([np.arange(70), rng.integers(0, 10**6, 50)])
    counts = np.concatenate([np.arange(70)[::-1], rng.integers(0, 2000, 50)])
    for value, start, count in zip(
        metrics.harmonic_difference(starts, counts), starts, counts, strict=True
    ):
        exact = math.fsum(1 / i for i in range(start + 1, start + count + 1))
        assert value == pytest.approx(exact, rel=1e-14, abs=1e-16)
    assert metrics.harmonic_difference(np.array([10**9]), np.array([1]))[0] == pytest.approx(
        1 / (10**9 + 1), rel=1e-15
    )


def test_precision_at_is_the_expectation_over_orders():
    distances, relevant = [0, 1, 1, 1, 2], [True, False, True, False, True]
    for k in range(1, 8):
        orders = list(reference._orders(distances, relevant))
        exact = Fraction(sum(sum(order[:k]) for order in orders), len(orders) * min(k, 5))
        assert metrics.precision_at(*tables(distances, relevant, 2), k) == pytest.approx(
            float(exact), abs=1e-15
        )


def test_precision_recall_equals_a_plain_loop():
    rng = np.random.default_rng(7)
    total = rng.integers(0, 4, (30, 9))
    relevant = rng.integers(0, total + 1)
    total[0], relevant[1], total[2, :3], relevant[2, :3] = 1, 0, 0, 0
    relevant[0] = 0
    curve = metrics.precision_recall(total, relevant)
    for radius in range(9):
        items, hits, relevant_total = (
            total[:, : radius + 1].sum(axis=1),
            relevant[:, : radius + 1].sum(axis=1),
            relevant.sum(axis=1),
        )
        precision = [h / i if i else 0 for h, i in zip(hits, items, strict=True)]
        recall = [h / w for h, w in zip(hits, relevant_total, strict=True) if w]
        assert curve.precision[radius] == pytest.approx(np.mean(precision), abs=1e-14)
        assert curve.recall[radius] == pytest.approx(np.mean(recall), abs=1e-14)
        assert curve.micro_precision[radius] == hits.sum() / items.sum()
        assert curve.micro_recall[radius] == hits.sum() / relevant_total.sum()
    for recall in (curve.recall, curve.micro_recall):
        assert (np.diff(recall) >= 0).all() and recall[-1] == 1
    assert curve.radius.tolist() == list(range(9))


def test_precision_and_recall_are_zero_without_relevant_items():
    curve = metrics.precision_recall(np.array([[0, 2]]), np.array([[0, 0]]))
    assert (
        curve.precision.tolist() == curve.recall.tolist() == curve.micro_recall.tolist() == [0, 0]
    )


@pytest.mark.parametrize("module", [metrics, reference])
def test_docstring_examples(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted > 2 and outcome.failed == 0


def test_a_depth_beyond_the_ranking_is_the_whole_ranking():
    total, relevant = np.array([[2, 3, 1]]), np.array([[1, 2, 0]])
    for denominator in ("found", "possible"):
        whole = metrics.average_precision(total, relevant, denominator=denominator)
        for depth in (6, 7, 10**30):
            found = metrics.average_precision(total, relevant, depth=depth, denominator=denominator)
            assert found.tolist() == whole.tolist()
