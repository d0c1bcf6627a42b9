"""Analyses behind the figures agree with slow definitions."""

from __future__ import annotations

import doctest
from itertools import chain, permutations, product
from math import log2

import numpy as np
import pytest

from hadahash.codes import Codes, pack
from hadahash.errors import UsageError
from hadahash.evaluation import analysis, labels

RNG = np.random.default_rng


def slow_confusion(query_bits, query_classes, database_bits, database_classes, classes, depth):
    """The definition: mean weight of the ranks of each class over every order of every tie."""
    rows = [[0.0] * classes for _ in range(classes)]
    for code, own in zip(query_bits, query_classes, strict=True):
        distances = [sum(a != b for a, b in zip(code, item, strict=True)) for item in database_bits]
        ties = [
            [i for i, d in enumerate(distances) if d == distance]
            for distance in sorted(set(distances))
        ]
        orders = [list(chain(*order)) for order in product(*(permutations(tie) for tie in ties))]
        for order in orders:
            for rank, item in enumerate(order[:depth], start=1):
                for found in database_classes[item]:
                    for label in own:
                        rows[label][found] += (
                            1 / log2(1 + rank) / len(database_classes[item]) / len(orders)
                        )
    return [[value / (sum(row) or 1) for value in row] for row in rows]


def members(classes, sets):
    return np.array([[int(c in own) for c in range(classes)] for own in sets])


@pytest.mark.parametrize("seed", range(12))
def test_confusion_equals_the_mean_over_all_orders_of_ties(seed):
    rng = RNG(seed)
    bits, classes, depth = int(rng.integers(1, 4)), 4, int(rng.integers(1, 8))
    several = bool(seed % 2)
    sides = []
    for count in (4, 6):
        codes = np.where(rng.random((count, bits)) < 0.5, 1, -1)
        sets = [
            sorted(rng.choice(3, rng.integers(1, 4) if several else 1, replace=False).tolist())
            for _ in range(count)
        ]
        labels = members(classes, sets) if several else np.array([own[0] for own in sets])
        sides.append((codes, sets, Codes(pack(codes), bits), labels))
    (q, q_sets, q_codes, q_labels), (d, d_sets, d_codes, d_labels) = sides
    expected = slow_confusion(q.tolist(), q_sets, d.tolist(), d_sets, classes, depth)
    found = analysis.confusion(q_codes, q_labels, d_codes, d_labels, classes=classes, depth=depth)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert not found[3].any(), "a class without queries"


def test_confusion_of_perfect_codes_is_the_identity_and_of_equal_codes_flat():
    labels = np.arange(60) % 3
    perfect = Codes(pack(np.eye(3)[labels] - 0.5), 3)
    np.testing.assert_allclose(
        analysis.confusion(perfect, labels, perfect, labels, classes=3, depth=20), np.eye(3)
    )
    same = Codes(pack(np.ones((60, 8))), 8)
    np.testing.assert_allclose(
        analysis.confusion(same, labels, same, labels, classes=3, depth=7), np.full((3, 3), 1 / 3)
    )


def test_histogram_covers_all_values():
    found = analysis.histogram(np.array([[-3.0, 0.85], [0.95, 0.0]], np.float16), bins=6)
    assert found.edges[0] == -3 and found.edges[-1] == 3 and found.shares.sum() == 1
    assert found.saturated == 0.5 and found.shares.tolist() == [0.25, 0, 0, 0.75, 0, 0]
    assert analysis.histogram([0.5, -0.5], bins=4).edges.tolist() == [-1, -0.5, 0, 0.5, 1]


def test_sample_highlights_the_largest_classes():
    numbers = np.repeat([5, 1, 3, -1], [40, 30, 20, 50])
    rows, shown = analysis.sample(numbers, points=40, classes=2)
    assert (
        shown.tolist() == [1, 5]
        and len(rows) == 40 == len(set(rows.tolist()))
        and (np.diff(rows) > 0).all()
    )
    assert (numbers[rows] == 3).sum() == 20 and (numbers[rows] >= 0).all()
    assert len(analysis.sample(numbers, points=1000).rows) == 90
    first, again, other = (
        analysis.sample(numbers, points=9, seed=seed).rows.tolist() for seed in (0, 0, 1)
    )
    assert first == again != other


def test_tsne_separates_classes_even_if_codes_are_equal():
    labels = np.arange(60) % 3
    words = np.where(RNG(0).random((3, 32)) < 0.5, 1, -1)
    codes = Codes(pack(words[labels]), 32)
    xy = analysis.tsne(codes)
    centers = np.stack([xy[labels == c].mean(axis=0) for c in range(3)])
    assert (np.linalg.norm(xy[:, None] - centers, axis=2).argmin(axis=1) == labels).all()
    assert len(np.unique(xy.round(3), axis=0)) == 60, "equal codes do not collapse to one point"
    assert np.isfinite(analysis.tsne(Codes(pack(np.ones((3, 8))), 8))).all()


def test_confusion_refuses_labels_that_are_not_numbers():
    codes = Codes(pack(np.ones((2, 8))), 8)
    with pytest.raises(UsageError, match="query labels must be integer class numbers, got 'a'"):
        analysis.confusion(codes, ["a", "b"], codes, ["a", "b"], classes=2)


@pytest.mark.parametrize("module", [analysis, labels])
def test_docstring_examples(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0 and outcome.failed == 0
